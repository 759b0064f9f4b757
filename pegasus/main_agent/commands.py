"""What is answered before any model is asked: /stop, /new, /help, /status (interfaces section 4)."""

from __future__ import annotations

from collections.abc import Sequence

from pegasus.main_agent.messages import AgentStatus, Ended
from pegasus.wording import count, span

CONTROL = frozenset({"/stop", "/help", "/status"})
"""These pass the queue; /new keeps its place in it."""

HELP = """\
/stop — end what I am working on right now, and say what was ended
/new — put this conversation aside (it is archived) and begin a fresh one
/status — what I am doing, and with which model
/help — this list
Anything else you write is a message to me."""


def command_of(text: str) -> str | None:
    """The command a message is ("/stop" …), or None. Case and anything after the first space do not matter."""
    stripped = text.strip()
    if not stripped.startswith("/"):
        return None
    word = stripped.split(None, 1)[0].lower()
    return word if word in CONTROL or word == "/new" else None


def stop_text(ended: Sequence[Ended], waiting: int) -> str:
    """The answer to /stop: what was ended. waiting: messages that are still in the queue."""
    lines = [f"- {e.kind}: {e.what} (ran {span(e.seconds)})" for e in ended]
    lines.insert(0, "Stopped:" if ended else "Nothing was running.")
    if waiting:
        lines.append(
            f"{count(waiting, 'message')} {'is' if waiting == 1 else 'are'} still waiting and will be taken up next."
        )
    return "\n".join(lines)


def status_text(status: AgentStatus, waiting: int, uptime: float) -> str:
    """The answer to /status. uptime: seconds."""
    doing = (
        f"thinking about “{status.thinking_about}” for {span(status.thinking_for)}" if status.thinking_about else "idle"
    )
    return "\n".join(
        [
            f"I am {doing}.",
            f"Model: {status.model}",
            f"Waiting: {count(waiting, 'message')}",
            f"Session: {count(status.entries, 'entry', 'entries')}",
            f"Up for {span(uptime)}, {count(status.turns, 'message')} handled",
        ]
    )
