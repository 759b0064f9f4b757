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
from pegasus.skills.foreign_tools import ONLY_IN_TASKS, tools_named
from pegasus.tool_patterns import is_named
from pegasus.wire import kind

FILE: Final = "SKILL.md"
"""Name of the file that makes a folder a skill."""
NAME: Final = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
"""The form of a name (https://agentskills.io/specification). The folder and the skill have the same name, so that people find the
file."""
MAX_BYTES: Final = 256 << 10
"""Bytes of a SKILL.md, or of a file beside it. Published ones have up to 100 kB; OpenClaw reads as much as here."""
MAX_DESCRIPTION: Final = 1024
"""Characters of a description (https://agentskills.io/specification)."""
MAX_FIRST_PARAGRAPH: Final = 200
"""Characters of the body that replace a missing description."""

MAX_COMPATIBILITY: Final = 500
"""Characters of `compatibility` in the same specification. It changes nothing here."""
_FORMAT_KEYS: Final = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
"""Keys of that specification. Further ones belong below `metadata`."""
_KEYS: Final = (
    *("name", "description", "disable-model-invocation", "user-invocable", "allowed-tools"),
    *("context", "agent", "model", "argument-hint", "arguments"),
)
"""Keys of the front matter that have a meaning."""
OWN_PREFIX: Final = "pegasus-"
"""Beginning of the same keys below `metadata`, where the common format has a place for those of one agent."""
_IGNORED_KEYS: Final = (
    # The common format, then what Claude Code, OpenClaw, nanobot, Hermes and Cursor add to it.
    *("license", "compatibility", "metadata", "version", "author", "homepage", "repository", "platforms", "tags"),
    *("category", "keywords", "emoji", "os", "when_to_use", "hooks", "paths", "shell", "effort", "mode", "always"),
    *("command-dispatch", "command-tool", "command-arg-mode", "requires", "triggers", "prerequisites", "setup"),
    *("related_skills", "required_environment_variables", "required_credential_files", "globs", "alwaysApply"),
)
"""Keys of other agents that change nothing here, or are read elsewhere."""
_TOOL_KEYS: Final = ("allowed-tools", "allowed_tools", "allowedTools", "tools")
"""Spellings of the key with the tools. A list that was passed over would allow every tool."""
_AGENTS: Final = {"general-purpose": "general", "Explore": "explore", "Plan": "plan"}
"""Types of Claude Code's subagents and their equivalents."""
_CONTEXTS: Final = ("inline", "fork")
"""Values of `context`, the default first."""
_MODEL: Final = re.compile(r"[^\s/]+/\S+|default|subagent|compact|reflection")
"""A model, or the role of one."""
_TOOL: Final = re.compile(r"[^\s,;|()]+(?:\([^)]*\))?")
"""A tool in a list, with the part in parentheses that limits it in Claude Code. Skills separate them by blanks and `,`, `;` or `|`."""


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
    argument_names: tuple[str, ...] = ()
    """Names of the positional arguments in their order, for `$name`."""
    manifest: Mapping[str, str] | None = None
    """Hashes of its files as the owner has accepted them; None for a skill that needs no acceptance."""
    source: str = ""
    """Source that it was installed from; "" if it was not installed."""
    revision: str = ""
    """The commit that it was installed from; "" if there is none."""


def parse_skill(text: str, folder: Path) -> tuple[Skill, list[str]]:
    r"""Return the skill of a SKILL.md, and warnings. folder: its folder, whose name is the name of the skill.

    Raises ValueError with what is wrong and what is allowed.

    For example:

        skill, warnings = parse_skill("---\ndescription: Tidy up.\n---\nTidy the desk.", Path("skills/tidy"))
        skill.name == "tidy" and not warnings
    """
    front, body = frontmatter.split(text)
    known = ", ".join(_KEYS)
    front = _with_own_metadata(front)
    unknown = [key for key in front if key not in _KEYS and key not in _IGNORED_KEYS and key not in _TOOL_KEYS]
    warnings = [f"unknown key {key!r} (known: {known})" for key in unknown]
    name = _parse_name(front, folder.name)
    if not body:
        raise ValueError("there is nothing after the front matter; the body is what the skill says")
    tools = _parse_tools(next((front[key] for key in _TOOL_KEYS if key in front), None), warnings)
    agent = _parse_line(front, "agent")
    skill = Skill(
        name,
        _parse_description(front, body, warnings),
        body,
        folder,
        tools=tools,
        model=_parse_model(front, warnings),
        fork=_parse_choice(front, "context", _CONTEXTS) == "fork" if "context" in front else _needs_task(tools),
        agent=_AGENTS.get(agent, agent) or "general",
        by_model=not _parse_flag(front, "disable-model-invocation", default=False),
        by_user=_parse_flag(front, "user-invocable", default=True),
        argument_hint=_parse_line(front, "argument-hint")[:MAX_FIRST_PARAGRAPH],
        first=0 if front.get("arguments") == "zero-based" else 1,
        argument_names=_parse_argument_names(front.get("arguments")),
    )
    if not skill.by_model and not skill.by_user:
        warnings.append("neither the model nor people may call it, so nobody can")
    if "agent" in front and not skill.fork:
        warnings.append("agent says nothing without `context: fork`")
    return skill, warnings


def specification_problems(text: str, folder: str) -> list[str]:
    """Return what the specification of the format refuses in a SKILL.md, also where the skill is read here all the same.

    folder: the name of its folder. Skills are shared, and other agents may be stricter.
    """
    try:
        front, _ = frontmatter.split(text)
    except frontmatter.FrontMatterError as error:
        return [str(error)]
    if not text.startswith("---"):
        return ["there is no front matter"]
    problems = []
    if unknown := sorted(set(front) - set(_FORMAT_KEYS)):
        problems.append(f"the keys {', '.join(unknown)}: allowed are {', '.join(_FORMAT_KEYS)}")
    name, description = front.get("name"), front.get("description")
    if not isinstance(name, str) or not NAME.fullmatch(name.strip()):
        found = "name is missing" if name is None else f"name {name!r}"
        problems.append(f"{found}: required are 1 to 64 of a-z and 0-9, with single - between them")
    elif name.strip() != folder:
        problems.append(f"name {name!r}: must be the name of its folder, {folder!r}")
    if not isinstance(description, str) or not 0 < len(description.strip()) <= len(description) <= MAX_DESCRIPTION:
        problems.append(f"description: required is a text of at most {MAX_DESCRIPTION:,} characters")
    compatibility = front.get("compatibility", "any")
    if not isinstance(compatibility, str) or not 0 < len(compatibility) <= MAX_COMPATIBILITY:
        problems.append(f"compatibility: allowed is a text of at most {MAX_COMPATIBILITY} characters")
    if not isinstance(front.get("allowed-tools", ""), str):
        problems.append("allowed-tools: allowed is one text with blanks between the tools")
    return problems


def _parse_name(front: Mapping[str, Json], folder: str) -> str:
    """Return the name, which is that of the folder. Raises ValueError if the front matter says another one."""
    if not NAME.fullmatch(folder):
        raise ValueError(f"the folder {folder!r}: allowed are 1 to 64 of a-z and 0-9, with single - between them")
    name = _parse_line(front, "name") or folder
    if name != folder:
        raise ValueError(f"name {name!r}: must be the name of its folder, {folder!r}")
    return name


def _parse_description(front: Mapping[str, Json], body: str, warnings: list[str]) -> str:
    """Return the description, cut if it is too long, or the first paragraph that is not a heading."""
    description = f"{_parse_line(front, 'description')} {_parse_line(front, 'when_to_use')}".strip()
    if len(description) > MAX_DESCRIPTION:
        warnings.append(f"the description is cut: it has {len(description):,} characters, allowed: {MAX_DESCRIPTION:,}")
        return description[: MAX_DESCRIPTION - 1] + "…"
    if description:
        return description
    warnings.append("no description: its first paragraph stands in for it")
    paragraphs = (_visible_line(part) for part in re.split(r"\n\s*\n", body) if not part.lstrip().startswith("#"))
    return next((part for part in paragraphs if part), _visible_line(body))[:MAX_FIRST_PARAGRAPH]


def _parse_tools(value: Json, warnings: list[str]) -> tuple[str, ...] | None:
    """Return the names of tools, which are separated as `_TOOL` says; None for no limit.

    `Bash(git add *)` allows commands that begin so. Any other tool is allowed whole or not at all, so `Read(docs/*)` is left out: the
    skill gets less, never more. `*` and `all` mean no limit. An empty list means no tool at all.
    """
    if value is None:
        return None
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise ValueError(f"allowed-tools must be names of tools with commas between, found {kind(value)}")
    names: dict[str, None] = {}
    for name in (name for part in given for name in _TOOL.findall(str(part))):
        found = tools_named(name)
        if found is None:
            warnings.append(f"allowed-tools {name}: only commands are allowed in part; this one is left out")
        names.update(dict.fromkeys(found or ()))
    return None if "*" in names else tuple(names)


def _needs_task(tools: tuple[str, ...] | None) -> bool:
    """Return whether a list has a tool that a conversation has not. Skills of other agents do not say where they run."""
    return tools is not None and any(is_named(tools, tool) for tool in ONLY_IN_TASKS)


def _parse_model(front: Mapping[str, Json], warnings: list[str]) -> str:
    """Return the model. Whether the provider exists is checked when the skill is called."""
    model = _parse_line(front, "model")
    if model in ("", "inherit"):
        return ""
    if not _MODEL.fullmatch(model):
        # Another agent's name for one of its models, such as "sonnet".
        allowed = '"<provider>/<model>" or a role (default, subagent, compact, reflection)'
        warnings.append(f"model {model!r}: allowed: {allowed}; the usual model is used")
        return ""
    return model


def _parse_argument_names(value: Json) -> tuple[str, ...]:
    """Return the names of arguments, a list or words in a text. Raises ValueError for anything else."""
    if value is None or value in ("one-based", "zero-based"):
        return ()
    names = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise ValueError(f"arguments {value!r}: allowed: one-based, zero-based, or names of arguments")
    return tuple(map(str, names))


def _with_own_metadata(front: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return a front matter with the keys that stand below `metadata` with OWN_PREFIX. A key outside of it wins."""
    inner = front.get("metadata")
    if not isinstance(inner, Mapping):
        return front
    own = {key.removeprefix(OWN_PREFIX): value for key, value in inner.items() if str(key).startswith(OWN_PREFIX)}
    return {**own, **front}


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

MAX_EXPANDED: Final = 512 << 10
"""Characters of a body with its arguments. If they would make it longer, they stand once, at its
end."""

_PLACEHOLDER: Final = re.compile(
    r"""\\(?P<escaped>\$)(?=ARGUMENTS|\d)
      | \$ARGUMENTS\[(?P<index>\d{1,4})\]
      | (?P<all>\$ARGUMENTS)(?![A-Za-z0-9_])
      | \$(?P<number>\d{1,2})(?!\d)(?![.,]\d)  # not the $100 or $1.50 of a price
      | \$(?P<name>[A-Za-z_]\w{0,63})
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
        if name := placeholder["name"]:
            if name not in skill.argument_names:
                return None
            index = skill.argument_names.index(name)
        else:
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
