"""The Main Agent as an actor: takes queue items from the journal, one at a time, and hears /stop while it thinks.

Three things run side by side: the main lane (items in order), the control lane (commands that pass the queue) and the mailbox. A crash
of any of them ends all; the supervisor starts the actor again, which reads its session and takes up the item it was at.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import MappingProxyType

import attrs
import trio

from actors import ActorError, Inbox, Ref
from pegasus.conversation import Entry
from pegasus.formatting import truncate
from pegasus.intake import command_of
from pegasus.main_agent.apologies import apologise, close_open_calls
from pegasus.main_agent.commands import Answers, help_text, status_text, stop_text
from pegasus.main_agent.messages import AgentStatus, EndedWork, GetStatus, MainAgentMessage, Stop
from pegasus.main_agent.notices import is_notice
from pegasus.main_agent.progress import Next, is_closed_by, thoughts_ended
from pegasus.main_agent.publishing import Publish
from pegasus.main_agent.reply_tool import answer_to, post_key
from pegasus.main_agent.services import AgentServices
from pegasus.main_agent.session import Session, until_written
from pegasus.main_agent.session_loading import load_session
from pegasus.main_agent.think_loop import ThinkLoop, Work
from pegasus.main_agent.works import BackgroundWork
from pegasus.messages import ChannelInfo, Json, Progress, Typing
from pegasus.observe import get_logger
from pegasus.storage import Commit, Done, Item, JournalMessage, NextItem, Posted, StorageError, Waiting

_log = get_logger("main_agent")

COMMAND = "command"
"""Ends the idempotency key of a command's answer."""
EXCERPT = 60
"""Characters of a message by which people know it again."""
MAX_ATTEMPTS = 3
"""How often an item may crash the Main Agent before it is set aside (issue "The spine", 2)."""


async def main_agent(
    inbox: Inbox[MainAgentMessage],
    journal: Ref[JournalMessage],
    mind: AgentServices,
    *,
    path: str = "main/current.jsonl",
    announce: Ref[Typing | Progress] | None = None,
    make_works: Callable[[], BackgroundWork] | None = None,
    publish: Publish | None = None,
    answers: Answers = MappingProxyType({}),
) -> None:
    """Run the agent of one session. announce: who is told when it starts and ends thinking, and what it is about to say.

    make_works: gives the background work that it can see and end; None: there is none. publish: makes known what people
    said, once it is dealt with. answers: who answers a command that is not the agent's own, by its name.

    Cancelled or stopped: the running model call ends at once; its item is taken up again at the next start.
    """
    session = await load_session(path, journal, mind.clock, make_works, inbox.started)
    agent = _Agent(session, journal, mind, announce, make_works, publish, answers, started=trio.current_time())
    async with trio.open_nursery() as nursery:
        agent.worker = ThinkLoop(session, mind, journal, agent.show, nursery.start_soon)
        nursery.start_soon(agent.main_lane)
        nursery.start_soon(agent.control_lane)
        async for message in inbox:
            match message:
                case GetStatus(reply):
                    reply.send(agent.status())
                case Stop(reply, by):
                    nursery.start_soon(agent.answer_stop, reply.send, by)
        nursery.cancel_scope.cancel()


@attrs.define(eq=False)
class _Running:
    """What is being worked on. ended is set when nothing of it runs any more. told: what a /stop that ends it will say.

    elsewhere: that was said on another chat.
    """

    work: Work
    since: float
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    ended: trio.Event = attrs.field(factory=trio.Event)
    told: dict[str, Json] = attrs.field(factory=dict)
    elsewhere: bool = False

    @property
    def about(self) -> str:
        return truncate(self.work.item.message.text, EXCERPT)


@attrs.define(eq=False)
class _Agent:
    session: Session
    journal: Ref[JournalMessage]
    mind: AgentServices
    announce: Ref[Typing | Progress] | None
    make_works: Callable[[], BackgroundWork] | None
    publish: Publish | None
    answers: Answers
    started: float
    worker: ThinkLoop = attrs.field(init=False)
    ended_before: dict[int, EndedWork] = attrs.field(init=False)
    turns: int = 0
    running: _Running | None = None
    stopped_by: str = ""

    def __attrs_post_init__(self) -> None:
        self.ended_before = thoughts_ended(self.session.entries)  # now, since /new may put them aside

    # ---------------------------------------------------------------- main lane

    async def main_lane(self) -> None:
        prefer = self.session.unfinished()
        while True:
            item = await self.journal.ask(NextItem, "main", prefer)
            prefer = None
            work = Work([item])
            running = self.running = _Running(work, trio.current_time())
            self.session.replies = ()
            self._typing(item, active=True)
            try:
                with running.scope:
                    await self._handle(work)
                if running.scope.cancelled_caught and not await self._close(running):
                    continue
                for done in work.items:
                    await self.journal.tell(Done(done.n))
                    self.turns += 1
                    self._publish(done)
            finally:
                self.running = None
                running.ended.set()
                self._typing(item, active=False)

    async def _close(self, running: _Running) -> bool:
        """End what a /stop has cut short; False if it goes on, since who stopped it has nothing to do with it.

        What it came too early for stands in the session all the same, or nothing there would say that it was stopped.
        """
        item = running.work.item
        if self.session.progress(item.n, item.message.id).next is Next.RECORD and not _is_new(item):
            await self.worker.record(item)
        return await close_open_calls(
            self.session,
            item,
            self.mind.clock(),
            self.stopped_by,
            running.told,
            elsewhere=running.elsewhere,
        )

    async def _handle(self, work: Work) -> None:
        item = work.item
        answered = self.session.progress(item.n, item.message.id).next is Next.NOTHING
        if item.attempt > MAX_ATTEMPTS and not answered:
            await apologise(item, self.session, self.mind.clock(), _set_aside(item))
        elif _is_new(item):
            await self._new(item)
        else:
            await self.worker.run(work)

    async def _new(self, item: Item) -> None:
        """Archive the session and say so. Taken up again after a crash, it finds a session that is empty or begun."""
        now = self.mind.clock()
        text, opening = "This is a fresh conversation.", partial(_opening, now, item)
        if not self.session.entries:
            await self.session.commit((opening(""),), (answer_to(item, text, "new"),))
            return
        if not is_closed_by(self.session.entries, item.n, item.message.id):
            name = await self.session.restart(lambda archived: (opening(archived),), now)
            text += f" The one before is kept in {name}."
        await self.session.commit((), (answer_to(item, text, "new"),))

    # ---------------------------------------------------------------- control lane

    async def control_lane(self) -> None:
        while True:
            item = await self.journal.ask(NextItem, "control")
            if not await self._is_answered(item):  # one that a crash cut off from its Done is not carried out twice
                text = await self._command(item) if item.attempt <= MAX_ATTEMPTS else _set_aside(item)
                await self._answer(item, text, COMMAND)
            await self.journal.tell(Done(item.n))
            self._publish(item)

    async def _command(self, item: Item) -> str:
        match command_of(item.message.text):
            case "/stop":
                ended = await self.stop(f"the user ({item.message.channel.type})", item.message.channel, item.n)
                return stop_text(ended, await self._accepted())  # the next one may be begun by now: it was not ended
            case "/status":
                waiting = await self._accepted()
                in_hand = len(self.running.work.items) if self.running else 0
                return status_text(self.status(), max(0, waiting - in_hand), trio.current_time() - self.started)
            case "/help":
                return await self._help()
            case other:
                return await self._others_answer(other or "", item)

    async def _help(self) -> str:
        skilled = self.mind.make_faculties().skilled
        called = await skilled.help() if skilled is not None else ""
        text = help_text(self.answers)
        return f"{text}\n\nSkills:\n{called}" if called else text

    async def _others_answer(self, command: str, item: Item) -> str:
        answer = self.answers.get(command)
        if answer is None:
            return f"{command} means nothing here."
        try:
            return await answer(item.message)
        except StorageError as error:
            return f"That did not work: {error}"

    async def _answer(self, item: Item, text: str, purpose: str) -> None:
        post = answer_to(item, text, purpose)
        await until_written(lambda: self.journal.ask(Commit, (), (post,)), "a command's answer")

    async def _is_answered(self, item: Item) -> bool:
        [posted] = await until_written(
            lambda: self.journal.ask(Posted, (post_key(item.n, COMMAND),)), "what was answered"
        )
        return posted is not None

    async def _accepted(self) -> int:
        """Messages that are not done, without the command that asks."""
        return max(0, await self.journal.ask(Waiting) - 1)

    # ---------------------------------------------------------------- stop and status

    async def answer_stop(self, send: Callable[[tuple[EndedWork, ...]], None], by: str) -> None:
        send(await self.stop(by))

    async def stop(self, by: str, channel: ChannelInfo | None = None, n: int | None = None) -> tuple[EndedWork, ...]:
        """End the running thought and the tasks of this channel (None: all); returns when nothing of it runs any more.

        A thought that came to its end by itself, after all, was not ended.
        n: the item that says so. If a crash came before its answer, what it had ended by then is told, and no other thought is ended.
        """
        ended = [self.ended_before[n]] if n in self.ended_before else []
        running = None if ended else self.running
        if running is not None:
            thought = EndedWork("thought", running.about, trio.current_time() - running.since)
            self.stopped_by = by
            if n is not None:
                running.told.update(stop=n, what=thought.what, seconds=thought.seconds)
            running.elsewhere = channel is not None and channel.address != running.work.item.message.channel.address
            running.scope.cancel()
        tasks = await self.make_works().stop(by, channel) if self.make_works is not None else ()
        if running is not None:
            await running.ended.wait()
            if running.scope.cancelled_caught:
                ended.append(thought)
        return (*ended, *tasks)

    def status(self) -> AgentStatus:
        running = self.running
        return AgentStatus(
            model=self.mind.model.name,
            entries=len(self.session.entries),
            turns=self.turns,
            thinking_about=running.about if running else None,
            thinking_for=trio.current_time() - running.since if running else 0.0,
        )

    def _publish(self, item: Item) -> None:
        if self.publish is not None and not is_notice(item):  # what a task says is on the bus already
            self.publish(item.message)

    def _typing(self, item: Item, *, active: bool) -> None:
        channel = item.message.channel
        said = (reply.seq for reply in self.session.replies if reply.channel.address == channel.address)
        self.show(Typing(channel, active, max(said, default=0)))

    def show(self, sign: Typing | Progress) -> None:
        if self.announce is not None:
            with suppress(ActorError):  # nobody is there to show it; it is never stored
                self.announce.tell_nowait(sign)


def _is_new(item: Item) -> bool:
    return command_of(item.message.text) == "/new" and not is_notice(item)


def _set_aside(item: Item) -> str:
    _log.error("set a message aside: it failed too often", item=item.n, attempts=item.attempt - 1)
    return (
        f"Sorry, something in me failed {MAX_ATTEMPTS} times over your message, so I have set it aside. "
        "It is kept, and the details are in my log."
    )


def _opening(now: int, closes: Item, archived: str) -> Entry:
    metadata: dict[str, Json] = {"type": "new", "closes": closes.n, "messageId": closes.message.id}
    if not archived:
        return Entry(now, "system", "(A new conversation begins.)", metadata=metadata)
    text = f"(A new conversation begins. The one before is archived as {archived}.)"
    return Entry(now, "system", text, metadata={**metadata, "previousSession": archived})
