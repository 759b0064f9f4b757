"""The think loop: calls the model about a queue item, and carries out its calls, until no further call is due.

A thought is one model call (`asking`) and the tool calls in its answer (`tool_calls`). Outward calls that succeed (a
reply, a spawned task) lead to no further thought. Results with information do, and so does every failure, since the model must be able
to react. The number of thoughts is limited (`max_thoughts`), because a model may repeat a failing call for ever, and each repetition
costs money. A sender who got no reply by then gets an apology.

Everything that a restart needs is in the session, and the loop itself reads from it after each thought what is due next
(`Session.progress`). So a run and a restart cannot disagree: a message that is recorded is not recorded again, a thought that is on
disk is not thought again, a reply that was posted is not posted again.

The order of effects of an answer is what makes a crash harmless:

1. One `Session.commit` writes the assistant entry with its calls, and then posts the replies among them. The journal answers when both
   are on disk. A power failure or a kill in between may leave the entry without its posts, never a post without its entry. The next
   start then posts texts in direct speech again (`repeat_replies`), and the model decides about calls of `reply` (see
   `session.loading`). Each post has a key made of item and call, or item and thought, so it goes out once however often it is posted.
2. Each other call is run, and its result appended behind it, before the next one begins.

A crash after step 1 leaves calls without a result. The next start gives them their true result or marks them as cancelled (see
`session.loading`), and the model decides what to do about those.

Messages of the same chat that come in meanwhile may be taken along. `agent.when_busy` says what they do:

* "followup": nothing. They wait for their turn in the queue.
* "steer": they join between two model calls, so the next thought sees them.
* "interrupt": they end the model call under way, which is then made again with them. A tool that runs is never cut short: its effect
  may be half done, and nobody could say which half.

The newest message of a turn is the one being worked on. The ones before it count as done, since it stands behind them in the session;
the thoughts and replies that an item may have are counted from it on. All of them get their `CompleteItem` at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import attrs

from actors import Ref
from pegasus.access import GROUP, Principal
from pegasus.conversation import (
    MOST_CALLS,
    Entry,
    KeptMedia,
    first_surplus,
    keep_media,
    surplus_note,
    with_unique_ids,
)
from pegasus.intake import command_of
from pegasus.main_agent.asking import AgentThought, ModelAnswer
from pegasus.main_agent.compaction import memory_index_entry
from pegasus.main_agent.drafts import DraftBoard
from pegasus.main_agent.item_endings import MODEL_DECLINED, apologise, end_if_stuck, model_failure, repeat_replies
from pegasus.main_agent.owner_words import typed_message
from pegasus.main_agent.queue_items import DISCARDED, internal_entries, user_entry
from pegasus.main_agent.replies import (
    WantedReply,
    direct_reply,
    files_alone,
    parse_replies,
    reply_to_sender,
)
from pegasus.main_agent.reply_decisions import ReplyDecisions
from pegasus.main_agent.services import AgentServices
from pegasus.main_agent.session import SENT, UNFINISHED, ItemProgress, NextStep, Session, sent, until_written
from pegasus.main_agent.skill_invocation import ActiveSkills, SkillInvocation, active_skills
from pegasus.main_agent.tool_calls import CallRunner
from pegasus.main_agent.toolset import AgentToolset
from pegasus.main_agent.turns import AgentTurn, find_newer, is_same_task, may_join
from pegasus.media import Reading
from pegasus.messages import InboundMessage, Json, Metadata, OutboundMessage, ReplyDraft
from pegasus.models import Label, ModelError, ModelResponse, ToolCall, unfinished
from pegasus.observe import get_logger
from pegasus.settings import AgentSettings
from pegasus.storage import Item, JournalMessage, PostResult, TakeItem
from pegasus.tools import ToolOutcome

_log = get_logger("main_agent")

NOTICES_TOGETHER: Final = 64
"""Waiting notifications of one task that are thought about together. A task may send hundreds, and each thought is a model call."""
NOTICE: Final = "notice"
"""Last part of the idempotency key of a sentence for the owner about the model's server. Stored, so it must not change."""


@attrs.define(eq=False, repr=False)
class ThinkLoop:
    """Works on the items of one session, one turn after the other.

    Example:
        loop = ThinkLoop(session, services, journal, show_draft)
        await loop.run(AgentTurn(item), session.progress(item.n, item.message.id))
    """

    _session: Session
    """Everything that is known about the items, and the one place where it is written down."""
    _services: AgentServices
    """Everything that the composition root has handed in."""
    _journal: Ref[JournalMessage]
    """Asked for newer items; keeps media."""
    _show_draft: Callable[[ReplyDraft], None]
    """Shows a draft of a reply that is being written; never waits, never fails."""
    board: DraftBoard = attrs.field(init=False)
    """Drafts that people see now."""
    _config: AgentSettings = attrs.field(init=False)
    """The settings of the thought that is under way; it sees one version of them."""
    _toolset: AgentToolset = attrs.field(init=False)
    """Its prompt and tools."""
    _decisions: ReplyDecisions = attrs.field(init=False)
    """Finds the channels of replies, and decides about those that leave the conversation."""
    _calls: CallRunner = attrs.field(init=False)
    """Carries out the calls of answers."""

    def __attrs_post_init__(self) -> None:
        self.board = DraftBoard(self._show_draft)
        self._decisions = ReplyDecisions(self._session, self._services, self._journal)
        self._calls = CallRunner(self._session, self._services, self._journal, self._decisions)
        self._config, self._toolset = self._services.config.now, self._services.toolset.now

    async def run(self, turn: AgentTurn, progress: ItemProgress) -> None:
        """Do everything that the item of a turn still needs. Items that join it are added to the turn. progress: of the item.

        The order of the steps: texts of an item that was begun before are posted again, in case a crash has lost them. A call of a
        skill is resolved before the message is recorded, since the skill's text becomes part of the entry. Other messages join only
        one that is recorded now, in this run, so that a restart does not join messages to a turn that is half done.

        Errors of the model end the item with an apology. Cancelled: finished entries and effects stay, and `close_stopped_item` makes
        the session well-formed. Drafts that no reply has followed are withdrawn; if a person has ended the turn,
        `board` still has them.
        """
        try:
            await self._work_on(turn, progress)
        finally:
            if not turn.cuts_draft:
                self.board.withdraw()

    def _take_settings(self, turn: AgentTurn) -> None:
        """Work with the settings of this moment from now on, also when they say with whose rights."""
        self._config, self._toolset = self._services.config.now, self._services.toolset.now
        turn.take_owners(self._config.owners)

    async def _work_on(self, turn: AgentTurn, progress: ItemProgress) -> None:
        """Do what `run` says, but leave drafts of a failed or cancelled answer where they are."""
        item, session, clock = turn.item, self._session, self._services.clock
        self._take_settings(turn)
        if progress.next is not NextStep.RECORD:
            await repeat_replies(item, session)
        if progress.next is NextStep.NOTHING:
            await self.send_gathered(item)
            return
        # Once for each message: the owner may have edited a file of the prompt.
        await self._toolset.refresh()
        message, skills, invocation = item.message, self._toolset.skills, None
        if skills is not None and not progress.thoughts and _may_call_skill(message):
            invocation = await skills.resolve(message.text)
        if progress.next is NextStep.RECORD:
            await self.record(item, turn.principal, invocation)
        if skills is not None and invocation is not None and invocation.ends_item:
            typed = typed_message(message, turn.principal)
            owner_messages = () if typed is None else (typed,)
            await skills.start(invocation, item, turn.principal, session, clock(), owner_messages)
            return
        if progress.next is NextStep.RECORD and invocation is None:
            if message.is_internal:
                if message.metadata.get("type") == DISCARDED:  # nobody waits for a thought about them
                    return
                await self._join_waiting(turn, NOTICES_TOGETHER, is_same_task)
            await self._join_waiting(turn, self._config.burst_cap, may_join)
        # After the messages have joined, since labels of their texts decide what the prompt may say.
        if (prompts := self._services.chat_prompts) is not None:
            is_owner = turn.principal.is_owner and not turn.principal.is_apart
            turn.prompt = prompts.of(message.channel.address, session.entries, session.outside, is_owner=is_owner)
        try:
            await self._think_until_done(turn)
        except ModelError as error:
            # The newest item of the turn: a message may have joined during a thought.
            await apologise(turn.item, session, clock(), model_failure(error, is_owner=turn.principal.is_owner))
        await self.send_gathered(turn.item)

    async def send_gathered(self, item: Item) -> None:
        """Send the files that wait, where the work on an item has ended without a text that they could go out behind.

        A crash before this is done leaves them waiting, and the next start calls it again.
        """
        session = self._session
        if files := session.media_queue.waiting(item.message.channel.address):
            thoughts = session.progress(item.n).thoughts
            note = f"(Sent without a text: {', '.join(file.name for file in files)})"
            entry = Entry(self._services.clock(), "system", note, metadata={"type": SENT, **sent(files)})
            await session.commit((entry,), (files_alone(files, item, thoughts),))

    async def record(
        self,
        item: Item,
        principal: Principal,
        invocation: SkillInvocation | None = None,
        *,
        reads_attachments: bool = True,
    ) -> None:
        """Write an item into the session for the first time; in a fresh session the index of memory stands before it.

        principal: the person that it is worked on for. invocation: the skill that the message calls. reads_attachments:
        `reads` of `_keep_attachments`. While the disk refuses to write, waits. Cancelled: it is recorded, or nothing has happened.
        """
        services, session, message, now = self._services, self._session, item.message, self._services.clock()
        index = ""
        if session.is_fresh and services.memory_index is not None:
            index = await services.memory_index(session.is_apart)
        if message.is_internal:
            entries = internal_entries(item, now, session.fence)
        else:
            media = KeptMedia()
            if message.media:
                media = await self._keep_attachments(item, principal, reads=reads_attachments)
            text, skill = (invocation.text, invocation.skill_in_force) if invocation else (message.text, "")
            address, user_id = message.channel.address, message.channel.user_id
            in_group = message.metadata.get(GROUP) is True
            name_user = user_id is not None and (in_group or session.is_shared(address, user_id))
            is_guest = not principal.is_owner
            entry = user_entry(
                item, now, text, media, session.fence, skill=skill, name_user=name_user, is_guest=is_guest
            )
            entries = (entry,)
        first = (memory_index_entry(now, index),) if index else ()
        # What was read or resolved for it must not be done again after a crash; all else is made anew from the inbox.
        is_plain = invocation is None and not message.media
        await (session.note if is_plain else session.add)(*first, *entries)

    async def _keep_attachments(self, item: Item, principal: Principal, *, reads: bool) -> KeptMedia:
        """Return what a message has attached. It is on disk then, so that the entry never names a file that is not there.

        A crash before the entry leaves files that no entry names, and the item is recorded anew.

        reads: read PDFs and recordings before. This may take as long as a model call; a /stop ends it, and the item is then recorded
        without.
        """
        services, message = self._services, item.message
        readings: Mapping[int, Reading] = {}
        if services.reader is not None and reads:
            label = Label("transcribe", message.channel, item.n, guest=principal.guest)
            readings = await services.reader.read(message.media, services.result_limit(), label)
        keep = partial(keep_media, self._journal, message.media, self._session.pictures, readings)
        return await until_written(keep, "media")

    async def _think_until_done(self, turn: AgentTurn) -> None:
        """Think until nothing is left to think, or the limit is reached. Each thought sees one version of the settings.

        Raises ModelError.
        """
        session = self._session
        progress = session.progress(turn.item.n)
        while progress.next is NextStep.THINK:
            config, item = self._config, turn.item
            # Looked at before each further thought, and so also right after a restart.
            if progress.thoughts and await end_if_stuck(
                item, session, progress, config.max_thoughts, self._services.clock
            ):
                return
            active = active_skills(progress.skills, self._toolset.skills) if progress.skills else None
            model = active.model if active is not None else ""
            # None if a newer message has ended the call: it joins below, and the model is asked again.
            replies = config.max_replies - progress.replies
            thought = AgentThought(
                session, self._services, config, self._toolset, self._journal, self.board, turn, max_replies=replies
            )
            answer = await thought.ask(model)
            if answer is not None:
                await self._act_on(answer, turn, progress, active)
                progress = session.progress(item.n)
            if progress.next is NextStep.THINK:
                # Between two thoughts a reload may have come, or somebody may be no owner any more.
                self._take_settings(turn)
                config = self._config
                steers = config.when_busy != "followup"
                if steers and await self._join_waiting(turn, config.steer_cap + 1, may_join):
                    progress = session.progress(turn.item.n)

    # ------------------------------------------------------------------ acting on an answer

    async def _act_on(
        self, answer: ModelAnswer, turn: AgentTurn, progress: ItemProgress, active: ActiveSkills | None
    ) -> None:
        """Record a thought about the item of a turn and carry out its calls in order.

        progress: that of the item without this thought. active: the skills in force, None for none. A call that they do not allow is
        refused.

        While the disk refuses to write, waits. Cancelled: calls that were carried out keep their results; `close_stopped_item` then
        closes the others. A tool under way is cancelled, and its call counts as not carried out, though its effect may be half done.
        """
        # First, since what ends the item with an apology has no calls to carry out.
        if await self._apologise_instead(answer, turn, progress):
            return
        response, now = answer.response, self._services.clock()
        # Ids are made unique before anything else is made of the calls: keys of posts and tasks are made of them.
        calls = with_unique_ids(response.calls[:MOST_CALLS], self._session.call_ids)
        surplus = first_surplus(self._session.of_item(turn.item.n), calls)
        wanted = parse_replies(turn.item, calls[:surplus], self._config.max_replies - progress.replies)
        # Where each chat has a conversation of its own, work for a guest is not told who else writes.
        is_told_all = self._config.scope == "global" or turn.principal.is_owner
        wanted = await self._decisions.route(wanted, None if is_told_all else turn.item.message.channel.address)
        # Files are kept and the rules are asked before the thought is written: a reply that is refused or held has no post.
        replies: dict[str, WantedReply] = {}
        for id, reply in wanted.items():
            made = list(wanted.values())[: len(replies)]
            replies[id] = await self._decisions.prepare(reply, turn, made=made)
        # All before this has changed nothing that a restart would see; all behind it, a restart finds due in the session.
        thought = _thought_entry(response, now, calls)
        posted = await self._commit_thought(thought, answer, replies, turn, progress)
        # Behind the commit: only then is it known which replies have their place in the outbox.
        reply_outcomes = await self._end_replies(replies, posted, turn)
        # Last, since a call that runs must stand in the session, or a restart would not know of its effect.
        await self._calls.carry_out(calls, turn, self._toolset, reply_outcomes, active, surplus, now)

    async def _apologise_instead(self, answer: ModelAnswer, turn: AgentTurn, progress: ItemProgress) -> bool:
        """End the item with an apology if there is no answer that people could read. Return whether that is so.

        A refusal of the model after a reply is recorded like any other thought: the person has got an answer.
        """
        response = answer.response
        if answer.failure:
            parts = (answer.failure, _notice_for(answer, turn))
            text = "\n\n".join(part for part in parts if part)
            await apologise(turn.item, self._session, self._services.clock(), text)
            return True
        if response.stop_reason == "refusal" and not response.calls and not progress.replies:
            now = self._services.clock()
            await apologise(turn.item, self._session, now, MODEL_DECLINED, _thought_entry(response, now))
            return True
        return False

    async def _commit_thought(
        self,
        thought: Entry,
        answer: ModelAnswer,
        replies: Mapping[str, WantedReply],
        turn: AgentTurn,
        progress: ItemProgress,
    ) -> dict[str, PostResult]:
        """Write a thought and post all that it says, in one commit. Return the results of the journal by the keys of the posts.

        What it says: the replies among its calls, its text in direct speech, and a sentence for the owner about the model's server.
        """
        session, item = self._session, turn.item
        posts = [reply.post for reply in replies.values() if reply.post is not None]
        if answer.spoken:
            # Files that wait go out with the first text; the entry names them, so that a restart does not send them again.
            files = session.media_queue.waiting(item.message.channel.address)
            spoken = direct_reply(answer.spoken, item, progress.thoughts + 1, files)
            if spoken is not None:
                posts.append(spoken)
                thought = attrs.evolve(thought, metadata={**thought.metadata, "spoken": True, **sent(files)})
        if notice := _notice_for(answer, turn):
            posts.append(reply_to_sender(item, notice, NOTICE))
        if self._config.show_usage and self._services.usage_of is not None and turn.principal.is_owner:
            # Each post shows what the item has used, also the notice; so it comes after all of them.
            usage: Metadata = {"usage": self._services.usage_of(item.n)}
            posts = [attrs.evolve(post, metadata={**post.metadata, **usage}) for post in posts]
        notes = () if answer.is_final else _notes(item, answer.response, thought.ts)
        results = await session.commit((thought, *notes), tuple(posts))
        return {post.key: result for post, result in zip(posts, results, strict=True)}

    async def _end_replies(
        self, replies: Mapping[str, WantedReply], posted: Mapping[str, PostResult], turn: AgentTurn
    ) -> dict[str, ToolOutcome]:
        """Settle the drafts, now that the replies are posted. Return the outcomes of the calls of the reply tool, by call id."""
        # Drafts of replies that were refused are withdrawn; the others end with the reply itself.
        self.board.settle({result.channel.address for result in posted.values() if isinstance(result, OutboundMessage)})
        return await self._decisions.settle(replies, posted, turn)

    # ------------------------------------------------------------------ messages that come in meanwhile

    async def _join_waiting(self, turn: AgentTurn, limit: int, joins: Callable[[Item, AgentTurn], bool]) -> bool:
        """Add the next items of this chat that may join, until the turn has `limit` items. Return whether any was added.

        joins: returns whether an item may join the turn. The first one that does not ends the search, since those behind it must not
        overtake it.

        An item joins the turn only when it is recorded. If a cancel or a crash comes before that, the journal hands it out again
        in its own turn; after it, the item counts as done together with the turn.
        """
        before = len(turn.earlier)
        while len(turn.earlier) + 1 < limit:
            newer = await find_newer(self._journal, turn, wait=False)
            if newer is None or not joins(newer, turn):
                break
            # None: a /stop all has discarded it between the two requests.
            taken = await self._journal.ask(TakeItem, newer.n, None, self._session.lease)
            if taken is None:
                break
            await self.record(taken, turn.sender(taken))
            turn.join(taken)
        return len(turn.earlier) > before


def _may_call_skill(message: InboundMessage) -> bool:
    """Return whether a message may call a skill. A command does not, also one that is thought about."""
    return "/" in message.text and not message.is_internal and command_of(message.text) is None


def _notice_for(answer: ModelAnswer, turn: AgentTurn) -> str:
    """Return the sentence about the model's server that comes with an answer, "" if the turn is for nobody who could act on it."""
    return answer.notice if turn.principal.is_owner else ""


def _thought_entry(response: ModelResponse, now: int, calls: tuple[ToolCall, ...] = ()) -> Entry:
    """Return the assistant entry of a thought. calls: with their unique ids."""
    usage = response.usage
    metadata: dict[str, Json] = {
        "usage": {"promptTokens": usage.prompt_tokens, "completionTokens": usage.completion_tokens},
        "stopReason": response.stop_reason,
    }
    if response.thinking:
        metadata |= {"thinking": list(response.thinking), "thinkingOf": response.thinking_of}
    return Entry(now, "assistant", response.text, calls, metadata=metadata)


def _notes(item: Item, response: ModelResponse, now: int) -> tuple[Entry, ...]:
    """Return the note for the model after an answer that is not whole, or has too many calls; () for most answers.

    It is written together with the answer, because a restart must know that another thought is due.
    """
    count = len(response.calls)
    if not count:
        problem = unfinished(response)
    elif count > MOST_CALLS:
        _log.warning("left out calls of one answer", item=item.n, calls=count, limit=MOST_CALLS)
        problem = surplus_note(count - MOST_CALLS)
    else:
        problem = None
    return () if problem is None else (Entry(now, "system", problem, metadata={"type": UNFINISHED}),)
