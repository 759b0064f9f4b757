"""Commands that are answered without asking a model: which message is one, and which of them pass the queue."""

from __future__ import annotations

from typing import Final

from pegasus.conversation import sanitize_for_prompt

CONTROL_COMMANDS: Final = frozenset({"/stop", "/help", "/status", "/usage", "/model", "/persona"})
"""These pass the queue; /new keeps its place in it."""

_LOOKED_AT: Final = 1_000
"""Characters of a message in which a command has to stand: this is asked of every message, however long."""


def command_of(text: str) -> str | None:
    """The command a message is ("/stop" …), or None. Case, anything after the first space, and what nobody can see do not matter."""
    if "/" not in text:
        return None
    word, *_ = sanitize_for_prompt(text[:_LOOKED_AT]).split(None, 1) or ("",)
    word = word.lower()
    return word if word in CONTROL_COMMANDS or word == "/new" else None
