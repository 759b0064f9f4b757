"""Decisions of the prompt, as pure functions: the meaning of keys and of typed /commands, and the text of the status line.

Most commands are the agent's: they are sent like any text, and the gateway's side answers them. Here they are only known
by name, for completion and to catch a mistyped one: `/staus` would otherwise go to the model as a question. Commands that
begin with a slash but cannot be a name, such as a path, are text. A person who wants to send `/foo` as text puts a blank
in front of it.

The functions know nothing of prompt_toolkit: they get the text of the line and return a `KeyAction`. So every decision about a
key can be tested without a terminal, and `prompt` only connects keys with them.

The status line under the prompt shows a hint until the next key, the connection, and the agent's thinking. It is a function of a
`ChatStatus` and a time, without any state of its own. It is empty while all is well and the agent is idle: a line that always
shows something is soon not read any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Final

import attrs

from pegasus.formatting import plural
from pegasus.terminal.tty import neutralise

COMMANDS: Final[Mapping[str, str]] = {
    "/help": "what the agent understands, and these keys",
    "/status": "what the agent is doing",
    "/stop": "end the running thought and its tasks",
    "/new": "start a new conversation",
    "/model": "show the model; /model provider/name chooses another",
    "/usage": "what model calls have used",
    "/persona": "who the agent is",
    "/exit": "leave the chat (also /quit)",
}
"""Commands and what they do, in the order of completion. Skills are commands too."""

KEYS_HELP: Final = """\
Enter              sends
Alt-Enter, Ctrl-J  new line (or a \\ at the end of the line)
Up, Down, Ctrl-R   earlier messages, and a search in them
Tab                completes /commands and skills
Ctrl-C             clears the line; while the agent thinks: stops it
Ctrl-D, /exit      leave"""
"""Shown beside the agent's own answer to /help."""

LEAVING_HINT: Final = "Ctrl-D or /exit leaves"
"""Shown for a Ctrl-C that has nothing to clear or stop: it never leaves the chat, because it is often pressed once too often."""

_LEAVING: Final = ("/exit", "/quit")
"""Texts that end the chat."""
_COMMAND_NAME: Final = re.compile(r"/[\w-]+")
"""Form of a command's name. A path has a second slash or a dot, and is text."""


class KeyAction(Enum):
    """Effect of a key."""

    SEND = "the text goes to the agent"
    NEW_LINE = "the trailing backslash becomes a line break"
    IGNORE = "nothing"
    CLEAR = "the line is emptied"
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


def on_interrupt(text: str, *, thinking: bool) -> KeyAction:
    """Return the effect of Ctrl-C. thinking: the agent is working on a message of this conversation.

    Typed text is cleared first, as in a shell. Only on an empty line Ctrl-C stops the agent, so that clearing a line does not
    end work that has taken minutes.
    """
    if text:
        return KeyAction.CLEAR
    return KeyAction.STOP if thinking else KeyAction.HINT


def is_help(text: str) -> bool:
    """Return True if the keys are to be shown beside the agent's own answer."""
    return text.strip().lower() == "/help"


def is_leave(text: str) -> bool:
    """Return True if the text ends the chat instead of being sent."""
    return text.strip().lower() in _LEAVING


def is_stop(text: str) -> bool:
    """Return True if the text must be sent before everything that still waits."""
    return text.strip().lower() == "/stop"


def completions(text: str, skills: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the commands and skills that begin like `text`, with their descriptions; none unless it begins a command.

    Commands come first, so that a skill of the same name does not hide one.
    """
    if not text.startswith("/") or len(text.split(maxsplit=1)) > 1 or text != text.strip():
        return []
    known = {**{f"/{name}": description for name, description in sorted(skills.items())}, **COMMANDS}
    ordered = [*COMMANDS, *(name for name in known if name not in COMMANDS)]
    return [(name, known[name]) for name in ordered if name.lower().startswith(text.lower())]


def unknown_command(text: str, skills: Iterable[str]) -> str | None:
    """Return the notice for a person who typed a command that does not exist, None if the text may be sent.

    skills: their names, without slash. Case does not matter, as for the agent.
    """
    name = text.split(maxsplit=1)[0] if text.startswith("/") else ""
    known = [*COMMANDS, "/quit", *(f"/{skill}" for skill in skills)]
    if not _COMMAND_NAME.fullmatch(name) or name.lower() in (each.lower() for each in known):
        return None
    near = get_close_matches(name.lower(), known, n=1)
    guess = f" Did you mean {near[0]}?" if near else ""
    return f"Not sent: there is no command {name}.{guess} Tab after / shows all; a blank in front sends it as text."


def _ends_in_backslash(text: str) -> bool:
    """Return True for an odd number of backslashes at the end: an even number is a typed backslash."""
    backslashes = len(text) - len(text.rstrip("\\"))
    return backslashes % 2 == 1


# ------------------------------------------------------------------ status line

FRAME_SECONDS: Final = 0.2
"""Seconds between two pictures of the spinner: fast enough to show that the chat works, slow enough to cost no CPU."""
PATIENCE: Final = 5
"""Seconds of thinking after which the line shows for how long, and how to stop it."""
DRAFT_SHOWN: Final = 60
"""Characters that are shown of a reply while it is being written."""

_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
"""Pictures of the spinner in turn; none on a terminal without Unicode."""


@attrs.frozen
class ChatStatus:
    """Facts that the line shows. `ChatStatus(online=True)` is an idle agent: the line is empty."""

    online: bool = False
    """The gateway has sent its welcome on the present connection."""
    lost: bool = False
    """There was a connection before."""
    thinking: bool = False
    """The agent works on a message of this conversation."""
    unsent: int = 0
    """Messages that were typed and are not accepted yet."""
    draft: str = ""
    """Reply that is being written, as far as it is."""


def status_line(status: ChatStatus, seconds: float, hint: str = "", *, unicode: bool = True) -> str:
    """Return the text of the line, "" when there is nothing to show. seconds: for how long the agent has been thinking."""
    if not status.online:
        state = _connection_text(status)
    elif status.thinking:
        state = _draft_text(status.draft, unicode) or _thinking_text(seconds, unicode)
    else:
        state = ""
    return (" · " if unicode else " - ").join(part for part in (hint, state) if part)


def _connection_text(status: ChatStatus) -> str:
    """Return the state of a connection that is not there, and how many messages wait for it."""
    state = "connection lost, trying again" if status.lost else "connecting"
    return f"{state}; {plural(status.unsent, 'message')} waiting to be sent" if status.unsent else state


def _draft_text(draft: str, unicode: bool) -> str:
    """Return the end of the draft in one line."""
    text = " ".join(neutralise(draft).split())
    dots = "…" if unicode else "..."
    return text if len(text) <= DRAFT_SHOWN else dots + text[-DRAFT_SHOWN:]


def _thinking_text(seconds: float, unicode: bool) -> str:
    """Return the spinner, and after some seconds for how long, and how to stop."""
    frame = _FRAMES[int(seconds / FRAME_SECONDS) % len(_FRAMES)] + " " if unicode else ""
    if seconds < PATIENCE:
        return f"{frame}thinking"
    minutes, rest = divmod(int(seconds), 60)
    duration = f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
    return f"{frame}thinking for {duration}, Ctrl-C stops"
