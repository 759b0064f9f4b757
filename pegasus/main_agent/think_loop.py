"""The think loop: what a queue item makes the agent think and do, until there is nothing more to think about it.

A thought is one model call. Outward calls that succeed lead to no further thought; information, and every failure, does (seed
000; trap T23). Messages of the same chat that come in meanwhile may be taken along (`agent.when_busy`): the newest one is then what is
worked on, and the ones before it are as good as done, for it stands behind them in the session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from actors import Ref
from pegasus.conversation import Entry, keep_media
from pegasus.identity import SILENCE
from pegasus.main_agent.apologies import apologise, give_up, model_failure, repeat_apology
from pegasus.main_agent.context_budget import Room
from pegasus.main_agent.notices import is_notice
from pegasus.main_agent.progress import Next
from pegasus.main_agent.services import AgentServices
from pegasus.main_agent.session import Session, until_written
from pegasus.main_agent.tool_calls import act, turn_of
from pegasus.main_agent.user_entries import NOTHING_KEPT, user_entry
from pegasus.messages import Progress
from pegasus.models import Label, LanguageModel, ModelError, ModelRequest, ModelResponse
from pegasus.observe import get_logger
from pegasus.storage import Item, JournalMessage, Newer, StorageError, Take

if TYPE_CHECKING:
    from pegasus.main_agent.skill_invocation import SkillInvocation, SkillInvoker

_log = get_logger("main_agent")

REFUSED = "Sorry, the model that thinks for me declined to answer this."
DRAFT_EVERY = 0.25
"""Seconds between two drafts of a reply that is being written (direct speech)."""


@attrs.define(eq=False)
class Work:
    """A queue item, and those of the same chat that were taken along; the last one is being worked on."""

    items: list[Item]

    @property
    def item(self) -> Item:
        """What is worked on."""
        return self.items[-1]


@attrs.define(eq=False)
class ThinkLoop:
    """BackgroundWork on items. show: told the drafts of replies, in direct speech; never waits, never fails.

    background: starts a task that runs beside the thoughts, for as long as the agent does.
    """

    session: Session
    mind: AgentServices
    journal: Ref[JournalMessage]
    show: Callable[[Progress], None] | None = None
    background: Callable[[Callable[[], Awaitable[None]]], None] | None = None
    _room: Room | None = None

    async def run(self, work: Work) -> None:
        """Do all that the item still needs; what was done before a crash is not done again.

        Cancelled: what had been said and done stays; `close_open_calls` then makes the session well-formed.
        """
        progress = self.session.progress(work.item.n, work.item.message.id)
        if progress.next is Next.NOTHING:
            await repeat_apology(work.item, progress.end, self.session)
            return
        called = await self._called(work.item) if not progress.thoughts else None
        if progress.next is Next.RECORD:
            await self.record(work.item, called)
        if called is not None and (called.skill.fork or called.problem):
            await self._skilled.start(called, work.item, self.session, self.mind.clock())
            return
        if progress.next is Next.RECORD and called is None:
            await self._take_along(work, self.mind.habits.burst_cap)
        try:
            await self._think_and_act(work, progress.thoughts, progress.replies)
        except ModelError as error:
            await apologise(work.item, self.session, self.mind.clock(), model_failure(error))

    async def _think_and_act(self, work: Work, thoughts: int, replies: int) -> None:
        habits = self.mind.habits
        while thoughts < habits.max_thoughts:
            response = await self._think(work)
            if response is not None:
                thoughts += 1
                if response.stop_reason == "refusal" and not response.calls and not replies:
                    await self.session.add(turn_of(response, self.mind.clock()))
                    await apologise(work.item, self.session, self.mind.clock(), REFUSED)
                    return
                acted = await act(work.item, response, self.session, self.mind, thoughts, replies)
                replies += acted.replies
                if not acted.again:
                    return
            if habits.when_busy != "followup" and await self._take_along(work, habits.steer_cap + 1):
                thoughts = replies = 0
        await give_up(work.item, self.session, self.mind.clock(), thoughts, replied=replies > 0)

    # ------------------------------------------------------------------ thinking

    async def _think(self, work: Work) -> ModelResponse | None:
        """One model call; None if a newer message of the chat ended it (`when_busy = "interrupt"`). Raises ModelError.

        Before it the session is compacted if it is due; and after it, where the provider says that it is too long, as often as
        that makes it smaller.
        """
        while True:
            request = self._request(work.item)
            if self._bounds is not None and await self._bounds.before_call(request, work):
                request = self._request(work.item)
            try:
                return await self._ask(request, work)
            except ModelError as error:
                if error.kind != "overflow" or self._bounds is None or not await self._bounds.too_long(work):
                    raise

    async def _ask(self, request: ModelRequest, work: Work) -> ModelResponse | None:
        model = self._model(work.item)
        if self.mind.habits.when_busy != "interrupt" or len(work.items) > self.mind.habits.steer_cap:
            return await model.generate(request)
        response: ModelResponse | None = None
        failure: ModelError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._wait_for_newer, work, nursery.cancel_scope)
            try:
                response = await model.generate(request)
            except ModelError as error:
                failure = error  # as itself, not in a group
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return response

    async def _wait_for_newer(self, work: Work, thought: trio.CancelScope) -> None:
        newer = await self._newer(work, wait=True)
        if newer is not None and self._may_join(newer, work):
            thought.cancel()

    def _model(self, item: Item) -> LanguageModel:
        """Who thinks: the model that a skill in force wants, else the agent's own."""
        skilled = self.mind.make_faculties().skilled
        if skilled is None or self.mind.model_for is None:
            return self.mind.model
        wanted = skilled.in_force(self.session.of_item(item.n)).model
        try:
            return self.mind.model_for(wanted) if wanted else self.mind.model
        except ValueError as error:  # the settings have changed since the skill was called
            _log.warning("the model that a skill wants is not there any more", item=item.n, error=str(error))
            return self.mind.model

    def _request(self, item: Item) -> ModelRequest:
        """The whole session as turns, behind a prompt and tools that never change (prefix caching)."""
        faculties = self.mind.make_faculties()
        label = Label("default", item.message.channel, item.n)
        draft = _Drafting(item, self.show) if self.show is not None and self.mind.habits.direct else None
        return ModelRequest(
            faculties.system, tuple(self.session.projection.turns), faculties.specs, label=label, on_text=draft
        )

    @property
    def _bounds(self) -> Room | None:
        if self._room is None and self.mind.make_compactor is not None:
            self._room = Room(self.session, self.mind.make_compactor(), self.mind.tokens)
            if self.background is not None:
                self.background(self._room.run)
        return self._room

    # ------------------------------------------------------------------ what comes in

    @property
    def _skilled(self) -> SkillInvoker:
        skilled = self.mind.make_faculties().skilled
        if skilled is None:
            raise AssertionError("there are no skills")
        return skilled

    async def _called(self, item: Item) -> SkillInvocation | None:
        """The skill that a person's message calls."""
        if self.mind.make_faculties().skilled is None or is_notice(item):
            return None
        return await self._skilled.resolve(item.message.text)

    async def record(self, item: Item, called: SkillInvocation | None = None) -> None:
        """Put it into the session, for the first time."""
        preface = await self._preface() if self.session.is_fresh else ()
        kept = NOTHING_KEPT
        if item.message.media:
            keep = partial(keep_media, self.journal, item.message.media, self.session.pictures)
            kept = await until_written(keep, "media")
        await self.session.add(*preface, user_entry(item, self.mind.clock(), called, kept))

    async def _preface(self) -> tuple[Entry, ...]:
        """What stands before the first message of a session: the index of memory (checklist 96)."""
        index = await self.mind.memory_index() if self.mind.memory_index is not None else ""
        return (Entry(self.mind.clock(), "user", index, metadata={"type": "memory_index"}),) if index else ()

    async def _take_along(self, work: Work, most: int) -> bool:
        """Take up what else this chat has said, up to `most` items in all; whether there was something."""
        before = len(work.items)
        while len(work.items) < most:
            newer = await self._newer(work, wait=False)
            if newer is None or not self._may_join(newer, work):
                break
            taken = await self.journal.ask(Take, newer.n)
            if taken is None:
                break
            await self.record(taken)
            work.items.append(taken)  # not before: one that is cut off here is handed out again
        return len(work.items) > before

    def _may_join(self, item: Item, work: Work) -> bool:
        """Whether it goes on with what is worked on: the same person in the same thread, or a task's word for it.

        Commands and skills keep their place in the queue: each begins something of its own.
        """
        here, there = work.item.message.channel, item.message.channel
        if here.reply_to != there.reply_to:
            return False
        if is_notice(item):
            return True
        return here.user_id == there.user_id and not item.message.text.lstrip().startswith("/")

    async def _newer(self, work: Work, *, wait: bool) -> Item | None:
        try:
            return await self.journal.ask(Newer, work.item.message.channel.address, work.item.n, wait)
        except StorageError as error:  # it cannot be read back now, and so it waits its turn
            _log.warning("what else this chat has said cannot be read", error=str(error))
            return None


class _Drafting:
    """Shows what the model writes while it writes; each draft is the whole text so far. The word for silence is none."""

    def __init__(self, item: Item, show: Callable[[Progress], None]) -> None:
        self._channel = item.message.channel
        self._show = show
        self._text = ""
        self._shown_at = -DRAFT_EVERY

    def __call__(self, piece: str | None) -> None:
        self._text = "" if piece is None else self._text + piece
        now = trio.current_time()
        if now - self._shown_at >= DRAFT_EVERY and not SILENCE.startswith(self._text.strip()):
            self._shown_at = now
            self._show(Progress(self._channel, self._text))
