"""Tool calls of a thought: each is run, and its result recorded behind it, before the next one begins.

Replies were posted together with the thought, so only their results are recorded here. Every other call is refused, gathers a file for
the answer, or runs a tool. Whatever goes wrong becomes a result, which leads to another thought: the model reads it and tries
something else.

A crash leaves calls without a result. The next start gives them their true result (`recorded_results`) or marks them as cancelled
(see `session.loading`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from actors import Ref
from pegasus.access import folder_of
from pegasus.conversation import MOST_IN_A_ROW, Entry, find_loop, keep_media, open_calls
from pegasus.main_agent.delegation import TaskDelegation
from pegasus.main_agent.owner_words import OwnerWords
from pegasus.main_agent.queue_items import cause_of
from pegasus.main_agent.replies import REPLY, WantedReply, queued_result, reply_key, reply_to_sender
from pegasus.main_agent.reply_decisions import ReplyDecisions
from pegasus.main_agent.services import AgentServices
from pegasus.main_agent.session import SEND_FILE, USE_SKILL, Session, gathered, send_file_path, until_written
from pegasus.main_agent.skill_invocation import ActiveSkills, active_skills
from pegasus.main_agent.toolset import AgentToolset
from pegasus.main_agent.turns import AgentTurn
from pegasus.messages import Json
from pegasus.models import ToolCall
from pegasus.outside import fenced_metadata
from pegasus.storage import JournalMessage, Posted
from pegasus.tools import ToolContext, ToolOutcome, earlier_calls
from pegasus.wire import encode_json

_REPEATED: Final = f"not carried out: the same call came {MOST_IN_A_ROW} times in a row"
"""Result of the calls from the surplus one on, for the model."""


@attrs.frozen(eq=False, repr=False)
class CallRunner:
    """Carries out the calls of thoughts in one session."""

    _session: Session
    """Gets the result of each call."""
    _services: AgentServices
    """Gives the bound of results, the clock, and the access to files."""
    _journal: Ref[JournalMessage]
    """Keeps pictures that tools return."""
    _decisions: ReplyDecisions
    """Decides whether the files that calls gather may leave."""

    async def carry_out(
        self,
        calls: Sequence[ToolCall],
        turn: AgentTurn,
        toolset: AgentToolset,
        reply_outcomes: Mapping[str, ToolOutcome],
        active: ActiveSkills | None,
        surplus: int,
        now: int,
    ) -> None:
        """Run the calls of an answer in order and record their results, each before the next call begins.

        toolset: of the thought. said: by call id, the outcomes of the replies, which were posted already. active: the skills in force,
        None for none. surplus: index of the first call that only repeats those before it; it and all behind it are not run. now: wall
        clock of the thought, ms.

        While the disk refuses to write, waits. Cancelled: calls that were carried out keep their results, and the others have none. A
        tool under way is cancelled, and its call counts as not carried out, though its effect may be half done.
        """
        session, item, has_ended = self._session, turn.item, False
        for number, call in enumerate(calls):
            facts: dict[str, Json] = {}
            # A circle is found in the results so far, so that the rest of an answer is not run either.
            has_ended = has_ended or (number > 0 and find_loop(session.of_item(item.n)) is not None)
            # The order of the cases: a circle ends everything; a skill in force refuses before anything happens; a reply has
            # happened already.
            if number >= surplus or has_ended:
                outcome = ToolOutcome.failure(_REPEATED)
            elif active is not None and (refusal := active.refusal(call)) is not None:
                outcome = ToolOutcome.failure(refusal)
            elif call.id in reply_outcomes:
                outcome = reply_outcomes[call.id]
            elif call.name == SEND_FILE.name and self._services.files.now is not None:
                outcome, facts = await self._gather(call, turn)
            else:
                outcome = await self._run_call(call, turn, toolset)
                # A tool may take long; results of calls that were not run have the time of the thought.
                now = self._services.clock()
            metadata: dict[str, Json] = {} if outcome.failed else facts
            if outcome.outside:
                # Text from outside gets its labels, which the next request and the policy read from the entry.
                metadata |= fenced_metadata(outcome.outside, session.fence)
            if outcome.pictures:
                # Pictures are on disk before the entry names them.
                keep = partial(keep_media, self._journal, outcome.pictures, session.pictures)
                metadata["media"] = list((await until_written(keep, "media")).refs)
            # A fact, not a decision: the tool has had its effect, so a cancel does not take the result away.
            result = Entry(now, "tool", outcome.content, call_id=call.id, metadata=metadata, failed=outcome.failed)
            await (session.note(result) if call.id in reply_outcomes else session.add(result))
            if call.name == USE_SKILL:
                # this call may have brought a skill into force
                active = active_skills(session.progress(item.n).skills, toolset.skills)

    async def _gather(self, call: ToolCall, turn: AgentTurn) -> tuple[ToolOutcome, dict[str, Json]]:
        """Keep the file of a `send_file` call. Return the outcome, and the metadata by which the session knows that it waits.

        A file that an owner is asked about goes out by itself, after a yes. A crash before the result is written leaves a file that
        nobody names, and a call that is marked as not carried out.
        """
        item = turn.item
        path, problem = send_file_path(call.arguments)
        if problem := call.error or problem:
            return ToolOutcome.failure(problem), {}
        waiting = self._session.media_queue.waiting(item.message.channel.address)
        post = attrs.evolve(reply_to_sender(item, "", call.id), to=item.message.channel)
        reply = await self._decisions.prepare(WantedReply(post, (path,)), turn, waiting)
        if reply.held is not None:
            return await self._decisions.hold(reply.held, turn), {}
        if reply.post is None:
            return ToolOutcome.failure(f"not sent: {reply.refusal}"), {}
        [file] = reply.post.files
        result: dict[str, Json] = {"waiting": file.name, "type": file.mime, "note": "it goes out behind your answer"}
        return ToolOutcome(encode_json(result), failed=False), gathered(file, item)

    async def _run_call(self, call: ToolCall, turn: AgentTurn, toolset: AgentToolset) -> ToolOutcome:
        """Run the tool of a call and return its outcome.

        Whatever goes wrong becomes a result: a call that could not be parsed, a tool that does not exist (models invent some), one
        that raises or takes too long. The model reads it and tries something else.
        """
        if call.error is not None:
            return ToolOutcome.failure(call.error)
        executor, channel = toolset.executor, turn.item.message.channel
        tool = executor.get(call.name)
        if tool is None:
            known = ", ".join((REPLY.name, *(tool.name for tool in executor.offered())))
            return ToolOutcome.failure(f"there is no tool {call.name!r} here. There are: {known}")
        turn.take_owners(self._services.config.now.owners)
        words = OwnerWords(self._session, turn, executor.get)
        context = ToolContext(
            key=reply_key(turn.item.n, call.id),
            cause=cause_of(turn.item.message),
            principal=turn.principal,
            user_id=channel.user_id,
            origin=channel,
            folder=folder_of(turn.item.message.metadata, turn.principal),
            max_result=self._services.result_limit(),
            outside=self._session.outside,
            owner_messages=words.of_call(call.name),
            earlier=partial(earlier_calls, words.entries, call.id, executor.get),
        )
        return await executor.run(tool, call.arguments, context)


# ------------------------------------------------------------------ after a crash


async def recorded_results(
    journal: Ref[JournalMessage],
    work: TaskDelegation | None,
    report_started: Callable[[], None],
    entries: Sequence[Entry],
) -> dict[tuple[int | None, str], str]:
    """Return the true results of open calls, by item and call id, where their effect is recorded.

    Both sources know an effect by the key that the call was made with: the outbox knows replies, the task system knows tasks. The
    order of the questions does not matter, since nothing is changed by them.

    work: knows whether the work of a call was begun; None: there is no such work. report_started: tells the supervisor that the actor
    is started. It is called right before `work` is asked: the answer comes from the task system, which begins only when the whole
    tree is started, and without the call both would wait for each other.
    """
    results: dict[tuple[int | None, str], str] = {}
    for open_call in open_calls(entries):
        key, result = reply_key(open_call.item, open_call.call.id), None
        if open_call.call.name == REPLY.name:
            [message] = await journal.ask(Posted, (key,))
            result = queued_result(message) if message is not None else None
        elif work is not None:
            report_started()
            result = await work.result_of(open_call, key)
        if result is not None:
            results[open_call.item, open_call.call.id] = result
    return results
