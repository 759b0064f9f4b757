"""A skill: instructions that can be called by name, as a folder with a SKILL.md (interfaces section 7)."""

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
NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
"""Of the folder and of the skill, which are the same (trap T35)."""
LARGEST: Final = 64 << 10
"""Bytes a SKILL.md may have: about 16,000 tokens, three times what agentskills.io recommends at most."""
LONGEST_DESCRIPTION: Final = 1024
"""Characters (https://agentskills.io/specification)."""
FIRST_PARAGRAPH: Final = 200
"""Characters of the body that stand in for a missing description (reference.md, Skills)."""

_KEYS: Final = (
    *("name", "description", "disable-model-invocation", "user-invocable", "allowed-tools"),
    *("context", "agent", "model", "argument-hint", "arguments"),
)
_PASSED_OVER: Final = frozenset(["license", "compatibility", "metadata", "version"])
"""Keys of the common format that say nothing to us."""
_CONTEXTS: Final = ("inline", "fork")
_MODEL: Final = re.compile(r"[^\s/]+/\S+|default|subagent|compact|reflection")
_TOOL: Final = re.compile(r"[^\s,()]+(?:\([^)]*\))?")
_FOREIGN: Final[Mapping[str, str]] = {
    "Read": "read_file",
    "Write": "write_file",
    "Edit": "edit_file",
    "MultiEdit": "edit_file",
    "Grep": "grep_files",
    "Glob": "list_files",
    "LS": "list_files",
    "Bash": "shell_exec",
    "WebFetch": "http_get",
    "WebSearch": "web_search",
    "Task": "spawn_subagent",
    "Agent": "spawn_subagent",
    "Skill": "use_skill",
}
"""Names of tools in skills that were written for Claude Code (https://code.claude.com/docs/en/skills), and what they are here."""


@attrs.frozen
class Skill:
    """folder: where its SKILL.md and its supporting files are. tools: names or patterns it may use, None = no limit.

    model: "<provider>/<model>" or a role, "" = whoever thinks already. fork: it runs as a task of type `agent`, else in
    the conversation. by_model, by_user: who may call it. first: the number of its first positional argument, 1 or 0.
    """

    name: str
    description: str
    body: str
    folder: Path
    tools: tuple[str, ...] | None = None
    model: str = ""
    fork: bool = False
    agent: str = "general"
    by_model: bool = True
    by_user: bool = True
    argument_hint: str = ""
    first: int = 1


def parse(text: str, folder: Path) -> tuple[Skill, list[str]]:
    """The skill of a SKILL.md that lies in this folder, whose name is the skill's; and warnings.

    Raises ValueError: what is wrong and what is allowed.
    """
    front, body = frontmatter.split(text)
    warnings = [
        f"unknown key {key!r} (known: {', '.join(_KEYS)})"
        for key in front
        if key not in _KEYS and key not in _PASSED_OVER
    ]
    name = _name(front, folder.name)
    if not body:
        raise ValueError("there is nothing after the front matter; the body is what the skill says")
    context = _choice(front, "context", _CONTEXTS)
    skill = Skill(
        name,
        _description(front, body, warnings),
        body,
        folder,
        tools=_tools(front.get("allowed-tools"), warnings),
        model=_model(front),
        fork=context == "fork",
        agent=_line(front, "agent") or "general",
        by_model=not _flag(front, "disable-model-invocation", default=False),
        by_user=_flag(front, "user-invocable", default=True),
        argument_hint=_line(front, "argument-hint")[:FIRST_PARAGRAPH],
        first=0 if _choice(front, "arguments", ("one-based", "zero-based")) == "zero-based" else 1,
    )
    return skill, warnings + _doubts(skill, front)


def _doubts(skill: Skill, front: Mapping[str, Json]) -> list[str]:
    found = []
    if not skill.by_model and not skill.by_user:
        found.append("neither the model nor people may call it, so nobody can")
    if "agent" in front and not skill.fork:
        found.append("agent says nothing without `context: fork`")
    return found


def _name(front: Mapping[str, Json], folder: str) -> str:
    if not NAME.fullmatch(folder):
        raise ValueError(f"the folder {folder!r}: allowed are 1 to 64 of a-z, 0-9 and -, not beginning with -")
    name = _line(front, "name") or folder
    if name != folder:
        raise ValueError(f"name {name!r}: must be the name of its folder, {folder!r}")
    return name


def _description(front: Mapping[str, Json], body: str, warnings: list[str]) -> str:
    description = _line(front, "description")
    if len(description) > LONGEST_DESCRIPTION:
        warnings.append(
            f"the description is cut: it has {len(description):,} characters, allowed: {LONGEST_DESCRIPTION:,}"
        )
        return description[: LONGEST_DESCRIPTION - 1] + "…"
    if description:
        return description
    warnings.append("no description: its first paragraph stands in for it")
    paragraphs = (_one_line(part) for part in re.split(r"\n\s*\n", body) if not part.lstrip().startswith("#"))
    return next((part for part in paragraphs if part), _one_line(body))[:FIRST_PARAGRAPH]


def _tools(value: Json, warnings: list[str]) -> tuple[str, ...] | None:
    """Commas or blanks stand between names. One with brackets is left out, for that allows less, never more."""
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
            names[_FOREIGN.get(name, name.removeprefix("mcp__"))] = None
    return None if "*" in names else tuple(names)


def _model(front: Mapping[str, Json]) -> str:
    model = _line(front, "model")
    if model in ("", "inherit"):
        return ""
    if not _MODEL.fullmatch(model):
        allowed = '"<provider>/<model>" or a role (default, subagent, compact, reflection)'
        raise ValueError(f"model {model!r}: allowed: {allowed}")
    return model


def _choice(front: Mapping[str, Json], key: str, allowed: tuple[str, ...]) -> str:
    value = _line(front, key)
    if value and value not in allowed:
        raise ValueError(f"{key} {value!r}: allowed: {', '.join(allowed)}")
    return value or allowed[0]


def _flag(front: Mapping[str, Json], key: str, *, default: bool) -> bool:
    value = front.get(key)
    if value is None:
        return default
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError(f"{key} must be true or false, found {kind(value)}")
    return value


def _line(front: Mapping[str, Json], key: str) -> str:
    value = front.get(key)
    if value is None:
        return ""
    if isinstance(value, list) and key == "argument-hint":  # `[message]` is a list to YAML
        value = " ".join(f"[{part}]" for part in value)
    if not isinstance(value, str):
        raise ValueError(f"{key} must be a text, found {kind(value)}")
    return _one_line(value)


def _one_line(text: str) -> str:
    """Without anything that does not show: it stands in the prompt, where nothing may hide or look like a heading."""
    return " ".join("".join(c if c.isprintable() else " " if c.isspace() else "" for c in text).split())
