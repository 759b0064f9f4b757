"""The think loop: calls the model about a queue item, and carries out its calls, until no further call is due.

A thought is one model call and the tool calls in its answer. Outward calls that succeed (a reply, a spawned task) lead to no further
thought. Results with information do, and so does every failure, since the model must be able to react. The number of thoughts is
limited (`max_thoughts`), because a model may repeat a failing call for ever, and each repetition costs money. A sender who got no
reply by then gets an apology.

Everything that a restart needs is in the session, and the loop itself reads from it after each thought what is due next
(`Session.progress`). So a run and a restart cannot disagree: a message that is recorded is not recorded again, a thought that is on
disk is not thought again, a reply that was posted is not posted again. The order of effects is what makes a crash harmless:

1. One durable step writes the assistant entry with its calls, and posts the replies among them. Each post has a key made of item
   and call, so it cannot be posted twice.
2. Each other call is run, and its result appended behind it, before the next one begins.

A crash after step 1 leaves calls without a result. The next start gives them their true result or marks them as cancelled (see
`session_loading`), and the model decides what to do about those.

Messages of the same chat that come in meanwhile may be taken along. `agent.when_busy` says what they do:

* "followup": nothing. They wait for their turn in the queue.
* "steer": they join between two model calls, so the next thought sees them.
* "interrupt": they end the model call under way, which is then made again with them. A tool that runs is never cut short: its effect
  may be half done, and nobody could say which half.

The newest message of a turn is the one being worked on. The ones before it count as done, since it stands behind them in the session;
the thoughts and replies that an item may have are counted from it on. All of them get their `Done` at the end.

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
from pegasus.conversation import Entry, KeptMedia, keep_media, with_unique_ids
from pegasus.identity import SILENCE
from pegasus.intake import is_internal
from pegasus.main_agent.compaction import memory_index_entry
from pegasus.main_agent.delegation import USE_SKILL
from pegasus.main_agent.queue_items import internal_entry, user_entry
from pegasus.main_agent.replies import (
    MODEL_DECLINED,
    REPLY,
    apologise,
    direct_reply,
    give_up,
    model_failure,
    parse_reply,
    repeat_replies,
    reply_key,
    reply_result,
)
from pegasus.main_agent.services import AgentServices
from pegasus.main_agent.session import UNFINISHED, ItemProgress, NextStep, Session, until_written
from pegasus.main_agent.skill_invocation import ActiveSkills, SkillInvocation, active_skills
from pegasus.messages import Json, Progress
from pegasus.models import Label, LanguageModel, ModelError, ModelRequest, ModelResponse, ToolCall, unfinished
from pegasus.observe import get_logger
from pegasus.storage import Item, JournalMessage, Newer, Post, StorageError, Take
from pegasus.tools import ToolContext

_log = get_logger("main_agent")

DRAFT_EVERY: Final = 0.25
"""Seconds between two drafts of a reply that is being written (direct speech)."""
NOTICES_TOGETHER: Final = 64
"""Waiting notifications of one task that are thought about together. A task may send hundreds, and each thought is a model call."""
LONGEST_RESULT: Final = 70_000
"""Characters of a tool's result: the body of the largest skill, and what JSON adds to it. The replay of a task may be megabytes."""
MOST_CALLS: Final = 64
"""Calls of one answer that are carried out. A model that runs in circles may make thousands in a single answer; each would take
place in the session for ever, and its result in every later request."""

_TOO_MANY_REPLIES: Final = "this message has had as many replies as it may have; do not reply to it any more"
"""Text for the model. The setting `agent.max_replies` protects people from a model that sends the same reply again and again."""

_SPOKEN: Final = ""
"""In place of a call's id: the post of a text that is the reply itself. Calls always have an id."""


@attrs.define(eq=False)
class AgentTurn:
    """A queue item that is being worked on, and the earlier ones of the same chat that it was joined with.

    The main lane of the actor creates it, and `ThinkLoop.run` appends the items that join it. A /stop writes the `stop…` attributes
    before it cancels the scope. The main lane reads them only after the scope has ended, so it never sees half of them.

    Example: `AgentTurn([item])`.
    """

    items: list[Item]
    """All of them, in the order in which they stand in the session. Each needs a `Done`."""
    since: float = attrs.field(factory=trio.current_time)
    """Trio's clock (seconds) when it began."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Cancelled by /stop."""
    ended: trio.Event = attrs.field(factory=trio.Event)
    """Set when no part of it runs any more, also after an error."""
    stopped_by: str = ""
    """Author of the /stop, as the session shows it; "" while there was none."""
    stop_facts: dict[str, Json] = attrs.field(factory=dict)
    """Metadata for the note about the /stop: the item of the /stop, and the facts that its answer needs after a crash."""
    stopped_elsewhere: bool = False
    """True if the /stop came from another chat than the message."""

    @property
    def item(self) -> Item:
        """The item that is being worked on: the last one."""
        return self.items[-1]

    @property
    def numbers(self) -> list[int]:
        """Inbox numbers of all of them."""
        return [item.n for item in self.items]


@attrs.frozen(eq=False)
class ThinkLoop:
    """Works on the items of one session, one turn after the other.

    Example:
        loop = ThinkLoop(session, services, journal, show_draft)
        await loop.run(AgentTurn([item]))
    """

    _session: Session
    _services: AgentServices
    _journal: Ref[JournalMessage]
    _show_draft: Callable[[Progress], None]
    """Shows a draft of a reply that is being written; never waits, never fails."""

    async def run(self, turn: AgentTurn) -> None:
        """Do everything that the item of a turn still needs. Items that join it are added to the turn.

        The order of the steps: texts of an item that was begun before are posted again, in case a crash has lost them; a call of a
        skill is resolved before the message is recorded, since the skill's text becomes part of the entry; only a message that is
        recorded now, in this run, takes others along, so that a restart does not join messages to a turn that is half done.

        Errors of the model end the item with an apology. Cancelled: finished entries and effects stay, and `close_stopped_item` makes
        the session well-formed.
        """
        item, session, clock = turn.item, self._session, self._services.clock
        progress = session.progress(item.n, item.message.id)
        if progress.next is not NextStep.RECORD:
            await repeat_replies(item, session)
        if progress.next is NextStep.NOTHING:
            return
        skills, invocation, is_from_person = self._services.toolset.skills, None, not is_internal(item.message)
        if skills is not None and not progress.thoughts and is_from_person:
            invocation = await skills.resolve(item.message.text)
        if progress.next is NextStep.RECORD:
            await self.record(item, invocation)
        if skills is not None and invocation is not None and invocation.ends_item:
            await skills.start(invocation, item, session, clock())
            return
        if progress.next is NextStep.RECORD and invocation is None:
            if not is_from_person:
                await self._take_along(turn, NOTICES_TOGETHER, _is_same_task)
            await self._take_along(turn, self._services.config.burst_cap, _may_join)
        try:
            await self._think_until_done(turn)
        except ModelError as error:
            await apologise(turn.item, session, clock(), model_failure(error))

    async def record(self, item: Item, invocation: SkillInvocation | None = None) -> None:
        """Write an item into the session for the first time; in a fresh session the index of memory stands before it.

        Attachments are stored first, so that the entry never names a file that is not on disk. A crash between the two leaves files
        that no entry names, and the item is recorded anew.

        invocation: the skill that the message calls. While the disk refuses to write, waits. Cancelled: it is recorded, or nothing
        has happened.
        """
        services, session, message, now = self._services, self._session, item.message, self._services.clock()
        index = await services.memory_index() if session.is_fresh and services.memory_index is not None else ""
        if is_internal(message):
            entry = internal_entry(item, now)
        else:
            media = KeptMedia()
            if message.media:
                keep = partial(keep_media, self._journal, message.media, session.pictures)
                media = await until_written(keep, "media")
            text, skill = (invocation.text, invocation.skill_in_force) if invocation else (message.text, "")
            name_user = session.is_shared(message.channel)
            entry = user_entry(item, now, text, media, skill=skill, name_user=name_user)
        first = (memory_index_entry(now, index),) if index else ()
        await session.add(*first, entry)

    async def _think_until_done(self, turn: AgentTurn) -> None:
        """Think until nothing is left to think, or the limit is reached. Raises ModelError."""
        session, config = self._session, self._services.config
        progress = session.progress(turn.item.n)
        while progress.next is NextStep.THINK and progress.thoughts < config.max_thoughts:
            active = self._active_skills(turn.item)
            response = await self._think(turn, self._model_for(active.model))
            if response is not None:
                await self._act_on(response, turn.item, progress, active)
                progress = session.progress(turn.item.n)
            if (
                progress.next is NextStep.THINK
                and config.when_busy != "followup"
                and await self._take_along(turn, config.steer_cap + 1, _may_join)
            ):
                progress = session.progress(turn.item.n)
        if progress.next is NextStep.THINK:
            await give_up(turn.item, session, self._services.clock(), progress)

    # ------------------------------------------------------------------ one model call

    async def _think(self, turn: AgentTurn, model: LanguageModel) -> ModelResponse | None:
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
                if self._services.config.when_busy != "interrupt" or len(turn.items) > self._services.config.steer_cap:
                    return await model.generate(request)
                return await self._generate_until_newer(model, request, turn)
            except ModelError as error:
                if error.kind != "overflow" or compactor is None:
                    raise
                if await compactor.compact(self._session, turn.numbers, forced=True) is None:
                    raise

    def _request(self, item: Item) -> ModelRequest:
        """Return the request: the whole session as turns, behind a prompt and tools that never change.

        Its label counts the usage for the channel and the number of this item.
        """
        draft = _DraftWriter(item, self._show_draft) if self._services.config.speech == "direct" else None
        return ModelRequest(
            self._services.toolset.system_prompt,
            tuple(self._session.projection.turns),
            self._services.toolset.specs,
            label=Label("default", item.message.channel, item.n),
            on_text=draft,
        )

    def _active_skills(self, item: Item) -> ActiveSkills:
        """Return the skills that are in force for an item now."""
        skills = self._services.toolset.skills
        if skills is None:
            return ActiveSkills()
        return active_skills(self._session.of_item(item.n), skills.catalog.get)

    def _model_for(self, wanted: str) -> LanguageModel:
        """Return the model that a skill in force wants; the agent's own for "" or if there is no such model."""
        services = self._services
        if not wanted or services.model_for is None:
            return services.model
        try:
            return services.model_for(wanted)
        except ValueError as error:  # the settings have changed since the skill was called
            _log.warning("no such model, using the usual one", wanted=wanted, error=str(error))
            return services.model

    async def _generate_until_newer(
        self, model: LanguageModel, request: ModelRequest, turn: AgentTurn
    ) -> ModelResponse | None:
        """Ask the model; return None as soon as a newer message may join the turn. Raises ModelError."""
        # The nursery ends as soon as the answer is there, or is cancelled by the task that waits for a newer message; then there
        # is no answer, and the caller takes the message along and asks again.
        response: ModelResponse | None = None
        failure: ModelError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_on_newer, turn, nursery.cancel_scope)
            try:
                response = await model.generate(request)
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

    # ------------------------------------------------------------------ the calls of an answer

    async def _act_on(self, response: ModelResponse, item: Item, before: ItemProgress, active: ActiveSkills) -> None:
        """Record a thought about an item and carry out its calls in order.

        before: progress of the item without this thought. active: the skills in force. A call that they do not allow is refused.

        While the disk refuses to write, waits. Cancelled: calls that were carried out keep their results; `close_stopped_item` then
        closes the others. A tool under way is cancelled, and its call counts as not carried out, though its effect may be half done.
        """
        session, config, now = self._session, self._services.config, self._services.clock()
        if response.stop_reason == "refusal" and not response.calls and not before.replies:
            await apologise(item, session, now, MODEL_DECLINED, _thought_entry(response, now))
            return
        calls = with_unique_ids(response.calls[:MOST_CALLS], session.call_ids)
        replies = _parse_replies(item, calls, config.max_replies - before.replies)
        posts = {call_id: post for call_id, post in replies.items() if isinstance(post, Post)}
        if config.speech == "direct" and not response.calls:
            spoken = direct_reply(response.text, item, before.thoughts + 1)
            posts = {} if spoken is None else {_SPOKEN: spoken}
        thought = _thought_entry(response, now, calls, spoken=_SPOKEN in posts)
        notes = _notes(item, response, now)
        posted = dict(zip(posts, await session.commit((thought, *notes), tuple(posts.values())), strict=True))
        for call in calls:
            refusal = active.refusal(call)
            if refusal is not None:
                content, failed = f"Error: {refusal}", True
            elif call.id in replies:
                reply = replies[call.id]
                content, failed = reply_result(reply if isinstance(reply, str) else posted[call.id])
            else:
                content, failed = await self._run_call(call, item)
                now = self._services.clock()
            metadata: dict[str, Json] = {"error": True} if failed else {}
            await session.add(Entry(now, "tool", content, call_id=call.id, metadata=metadata))
            if call.name == USE_SKILL:
                active = self._active_skills(item)  # this call may have brought a skill into force

    async def _run_call(self, call: ToolCall, item: Item) -> tuple[str, bool]:
        """Run the tool of a call; return the content of its result, and whether it failed.

        Whatever goes wrong becomes a result: a call that could not be parsed, a tool that does not exist (models invent some), one
        that raises or takes too long. The model reads it and tries something else.
        """
        if call.error is not None:
            return f"Error: {call.error}", True
        executor, channel = self._services.toolset.executor, item.message.channel
        tool = executor.get(call.name)
        if tool is None:
            known = ", ".join((REPLY.name, *(tool.name for tool in executor.all())))
            return f"Error: there is no tool {call.name!r} here. There are: {known}", True
        key = reply_key(item.n, call.id)
        context = ToolContext(key=key, user_id=channel.user_id, origin=channel, max_result=LONGEST_RESULT)
        outcome = await executor.run(tool, call.arguments, context)
        return outcome.content, outcome.failed

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


def _thought_entry(
    response: ModelResponse, now: int, calls: tuple[ToolCall, ...] = (), *, spoken: bool = False
) -> Entry:
    """Return the assistant entry of a thought. calls: with their unique ids. spoken: its text is the reply (direct speech)."""
    usage = response.usage
    metadata: dict[str, Json] = {
        "usage": {"promptTokens": usage.prompt_tokens, "completionTokens": usage.completion_tokens},
        "stopReason": response.stop_reason,
    }
    if spoken:
        metadata["spoken"] = True
    if response.thinking:
        metadata |= {"thinking": list(response.thinking), "thinkingOf": response.thinking_of}
    return Entry(now, "assistant", response.text, calls, metadata=metadata)


def _notes(item: Item, response: ModelResponse, now: int) -> list[Entry]:
    """Return the notes for the model after an answer that is not whole, or was too much.

    They are written together with the answer, because a restart must know that another thought is due.
    """
    problems = [] if (problem := unfinished(response)) is None else [problem]
    surplus = len(response.calls) - MOST_CALLS
    if surplus > 0:
        _log.warning("left out calls of one answer", item=item.n, calls=len(response.calls), limit=MOST_CALLS)
        problems.append(f"({surplus:,} further calls of this answer were not carried out: {MOST_CALLS} are the limit.)")
    return [Entry(now, "system", problem, metadata={"type": UNFINISHED}) for problem in problems]


def _parse_replies(item: Item, calls: tuple[ToolCall, ...], room: int) -> dict[str, Post | str]:
    """Return the posts that the reply calls want, by call id; at most `room` of them are valid.

    They are parsed before the thought is written, since posts and thought go into one durable step.
    """
    parsed: dict[str, Post | str] = {}
    for call in calls:
        if call.name == REPLY.name:
            post = parse_reply(call, item)
            if isinstance(post, Post):
                post = post if room > 0 else _TOO_MANY_REPLIES
                room -= 1
            parsed[call.id] = post
    return parsed


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
