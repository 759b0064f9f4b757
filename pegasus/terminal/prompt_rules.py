"""Decisions of the prompt, as pure functions: the meaning of keys, and of the commands that concern the chat itself.

Most commands are the agent's: they are sent like any text. A mistyped one is answered with the names of similar ones, here or by the
agent (`pegasus.intake`).

The functions know nothing of prompt_toolkit: they get the text of the line and return a `KeyAction`. So every decision about a
key can be tested without a terminal, and `prompt` only connects keys with them. `ScreenListener`
receives their effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

import attrs

from pegasus.intake import LEAVING_COMMANDS
from pegasus.messages import Media
from pegasus.terminal.leaving import Leave

KEYS_HELP: Final = """\
Enter              sends
Alt-Enter, Ctrl-J  new line (or a \\ at the end of the line)
Up, Down, Ctrl-R   earlier messages, and a search in them
Tab                completes /commands, skills, models, tasks and @files
@file, @"my file"  sends a text, picture, PDF or recording along
Ctrl-X Ctrl-E      edits the line in $EDITOR
/copy, /copy 2     copies the last answer, the one before it
y, n, a, ?         answer the question that waits (a: the tool in this task)
Ctrl-C, Esc        end the answer that is being made; Ctrl-C first clears the line
Ctrl-C twice       ends the tasks of this chat as well, as /stop does
Ctrl-D, /exit      leave"""
"""Shown beside the agent's own answer to /help."""

LEAVING_HINT: Final = "Ctrl-D or /exit leaves"
"""Shown for a Ctrl-C that has nothing to clear or stop: it never leaves the chat, because it is often pressed once too often."""

_OTHER_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "exit": "/exit leaves the chat",
        "quit": "/quit leaves the chat",
        ":q": "/exit leaves the chat",
        "?": "/help lists commands and keys",
    }
)
"""Words that are commands in other programs, and say nothing as a message."""

STOP_ALL: Final = "/stop all"
"""Command that ends the work and discards what waits."""


class KeyAction(Enum):
    """Effect of a key. The value says what happens, in words."""

    SEND = "the text goes to the agent"
    NEW_LINE = "the trailing backslash becomes a line break"
    IGNORE = "nothing"
    CLEAR = "the line is emptied"
    END_ANSWER = "the answer that is being made is ended"
    INTERRUPT = "the same, and another Ctrl-C ends the tasks, too"
    STOP = "/stop goes to the agent"
    HINT = "the way to leave is shown"
    SUSPEND = "the process stops until the shell continues it"
    LEAVE = "the chat ends"


def on_enter(text: str, cursor: int) -> KeyAction:
    """Return the effect of Enter. cursor: characters from the start of `text`.

    A backslash at the end continues the line as in a shell, for terminals that do not report Alt-Enter; in the middle of the
    text Enter sends, so that a person does not have to move the cursor first.
    """
    if cursor == len(text) and _ends_in_backslash(text):
        return KeyAction.NEW_LINE
    if not text.strip():
        return KeyAction.IGNORE
    if is_leave(text):
        return KeyAction.LEAVE
    return KeyAction.SEND


def on_interrupt(text: str, *, thinking: bool, again: bool = False) -> KeyAction:
    """Return the effect of Ctrl-C. thinking: the agent works on a message of this conversation. again: Ctrl-C was pressed just now.

    Typed text is cleared first, as in a shell. Only on an empty line Ctrl-C ends the answer, so that clearing a line does not end
    work that has taken minutes. Tasks, which may have taken hours, end only by a second one.
    """
    if text:
        return KeyAction.CLEAR
    if again:
        return KeyAction.STOP
    return KeyAction.INTERRUPT if thinking else KeyAction.HINT


def is_help(text: str) -> bool:
    """Return True if the keys are to be shown beside the agent's own answer."""
    return text.strip().lower() == "/help"


def is_leave(text: str) -> bool:
    """Return True if the text ends the chat instead of being sent."""
    return text.strip().lower() in LEAVING_COMMANDS


def meant_instead(text: str) -> str:
    """Return the sentence about a word that is a command in other programs, "" for a message.

    >>> meant_instead("exit")
    '/exit leaves the chat; a blank in front sends it as text.'
    """
    meant = _OTHER_WORDS.get(text.rstrip().lower())
    return f"{meant}; a blank in front sends it as text." if meant else ""


def is_stop(text: str) -> bool:
    """Return True if the text must be sent before everything that still waits."""
    return text.lower().split() in (["/stop"], STOP_ALL.split())


def is_stop_all(text: str) -> bool:
    """Return True if the text also discards everything that still waits."""
    return text.lower().split() == STOP_ALL.split()


def _ends_in_backslash(text: str) -> bool:
    """Return True for an odd number of backslashes at the end: an even number is a typed backslash."""
    backslashes = len(text) - len(text.rstrip("\\"))
    return backslashes % 2 == 1


@attrs.frozen
class ScreenListener:
    """Functions that the screen calls, from its own thread. None of them may wait: the keys wait for it."""

    on_message: Callable[[str, tuple[Media, ...]], None]
    """Called with each text to send and its attachments."""
    on_leave: Callable[[Leave], None]
    """Called once, when the user leaves or the terminal is gone."""
    on_slash: Callable[[], None] = lambda: None
    """Called when somebody begins to type a command: the suggestions will be looked at."""
    on_leaving: Callable[[], None] | None = None
    """Called when somebody wants to leave and the agent would stop; answers by `Screen.leave`. None: nobody can answer."""
    on_interrupt: Callable[[], None] = lambda: None
    """Called when the answer that is being made is to end, and nothing else."""
