"""Waiting for the task system: it begins a moment after the daemon, and again after a crash of its own."""

from __future__ import annotations

from typing import Final

import trio

from actors import Ref
from pegasus.tasks.messages import AgentMessage

UP_WITHIN: Final = 10.0
"""Seconds that the task system may take to start before a call for it fails."""


async def wait_until_running(agent: Ref[AgentMessage]) -> bool:
    """Whether it runs, now or within UP_WITHIN."""
    with trio.move_on_after(UP_WITHIN):
        while not agent.alive:  # noqa: ASYNC110 nobody tells who is up
            await trio.sleep(0.02)
    return agent.alive
