"""What the keys mean, as functions of what is on the line: the screen only carries out their verdicts."""

from __future__ import annotations

from enum import Enum

COMMANDS = {
    "/help": "what the agent understands, and these keys",
    "/status": "what the agent is doing",
    "/stop": "end the running thought and its tasks",
    "/new": "start a new conversation",
    "/model": "which model thinks; /model provider/name for another",
    "/usage": "what model calls have used",
    "/persona": "who the agent is",
    "/exit": "leave the chat (also /quit)",
}
"""Offered for completion; the agent's own skills are commands too, and are sent like any text."""

HELP = """\
Enter              sends
Alt-Enter, Ctrl-J  new line (or a \\ at the end of the line)
Up, Down, Ctrl-R   earlier messages, and a search in them
Tab                completes /commands
Ctrl-C             clears the line; while the agent thinks: stops it
Ctrl-D, /exit      leave"""

LEAVING_HINT = "Ctrl-D or /exit leaves"


class Verdict(Enum):
    """What a key does."""

    SEND = "the line goes to the agent"
    NEW_LINE = "the trailing backslash becomes a line break"
    IGNORE = "nothing"
    CLEAR = "the line is emptied"
    STOP = "the agent is told to stop"
    HINT = "the way out is shown"
    SUSPEND = "the process stops until the shell continues it"
    LEAVE = "the chat ends"


def on_enter(text: str, cursor: int) -> Verdict:
    """Enter, with `cursor` counted in characters from the start of `text`."""
    if cursor == len(text) and _ends_in_backslash(text):
        return Verdict.NEW_LINE
    if not text.strip():
        return Verdict.IGNORE
    if is_leave(text):
        return Verdict.LEAVE
    return Verdict.SEND


def on_interrupt(text: str, *, thinking: bool) -> Verdict:
    """Ctrl-C."""
    if text:
        return Verdict.CLEAR
    return Verdict.STOP if thinking else Verdict.HINT


def is_help(text: str) -> bool:
    """Whether the local keys are to be shown beside the agent's own answer."""
    return text.strip().lower() == "/help"


def is_leave(text: str) -> bool:
    """Whether the text ends the chat instead of being sent."""
    return text.strip().lower() in ("/exit", "/quit")


def is_stop(text: str) -> bool:
    """Whether the text must pass everything that still waits to be sent."""
    return text.strip().lower() == "/stop"


def completions(text: str) -> list[tuple[str, str]]:
    """The commands, with what they do, that begin like `text`; none unless it is the start of one."""
    if not text.startswith("/") or len(text.split(maxsplit=1)) > 1 or text != text.strip():
        return []
    return [(name, meaning) for name, meaning in COMMANDS.items() if name.startswith(text.lower())]


def _ends_in_backslash(text: str) -> bool:
    backslashes = len(text) - len(text.rstrip("\\"))
    return backslashes % 2 == 1
