"""Lists of skills: as text for the Main Agent's prompt and for people who ask for help, and as JSON for programs.

The list in the prompt is part of every model call. So its size is bounded by a share of the context window, not
by the number of skills. The skills come in the order of the catalog, the user's own first. The first one that
does not fit ends the list, and a line tells how many are missing. A skill that is not listed can still be called
by its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pegasus.formatting import CHARACTERS_PER_TOKEN, truncate
from pegasus.messages import Json
from pegasus.skills.catalog import BUILT_IN, ProposedSkill
from pegasus.skills.skill import Skill

WINDOW_SHARE: Final = 0.02
"""Part of the model's context window that the whole section may take. It is in the prompt of every
call."""
MAX_SENTENCE: Final = 100
"""Characters of a description that people are shown."""
DESCRIPTION_SHARE: Final = 0.125
"""Part of the list that one description may take, so that a long one does not displace all
others."""

LONGEST_WORD: Final = 30
"""Characters of a word that is left out rather than cut. Texts without blanks, such as Chinese ones, are cut anywhere."""

_HEADING: Final = "## Available Skills\n\n"
"""The heading that the prompt puts above the list. It counts as part of the section."""
_INTRODUCTION: Final = """\
A skill is a set of instructions for one kind of work. When a skill below fits what is asked for, call use_skill(skill, args?) and
follow its result. When a message begins with /name, that skill has been called already: its instructions stand behind the message."""
"""Text in front of the list."""
_MORE: Final = "\n({} more skills are not listed, for lack of space. They can be called by name as well.)"
"""Last line of a list that had no room for all skills."""
_TOKENS_FOR_MORE: Final = 24
"""Tokens of the line `_MORE`."""


def format_listing(skills: Iterable[Skill], window: int) -> str:
    """Return the list for the prompt, without its heading; "" if there is no skill that the model may call.

    window: the model's context window in tokens. The first skill that does not fit ends the list,
    so earlier ones have priority.
    """
    callable_skills = [skill for skill in skills if skill.by_model]
    budget = window * WINDOW_SHARE - _count_tokens(_HEADING + _INTRODUCTION) - _TOKENS_FOR_MORE
    max_description = int(budget * DESCRIPTION_SHARE * CHARACTERS_PER_TOKEN)
    lines: list[str] = []
    for skill in callable_skills:
        line = f"- {_format_call(skill)}: {_shorten(skill.description, max(max_description, 1))}"
        budget -= _count_tokens(line) + 1
        if budget < 0:
            break
        lines.append(line)
    if not lines:
        return ""
    missing = len(callable_skills) - len(lines)
    return "\n".join((_INTRODUCTION, *lines)) + (_MORE.format(missing) if missing else "")


def format_help(skills: Iterable[Skill]) -> str:
    """Return a line for each skill that people may call, by name, with the first sentence of its description."""
    callable_skills = sorted((skill for skill in skills if skill.by_user), key=lambda skill: skill.name)
    return "\n".join(
        f"/{_format_call(skill)} — {_shorten(_first_sentence(skill.description), MAX_SENTENCE)}"
        for skill in callable_skills
    )


def format_proposed(name: str, problem: str = "", *, was_accepted: bool, program: str = "pegasus") -> str:
    """Return the line about a skill of the workspace that does not count, with how to accept it. Nothing that it says is shown.

    program: how the person calls Pegasus.
    """
    shown = truncate("".join(character for character in name if character.isprintable()), MAX_SENTENCE)
    if problem:
        return f"{shown} (workspace): does not count: {problem}"
    why = "its files have changed since you accepted it" if was_accepted else "you have not accepted it"
    how = f"{program} skills accept {shown}, or /skills accept {shown}"
    return f"{shown} (workspace): does not count, {why}. Read its files, then: {how}"


def format_accepted(skill: ProposedSkill) -> str:
    """Return the answer to an acceptance: the skill, and every file that counts from now on."""
    files = ", ".join(sorted(skill.manifest))
    return f"Accepted the skill {skill.name}: {skill.description}\nIts files, exactly as they are now: {files}"


def _first_sentence(text: str) -> str:
    first, dot, rest = text.partition(". ")
    return f"{first}." if dot and rest else text


def _shorten(text: str, limit: int) -> str:
    """Return a text cut to `limit` characters, between two words where it has any near its end."""
    cut = truncate(text, limit)
    words, blank, rest = cut.rpartition(" ")
    is_cut = len(cut) == limit and cut.endswith("…") and not text.startswith(cut)
    return f"{words.rstrip(',;:')}…" if is_cut and blank and len(rest) <= LONGEST_WORD else cut


def _format_call(skill: Skill) -> str:
    """Return the name with its argument hint."""
    return f"{skill.name} {skill.argument_hint}" if skill.argument_hint else skill.name


def _count_tokens(text: str) -> float:
    """Return an upper estimate of the tokens of a text. A character that is not ASCII counts as a token of its own."""
    ascii_characters = sum(character.isascii() for character in text)
    return ascii_characters / CHARACTERS_PER_TOKEN + len(text) - ascii_characters


def skill_view(skill: Skill, home_skills: Path) -> dict[str, Json]:
    """Return a skill as commands and the control plane show it. home_skills: the folder of the home's skills.

    None: the skill leaves the value to the agent (all tools, the usual model).
    """
    return {
        "name": skill.name,
        "description": skill.description,
        "source": "installed"
        if skill.source
        else {BUILT_IN: "built-in", home_skills: "home"}.get(skill.folder.parent, "workspace"),
        "installedFrom": skill.source or None,
        "revision": skill.revision or None,
        "context": "fork" if skill.fork else "inline",
        "model": skill.model or None,
        "allowedTools": None if skill.tools is None else list(skill.tools),
        "userInvocable": skill.by_user,
        "modelInvocable": skill.by_model,
    }
