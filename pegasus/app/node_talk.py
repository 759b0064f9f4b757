"""Talk between the nodes of an agent while it works: signs for people who are connected elsewhere, and ends of work.

A conversation is worked on at one node, and its clients may be connected to others. Replies and all else that must arrive are stored,
and each node reads them there. What only shows how it goes (typing, drafts, states of tasks, what others have said) is told to the
other nodes, and is lost if that fails. `NodeTalk.signs` is the actor that everybody in the tree shows signs to, in place of the
switchboard and the gateway.

`/stop` in a chat is a message, and reaches the node of the chat as one. Programs end work through the control plane: `stop` for all
conversations, `interrupt` for the answer of one. Each node is asked to, and has ANSWER_SECONDS to say what it has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final, TypeAlias

import attrs
import trio

from actors import ActorError, Inbox, Ref
from pegasus.access import Principal, Role
from pegasus.channels import SwitchboardMessage
from pegasus.main_agent import EndedWork, MainAgents
from pegasus.messages import Address, ChannelInfo, FileEdit, Json, ReplyDraft, Said, TaskProgress, Typing
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage, NextTold, StorageError, TellNodes
from pegasus.storage.database import NodeList
from pegasus.wire import decode_object, encode_json, from_wire, to_wire

Sign: TypeAlias = Typing | ReplyDraft | TaskProgress | FileEdit | Said
"""Signs that people are shown, and that are never stored."""
KINDS: Final[Mapping[str, type[Sign]]] = {
    "typing": Typing,
    "draft": ReplyDraft,
    "progress": TaskProgress,
    "edit": FileEdit,
    "said": Said,
}
"""Classes of the signs by their names between nodes."""
DRAFT_EVERY: Final = 0.5
"""Seconds between two drafts of a conversation that other nodes are told."""
ANSWER_SECONDS: Final = 2.0
"""Seconds that other nodes have to say what they have ended."""
_NAMES: Final = {kind: name for name, kind in KINDS.items()}

_log = get_logger("nodes")


@attrs.frozen(eq=False, repr=False)
class NodeTalk:
    """The talk of this node with the others: `NodeTalk(journal, nodes, switchboard, gateway, agents, random)`."""

    _journal: Ref[JournalMessage]
    _nodes: NodeList
    _switchboard: Ref[SwitchboardMessage]
    _gateway: Ref[Said]
    _agents: MainAgents
    """Those of this node, which carry out what others ask for."""
    _random: Random
    _drafted: dict[Address, float] = attrs.field(factory=dict, init=False)
    """Trio's clock when the last draft of a conversation was told."""
    _answers: dict[str, trio.MemorySendChannel[list[EndedWork]]] = attrs.field(factory=dict, init=False)
    """Takers of answers, by the name of the question."""

    # ------------------------------------------------------------------ signs

    async def signs(self, inbox: Inbox[Sign]) -> None:
        """Show signs of this node here, and tell them to the others; show theirs here."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hear, nursery)
            async for sign in inbox:
                self._show(sign)
                if self._is_told(sign):
                    # What was said is for all clients of the conversation, the others are enough for those of one node.
                    address = sign.channel.address if isinstance(sign, ReplyDraft | Typing) else None
                    self._tell({"sign": _NAMES[type(sign)], "value": to_wire(sign)}, address)
            nursery.cancel_scope.cancel()

    def _is_told(self, sign: Sign) -> bool:
        """Return whether others are told; of the drafts of a conversation some are left out, and never the last."""
        if not isinstance(sign, ReplyDraft):
            if isinstance(sign, Typing) and not sign.active:
                self._drafted.pop(sign.channel.address, None)
            return True
        now, address = trio.current_time(), sign.channel.address
        if not sign.is_last and now < self._drafted.get(address, 0.0) + DRAFT_EVERY:
            return False
        self._drafted[address] = now
        return True

    def _show(self, sign: Sign) -> None:
        with suppress(ActorError):  # it may be lost
            if isinstance(sign, Said):
                self._gateway.tell_nowait(sign)
            else:
                self._switchboard.tell_nowait(sign)

    def _tell(self, content: Mapping[str, Json], address: Address | None = None) -> None:
        with suppress(ActorError):
            self._journal.tell_nowait(TellNodes(encode_json(content), address))

    # ------------------------------------------------------------------ what others tell

    async def _hear(self, nursery: trio.Nursery) -> None:
        while True:
            try:
                texts = await self._journal.ask(NextTold)
            except StorageError:
                return  # another run of this actor asks
            for text in texts:
                try:
                    self._take(decode_object(text), nursery)
                except ValueError as error:  # of a newer version
                    _log.debug("another node told something unknown", problem=str(error))

    def _take(self, content: Mapping[str, Json], nursery: trio.Nursery) -> None:
        """Take what another node has told. Raises ValueError."""
        match content:
            case {"sign": str(name), "value": value} if name in KINDS:
                self._show(from_wire(value, KINDS[name]))
            case {"ask": str(id), "stop": str(by)}:
                nursery.start_soon(self._answer, id, lambda: self._agents.stop(by))
            case {"ask": str(id), "interrupt": {"address": str(name), "by": str(by), "person": person}}:
                address = Address.parse(name)
                if address is not None:
                    end = partial(self._agents.interrupt, address, _principal(person), by)
                    nursery.start_soon(self._answer, id, end)
            case {"answer": str(id), "ended": list(ended)} if id in self._answers:
                with suppress(trio.WouldBlock, trio.BrokenResourceError):
                    self._answers[id].send_nowait([from_wire(work, EndedWork) for work in ended])

    async def _answer(self, id: str, end: Callable[[], Awaitable[tuple[EndedWork, ...] | EndedWork | None]]) -> None:
        """End what another node asks to be ended, and say what it was."""
        with suppress(ActorError):
            ended = await end()
            found = ended if isinstance(ended, tuple) else () if ended is None else (ended,)
            self._tell({"answer": id, "ended": [to_wire(work) for work in found]})

    # ------------------------------------------------------------------ asking others

    async def stop(self, by: str) -> tuple[EndedWork, ...]:
        """End all thoughts and tasks of the other nodes; return what they have ended in time."""
        return await self._ask({"stop": by})

    async def interrupt(self, address: Address, person: Principal, by: str) -> EndedWork | None:
        """End the answer that another node makes for a conversation; return it, None if none says in time that it has."""
        channel = None if person.channel is None else to_wire(person.channel)
        who: dict[str, Json] = {
            "role": person.role,
            "channel": channel,
            "account": person.account,
            "apart": person.is_apart,
        }
        found = await self._ask({"interrupt": {"address": str(address), "by": by, "person": who}})
        return found[0] if found else None

    async def _ask(self, question: Mapping[str, Json]) -> tuple[EndedWork, ...]:
        """Ask the other nodes to end something, and return what they have ended within ANSWER_SECONDS."""
        ended: list[EndedWork] = []
        with suppress(StorageError), trio.move_on_after(ANSWER_SECONDS):
            others = await self._nodes.count_others()
            if not others:
                return ()
            id, (send, receive) = f"{self._random.getrandbits(64):x}", trio.open_memory_channel[list[EndedWork]](others)
            self._answers[id] = send
            try:
                self._tell({"ask": id, **question})
                for _ in range(others):
                    ended += await receive.receive()
            finally:
                del self._answers[id]
        return tuple(ended)


def _principal(person: Json) -> Principal:
    """Return the person for whom another node asks. Raises ValueError."""
    match person:
        case {"role": str(role), "channel": channel, "account": str(account), "apart": bool(apart)}:
            there = None if channel is None else from_wire(channel, ChannelInfo)
            return Principal(Role(role), there, account, is_apart=apart)
    raise ValueError("there is no person in it")
