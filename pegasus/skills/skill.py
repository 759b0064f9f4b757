"""A skill: instructions that can be called by name, kept in a folder with a SKILL.md. Parsing it, and filling in arguments.

SKILL.md is Markdown with YAML front matter, in the format of agentskills.io, which other agents use
too. Files that were written for them must work here. So unknown keys are a warning and not an
error, and the tool names of Claude Code are translated. Where a foreign skill asks for something
that does not exist here, it is given less than it asks for, never more.

A mistake that changes what the skill may do or how it is called is an error (ValueError), and the skill is left
out. Anything else is a warning: the author should hear of it, but the skill is more useful with it than not at
all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from pegasus import frontmatter
from pegasus.messages import Json
from pegasus.wire import kind

FILE: Final = "SKILL.md"
"""Name of the file that makes a folder a skill."""
NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
"""The form of a name. The folder and the skill have the same name, so that people find the file."""
MAX_BYTES: Final = 64 << 10
"""Bytes of a SKILL.md: about 16,000 tokens, three times the recommended maximum of
agentskills.io."""
MAX_DESCRIPTION: Final = 1024
"""Characters of a description (https://agentskills.io/specification)."""
MAX_FIRST_PARAGRAPH: Final = 200
"""Characters of the body that replace a missing description."""

_KEYS: Final = (
    *("name", "description", "disable-model-invocation", "user-invocable", "allowed-tools"),
    *("context", "agent", "model", "argument-hint", "arguments"),
)
"""Keys of the front matter that have a meaning."""
_IGNORED_KEYS: Final = frozenset(["license", "compatibility", "metadata", "version"])
"""Keys of the common format that have no meaning here."""
_CONTEXTS: Final = ("inline", "fork")
"""Values of `context`, the default first."""
_MODEL: Final = re.compile(r"[^\s/]+/\S+|default|subagent|compact|reflection")
"""A model, or the role of one."""
_TOOL: Final = re.compile(r"[^\s,()]+(?:\([^)]*\))?")
"""A tool in a list, with the part in parentheses that limits it in Claude Code."""
_FOREIGN_TOOLS: Final[Mapping[str, str]] = {
    "Read": "read_file",
    "Write": "write_file",
    "Edit": "edit_file",
    "MultiEdit": "edit_file",
    "Grep": "grep_files",
    "Glob": "list_files",
    "LS": "list_files",
    "Bash": "shell_exec",
    "WebFetch": "web_fetch",
    "WebSearch": "web_search",
    "Task": "spawn_subagent",
    "Agent": "spawn_subagent",
    "Skill": "use_skill",
}
"""Tools of Claude Code (https://code.claude.com/docs/en/skills) and their equivalents."""


@attrs.frozen(eq=False, repr=False)
class Skill:
    """A skill that can be called.

    For example:

        skill, warnings = parse_skill(path.read_text(), path.parent)
        text = expand(skill, "the arguments of the call")
    """

    name: str
    """The name by which it is called, that of its folder."""
    description: str
    """One line: its purpose, and when to use it."""
    body: str
    """The instructions, with placeholders for arguments."""
    folder: Path
    """The folder of its SKILL.md and of the files that belong to it."""
    tools: tuple[str, ...] | None = None
    """Names or patterns of the tools it may use; None = no limit."""
    model: str = ""
    """"<provider>/<model>" or a role; "" = the model that is thinking already."""
    fork: bool = False
    """True: it runs as a background task. False: it runs in the conversation."""
    agent: str = "general"
    """The type of that task, such as "general" or "explore". It has no meaning without `fork`."""
    by_model: bool = True
    """True if the model may call it."""
    by_user: bool = True
    """True if people may call it."""
    argument_hint: str = ""
    """Text behind the name in lists."""
    first: int = 1
    """The number of the first positional argument: `$1`, or `$0`."""
    manifest: Mapping[str, str] | None = None
    """Hashes of its files as the owner has accepted them; None for a skill that needs no acceptance."""


def parse_skill(text: str, folder: Path) -> tuple[Skill, list[str]]:
    r"""Return the skill of a SKILL.md, and warnings. folder: its folder, whose name is the name of the skill.

    Raises ValueError with what is wrong and what is allowed.

    For example:

        skill, warnings = parse_skill("---\ndescription: Tidy up.\n---\nTidy the desk.", Path("skills/tidy"))
        skill.name == "tidy" and not warnings
    """
    front, body = frontmatter.split(text)
    known = ", ".join(_KEYS)
    unknown = [key for key in front if key not in _KEYS and key not in _IGNORED_KEYS]
    warnings = [f"unknown key {key!r} (known: {known})" for key in unknown]
    name = _parse_name(front, folder.name)
    if not body:
        raise ValueError("there is nothing after the front matter; the body is what the skill says")
    skill = Skill(
        name,
        _parse_description(front, body, warnings),
        body,
        folder,
        tools=_parse_tools(front.get("allowed-tools"), warnings),
        model=_parse_model(front),
        fork=_parse_choice(front, "context", _CONTEXTS) == "fork",
        agent=_parse_line(front, "agent") or "general",
        by_model=not _parse_flag(front, "disable-model-invocation", default=False),
        by_user=_parse_flag(front, "user-invocable", default=True),
        argument_hint=_parse_line(front, "argument-hint")[:MAX_FIRST_PARAGRAPH],
        first=0 if _parse_choice(front, "arguments", ("one-based", "zero-based")) == "zero-based" else 1,
    )
    if not skill.by_model and not skill.by_user:
        warnings.append("neither the model nor people may call it, so nobody can")
    if "agent" in front and not skill.fork:
        warnings.append("agent says nothing without `context: fork`")
    return skill, warnings


def _parse_name(front: Mapping[str, Json], folder: str) -> str:
    """Return the name, which is that of the folder. Raises ValueError if the front matter says another one."""
    if not NAME.fullmatch(folder):
        raise ValueError(f"the folder {folder!r}: allowed are 1 to 64 of a-z, 0-9 and -, not beginning with -")
    name = _parse_line(front, "name") or folder
    if name != folder:
        raise ValueError(f"name {name!r}: must be the name of its folder, {folder!r}")
    return name


def _parse_description(front: Mapping[str, Json], body: str, warnings: list[str]) -> str:
    """Return the description, cut if it is too long, or the first paragraph that is not a heading."""
    description = _parse_line(front, "description")
    if len(description) > MAX_DESCRIPTION:
        warnings.append(f"the description is cut: it has {len(description):,} characters, allowed: {MAX_DESCRIPTION:,}")
        return description[: MAX_DESCRIPTION - 1] + "…"
    if description:
        return description
    warnings.append("no description: its first paragraph stands in for it")
    paragraphs = (_visible_line(part) for part in re.split(r"\n\s*\n", body) if not part.lstrip().startswith("#"))
    return next((part for part in paragraphs if part), _visible_line(body))[:MAX_FIRST_PARAGRAPH]


def _parse_tools(value: Json, warnings: list[str]) -> tuple[str, ...] | None:
    """Return the names of tools, which are separated by commas or blanks; None for no limit.

    `Bash(git add *)` allows a tool in part. That is not possible here, so it is left out: the skill
    gets less, never more.

    `*` means no limit. An empty list means no tool at all.
    """
    if value is None:
        return None
    if isinstance(value, str):
        given = _TOOL.findall(value)
    elif isinstance(value, list) and all(isinstance(name, str) for name in value):
        given = [str(name).strip() for name in value]
    else:
        raise ValueError(f"allowed-tools must be names of tools with commas between, found {kind(value)}")
    names: dict[str, None] = {}
    for name in given:
        if "(" in name:
            warnings.append(f"allowed-tools {name}: a tool is allowed whole or not at all; this one is left out")
        elif name:
            # Tools of MCP servers are written with a prefix there.
            names[_FOREIGN_TOOLS.get(name, name.removeprefix("mcp__"))] = None
    return None if "*" in names else tuple(names)


def _parse_model(front: Mapping[str, Json]) -> str:
    """Return the model. Whether the provider exists is checked when the skill is called."""
    model = _parse_line(front, "model")
    if model in ("", "inherit"):
        return ""
    if not _MODEL.fullmatch(model):
        allowed = '"<provider>/<model>" or a role (default, subagent, compact, reflection)'
        raise ValueError(f"model {model!r}: allowed: {allowed}")
    return model


def _parse_choice(front: Mapping[str, Json], key: str, allowed: tuple[str, ...]) -> str:
    """Return one of the allowed words, the first if the key is missing."""
    value = _parse_line(front, key)
    if value and value not in allowed:
        raise ValueError(f"{key} {value!r}: allowed: {', '.join(allowed)}")
    return value or allowed[0]


def _parse_flag(front: Mapping[str, Json], key: str, *, default: bool) -> bool:
    """Return a boolean. A quoted "true" is accepted too, since people write it."""
    value = front.get(key)
    if value is None:
        return default
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError(f"{key} must be true or false, found {kind(value)}")
    return value


def _parse_line(front: Mapping[str, Json], key: str) -> str:
    """Return a text on one line, "" if the key is missing."""
    value = front.get(key)
    if value is None:
        return ""
    if isinstance(value, list) and key == "argument-hint":  # `[message]` is a list to YAML
        value = " ".join(f"[{part}]" for part in value)
    if not isinstance(value, str):
        raise ValueError(f"{key} must be a text, found {kind(value)}")
    return _visible_line(value)


def _visible_line(text: str) -> str:
    """Return the text on one line without invisible characters. It stands in the prompt, where nothing may hide."""
    return " ".join("".join(c if c.isprintable() else " " if c.isspace() else "" for c in text).split())


# ------------------------------------------------------------------ arguments of a call

# The body is passed over once. Arguments that were filled in are never looked at again, whatever they contain: text of a user
# must not be able to insert placeholders. The result is bounded, because a body may repeat a long argument many times.

MAX_EXPANDED: Final = 256 << 10
"""Characters of a body with its arguments. If they would make it longer, they stand once, at its
end."""

_PLACEHOLDER: Final = re.compile(
    r"""\\(?P<escaped>\$)(?=ARGUMENTS|\d)
      | \$ARGUMENTS\[(?P<index>\d{1,4})\]
      | (?P<all>\$ARGUMENTS)(?![A-Za-z0-9_])
      | \$(?P<number>\d{1,2})(?!\d)(?![.,]\d)  # not the $100 or $1.50 of a price
    """,
    re.VERBOSE,
)
"""Placeholders in a body, and the escaped dollar sign that keeps one from being filled in."""
_WORD: Final = re.compile(
    r""""(?P<double>(?:[^"\\]|\\.)*)"(?!\S) | '(?P<single>[^']*)'(?!\S) | “(?P<curly>[^“”]*)”(?!\S) | (?P<bare>\S+)""",
    re.VERBOSE | re.DOTALL,
)
"""Words of arguments: in quotes of three kinds, or between blanks."""
_ESCAPED_CHARACTER: Final = re.compile(r'\\(["\\])')
"""Escapes within double quotes."""
_SEE_END: Final = "(see ARGUMENTS at the end)"
"""Text in the place of arguments that stand at the end."""


def expand(skill: Skill, arguments: str) -> str:
    r"""Return the body of the skill with the arguments in it. Without any placeholder they stand at the end.

    A placeholder for an argument that was not given becomes empty. `\$1` is a literal `$1`.
    """
    arguments = arguments.strip()
    words = split_arguments(arguments)

    def value_of(placeholder: re.Match[str]) -> str | None:
        """Return the argument for a placeholder, or None if it is not one after all."""
        if placeholder["escaped"]:
            return None
        if placeholder["all"]:
            return arguments
        index = int(placeholder["index"] or int(placeholder["number"]) - skill.first)
        if index < 0:  # $0 in a skill that counts from 1
            return None
        return words[index] if index < len(words) else ""

    values = [value for match in _PLACEHOLDER.finditer(skill.body) if (value := value_of(match)) is not None]
    is_too_long = len(skill.body) + sum(map(len, values)) > MAX_EXPANDED

    def replace(placeholder: re.Match[str]) -> str:
        """Return the text for one placeholder in the body."""
        value = value_of(placeholder)
        if value is None:
            return "$" if placeholder["escaped"] else placeholder[0]
        return _SEE_END if is_too_long else value

    body = _PLACEHOLDER.sub(replace, skill.body)
    return f"{body}\n\nARGUMENTS: {arguments}" if arguments and (is_too_long or not values) else body


def split_arguments(text: str) -> tuple[str, ...]:
    """Return the single arguments: words, or texts in quotes.

    Quotes count only if they begin and end a word. An apostrophe in a word, and a quote that is
    never closed, are ordinary characters, so that people can write as usual without knowing these
    rules.
    """
    return tuple(map(_unquote, _WORD.finditer(text)))


def _unquote(match: re.Match[str]) -> str:
    """Return one argument without its quotes. A backslash before a quote or backslash escapes it in double quotes."""
    if match["double"] is not None:
        return _ESCAPED_CHARACTER.sub(lambda escaped: escaped[1], match["double"])
    return next(part for part in (match["single"], match["curly"], match["bare"]) if part is not None)
