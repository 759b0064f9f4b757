"""The actor of the Main Agent: takes queue items from the journal and obeys /stop while a model call runs.

Up to five tasks run side by side:

* The main lane takes one item after the other and works on it until it is done. The order matters, because the entries about one
  item are part of the request to the model for the next one.
* The control lane answers the commands that pass the queue (/stop, /status, …), also while a model call hangs, one after the other, so
  none may take long. A /stop whose work does not end in time is answered with a list of what is still ending, and the lane continues.
* The mailbox answers programs in the same process. A status is answered at once, a stop in a task of its own, because it waits.
* The compactor writes the summary that a full session will be replaced by. The main lane puts it into the session.
* In the agent of a chat, the keeper of the window consolidates older messages, and changes the session between two turns.

With `agent.scope = "global"` there is one such actor for all channels of the owner, and one for each conversation in which guests are
heard. With "chat" there is one for each chat. Those of chats are started and stopped by `chats`; each takes the items of its chat.

An item is handed out by the journal again until `CompleteItem` is sent. A crash of any of these tasks ends the actor. Its supervisor
starts it again, it reads its session, and it continues with the item that it was working on. An item that has crashed the actor
MAX_ATTEMPTS times is set aside with an apology, so that one bad message cannot block the queue for ever.

Only the main lane writes to the session, and between two turns the keeper of the window. The control lane posts its answers directly
to the outbox, and a /stop only cancels the scope around the work of the main lane, which then closes the item itself. So the file
cannot get two interleaved writes.

The order of the durable steps is: the entries and replies of an item, then its `CompleteItem`. A crash between the two makes the
journal hand out the item again. The main lane then reads from the session that nothing is left to do, and the control lane finds its
answer under the idempotency key in the outbox. Neither sends a second reply. The counters of this file (items finished, uptime) are
kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import cached_property, partial
from itertools import takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs
import trio

from actors import ActorError, Inbox, Ref
from pegasus.access import sender_of
from pegasus.conversation import Entry
from pegasus.intake import CONVERSATION_COMMANDS, Priority, alias_note, command_of
from pegasus.main_agent.chat_commands import (
    AgentStatus,
    GetStatus,
    Interrupt,
    MainAgentMessage,
    Stop,
    Withdraw,
    help_text,
    refuse_unknown,
    stop_text,
    stops_all,
)
from pegasus.main_agent.item_endings import apologise, close_stopped_item, log_set_aside
from pegasus.main_agent.queue_items import discard_waiting
from pegasus.main_agent.replies import COMMAND, reply_key, reply_to_sender
from pegasus.main_agent.services import AgentServices, CommandAnswers, PublishMessage
from pegasus.main_agent.session import (
    GLOBAL,
    ItemProgress,
    NextStep,
    Session,
    chat_files,
    load_session,
    until_written,
)
from pegasus.main_agent.status import agent_status_text, gather_status, idle_status, seen_by
from pegasus.main_agent.turns import AgentTurn, WorkStopper, stopped_thoughts
from pegasus.messages import APART, GOES_BACK, Address, ReplyDraft, Said, Typing
from pegasus.storage import (
    Commit,
    CompleteItem,
    Item,
    JournalMessage,
    Lease,
    NextItem,
    Posted,
    PostResult,
    ReturnItem,
    StorageError,
    TakeItem,
    Waiting,
)

if TYPE_CHECKING:
    from pegasus.main_agent.consolidation import WindowConsolidator
    from pegasus.main_agent.conversation_changes import ConversationChanges
    from pegasus.main_agent.think_loop import ThinkLoop

CANNOT_GO_BACK: Final = "I cannot go back to that message: it is no longer in this conversation as it stands."
"""Text for somebody whose message was to replace one that was archived meanwhile."""
MAX_ATTEMPTS: Final = 3
"""Number of times that an item is worked on before it is set aside. More than once, because a crash may have had a passing cause."""
TASKS_PATIENCE: Final = 2.0
"""Seconds that /status waits for the list of tasks. After that it answers that the task system does not."""


async def main_agent(
    inbox: Inbox[MainAgentMessage],
    journal: Ref[JournalMessage],
    services: AgentServices,
    *,
    chat: Address | None = None,
    apart: bool | None = None,
    announce: Ref[Typing | ReplyDraft] | None = None,
    said: Ref[Said] | None = None,
    publish: PublishMessage | None = None,
    answers: CommandAnswers = MappingProxyType({}),
    note_work: Callable[[bool], None] = lambda is_working: None,
    lease: Lease | None = None,
) -> None:
    """Run the Main Agent of one session.

    chat: the chat whose session it is; None: the session is that of all channels. apart: take only items of conversations in which
    guests are heard, or only others; None: both. announce: actor that shows people when the agent thinks and what it is writing.
    said: actor that shows what was said to other clients of the conversation. publish: makes a message known to observers when it is
    done. answers: functions that answer the commands that this actor does not answer itself. note_work: is told when work on an item
    or a command begins and ends. lease: that of its session, if it was taken already.

    Raises StorageError if the session cannot be read, LeaseLost if another agent has taken the session over. Cancelled or stopped:
    the running model call ends at once, and its item is handed out again at the next start.

    Example:
        spec = partial(main_agent, journal=journal, services=services, announce=switchboard)
        status = await main_agent_ref.ask(GetStatus)
    """
    files = GLOBAL if chat is None else chat_files(chat)

    async def find_results(entries: Sequence[Entry]) -> dict[tuple[int | None, str], str]:
        """Return the true results of calls that a crash has left open."""
        from pegasus.main_agent.tool_calls import recorded_results

        return await recorded_results(journal, services.work, inbox.started, entries)

    session = await load_session(journal, services.clock, files, find_results, services.make_fence, lease)
    async with trio.open_nursery() as nursery:
        # Everything below starts from the session as it was loaded. The nursery makes a crash of one task that of the actor.
        keeper = None
        if chat is not None and services.consolidator is not None:
            from pegasus.main_agent.consolidation import WindowConsolidator

            keeper = WindowConsolidator(services.consolidator, session, chat, services.compactor())
            nursery.start_soon(keeper.run)
        stopper = WorkStopper(services, nursery, stopped_thoughts(session.entries))
        agent = _MainAgent(
            session=session,
            chat=chat,
            apart=apart,
            journal=journal,
            services=services,
            announce=announce,
            said=said,
            publish=publish,
            answers=answers,
            note_work=note_work,
            stopper=stopper,
            nursery=nursery,
            keeper=keeper,
        )
        nursery.start_soon(agent.main_lane)
        nursery.start_soon(agent.control_lane)
        async for message in inbox:
            match message:
                case GetStatus(reply):
                    reply.send(agent.status())
                case Stop():
                    nursery.start_soon(agent.answer_stop, message)
                case Interrupt():
                    nursery.start_soon(agent.answer_interrupt, message)
                case Withdraw():
                    agent.stopper.withdraw(message)
        agent.is_stopped = True
        nursery.cancel_scope.cancel()


@attrs.define(eq=False, repr=False, kw_only=True)
class _MainAgent:
    """The two lanes and the state that they share.

    Both run in one Trio thread: other tasks run only while this one awaits, so code without an `await` sees no change by others.
    """

    _session: Session
    """The conversation. Only the main lane writes to it, and the keeper of the window between two turns."""
    _chat: Address | None
    """The chat whose items it takes; None: those of all."""
    _apart: bool | None
    """True to take only items of conversations with a session of their own, False for only others, None for both."""
    _journal: Ref[JournalMessage]
    """Hands out the items, and takes answers of commands into the outbox."""
    _services: AgentServices
    """Everything that the composition root has handed in."""
    _announce: Ref[Typing | ReplyDraft] | None
    """Takes typing signs and drafts; None: nobody shows them."""
    _said: Ref[Said] | None
    """Takes what was said, for other clients of the conversation; None: there are none."""
    _publish: PublishMessage | None
    """Makes a finished message known to observers; None: nobody observes."""
    _answers: CommandAnswers
    """Functions that answer the commands which this actor does not answer itself."""
    _note_work: Callable[[bool], None]
    """Is told when work on an item or a command begins and ends."""
    stopper: WorkStopper
    """Knows the running turn, and ends it for a /stop."""
    _nursery: trio.Nursery
    """Runs what belongs to the actor."""
    _keeper: WindowConsolidator | None = None
    """Consolidates the session between two turns; None: nobody does."""
    is_stopped: bool = attrs.field(init=False, default=False)
    """True once it was told to end; an agent whose work has failed ends without that."""
    _taken: set[int] = attrs.field(init=False, factory=set)
    """Numbers of the items that it has taken last; those of them that are not done are given back when it is stopped."""
    _turns: int = attrs.field(init=False, default=0)
    """Queue items finished since the start."""

    def __attrs_post_init__(self) -> None:
        self._session.on_written = self._show_said

    @cached_property
    def _loop(self) -> ThinkLoop:
        """Works on the items that need the model. The compactor runs from then on."""
        from pegasus.main_agent.think_loop import ThinkLoop

        if (compactor := self._services.compactor()) is not None:
            self._nursery.start_soon(compactor.run)
        return ThinkLoop(self._session, self._services, self._journal, self._show)

    @cached_property
    def _changes(self) -> ConversationChanges:
        """Carries out the commands of the main lane."""
        from pegasus.main_agent.conversation_changes import ConversationChanges

        return ConversationChanges(
            self._session, self._services, self._journal, self._show, is_shared=self._chat is None
        )

    # ------------------------------------------------------------------ main lane

    async def main_lane(self) -> None:
        """Take one item after the other and work on it, until cancelled.

        The first items are those that the session shows, so that a restart continues with the unfinished one even if messages of a
        higher priority have arrived meanwhile. After that the journal decides.
        """
        try:
            for item in await self._items_of_session():
                await self._run_turn(item)
            while True:
                if self._keeper is not None:
                    self._keeper.look()
                item = await self._journal.ask(NextItem, "main", self._chat, self._apart)
                self._taken = {item.n}
                async with nullcontext() if self._keeper is None else self._keeper.session_lock:
                    await self._run_turn(item)
        finally:
            if self.is_stopped:
                for number in self._taken:
                    with suppress(ActorError):
                        self._journal.tell_nowait(ReturnItem(number, self._session.lease))

    async def _items_of_session(self) -> list[Item]:
        """Return the items of the session that are not done for the journal, the oldest first.

        These are the unfinished one, and those whose `CompleteItem` a crash has lost, the newest ones always. They come before all
        others: a compaction meanwhile would take away the entries which show that they are finished, and they would be answered again.
        """
        items: list[Item] = []
        for number in reversed(self._session.item_numbers()):
            item = await self._journal.ask(TakeItem, number, self._apart, self._session.lease)
            if item is None:
                break
            self._taken.add(item.n)
            items.insert(0, item)
        return items

    async def _run_turn(self, item: Item) -> None:
        """Work on an item until it is done, and tell the journal.

        A /stop cancels the scope around the work on an item and nothing else, so that the steps that must follow (closing the
        session, `CompleteItem`) are not interrupted by it. The journal hands out again an item that needs more work after a /stop.

        `ended` is set in a `finally`, so a /stop that waits for it also returns when the actor crashes or is cancelled.
        """
        turn = self.stopper.running = AgentTurn(item)
        turn.take_owners(self._services.config.now.owners)
        self._note_work(True)
        self._session.replies = {}
        self._show_typing(item, active=True)
        try:
            await self._session.enter(self._services.clock(), is_apart=item.message.metadata.get(APART) is True)
            if self.stopper.withdrawn:
                turn.stop_if_withdrawn(self.stopper.withdrawn)
            with turn.scope:
                await trio.lowlevel.checkpoint_if_cancelled()  # a withdrawn message is not begun
                await self._work_on(item, turn)
            if turn.scope.cancelled_caught:
                if not await self._close_stopped(turn):
                    return
                self._services.stopped.add(done.n for done in turn.items)
            for done in turn.items:
                await self._journal.tell(CompleteItem(done.n, self._session.lease))
                self._turns += 1
                self._publish_message(done)
        finally:
            self._loop.board.withdraw()
            self.stopper.running = None
            self._note_work(False)
            turn.ended.set()
            self._show_typing(item, active=False)
            self._taken.update(joined.n for joined in turn.items)

    async def _work_on(self, item: Item, turn: AgentTurn) -> None:
        """Do all that an item needs: an apology after too many crashes, a command, or the think loop.

        The attempts are checked only if the item still needs something. An item that was finished right before the last crash lacks
        only its `CompleteItem`, and an apology would contradict the reply that its sender has already received.
        """
        progress = self._session.progress(item.n, item.message.id)
        if item.attempt > MAX_ATTEMPTS and progress.next is not NextStep.NOTHING:
            await apologise(item, self._session, self._services.clock(), log_set_aside(item, MAX_ATTEMPTS))
            # Files that were gathered before the crash are sent all the same: the calls have told the model so.
            await self._loop.send_gathered(item)
        elif GOES_BACK in item.message.metadata and not await self._is_said_anew(turn, progress):
            await self._go_back(turn, progress)
        elif not ("/" in item.message.text and await self._obey(turn, progress)):
            # A /retry has recorded the message that it is about.
            await self._loop.run(turn, self._session.progress(item.n, item.message.id))

    async def _is_said_anew(self, turn: AgentTurn, progress: ItemProgress) -> bool:
        """Return whether an item is worked on like any other, with what it takes the place of already taken back."""
        item, facts = turn.item, turn.item.message.metadata[GOES_BACK]
        if not isinstance(facts, dict) or facts.get("whole") is not True:
            return False
        by_guest = not turn.principal.is_owner
        # A guest's program may take back what it has said itself, where nobody else writes.
        if progress.next is NextStep.RECORD and (not by_guest or item.message.channel.address.is_separate):
            from pegasus.main_agent.session import cut_back

            now = self._services.clock()
            await cut_back(self._session, item, now, str(facts.get("id")), by_guest=by_guest)
        return True

    async def _go_back(self, turn: AgentTurn, progress: ItemProgress) -> None:
        """Work on a message that replaces an earlier one: what was said since that is taken back before, in the same step."""
        item, session, now = turn.item, self._session, self._services.clock()
        if progress.next is NextStep.RECORD:
            facts = item.message.metadata[GOES_BACK]
            id, again = (str(facts.get("id")), facts.get("again") is True) if isinstance(facts, dict) else ("", False)
            replaced = None
            if turn.principal.is_owner:
                from pegasus.main_agent.session import edit, retry

                replaced = await (retry(session, item, now, id) if again else edit(session, item, now, id))
            if replaced is None:
                await session.commit((), (reply_to_sender(item, CANNOT_GO_BACK, COMMAND),))
                return
            text, channel = item.message.text, item.message.channel
            self._show(Said("user", text, channel, now, item.message.id, replaces=replaced, chat=session.files.chat))
        await self._loop.run(turn, session.progress(item.n, item.message.id))

    async def _obey(self, turn: AgentTurn, progress: ItemProgress) -> bool:
        """Carry out a command of the main lane, such as /new, or refuse one that does not exist. Return False for any other message.

        What is refused does not enter the session.
        """
        item = turn.item
        if not item.message.is_internal and command_of(item.message.text) in CONVERSATION_COMMANDS:
            return await self._changes.obey(item, turn.principal, progress)
        if item.message.is_internal or progress.next is not NextStep.RECORD:
            return False
        skills = self._services.toolset.now.skills
        refusal = await refuse_unknown(
            item.message.text, self._answers, skills.by_people if skills is not None else None
        )
        if refusal:
            await self._session.commit((), (reply_to_sender(item, refusal, COMMAND),))
        return bool(refusal)

    async def _close_stopped(self, turn: AgentTurn) -> bool:
        """End the item that a /stop has cut short. Return False if it is to be worked on again.

        The /stop may have arrived before the message was recorded, or have ended a command, which is not recorded otherwise. It is
        recorded now, because the session must show that it came and was stopped: after a crash neither it nor the /stop is carried out
        again. Runs outside the cancelled scope, so a second /stop does not interrupt it.
        """
        item = turn.item
        progress = self._session.progress(item.n, item.message.id)
        if progress.next is NextStep.RECORD:
            await self._loop.record(item, turn.principal, reads_attachments=False)
        address, board = item.message.channel.address, self._loop.board
        has_ended = await close_stopped_item(
            self._session,
            item,
            self._services.clock(),
            turn.stopped_by,
            turn.stop_facts,
            from_elsewhere=turn.stopped_elsewhere,
            shown=board.text_at(address),
            tasks_go_on=turn.is_interrupted,
        )
        if has_ended:
            board.cut(address)
        return has_ended

    # ------------------------------------------------------------------ control lane

    async def control_lane(self) -> None:
        """Answer the commands that pass the queue, one after the other, until cancelled.

        A command whose answer is in the outbox is not carried out again: a crash came between the answer and its `CompleteItem`. One
        that crashes the actor before that is carried out again, at most MAX_ATTEMPTS times. All commands can be repeated: a /stop
        finds in the session which thought it has ended already (`turns.stopped_thoughts`).
        """
        while True:
            item = await self._journal.ask(NextItem, "control", self._chat, self._apart)
            self._note_work(True)
            if not await self._is_answered(item):
                is_repeatable = item.attempt <= MAX_ATTEMPTS
                answer = await self._answer(item) if is_repeatable else log_set_aside(item, MAX_ATTEMPTS)
                # Without the session, which only the main lane writes.
                posts = (reply_to_sender(item, answer, COMMAND),)
                commit = partial(self._journal.ask, Commit, (), posts, self._session.lease)
                await until_written(commit, "a command's answer")
            await self._journal.tell(CompleteItem(item.n, self._session.lease))
            self._publish_message(item)
            self._note_work(False)

    async def _is_answered(self, item: Item) -> bool:
        """Return whether the answer to a command is in the outbox."""
        keys = (reply_key(item.n, COMMAND),)
        [posted] = await until_written(lambda: self._journal.ask(Posted, keys), "answer of a command")
        return posted is not None

    async def _answer(self, item: Item) -> str:
        """Carry out a command and return its answer.

        The control lane waits for it, so everything here is bounded: /stop by its deadline, /status by TASKS_PATIENCE. The other
        commands must not wait for an answer of a model; /model and /speech wait for local servers, a few seconds at most.
        """
        message = item.message
        person = sender_of(message, self._services.config.now.owners)
        match command_of(message.text):
            case "/stop":
                by, deadline = f"the user ({message.channel.type})", self.stopper.begin_command()
                others_go_on = self.stopper.leaves_running(person)
                # First, so that none of them is taken up when the thought has ended.
                lease = self._session.lease
                discarded = await discard_waiting(self._journal, item, person, lease) if stops_all(message.text) else ""
                ended, still_ending = await self.stopper.stop(by, person, item.n, deadline)
                waiting = await self._count_waiting(Priority.PERSON)
                waiting_here = 0
                if waiting:
                    waiting_here = await self._journal.ask(
                        Waiting, message.channel.address, "main", Priority.PERSON, self._apart
                    )
                return stop_text(
                    ended,
                    waiting,
                    still_ending,
                    waiting_here=waiting_here,
                    discarded=discarded,
                    others_go_on=others_go_on,
                )
            case "/status":
                waiting, now = await self._count_waiting(), self._services.clock()
                facts = await gather_status(self.status(), waiting, self._services.work, now, TASKS_PATIENCE)
                turn = self.stopper.running
                facts = seen_by(facts, person, turn.item.message.channel if turn else None, self._chat)
                warnings = self._services.warnings.now if person.is_owner else ()
                node = self._services.node if person.is_owner else ""
                return agent_status_text(facts, trio.current_time() - self._services.started, warnings, node)
            case "/context":
                from pegasus.main_agent.context_view import context_text

                return context_text(self._session.entries, self._services)
            case "/help":
                skills = self._services.toolset.now.skills
                return help_text(self._answers, await skills.help() if skills is not None else "")
            case command:
                answer = self._answers.get(command or "")
                if answer is None:
                    return f"Unknown command: {command}. /help lists the commands."
                try:
                    return " ".join(filter(None, [await answer(message, person), alias_note(message.text)]))
                except StorageError as error:
                    return f"{command} did not work: {error}. Send it again when the problem is solved."

    async def _count_waiting(self, priority: Priority | None = None) -> int:
        """Return how many messages of this agent wait, of this priority or more urgent, without the command that is being answered."""
        return max(0, await self._journal.ask(Waiting, self._chat, None, priority, self._apart) - 1)

    # ------------------------------------------------------------------ stop and status

    async def answer_stop(self, message: Stop) -> None:
        """Carry out a Stop of the mailbox: end everything, and answer when nothing of it runs any more.

        It has no deadline, because it runs in a task of its own and delays nobody; a program may give its `ask` a timeout.
        """
        ended, _ = await self.stopper.stop(message.by)
        message.reply.send(tuple(ended))

    async def answer_interrupt(self, message: Interrupt) -> None:
        """Carry out an Interrupt of the mailbox. It has no deadline, as `answer_stop`."""
        message.reply.send(await self.stopper.interrupt(message.address, message.person, message.by))

    def status(self) -> AgentStatus:
        """Return the status of the agent at this moment. Never waits, so it also answers while a model call hangs."""
        turn = self.stopper.running
        return attrs.evolve(
            idle_status(self._services),
            entries=len(self._session.entries),
            turns=self._turns,
            thinking_about=turn.about if turn else None,
            thinking_for=trio.current_time() - turn.since if turn else 0.0,
            in_hand=len(turn.items) if turn else 0,
        )

    # ------------------------------------------------------------------ observers and typing signs

    def _publish_message(self, item: Item) -> None:
        """Send a finished message to the observers, with what followed it up to the next message that had joined the turn."""
        if self._publish is not None:
            entries = self._session.of_item(item.n)
            self._publish(item.message, takewhile(lambda entry: entry.item in (None, item.n), entries))

    def _show_typing(self, item: Item, *, active: bool) -> None:
        """Show or end the typing sign of an item's chat.

        The sign carries the number of the last reply to that chat, because the end of typing is to be signalled after that reply.
        """
        channel = item.message.channel
        seqs = (reply.seq for reply in self._session.replies.values() if reply.channel.address == channel.address)
        self._show(Typing(channel, active, max(seqs, default=0)))

    def _show_said(self, entries: Sequence[Entry], replies: Sequence[PostResult]) -> None:
        """Show what was said to clients elsewhere that belong to the conversation."""
        from pegasus.main_agent.session import said_in

        for said in said_in(entries, replies, self._session.files.chat, self._services.clock()):
            self._show(said)

    def _show(self, sign: Typing | ReplyDraft | Said) -> None:
        """Send a sign that is never stored. It is dropped while the receiver does not run or its mailbox is full."""
        if isinstance(sign, ReplyDraft) and self.stopper.running is not None:
            sign = attrs.evolve(sign, item=self.stopper.running.item.n)
        with suppress(ActorError):
            if isinstance(sign, Said):
                if self._said is not None:
                    self._said.tell_nowait(sign)
            elif self._announce is not None:
                self._announce.tell_nowait(sign)
