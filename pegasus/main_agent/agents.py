"""The actors that the Main Agent consists of, as others talk to them: the one of all channels of the owner, and that of chats."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import Protocol

import attrs

from actors import ActorError, Ref
from pegasus.access import Principal
from pegasus.main_agent.chat_commands import (
    AgentStatus,
    EndedWork,
    GetStatus,
    Interrupt,
    MainAgentMessage,
    Stop,
    Withdraw,
)
from pegasus.main_agent.services import AgentServices
from pegasus.main_agent.status import idle_status
from pegasus.messages import Address


class AgentsElsewhere(Protocol):
    """The Main Agents of other nodes."""

    async def stop(self, by: str) -> tuple[EndedWork, ...]:
        """End all their thoughts and tasks; return what was ended, as far as they say so in time."""

    async def interrupt(self, address: Address, person: Principal, by: str) -> EndedWork | None:
        """End the answer that one of them makes for a conversation; return it, None if there was none."""


@attrs.frozen
class MainAgents:
    """The actors that work on people's messages: `MainAgents((root.ref("main-agent/global"), root.ref("main-agent/chats")))`.

    With `agent.scope = "chat"` there is only the one that runs the agents of chats.
    """

    refs: tuple[Ref[MainAgentMessage], ...]
    """Their addresses, which are valid before they run."""
    elsewhere: AgentsElsewhere | None = None
    """Those of other nodes; None: there are none."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Their paths in the supervision tree."""
        return tuple(ref.path for ref in self.refs)

    async def status(self, timeout: float | None = None) -> AgentStatus:
        """Return what they do together. Raises ActorError. timeout: seconds for each."""
        return merge_statuses([await ref.ask(GetStatus, timeout=timeout) for ref in self.refs])

    async def stop(self, by: str) -> tuple[EndedWork, ...]:
        """End all thoughts and tasks, and return what was ended when nothing of it runs any more. Raises ActorError.

        by: author, for the session. Cancelled: it is ended all the same.
        """
        # Each of them ends all tasks as well. A task that another one is ending already is ended once.
        ended = [await ref.ask(Stop, by) for ref in self.refs]
        if self.elsewhere is not None:
            ended.append(await self.elsewhere.stop(by))
        return tuple(dict.fromkeys(chain.from_iterable(ended)))

    async def interrupt(self, address: Address, person: Principal, by: str) -> EndedWork | None:
        """End the answer that is being made for a conversation; return it, None if there was none. Raises ActorError.

        person: who asks. by: author, for the session.
        """
        for ref in self.refs:
            ended = await ref.ask(Interrupt, address, person, by)
            if ended is not None:
                return ended
        return await self.elsewhere.interrupt(address, person, by) if self.elsewhere is not None else None

    def withdraw(self, address: Address, message_id: str) -> None:
        """Tell them that nobody waits for the answer to a message. One that is being restarted works on it all the same."""
        for ref in self.refs:
            with suppress(ActorError):
                ref.tell_nowait(Withdraw(address, message_id))


def answer_idle(services: AgentServices, message: MainAgentMessage) -> None:
    """Answer a message to an agent that works on another node: here it does nothing."""
    match message:
        case GetStatus(reply):
            reply.send(idle_status(services))
        case Stop(reply):
            reply.send(())
        case Interrupt(reply):
            reply.send(None)
        case Withdraw():
            pass


def merge_statuses(statuses: Iterable[AgentStatus]) -> AgentStatus:
    """Return the status of several agents together, with the model of the first. The thought is the one that runs for longest."""
    first, *others = statuses
    statuses = (first, *others)
    longest = max(statuses, key=lambda status: status.thinking_for)
    return attrs.evolve(
        first,
        entries=sum(status.entries for status in statuses),
        turns=sum(status.turns for status in statuses),
        thinking_about=longest.thinking_about,
        thinking_for=longest.thinking_for,
        in_hand=sum(status.in_hand for status in statuses),
        chats=sum(status.chats for status in statuses),
    )
