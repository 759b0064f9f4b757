"""The think loop: calls the model about a queue item until no further call is due.

A thought is one model call and the tool calls in its answer. Outward calls that succeed (a reply, a spawned task) lead to no further
thought. Results with information do, and so does every failure, since the model must be able to react. The number of thoughts is
limited (`max_thoughts`), because a model may repeat a failing call for ever, and each repetition costs money. A sender who got no
reply by then gets an apology.

Everything that a restart needs is in the session. `ThinkLoop.run` reads from it what has been done for the item, and continues there:
a message that is recorded is not recorded again, a thought that is on disk is not thought again, a reply that was posted is not
posted again.

Messages of the same chat that come in meanwhile may be taken along. `agent.when_busy` says what they do:

* "followup": nothing. They wait for their turn in the queue.
* "steer": they join between two model calls, so the next thought sees them.
* "interrupt": they end the model call under way, which is then made again with them. A tool that runs is never cut short: its effect
  may be half done, and nobody could say which half.

The newest message of a turn is the one being worked on. The ones before it count as done, since it stands behind them in the session
(see `progress`); the thoughts and replies that an item may have are counted from it on. All of them get their `Done` at the end.

A request holds the whole session as turns, behind a prompt and tools that stay the same. That lets the provider reuse its cache of
everything but the newest entries, and it makes a request a pure function of the session, so a restart sends the same one again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
import trio

from actors import Ref
from pegasus.conversation import Entry, keep_media
from pegasus.identity import SILENCE
from pegasus.intake import is_internal
from pegasus.main_agent.apologies import MODEL_DECLINED, apologise, give_up, model_failure, repeat_apology
from pegasus.main_agent.progress import NextStep
from pegasus.main_agent.services import AgentServices
from pegasus.main_agent.session import Session, until_written
from pegasus.main_agent.skill_invocation import SkillInvocation
from pegasus.main_agent.tool_calls import carry_out_calls, thought_entry
from pegasus.main_agent.user_entries import NO_MEDIA, user_entry
from pegasus.messages import Progress
from pegasus.models import Label, LanguageModel, ModelError, ModelRequest, ModelResponse
from pegasus.observe import get_logger
from pegasus.storage import Item, JournalMessage, Newer, StorageError, Take

_log = get_logger("main_agent")

DRAFT_EVERY: Final = 0.25
"""Seconds between two drafts of a reply that is being written (direct speech)."""
NOTICES_TOGETHER: Final = 64
"""Waiting notifications of one task that are thought about together. A task may send hundreds, and each thought is a model call."""


@attrs.define(eq=False)
class AgentTurn:
    """A queue item that is being worked on, and the earlier ones of the same chat that it was joined with.

    Example: `AgentTurn([item])`; `ThinkLoop.run` appends the items that join it.
    """

    items: list[Item]
    """All of them, in the order in which they stand in the session. Each needs a `Done`."""

    @property
    def item(self) -> Item:
        """The item that is being worked on: the last one."""
        return self.items[-1]

    @property
    def numbers(self) -> list[int]:
        """Inbox numbers of all of them."""
        return [item.n for item in self.items]


class ThinkLoop:
    """Works on the items of one session, one turn after the other.

    Example:
        loop = ThinkLoop(session, services, journal, show_draft)
        await loop.run(AgentTurn([item]))
    """

    def __init__(
        self,
        session: Session,
        services: AgentServices,
        journal: Ref[JournalMessage],
        show_draft: Callable[[Progress], None],
    ) -> None:
        self._session = session
        self._services = services
        self._config = services.config
        self._toolset = services.toolset
        self._journal = journal
        self._show_draft = show_draft
        """Shows a draft of a reply that is being written; never waits, never fails."""

    async def run(self, turn: AgentTurn) -> None:
        """Do everything that the item of a turn still needs. Items that join it are added to the turn.

        The order of the steps: an item that has ended needs at most its apology again; a call of a skill is resolved before the
        message is recorded, since the skill's text becomes part of the entry; only a message that is recorded now, in this run, takes
        others along, so that a restart does not join messages to a turn that is half done.

        Errors of the model end the item with an apology. Cancelled: finished entries and effects stay, and `close_stopped_item` makes
        the session well-formed.
        """
        item, session, clock = turn.item, self._session, self._services.clock
        progress = session.progress(item.n, item.message.id)
        if progress.next is NextStep.NOTHING:
            await repeat_apology(item, progress.end, session)
            return
        skills, invocation = self._toolset.skills, None
        if skills is not None and not progress.thoughts and not is_internal(item.message):
            invocation = await skills.resolve(item.message.text)
        if progress.next is NextStep.RECORD:
            await self.record(item, invocation)
        if skills is not None and invocation is not None and invocation.ends_item:
            await skills.start(invocation, item, session, clock())
            return
        if progress.next is NextStep.RECORD and invocation is None:
            if is_internal(item.message):
                await self._take_along(turn, NOTICES_TOGETHER, _is_same_task)
            await self._take_along(turn, self._config.burst_cap, _may_join)
        try:
            await self._think_and_act(turn, progress.thoughts, progress.replies)
        except ModelError as error:
            await apologise(turn.item, session, clock(), model_failure(error))

    async def record(self, item: Item, invocation: SkillInvocation | None = None) -> None:
        """Write an item into the session for the first time; in a fresh session the index of memory stands before it.

        Attachments are stored first, so that the entry never names a file that is not on disk. A crash between the two leaves files
        that no entry names, and the item is recorded anew.

        invocation: the skill that the message calls. While the disk refuses to write, waits. Cancelled: it is recorded, or nothing has
        happened.
        """
        services, session, message = self._services, self._session, item.message
        entries: list[Entry] = []
        if session.is_fresh and services.memory_index is not None and (index := await services.memory_index()):
            entries.append(Entry(services.clock(), "user", index, metadata={"type": "memory_index"}))
        media = NO_MEDIA
        if message.media:
            keep = partial(keep_media, self._journal, message.media, session.pictures)
            media = await until_written(keep, "media")
        name_user = session.is_shared(message.channel)
        entries.append(user_entry(item, services.clock(), invocation=invocation, media=media, name_user=name_user))
        await session.add(*entries)

    async def _think_and_act(self, turn: AgentTurn, thoughts: int, replies: int) -> None:
        """Think until nothing is left to think, or the limit is reached. Raises ModelError."""
        session, config = self._session, self._config
        while thoughts < config.max_thoughts:
            response = await self._think(turn)
            if response is not None:
                thoughts += 1
                if response.stop_reason == "refusal" and not response.calls and not replies:
                    now = self._services.clock()
                    await session.add(thought_entry(response, now))
                    await apologise(turn.item, session, now, MODEL_DECLINED)
                    return
                outcome = await carry_out_calls(turn.item, response, session, self._services, thoughts, replies)
                replies += outcome.replies
                if not outcome.thinks_again:
                    return
            if config.when_busy != "followup" and await self._take_along(turn, config.steer_cap + 1, _may_join):
                thoughts = replies = 0  # they are counted for each item
        await give_up(turn.item, session, self._services.clock(), thoughts, replied=replies > 0)

    # ------------------------------------------------------------------ one model call

    async def _think(self, turn: AgentTurn) -> ModelResponse | None:
        """Ask the model once; None if a newer message of the chat has ended the call (`when_busy = "interrupt"`).

        The session is compacted before the call if it is due, and after it if the provider says that it is too long, as often as
        that makes it smaller. Raises ModelError.
        """
        compactor = self._services.compactor
        while True:
            request = self._request(turn.item)
            if compactor is not None and await compactor.fit(self._session, request, turn.numbers):
                request = self._request(turn.item)
            try:
                if self._config.when_busy != "interrupt" or len(turn.items) > self._config.steer_cap:
                    return await self._model_for(turn.item).generate(request)
                return await self._generate_until_newer(request, turn)
            except ModelError as error:
                if error.kind != "overflow" or compactor is None:
                    raise
                if not await compactor.shrink(self._session, turn.numbers):
                    raise

    def _request(self, item: Item) -> ModelRequest:
        """Return the request: the whole session as turns, behind a prompt and tools that never change.

        Its label counts the usage for the channel and the number of this item.
        """
        draft = _DraftWriter(item, self._show_draft) if self._config.direct else None
        return ModelRequest(
            self._toolset.system_prompt,
            tuple(self._session.projection.turns),
            self._toolset.specs,
            label=Label("default", item.message.channel, item.n),
            on_text=draft,
        )

    def _model_for(self, item: Item) -> LanguageModel:
        """Return the model that a skill in force wants, else the agent's own."""
        services, skills = self._services, self._toolset.skills
        wanted = skills.active_skills(self._session.of_item(item.n)).model if skills is not None else ""
        if not wanted or services.model_for is None:
            return services.model
        try:
            return services.model_for(wanted)
        except ValueError as error:  # the settings have changed since the skill was called
            _log.warning("no such model, using the usual one", item=item.n, wanted=wanted, error=str(error))
            return services.model

    async def _generate_until_newer(self, request: ModelRequest, turn: AgentTurn) -> ModelResponse | None:
        """Ask the model; return None as soon as a newer message may join the turn. Raises ModelError."""
        # The nursery ends as soon as the answer is there, or is cancelled by the task that waits for a newer message; then there
        # is no answer, and the caller takes the message along and asks again.
        response: ModelResponse | None = None
        failure: ModelError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_on_newer, turn, nursery.cancel_scope)
            try:
                response = await self._model_for(turn.item).generate(request)
            except ModelError as error:
                failure = error  # raised below, since the nursery would wrap it in a group
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return response

    async def _cancel_on_newer(self, turn: AgentTurn, scope: trio.CancelScope) -> None:
        """Wait for the next message of this chat, and cancel the scope of the model call if it may join the turn.

        A message that may not join ends the waiting: those behind it must not overtake it.
        """
        newer = await self._find_newer(turn, wait=True)
        if newer is not None and _may_join(newer, turn):
            scope.cancel()

    # ------------------------------------------------------------------ messages that come in meanwhile

    async def _take_along(self, turn: AgentTurn, limit: int, may_join: Callable[[Item, AgentTurn], bool]) -> bool:
        """Add the next items of this chat that may join, until the turn has `limit` items. Return whether any was added.

        may_join: returns whether an item may join the turn. The first one that does not ends the search, since those behind it
        must not overtake it.

        An item joins the turn only when it is recorded. If a cancel or a crash comes before that, the journal hands it out again
        in its own turn; after it, the item counts as done together with the turn.
        """
        before = len(turn.items)
        while len(turn.items) < limit:
            newer = await self._find_newer(turn, wait=False)
            if newer is None or not may_join(newer, turn):
                break
            taken = await self._journal.ask(Take, newer.n)
            if taken is None:
                break
            await self.record(taken)
            turn.items.append(taken)
        return len(turn.items) > before

    async def _find_newer(self, turn: AgentTurn, *, wait: bool) -> Item | None:
        """Return the next waiting item of this chat; None if there is none, or if the disk cannot be read.

        wait: do not return before there is one. Cancelled while waiting: nothing has been taken from the queue, since `Newer` only
        looks at it.
        """
        try:
            return await self._journal.ask(Newer, turn.item.message.channel.address, turn.item.n, wait)
        except StorageError as error:  # it cannot be read now, so it is taken in its turn
            _log.warning("cannot read the next message of this chat", error=str(error))
            return None


def _may_join(item: Item, turn: AgentTurn) -> bool:
    """Return whether an item may join a turn: the same person in the same thread, or a notice for it.

    Commands and skills keep their place in the queue, since each begins something of its own.
    """
    ours, theirs = turn.item.message.channel, item.message.channel
    if ours.reply_to != theirs.reply_to:
        return False
    if is_internal(item.message):
        return True
    return ours.user_id == theirs.user_id and not item.message.text.lstrip().startswith("/")


def _is_same_task(item: Item, turn: AgentTurn) -> bool:
    """Return whether both are notifications of the same task."""
    task_id = turn.item.message.metadata.get("taskId")
    return (
        is_internal(item.message)
        and task_id is not None
        and item.message.metadata.get("taskId") == task_id
        and _may_join(item, turn)
    )


class _DraftWriter:
    """Shows the text of an answer while it is being written (direct speech). Each draft is the whole text so far.

    The word that means silence is not shown, nor its beginning. The last pieces of a text may stay unshown, if they come within
    DRAFT_EVERY of the draft before; the reply itself follows at once. Drafts are never stored.
    """

    def __init__(self, item: Item, show: Callable[[Progress], None]) -> None:
        self._channel = item.message.channel
        self._show = show
        self._text = ""
        """Text so far."""
        self._shown_at = -DRAFT_EVERY
        """Trio's clock when the last draft was shown; at first so early that the first piece is shown at once."""

    def __call__(self, piece: str | None) -> None:
        """Add a piece of the text. None: the text so far is void, since the model is asked again."""
        self._text = "" if piece is None else self._text + piece
        now = trio.current_time()
        if now - self._shown_at >= DRAFT_EVERY and not SILENCE.startswith(self._text.strip()):
            self._shown_at = now
            self._show(Progress(self._channel, self._text))
