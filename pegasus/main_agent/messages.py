"""What may be said to the Main Agent, besides the queue items that it takes from the journal."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from actors import Reply


@attrs.frozen
class EndedWork:
    """Something that /stop ended. kind: "thought" or "task"; what: a short description; seconds: how long it had run."""

    kind: str
    what: str
    seconds: float


@attrs.frozen
class Stop:
    """End the running thought. by: who asked, as it will stand in the session. Answered when all of it has ended."""

    reply: Reply[tuple[EndedWork, ...]]
    by: str


@attrs.frozen
class AgentStatus:
    """thinking_about: start of the message being thought about, None if idle; thinking_for: seconds.

    entries: lines of the session; model: its name; turns: queue items finished since the start.
    """

    model: str
    entries: int
    turns: int
    thinking_about: str | None
    thinking_for: float


@attrs.frozen
class GetStatus:
    """Ask what the Main Agent is doing."""

    reply: Reply[AgentStatus]


MainAgentMessage: TypeAlias = Stop | GetStatus
