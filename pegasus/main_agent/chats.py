"""The agents of chats: one Main Agent for each chat that has something to do, side by side.

With `agent.scope = "chat"` these are all chats, with "global" those in which guests are heard, and those that are separate
(`Address.is_separate`).

Nobody routes messages. The journal is asked which chat without an agent has an item that is due (`NextChat`), an agent is started for
it, and that takes the items of its chat, in order. So a chat exists in memory while it works, and for a while after that; the others
are files. An agent that ends loses nothing: its session is on disk, and what is not done is due again.

At most `agent.max_active_chats` agents are in memory. Where one more is wanted, the one that has been idle for longest is stopped.
While all of them work, messages of other chats wait in the inbox. Their commands do not, within SPARE more agents, since a /stop must
work then, too.

A chat that crashes is started again when it has something to do, with growing pauses, and no other chat notices it. An item that
crashes it again and again is set aside by the agent itself. Two agents never write one session: each has a lease of its own.

A chat is in one of four states, which `_Chats._chats` shows: it is not in there (nothing to do, or nobody has looked yet); its
agent is being started (`ref` is None); its agent runs; its agent ends or has crashed, and the chat stays in there until it may
be started again. One task for each chat (`_run_chat`) goes through these states from the first to the last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Final, TypeVar

import attrs
import trio

from actors import (
    ActorDied,
    ActorError,
    Backoff,
    Child,
    Crashed,
    Inbox,
    Ref,
    Reply,
    Restart,
    Supervisor,
    open_pool,
    watch,
)
from pegasus.main_agent.actor import main_agent
from pegasus.main_agent.agents import merge_statuses
from pegasus.main_agent.chat_commands import GetStatus, Interrupt, MainAgentMessage, Stop, Withdraw
from pegasus.main_agent.services import AgentServices, CommandAnswers, PublishMessage
from pegasus.main_agent.session import chat_key
from pegasus.main_agent.status import idle_status
from pegasus.main_agent.turns import MOST_WITHDRAWN
from pegasus.messages import Address, ReplyDraft, Said, Typing
from pegasus.storage import (
    JournalMessage,
    Lease,
    LeaseLost,
    LostChats,
    NextChat,
    StorageError,
    TakeLease,
    chat_owner,
)

T = TypeVar("T")

KEEP_IDLE: Final = 600.0
"""Seconds that an agent without work stays in memory, so that a conversation which goes on need not be read again."""
SPARE: Final = 10
"""Agents beyond the limit, for commands only."""
BACKOFF: Final = Backoff(first=0.5, limit=60.0)
"""Pauses, in seconds, before a chat that has crashed is started again."""
SHUTDOWN: Final = 5.0
"""Seconds that an agent has to end."""


async def chat_agents(
    inbox: Inbox[MainAgentMessage],
    journal: Ref[JournalMessage],
    services: AgentServices,
    *,
    apart: bool | None = None,
    announce: Ref[Typing | ReplyDraft] | None = None,
    said: Ref[Said] | None = None,
    publish: PublishMessage | None = None,
    answers: CommandAnswers = MappingProxyType({}),
) -> None:
    """Run the agents of all chats; the arguments are those of `main_agent`, which runs each.

    Raises nothing. Stopped or cancelled: all agents end, and their items are handed out again at the next start.
    """
    async with open_pool() as pool, trio.open_nursery() as nursery:
        run = partial(
            main_agent, journal=journal, apart=apart, announce=announce, said=said, publish=publish, answers=answers
        )
        chats = _Chats(journal, services, run, pool, nursery, apart)
        nursery.start_soon(chats.start_due_agents)
        nursery.start_soon(chats.end_lost_agents)
        async for message in inbox:
            match message:
                case GetStatus():
                    nursery.start_soon(chats.answer_status, message)
                case Stop():
                    nursery.start_soon(chats.answer_stop, message)
                case Interrupt():
                    nursery.start_soon(chats.answer_interrupt, message)
                case Withdraw(address):
                    chats.pass_on(address, message)
        nursery.cancel_scope.cancel()


@attrs.define(eq=False)
class _ChatAgent:
    """A chat that has an agent, or had one that has crashed."""

    ref: Ref[MainAgentMessage] | None = None
    """None before its agent has started and after it has ended."""
    lease: Lease | None = None
    """Lease of its session, under which its agent works."""
    working: int = 0
    """Items and commands that are being worked on."""
    idle_since: float = attrs.field(factory=trio.current_time)
    """Trio's clock (seconds) when it had last worked."""
    is_ending: bool = False
    """Its agent is being stopped."""

    @property
    def has_agent(self) -> bool:
        """Return whether it has an agent that is not being stopped."""
        return self.ref is not None and not self.is_ending

    @property
    def is_idle(self) -> bool:
        """Return whether it has an agent that does nothing and may be stopped."""
        return self.has_agent and not self.working


@attrs.define(eq=False)
class _Chats:
    """The state of the actor. All tasks run in one Trio thread, and code without an `await` sees no change by others."""

    _journal: Ref[JournalMessage]
    """Asked for the next chat that has something to do."""
    _services: AgentServices
    """Services of all chats; `for_chat` makes those of one."""
    _run_agent: Callable[..., Awaitable[None]]
    """`main_agent`, with what is the same for all chats."""
    _pool: Supervisor
    """Supervises the agents, which it does not restart: whether a chat is started again depends on its items."""
    _nursery: trio.Nursery
    """Runs a task for each chat, which starts its agent and sees it end."""
    _apart: bool | None = None
    """Only chats with a session of their own; None: all."""
    _chats: dict[Address, _ChatAgent] = attrs.field(init=False, factory=dict)
    """Chats whose items the journal is not asked about: they have an agent, or have crashed a moment ago."""
    _crashes: dict[Address, int] = attrs.field(init=False, factory=dict)
    """Crashes in a row of each chat."""
    _withdrawn: deque[Withdraw] = attrs.field(init=False, factory=lambda: deque(maxlen=MOST_WITHDRAWN))
    """The last messages that were withdrawn: an agent that starts later must know of them."""
    _asking: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    """Around the wait for the next chat. Cancelled when something has changed that the question depends on."""
    _watching: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    """Around the wait for a chat that is lost. Cancelled when there is another agent, which that has to be asked about too."""

    # ------------------------------------------------------------------ starting and ending agents

    async def start_due_agents(self) -> None:
        """Start an agent for each chat that has something to do and none, for ever."""
        while True:
            address = await self._next()
            if address is not None:
                self._chats[address] = _ChatAgent()
                self._nursery.start_soon(self._run_chat, address)

    async def _next(self) -> Address | None:
        """Return a chat that an agent may be started for now; None if that has to be asked again."""
        max_active, running = self._services.config.now.max_active_chats, frozenset(self._chats)
        # Each wait below depends on which chats are in memory. `_asking` is cancelled when that has changed, and the caller asks
        # again.
        with trio.CancelScope() as self._asking:
            if len(running) < max_active:
                return await self._journal.ask(NextChat, running, ("control", "main"), self._apart)
            if self._longest_idle() is not None:
                # The answer is not used: it only says that a chat wants a place. Which one is asked again when there is one.
                await self._journal.ask(NextChat, running, ("control", "main"), self._apart)
                if (idle := self._longest_idle()) is not None:
                    self._end(idle)
                    await trio.sleep_forever()  # until it has ended
            elif len(running) < max_active + SPARE:
                return await self._journal.ask(NextChat, running, ("control",), self._apart)
            else:
                await trio.sleep_forever()  # until one has ended or is idle
        return None

    async def end_lost_agents(self) -> None:
        """Stop the agent of each chat whose lease is lost, for ever. It could write nothing, but still act."""
        while True:
            running = {address: chat.lease for address, chat in self._chats.items() if chat.has_agent and chat.lease}
            with trio.CancelScope() as self._watching:
                for address in await self._journal.ask(LostChats, running):
                    # The chat may have another agent by now, with a lease of its own.
                    if (chat := self._chats.get(address)) and chat.has_agent and chat.lease == running[address]:
                        self._end(address)

    def _longest_idle(self) -> Address | None:
        """Return the chat that is stopped when another one needs its place; None if all of them work."""
        idle = [address for address, chat in self._chats.items() if chat.is_idle]
        return min(idle, key=lambda address: self._chats[address].idle_since, default=None)

    def _end(self, address: Address) -> None:
        """Begin to stop the agent of a chat."""
        # Noted at once, so that nobody chooses this agent a second time while it stops.
        self._chats[address].is_ending = True
        self._nursery.start_soon(self._stop, address)

    async def _stop(self, address: Address) -> None:
        """Stop the agent of a chat, unless it has ended by itself meanwhile, as one does whose change is refused."""
        with suppress(ActorError):
            await self._pool.stop_child(chat_key(address))

    async def _run_chat(self, address: Address) -> None:
        """Start the agent of a chat and wait for its end. After a crash, wait before it may be started again."""
        chat = self._chats[address]
        started = trio.current_time()
        try:
            # From here on an agent that still runs with this session can write nothing.
            chat.lease = await self._journal.ask(TakeLease, chat_owner(address))
            run = partial(
                self._run_agent,
                services=self._services.for_chat(address),
                chat=address,
                note_work=partial(self._note_work, chat),
                lease=chat.lease,
            )
            child: Child[MainAgentMessage] = Child(chat_key(address), run, restart=Restart.TEMPORARY, shutdown=SHUTDOWN)
            chat.ref = await self._pool.start_child(child)
            self._watching.cancel()
            # Senders may have withdrawn messages while the chat had no agent.
            for message in [withdrawn for withdrawn in self._withdrawn if withdrawn.address == address]:
                self.pass_on(address, message)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_when_idle, address, chat)
                end = (await watch(chat.ref)).exit
                # A change that is refused since another agent has the session now is no mistake of this one.
                has_crashed = isinstance(end, Crashed) and not isinstance(end.error, LeaseLost)
                nursery.cancel_scope.cancel()
        except LeaseLost:
            has_crashed = False
        except (ActorDied, StorageError) as error:
            has_crashed = not isinstance(error.__cause__, LeaseLost)
        # Whoever asks from here on finds no agent. The chat stays in `_chats` until it may be started again.
        chat.ref = None
        if has_crashed:
            # An agent that ran for a while has not crashed at once, so the pauses begin anew.
            is_in_a_row = trio.current_time() - started < BACKOFF.reset_after
            self._crashes[address] = self._crashes.get(address, 0) + 1 if is_in_a_row else 1
            await trio.sleep(BACKOFF.nominal(self._crashes[address]))
        else:
            self._crashes.pop(address, None)
        # From here on the journal is asked about this chat again.
        del self._chats[address]
        self._asking.cancel()

    def _note_work(self, chat: _ChatAgent, is_working: bool) -> None:
        """Note that the agent of a chat has begun with an item or a command, or has ended it."""
        chat.working += 1 if is_working else -1
        if not chat.working:
            chat.idle_since = trio.current_time()
            # Somebody may wait for the place of a chat that is idle now.
            if len(self._chats) >= self._services.config.now.max_active_chats:
                self._asking.cancel()

    async def _end_when_idle(self, address: Address, chat: _ChatAgent) -> None:
        """Stop the agent of a chat when it has had nothing to do for KEEP_IDLE seconds."""
        # Work may begin and end during the sleep, so the time is computed anew after it.
        while not chat.is_ending:
            since = trio.current_time() if chat.working else chat.idle_since
            if trio.current_time() < since + KEEP_IDLE:
                await trio.sleep_until(since + KEEP_IDLE)
            elif chat.is_idle:
                self._end(address)

    # ------------------------------------------------------------------ questions of programs in this process

    async def answer_status(self, message: GetStatus) -> None:
        """Answer with what the agents in memory do together. The thought is the one that runs for longest."""
        statuses = await self._ask_all(GetStatus)
        status = merge_statuses([idle_status(self._services), *statuses])
        message.reply.send(attrs.evolve(status, chats=len(statuses)))

    async def answer_stop(self, message: Stop) -> None:
        """End the thoughts of all chats and all tasks, and answer when nothing of it runs any more."""
        ended = await self._ask_all(partial(Stop, by=message.by))
        work = self._services.work
        # After the thoughts, which could begin new tasks until they have ended. Tasks of chats without an agent are among them.
        tasks = await work.stop(message.by, None) if work is not None else ()
        message.reply.send(tuple(dict.fromkeys([*chain.from_iterable(ended), *tasks])))

    async def answer_interrupt(self, message: Interrupt) -> None:
        """Have the agent of the chat answer; a chat without one makes no answer."""
        chat = self._chats.get(message.address)
        ended = None
        if chat is not None and chat.ref is not None:
            with suppress(ActorError):
                ended = await chat.ref.ask(Interrupt, message.address, message.person, message.by)
        message.reply.send(ended)

    def pass_on(self, address: Address, message: Withdraw) -> None:
        """Hand a message on to the agent of a chat, or keep it for the one that will be started."""
        # It comes a second time when the agent of the chat has started.
        if message not in self._withdrawn:
            self._withdrawn.append(message)
        chat = self._chats.get(address)
        if chat is not None and chat.ref is not None:
            with suppress(ActorError):
                chat.ref.tell_nowait(message)

    async def _ask_all(self, question: Callable[[Reply[T]], MainAgentMessage]) -> list[T]:
        """Return the answers of all agents. One that ends meanwhile has none."""
        answers: list[T] = []

        async def ask(agent: Ref[MainAgentMessage]) -> None:
            """Put the question to one agent, and keep its answer."""
            with suppress(ActorError):
                answers.append(await agent.ask(question))

        async with trio.open_nursery() as nursery:
            for chat in self._chats.values():
                if chat.ref is not None:
                    nursery.start_soon(ask, chat.ref)
        return answers
