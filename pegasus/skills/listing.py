"""Skills as a list: in the Main Agent's prompt, within its share of the context window, and for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pegasus.skills.skill import Skill

SHARE: Final = 0.02
"""Of the model's context window (requirement 92)."""
CHARACTERS_PER_TOKEN: Final = 4
"""Of ASCII text; every other character is counted as a token of its own, which is more than it takes."""
DESCRIPTION: Final = 0.125
"""Of the list, at most, for one description: a long one must not leave out all others."""

_HEADING: Final = "## Available Skills\n\n"
"""Stands above it in the prompt, and counts."""
_INTRODUCTION: Final = """\
Instructions that are kept ready. When one fits what is asked for, call use_skill(skill, args?) and follow what it says. A message
that begins with /name calls a skill by itself."""
_MORE: Final = "\n(Not listed here, for want of room: {} more. They work by name.)"
_ROOM_FOR_MORE: Final = 16
"""Tokens of that line."""


def listing(skills: Iterable[Skill], window: int) -> str:
    """What the prompt says about skills, below its heading; "" where there is none that the model may call. window: tokens.

    Those that come first have the best chance: the first that does not fit ends the list.
    """
    shown = [skill for skill in skills if skill.by_model]
    budget = window * SHARE - _tokens(_HEADING + _INTRODUCTION) - _ROOM_FOR_MORE
    longest = int(budget * DESCRIPTION * CHARACTERS_PER_TOKEN)
    lines: list[str] = []
    for skill in shown:
        line = f"- {_called(skill)}: {shortened(skill.description, longest)}"
        budget -= _tokens(line) + 1
        if budget < 0:
            break
        lines.append(line)
    if not lines:
        return ""
    more = len(shown) - len(lines)
    return "\n".join((_INTRODUCTION, *lines)) + (_MORE.format(more) if more else "")


def help_text(skills: Iterable[Skill], width: int = 100) -> str:
    """A line for each skill that people may call, by name; "" if there is none. width: characters of its first sentence."""
    shown = sorted((skill for skill in skills if skill.by_user), key=lambda skill: skill.name)
    return "\n".join(f"/{_called(skill)} — {shortened(_sentence(skill.description), width)}" for skill in shown)


def _sentence(text: str) -> str:
    first, dot, rest = text.partition(". ")
    return f"{first}." if dot and rest else text


def shortened(text: str, most: int) -> str:
    """The text, or its beginning with a sign that there is more."""
    return text if len(text) <= most else f"{text[: max(0, most - 1)].rstrip()}…"


def _called(skill: Skill) -> str:
    return f"{skill.name} {skill.argument_hint}" if skill.argument_hint else skill.name


def _tokens(text: str) -> float:
    plain = sum(character.isascii() for character in text)
    return plain / CHARACTERS_PER_TOKEN + len(text) - plain
