"""What is answered before any model is asked: /stop, /new, /help, /status (interfaces section 4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, TypeAlias

from pegasus.formatting import format_duration, plural
from pegasus.main_agent.messages import AgentStatus, EndedWork
from pegasus.messages import InboundMessage

Answers: TypeAlias = Mapping[str, Callable[[InboundMessage], Awaitable[str]]]
"""Who answers which command. Raises StorageError."""

_HELP: Final = {
    "/stop": "end what I am working on right now, and say what was ended",
    "/new": "put this conversation aside (it is archived) and begin a fresh one",
    "/status": "what I am doing, and with which model",
    "/usage": "what my model calls have used, and what is left of the budgets",
    "/model": "which model thinks; my owner can choose another: /model provider/name, /model default",
    "/persona": "who I am, and what I propose to change about that (for my owner to accept or reject)",
    "/help": "this list",
}
_OWN: Final = frozenset({"/stop", "/new", "/status", "/help"})


def help_text(answers: Collection[str]) -> str:
    """The answer to /help. answers: the commands that somebody answers, beside the agent's own."""
    lines = [f"{command} — {words}" for command, words in _HELP.items() if command in _OWN or command in answers]
    return "\n".join([*lines, "Anything else you write is a message to me."])


def stop_text(ended: Sequence[EndedWork], waiting: int) -> str:
    """The answer to /stop: what was ended. waiting: messages that are still in the queue."""
    lines = [f"- {e.kind}: {e.what} (ran {format_duration(e.seconds)})" for e in ended]
    lines.insert(0, "Stopped:" if ended else "Nothing was running.")
    if waiting:
        lines.append(
            f"{plural(waiting, 'message')} {'is' if waiting == 1 else 'are'} still waiting and will be taken up next."
        )
    return "\n".join(lines)


def status_text(status: AgentStatus, waiting: int, uptime: float) -> str:
    """The answer to /status. uptime: seconds."""
    doing = (
        f"thinking about “{status.thinking_about}” for {format_duration(status.thinking_for)}"
        if status.thinking_about
        else "idle"
    )
    return "\n".join(
        [
            f"I am {doing}.",
            f"Model: {status.model}",
            f"Waiting: {plural(waiting, 'message')}",
            f"Session: {plural(status.entries, 'entry', 'entries')}",
            f"Up for {format_duration(uptime)}, {plural(status.turns, 'message')} handled",
        ]
    )
