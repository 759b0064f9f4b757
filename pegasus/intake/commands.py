"""Commands that are answered without asking a model, and the lane that each message waits in.

The inbox has two lanes. Lane "main" is one queue of work: its items are thought about one after the other. Lane "control" is
for commands that make no sense if they wait behind the work they are about: `/stop` has to end the running thought, and
`/status` has to say what that thought is. `/new` is a command too, but keeps its place in the main lane: it puts the session
aside, which may not happen in the middle of a thought.
"""

from __future__ import annotations

from typing import Final

from pegasus.conversation import sanitize_for_prompt

CONTROL_COMMANDS: Final = frozenset({"/stop", "/help", "/status", "/usage", "/model", "/persona"})
"""Commands that wait in the control lane."""

_PREFIX: Final = 1_000
"""Characters of a message in which a command has to stand. Every message is looked at, and some have megabytes."""


def command_of(text: str) -> str | None:
    """Return the command that the message is, in lower case ("/stop"), or None if it is none.

    Arguments after the first space do not matter, nor does case, nor do invisible characters, which copying from a web page
    often adds.
    """
    if "/" not in text:
        return None
    word, *_ = sanitize_for_prompt(text[:_PREFIX]).split(None, 1) or ("",)
    word = word.lower()
    return word if word in CONTROL_COMMANDS or word == "/new" else None


def lane_of(text: str) -> str:
    """Return the lane that a message with this text waits in: "control" or "main"."""
    return "control" if command_of(text) in CONTROL_COMMANDS else "main"
