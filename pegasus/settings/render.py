"""Settings as TOML for people: the commented file of `pegasus init`, and what `config show` prints.

Both are made from the declarations in `sections`, so that a new key appears in them by itself. The library that reads TOML
does not write it, and one that does would not write the comments, which are the point of both texts.

The file of `pegasus init` is all comments. A file with every default in force would freeze these defaults: a later version that
improves one would not reach anybody who has ever run `init`.

`config show` prints what is in force and names the source of each value that is not the default: the usual question is not
what a value is but why. Secrets are masked, so that its output can be put into a bug report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from pegasus.formatting import MASK
from pegasus.messages import Json
from pegasus.settings.channel_sections import CHANNEL_VARIABLES
from pegasus.settings.keys import Key, Section, is_bare, keys_of, walk
from pegasus.settings.load import leaves
from pegasus.settings.sections import SERVICE_TYPES, ProviderSettings, Settings
from pegasus.settings.sources import PROVIDER_VARIABLES
from pegasus.wire import encode_json

_HEAD: Final = """\
# Settings of Pegasus. All keys are listed with their defaults, as comments. To change one, remove the "# " before its
# line and before the [section] above it, or add your own lines at the end.
# Texts may hold ${VARIABLE}, ${VARIABLE:-default} and ${VARIABLE:?message}.
# PEGASUS__SECTION__KEY=value in the environment overrides a key of this file, --set section.key=value overrides both.
# "{program} config check" finds mistakes, "{program} config show" prints what is in effect.
"""
"""First lines of the commented file: all that a person must know to change something. {program} stands for the command."""


def as_toml(value: object) -> str:
    """Return a value as it stands in a TOML file, in one line.

    A JSON string is a TOML string: both escape in the same way, and keys hold no control character that JSON leaves alone.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return encode_json(value)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(as_toml(item) for item in value) + "]"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{as_toml(key)} = {as_toml(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    return str(value)


# ------------------------------------------------------------------ config show


def effective(settings: Settings) -> str:
    """Return all settings as TOML, secrets masked; the source of a value that is not the default follows it as a comment.

    The result can be read back, but for the secrets.

    Example: the lines of a port that a file has set are::

        [gateway]
        host = "127.0.0.1"
        port = 7800  # /home/ann/.pegasus/pegasus.toml
    """
    defaults = leaves(Settings())
    lines: list[str] = []
    head: tuple[str, ...] = ()
    for path, key, value in walk(settings):
        # Known services that nobody uses would be most of the output.
        if path[0] == "providers" and path[1] in SERVICE_TYPES and not _is_set(path[1], settings):
            continue
        if path[:-1] != head:
            head = path[:-1]
            names = (name if is_bare(name) else as_toml(name) for name in head)
            lines += ["", f"[{'.'.join(names)}]"]
        name = ".".join(path)
        # A value that was set to its default has a source, but nothing to explain.
        origin = settings.origins.get(name) if defaults.get(name) != value else None
        lines.append(f"{path[-1]} = {as_toml(_masked(value, key))}" + (f"  # {origin}" if origin else ""))
    return "\n".join(lines).lstrip("\n")


def effective_view(settings: Settings, why_fixed: Callable[[str, Key], str]) -> list[Json]:
    """Return all settings as JSON: a list of tables {name, path, keys: [{key, value, doc, …}]}, secrets masked.

    value: as it would stand in a TOML file. origin: the source of a value that is not the default; absent for defaults. restart: true
    for a key whose new value counts from the next start on; absent for all others. doc, allowed, choices: meaning and values, as they
    are declared. fixed: what `why_fixed` says about a key that cannot be changed from afar.
    """
    defaults = leaves(Settings())
    tables: dict[tuple[str, ...], list[Json]] = {}
    for path, key, value in walk(settings):
        if path[0] == "providers" and path[1] in SERVICE_TYPES and not _is_set(path[1], settings):
            continue
        name = ".".join(path)
        line: dict[str, Json] = {"key": path[-1], "value": as_toml(_masked(value, key))}
        if defaults.get(name) != value:
            line["origin"] = settings.origins.get(name, "")
        facts: dict[str, Json] = {
            "restart": key.restart,
            "doc": key.doc,
            "allowed": key.allowed,
            "choices": ["true", "false"] if key.type is bool else list(key.choices),
            "fixed": why_fixed(name, key),
        }
        line.update({fact: value for fact, value in facts.items() if value})
        tables.setdefault(path[:-1], []).append(line)
    return [{"name": ".".join(path), "path": list(path), "keys": keys} for path, keys in tables.items()]


def shown_value(settings: Settings, path: Sequence[str]) -> str:
    """Return the value of a key, or of all keys of a table, as `effective` shows it.

    "nothing" for one that is not there, since nobody has made the table that it is in; "none" for a secret that is not set.

    >>> shown_value(Settings(), ("gateway", "port")), shown_value(Settings(), ("gateway", "token"))
    ('7717', 'none')
    """
    start = tuple(path)
    found: dict[str, str] = {}
    for names, key, value in walk(settings):
        if names == start:
            return _shown(value, key)
        # The path of one value in a table such as headers: the table is the key, and the last name is the user's.
        if names == start[:-1] and key.each is not None and start[-1] in value:
            return _shown(value[start[-1]], key.each)
        if names[: len(start)] == start:
            found[".".join(names[len(start) :])] = _shown(value, key)
    if not found and not _is_table(settings, start):
        return "nothing"
    return "{" + ", ".join(f"{name} = {text}" for name, text in found.items()) + "}"


def _shown(value: Any, key: Key) -> str:
    """Return a value as TOML; the mask of a secret without quotes, since it is no value."""
    if key.secret and key.each is None:
        return MASK if value else "none"
    return as_toml(_masked(value, key)) if value or not key.secret else "none"


def _is_table(value: Any, path: Sequence[str]) -> bool:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value is not None


def _is_set(provider: str, settings: Settings) -> bool:
    """Return True if anything is set for a known service. The others are left out: there are many, and they do nothing."""
    return any(path.startswith(f"providers.{provider}.") for path in settings.origins)


def _masked(value: Any, key: Key) -> Any:
    """Return the value, or the mask if it is secret; a password in an address is masked, too."""
    if key.secret and value:
        return dict.fromkeys(value, MASK) if key.each is not None else MASK
    return _without_password(value) if isinstance(value, str) and "://" in value else value


def _without_password(url: str) -> str:
    """Return an address with its password masked."""
    scheme, _, rest = url.partition("://")
    # The last @ ends the password: it may hold one that is not escaped.
    host, slash, path = rest.partition("/")
    return f"{scheme}://{MASK}@{host.rpartition('@')[2]}{slash}{path}" if "@" in host else url


# ------------------------------------------------------------------ pegasus init


def commented_file(program: str = "pegasus") -> str:
    """Return a settings file with every key at its default and its meaning, all of it as comments.

    Nothing in it is in force, so that sections copied from the documentation can be appended: TOML allows each section
    only once. program: how the person calls Pegasus.

    Example: a key in it is a line of its meaning and one of its default::

        ## seconds between two tokens of an answer
        # silence_timeout = 60.0
    """
    return "\n".join([_HEAD.replace("{program}", program), *_section(Settings(), "")])


def _section(section: Any, path: str) -> Iterator[str]:
    """Yield the commented lines of a section and of those below it."""
    if _keys(type(section)):
        yield from _commented_table(type(section), path, section)
    for name, inner in keys_of(type(section)).items():
        below = f"{path}.{name}" if path else name
        if below == "providers":
            # Two providers stand for all of them: the file is for reading, and each has the same keys.
            for provider in ("anthropic", "openai"):
                table = _commented_table(ProviderSettings, f"{below}.{provider}", ProviderSettings(type=provider))
                yield from _with_variables(table, provider, PROVIDER_VARIABLES)
        elif isinstance(inner, Section) and inner.named:
            for standard, values in getattr(section, name).items():  # those that exist without being written
                yield from _commented_table(inner.cls, f"{below}.{standard}", values)
            for known, cls in inner.known.items():
                table = _commented_table(cls, f"{below}.{known}", cls())
                yield from _with_variables(table, known, CHANNEL_VARIABLES)
            yield from _commented_table(
                inner.cls, below + ('."PROVIDER/MODEL"' if inner.models else ".NAME"), inner.cls()
            )
        elif isinstance(inner, Section):
            yield from _section(getattr(section, name), below)


def _commented_table(cls: type[attrs.AttrsInstance], path: str, values: object) -> Iterator[str]:
    """Yield one table, each key with its meaning above it.

    `##` marks explanations, `#` what can be put in force by removing it. The class's docstring is the table's explanation.
    """
    yield f"## {cls.__doc__}"
    yield f"# [{path}]"
    for name, key in _keys(cls):
        yield f"## {key.doc}"
        yield f"# {name} = {as_toml(getattr(values, name))}"
    yield ""


def _keys(cls: type[attrs.AttrsInstance]) -> list[tuple[str, Key]]:
    return [(name, key) for name, key in keys_of(cls).items() if isinstance(key, Key)]


def _with_variables(lines: Iterable[str], name: str, usual: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Yield the table of a service with the usual variables as values. usual: service and key of each variable.

    They are written as `${VARIABLE:-}`: a person who puts the table in force without having set them gets an empty key, as
    without the table, and no error.
    """
    variables = {key: variable for variable, (service, key) in usual.items() if service == name}
    for line in lines:
        key = line.removeprefix("# ").partition(" = ")[0]
        yield f'# {key} = "${{{variables[key]}:-}}"' if key in variables and not line.startswith("##") else line
