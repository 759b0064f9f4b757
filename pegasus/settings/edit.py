"""Changing one key of the settings file, with its comments and its layout kept: `pegasus config set` and `pegasus init`.

The change is made in the text by tomlkit, which keeps every comment and blank. Its result is not trusted blindly: the text is read
again by tomllib, and must hold what the old text held and the change, and nothing else. A file in a form that tomlkit cannot change
like that (a table in several places of the file) is left alone with an error, instead of being rearranged.

A value from the command line is text. The declaration of its key decides what it means, as for --set: text where the key wants text,
else a TOML value. Whether the key allows the value is decided where the whole file is checked (`load_settings` with `content`), so
that a change is judged by the very rules of the daemon's start.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from pegasus.settings.keys import Key, Section, SettingsError, SettingsProblem, is_bare, keys_of
from pegasus.settings.render import as_toml
from pegasus.settings.sections import Settings, SettingsSource
from pegasus.settings.sources import BY_INIT, file_layer, file_text, header_path, toml_value, without_replaced

MOST_SUGGESTED: Final = 3
"""Keys that are suggested in place of an unknown one."""


class EditError(Exception):
    """A change that cannot be made. str() is a sentence for people.

    Raised by the functions of this file; the text of the settings file is as it was. `pegasus config set` prints the sentence.

    Example: `parse_key("gateway.prot")` raises it with `Did you mean gateway.port?`.
    """


# ------------------------------------------------------------------ keys and values


def parse_key(text: str, program: str = "pegasus") -> tuple[str, ...]:
    """Return the path of a key as it is written in TOML. Raises EditError, which suggests keys.

    program: how the person calls Pegasus, for the hint.
    A name with dots is quoted: `prices."openai/gpt-4.1".input` is ("prices", "openai/gpt-4.1", "input").
    """
    path: list[str] = []
    try:
        # TOML itself takes the key apart, with its quotes. A line break or an equals sign would make more than one key of it.
        table: Any = tomllib.loads(f"{text} = 0") if "\n" not in text and "=" not in text else 0
        while isinstance(table, dict):
            ((name, table),) = table.items()
            path.append(name)
    except ValueError:
        path = []
    if not path:
        raise EditError(
            f'found "{text}"; allowed: section.key, where other names are quoted: prices."openai/gpt-4.1".input'
        )
    if find_key(path) is None:
        near = suggest_keys(text)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise EditError(f'there is no key "{text}".{hint} "{program} config keys" lists all of them.')
    return tuple(path)


def find_key(path: Sequence[str]) -> Key | Section | None:
    """Return the declaration of a key, section or value of a table; None if there is none of this path.

    >>> find_key(["gateway", "port"]).allowed
    'a whole number from 0 to 65535'
    """
    found: Key | Section = Section(Settings)
    names = list(path)
    while names:
        name = names.pop(0)
        if isinstance(found, Key):
            if found.each is None or names:
                return None
            return found.each
        inner = keys_of(found.cls).get(name)
        if inner is None:
            return None
        if isinstance(inner, Section) and inner.named and names:
            inner = Section(inner.class_of(names.pop(0)))
        found = inner
    return found


def suggest_keys(text: str) -> list[str]:
    """Return up to three known keys that are near to this one: by spelling, else those with the same last name.

    >>> suggest_keys("gateway.prot")
    ['gateway.port', 'gateway.host']
    """
    names = text.lower().split(".")
    known = [".".join(_with_own_names(pattern, names)) for pattern in _all_keys(Section(Settings))]
    # First by spelling of the whole path, then by the last name: people know the key and forget the section.
    near = get_close_matches(text.lower(), known, n=MOST_SUGGESTED, cutoff=0.8)
    return near or [key for key in known if key.rpartition(".")[2] == names[-1]][:MOST_SUGGESTED]


def _all_keys(section: Section) -> Iterator[tuple[str, ...]]:
    """Yield the path of every key, with NAME in place of names of the user's own."""
    for name, inner in keys_of(section.cls).items():
        if isinstance(inner, Key):
            yield (name,)
        else:
            for path in _all_keys(inner):
                yield (name, "NAME", *path) if inner.named else (name, *path)
            # Services have keys that other names of the section do not have.
            for known, cls in inner.known.items():
                for path in _all_keys(Section(cls)):
                    yield (name, known, *path)


def _with_own_names(pattern: tuple[str, ...], names: Sequence[str]) -> Iterator[str]:
    """Yield the names of a pattern, with those that the person wrote in place of NAME."""
    for index, name in enumerate(pattern):
        yield names[index] if name == "NAME" and len(names) > index + 1 else name


def parse_value(path: Sequence[str], text: str) -> Any:
    """Return a text from the command line as the value that its key wants: `true`, `7717`, `["a", "b"]`, or the text itself.

    A text with `${VARIABLE}` stays text for keys of every type. Whether the value is allowed is not checked here.

    >>> parse_value(["gateway", "port"], "7800"), parse_value(["gateway", "host"], "7800")
    (7800, '7800')
    """
    key = find_key(path)
    value = toml_value(text)
    if isinstance(key, Key) and key.type is str:
        return value if isinstance(value, str) else text
    return text if "${" in text and not isinstance(value, list | dict) else value


# ------------------------------------------------------------------ the text of the file


def settings_text(source: SettingsSource) -> str:
    """Return the text of the settings file, "" if there is none. Raises SettingsError if it cannot be read or is not TOML.

    Other mistakes do not matter: the change may be what mends them.
    """
    problems: list[SettingsProblem] = []
    content = "" if source.file is None else file_text(source.file, required=False, problems=problems) or ""
    if source.file is not None and not problems:
        file_layer(source.file, required=False, problems=problems, content=content)
    if problems:
        raise SettingsError(problems)
    return content


def set_key(content: str, path: Sequence[str], value: Any, *, by_init: bool = False) -> str:
    r"""Return the text of a settings file with this key set. Raises EditError for a file that cannot be changed like that.

    A section that is missing is added at the end. by_init: it gets a mark, and gives way to a section of the same name that a person
    pastes below it (`sources.without_replaced`). A whole section is replaced if the value is its table.

    >>> set_key('[log]\nlevel = "info"  # for now\n', ("log", "level"), "debug")
    '[log]\nlevel = "debug"  # for now\n'
    """
    if isinstance(find_key(path), Section) and isinstance(value, Mapping):
        content = unset_key(content, path)
        for name, inner in value.items():
            content = set_key(content, (*path, name), inner, by_init=by_init)
        return content
    # tomllib refuses a file with a section that is declared twice, so those that give way are emptied first.
    content = without_replaced(content)
    wanted = tomllib.loads(content)
    section: Any = wanted
    for name in path[:-1]:
        section = section.setdefault(name, {})
        if not isinstance(section, dict):
            raise EditError(f'"{name}" is no section in the file; change it by hand')
    is_new = path[-1] not in section
    section[path[-1]] = value
    # A new key is put in as a line of text. tomlkit changes the others, and also a new one in a file where a line would mean
    # something else, such as one with inline tables.
    if is_new and _holds(text := _with_line(content, path, value, by_init=by_init), wanted):
        return text
    # tomlkit comes last, since it has to be imported, and moves comments in some files.
    document = _parse(content)
    table: Any = document
    for name in path[:-1]:
        table = table.setdefault(name, {})
    table[path[-1]] = _as_item(value)
    return _checked(document.as_string(), wanted)


def _with_line(content: str, path: Sequence[str], value: Any, *, by_init: bool) -> str:
    """Return the text with a line for a key that is not in it: behind the last key of its section, or in a new section at the end.

    tomlkit would put it behind the comments above the next section, which belong to that one.
    """
    line = f"{_quoted(path[-1])} = {as_toml(value)}"
    lines = content.rstrip("\n").split("\n") if content.strip() else []
    head = next((n for n, text in enumerate(lines) if header_path(text) == tuple(path[:-1])), None)
    if head is None:
        # The mark is read again by `sources.without_replaced`.
        mark = f"  # {BY_INIT}" if by_init else ""
        return "\n".join([*lines, *[""] * bool(lines), f"[{'.'.join(map(_quoted, path[:-1]))}]{mark}", line, ""])
    last = head
    for number in range(head + 1, len(lines)):
        if header_path(lines[number]):
            break
        # Comments behind the last key belong to the next section, so the line goes before them.
        if lines[number].strip() and not lines[number].lstrip().startswith("#"):
            last = number
    return "\n".join([*lines[: last + 1], line, *lines[last + 1 :], ""])


def _quoted(name: str) -> str:
    """Return a name as it stands in the head of a table, in quotes where it needs them."""
    return name if is_bare(name) else as_toml(name)


def unset_key(content: str, path: Sequence[str]) -> str:
    r"""Return the text of a settings file without this key or section; the same text if it is not there. Raises EditError.

    >>> unset_key('[log]\nlevel = "info"\n', ("log", "level"))
    '[log]\n'
    """
    content = without_replaced(content)
    document, wanted = _parse(content), tomllib.loads(content)
    table: Any = document
    plain: Any = wanted
    for name in path[:-1]:
        if not isinstance(plain, dict) or name not in plain:
            return content
        table, plain = table[name], plain[name]
    if not isinstance(plain, dict) or path[-1] not in plain:
        return content
    del table[path[-1]], plain[path[-1]]
    return _checked(document.as_string(), wanted)


def _tomlkit() -> Any:
    """Return the library, which costs a start 20 ms and is needed for few changes only."""
    import tomlkit

    return tomlkit


def _parse(content: str) -> Any:
    """Return the text as tomlkit has it. The file has been read by tomllib before, so that mistakes are known."""
    tomlkit = _tomlkit()
    try:
        return tomlkit.parse(content)
    except tomlkit.exceptions.TOMLKitError as error:
        raise EditError(f"the file cannot be changed by a command ({error}); change it by hand") from None


def _as_item(value: Any) -> Any:
    """Return a value for tomlkit; tables become inline tables, so that they stay where they are set."""
    if isinstance(value, Mapping):
        inline = _tomlkit().inline_table()
        inline.update({key: _as_item(inner) for key, inner in value.items()})
        return inline
    return value


def _checked(text: str, wanted: Mapping[str, Any]) -> str:
    """Return the text if it holds exactly this. Raises EditError."""
    if not _holds(text, wanted):
        raise EditError("the file is laid out in a way that a command cannot change safely; change it by hand")
    return text


def _holds(text: str, wanted: Mapping[str, Any]) -> bool:
    """Return whether a text is TOML and holds exactly this, but for sections without keys."""
    try:
        return _without_empty(tomllib.loads(text)) == _without_empty(wanted)
    except (ValueError, RecursionError):
        return False


def _without_empty(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table without the tables in it that hold nothing."""
    inner = {name: _without_empty(value) if isinstance(value, dict) else value for name, value in table.items()}
    return {name: value for name, value in inner.items() if value != {}}
