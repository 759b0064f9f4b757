"""Messages of the Main Agent's mailbox.

What people write does not come through the mailbox: the agent takes it from the journal, so that nothing is lost with a mailbox. The
mailbox is for programs in the same process, such as the control plane:

    status = await main_agent_ref.ask(GetStatus)
    ended = await main_agent_ref.ask(Stop, "a control call")
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from actors import Reply


@attrs.frozen
class EndedWork:
    """Work that /stop has ended, or is ending.

    Example: `EndedWork("task", "fetch the report", 12.5)`.
    """

    kind: str
    """"thought" or "task"."""
    what: str
    """Short description: the beginning of the message, or what the task is about."""
    seconds: float
    """How long it had run."""


@attrs.frozen
class Stop:
    """End the running thought and all tasks. Answered with what was ended, when nothing of it runs any more."""

    reply: Reply[tuple[EndedWork, ...]]
    by: str
    """Who asks, as it will stand in the session."""


@attrs.frozen
class AgentStatus:
    """Answer to GetStatus."""

    model: str
    """Name of the model that thinks."""
    entries: int
    """Entries of the session."""
    turns: int
    """Queue items finished since the start."""
    thinking_about: str | None
    """Beginning of the message that is being thought about; None if there is none."""
    thinking_for: float
    """Seconds since that began, 0 if there is none."""


@attrs.frozen
class GetStatus:
    """Ask for the status of the Main Agent."""

    reply: Reply[AgentStatus]


MainAgentMessage: TypeAlias = Stop | GetStatus
