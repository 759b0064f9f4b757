"""Background work as the Main Agent's actor meets it: something that can be ended, and that outlives a crash of its own."""

from __future__ import annotations

from typing import Protocol

from pegasus.conversation import OpenCall
from pegasus.main_agent.messages import EndedWork
from pegasus.messages import ChannelInfo


class BackgroundWork(Protocol):
    """What is behind the tools that delegate."""

    async def stop(self, by: str, channel: ChannelInfo | None) -> tuple[EndedWork, ...]:
        """End what was begun on this channel (None: all); gives what was ended, once nothing of it runs. Raises nothing."""

    async def result_of(self, made: OpenCall, key: str) -> str | None:
        """The true result (JSON) of a call that a crash interrupted, if it had taken effect (interfaces 8.5)."""
