"""Turns: the work on a queue item and those that have joined it, and what a /stop ends of it.

The main lane works on one turn at a time. Messages of the same person in the same thread may join it, and so may notifications of the
same task, under the rules of `may_join`. The newest item of a turn is the one being worked on.

A /stop ends the running turn and tasks. An owner's ends any turn, a guest's only work that is for the guest alone. All of it is ended
at the same time and waited for together. What has not ended by the deadline of the command goes on ending in the background, and the
answer names it. The note in the session about a thought that was stopped names the item of the /stop, so that one whose answer a crash
has lost ends nothing else when it is taken up again. Nor does a /stop end the work on messages that were accepted after it.

An `Interrupt` ends the turn alone, if that works for a message of its conversation: tasks go on.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from actors import Ref
from pegasus.access import NOBODY, Principal, sender_of
from pegasus.conversation import Entry
from pegasus.formatting import truncate
from pegasus.main_agent.chat_commands import EndedWork, Withdraw
from pegasus.main_agent.chat_prompt import ChatPrompt
from pegasus.main_agent.queue_items import OWN_TURN
from pegasus.main_agent.services import AgentServices
from pegasus.messages import APART, FOLDER, Address, ChannelInfo, Json
from pegasus.observe import get_logger
from pegasus.storage import Item, JournalMessage, NextItemOfAddress, StorageError

_log = get_logger("main_agent")

MOST_WITHDRAWN: Final = 1000
"""Withdrawn messages that are remembered. One that waits while more than that follow is worked on."""
STOP_PATIENCE: Final = 5.0
"""Seconds that /stop waits for work to end before it answers.

All commands that arrive meanwhile wait behind it. Most work ends within milliseconds; a tool that runs a process may take seconds.
"""
EXCERPT: Final = 60
"""Characters of a message that /stop and /status show, enough for people to recognise it."""


@attrs.define(eq=False, repr=False)
class AgentTurn:
    """A queue item that is being worked on, and the earlier ones of the same chat that it was joined with.

    The main lane of the actor creates it, and `ThinkLoop.run` adds the items that join it. A /stop writes the `stop…` attributes
    before it cancels the scope. The main lane reads them only after the scope has ended, so it never sees half of them.
    """

    item: Item
    """The item that is being worked on: the last one."""
    earlier: list[Item] = attrs.field(factory=list)
    """Those that it was joined with, in the order in which they stand in the session."""
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
    is_interrupted: bool = False
    """True if an `Interrupt` has ended it, and nothing else."""
    cuts_draft: bool = False
    """True if a person has ended it: the draft that they see stays as it is."""
    owners: Collection[str] = ()
    """The setting `agent.owners` by which it is decided for whom the items are worked on (`take_owners`)."""
    principal: Principal = NOBODY
    """Person that the item is worked on for."""
    prompt: ChatPrompt | None = None
    """End of the prompt, the same for all thoughts of the turn; None in the one session of all channels, which has none."""

    @property
    def items(self) -> list[Item]:
        """All of them, in the order in which they stand in the session. Each needs a `CompleteItem`."""
        return [*self.earlier, self.item]

    def take_owners(self, owners: Collection[str]) -> None:
        """Decide by these owners from now on for whom the work is done.

        Called when the turn begins, before each thought and before each call, so that a reload of `agent.owners` counts for messages
        that wait, and for work under way.
        """
        if owners is not self.owners or self.principal is NOBODY:
            self.owners = owners
            self.principal = self.sender(self.item)

    def sender(self, item: Item) -> Principal:
        """Return the person that an item is worked on for: one of the turn, or one that may join it."""
        return sender_of(item.message, self.owners)

    def is_only_for(self, person: Principal) -> bool:
        """Return whether all of it is work for this person alone, asked for in this conversation, with the same rights."""
        return all(_is_same_person(self.sender(item), person) for item in self.items)

    def is_older_than(self, command: int | None) -> bool:
        """Return whether it works for a message that was accepted before a command. command: its item, None for that of a program."""
        return command is None or min(item.n for item in self.items) < command

    @property
    def about(self) -> str:
        """Return the beginning of the message that is being worked on."""
        return truncate(self.item.message.text, EXCERPT)

    def cancel(self, by: str, channel: ChannelInfo | None, item: int | None) -> EndedWork:
        """Cancel the work for a /stop, and return what is ended by it.

        by: author of the /stop, for the session. channel: where it was said, None by a program in this process. item: number of its
        queue item, if it has one.
        """
        thought = self._end(by)
        self.is_interrupted = False
        if item is not None:  # the note about the stop must let a restart answer this command
            self.stop_facts.update(stop=item, what=thought.what, seconds=thought.seconds)
        self.stopped_elsewhere = channel is not None and channel.address != self.item.message.channel.address
        return thought

    def interrupt(self, by: str) -> EndedWork:
        """Cancel the work for somebody of its conversation who wants nothing else to end. by: that person, for the session."""
        thought = self._end(by)
        self.is_interrupted = True
        return thought

    def _end(self, by: str) -> EndedWork:
        """Cancel the work for a person or program, and return what is ended by it. The main lane sees it when it runs again."""
        self.stopped_by, self.cuts_draft = by, True
        self.scope.cancel()
        return EndedWork("thought", self.about, trio.current_time() - self.since)

    async def wait_for_end_of(self, thought: EndedWork) -> tuple[EndedWork, ...]:
        """Wait until cancelled work has ended. Return it, () if it has finished by itself before the cancel reached it."""
        await self.ended.wait()
        return (thought,) if self.scope.cancelled_caught else ()

    def stop_if_withdrawn(self, withdrawn: Collection[Withdraw]) -> None:
        """Cancel the work if nobody waits for any of its messages. withdrawn: messages that nobody waits for."""
        unawaited = {(message.address, message.message_id) for message in withdrawn}
        messages = [item.message for item in self.items]
        if all((message.channel.address, message.id) in unawaited for message in messages):
            self.stopped_by = self.stopped_by or f"the user ({messages[-1].channel.type})"
            self.scope.cancel()

    def join(self, item: Item) -> None:
        """Go on with another item, which is recorded behind the others."""
        self.earlier.append(self.item)
        self.item, self.principal = item, self.sender(item)


def _is_same_person(a: Principal, b: Principal) -> bool:
    """Return whether both are the same person in the same conversation, with the same rights."""
    if a.channel is None or b.channel is None:
        return False
    is_there = a.channel.address == b.channel.address and a.channel.user_id == b.channel.user_id
    return is_there and (a.role, a.guest) == (b.role, b.guest)


def may_join(item: Item, turn: AgentTurn) -> bool:
    """Return whether an item may join a turn: the same person in the same thread, or a notice for it.

    Commands and skills keep their place in the queue, since each begins something of its own. So does a message with OWN_TURN: the
    replies of a joined turn belong to its last message. Work for an owner never joins that for a guest, nor the other way round:
    what a guest has asked for would be done with the rights of the owner. Nor does that of two guests.
    """
    ours, theirs = turn.item.message.channel, item.message.channel
    if any(message.metadata.get(OWN_TURN) is True for message in (turn.item.message, item.message)):
        return False
    if ours.reply_to != theirs.reply_to:
        return False
    # What a turn begins is done in one folder.
    if turn.item.message.metadata.get(FOLDER) != item.message.metadata.get(FOLDER):
        return False
    if turn.principal.recorded != turn.sender(item).recorded:
        return False
    if item.message.is_internal:
        return True
    return ours.user_id == theirs.user_id and not item.message.text.lstrip().startswith("/")


def is_same_task(item: Item, turn: AgentTurn) -> bool:
    """Return whether both are notifications of the same task."""
    task_id = turn.item.message.metadata.get("taskId")
    return (
        item.message.is_internal
        and task_id is not None
        and item.message.metadata.get("taskId") == task_id
        and may_join(item, turn)
    )


async def find_newer(journal: Ref[JournalMessage], turn: AgentTurn, *, wait: bool) -> Item | None:
    """Return the next waiting item of a turn's chat; None if there is none, or if the disk cannot be read.

    wait: do not return before there is one. Cancelled while waiting: nothing has been taken from the queue, since `NextItemOfAddress`
    only looks at it.
    """
    try:
        message = turn.item.message
        return await journal.ask(
            NextItemOfAddress, message.channel.address, turn.item.n, wait, message.metadata.get(APART) is True
        )
    except StorageError as error:  # it cannot be read now, so it is taken in its turn
        _log.warning("cannot read the next message of this chat", error=str(error))
        return None


# ------------------------------------------------------------------ /stop


@attrs.define(eq=False, repr=False)
class WorkStopper:
    """Ends work for people and programs: the running turn, and tasks.

    Example:
        stopper = WorkStopper(services, nursery, stopped_thoughts(session.entries))
        stopper.running = AgentTurn(item)
        ended, still_ending = await stopper.stop("a control call")
    """

    _services: AgentServices
    """Gives the task system, whose tasks a /stop ends as well."""
    _nursery: trio.Nursery
    """Runs the tasks that wait for stopped work, which may outlast the answer to their /stop."""
    _stopped_before: Mapping[int, EndedWork]
    """Thoughts that earlier /stops have ended, by item. Read at the start, since /new may archive the notes about them."""
    running: AgentTurn | None = None
    """Turn of the main lane, which sets it; None while it waits for an item."""
    withdrawn: deque[Withdraw] = attrs.field(init=False, factory=partial(deque, maxlen=MOST_WITHDRAWN))
    """Messages whose senders do not wait for an answer any more."""
    _pending: int = attrs.field(init=False, default=0)
    """Number of /stops whose work still runs."""
    _deadline: float = attrs.field(init=False, default=-math.inf)
    """Time on Trio's clock until which the control lane waits for all of them together. A second /stop gets no time of its own
    meanwhile: anybody could block the lane by repeating the command."""

    def begin_command(self) -> float:
        """Return the deadline (Trio's clock) of a /stop that the control lane carries out now."""
        deadline = trio.current_time() + STOP_PATIENCE
        if self._pending:  # others wait behind this lane already: all stops together may hold it so long
            deadline = min(deadline, self._deadline)
        self._deadline = deadline
        return deadline

    def leaves_running(self, person: Principal) -> bool:
        """Return whether a turn runs that a /stop of this person does not end."""
        return self.running is not None and not self._may_stop(person, self.running)

    def withdraw(self, message: Withdraw) -> None:
        """End the running turn if nobody waits for any of its messages now. Never waits: the main lane closes the turn."""
        self.withdrawn.append(message)
        if self.running is not None:
            self.running.stop_if_withdrawn(self.withdrawn)

    async def interrupt(self, address: Address, person: Principal, by: str) -> EndedWork | None:
        """End the turn that works for a message of this conversation, as far as the person may; None if there is none.

        Returns when nothing of it runs any more and the session says so. Cancelled: it ends all the same.
        """
        turn = self.running
        if turn is None or turn.item.message.channel.address != address or not self._may_stop(person, turn):
            return None
        return next(iter(await turn.wait_for_end_of(turn.interrupt(by))), None)

    def _may_stop(self, person: Principal | None, turn: AgentTurn) -> bool:
        """Return whether a /stop of this person ends a turn: an owner's ends any, a guest's that which is for the guest alone.

        person: None for a program in this process.
        """
        return person is None or person.is_owner or turn.is_only_for(person)

    async def stop(
        self, by: str, person: Principal | None = None, item: int | None = None, deadline: float = math.inf
    ) -> tuple[list[EndedWork], list[str]]:
        """End the running thought and the tasks of this person's conversation (None: all tasks), as far as the person may.

        Returns what was ended, the thought first, and descriptions of what still runs at the deadline (Trio's clock). That continues
        to end in the background. A thought that finished by itself before the cancel reached it is in neither of them.

        by: author of the /stop, for the session. item: number of the /stop's queue item; None for a Stop of the mailbox. If a crash
        came before its answer, the answer names the thought that it had ended by then, and no other thought is ended.

        Thought and tasks are ended at the same time. Cancelled, which happens only when the actor ends: what was cancelled stays
        cancelled.
        """
        before: list[EndedWork] = []
        waits: dict[str, Callable[[], Awaitable[Iterable[EndedWork]]]] = {}
        turn, work = self.running, self._services.work
        channel, guests_only = (None, False) if person is None else (person.channel, not person.is_owner)
        if item is not None and item in self._stopped_before:
            before.append(self._stopped_before[item])
        elif turn is not None and self._may_stop(person, turn) and turn.is_older_than(item):
            thought = turn.cancel(by, channel, item)
            waits[f"thought: {thought.what}"] = partial(turn.wait_for_end_of, thought)
        if work is not None:
            name = "tasks that were begun on this chat" if channel is not None else "tasks"
            waits[name] = partial(work.stop, by, channel, guests_only=guests_only)
        ended, still_ending = await self._wait_for_all(waits, deadline)
        return sorted([*before, *ended], key=lambda work: work.kind == "task"), still_ending

    async def _wait_for_all(
        self, waits: Mapping[str, Callable[[], Awaitable[Iterable[EndedWork]]]], deadline: float
    ) -> tuple[list[EndedWork], list[str]]:
        """Run functions that wait for stopped work. Return what they have returned by the deadline, and the names of the others.

        Each runs in a task of its own in the agent's nursery, where it goes on after the deadline. waits: functions by the
        description of the work that they wait for.
        """
        if not waits:
            return [], []
        ended: list[EndedWork] = []
        still_ending = list(waits)
        all_ended = trio.Event()

        async def run(name: str) -> None:
            """Wait for one piece of work to end, and keep what it was. The last one sets the event."""
            ended.extend(await waits[name]())
            still_ending.remove(name)
            if not still_ending:
                self._pending -= 1
                all_ended.set()

        self._pending += 1
        for name in waits:
            self._nursery.start_soon(run, name)
        with trio.CancelScope(deadline=deadline):
            await all_ended.wait()
        return list(ended), list(still_ending)  # copies: the tasks go on changing these


def stopped_thoughts(entries: Sequence[Entry]) -> dict[int, EndedWork]:
    """Return the thought that each /stop has ended, by the number of the item that said /stop.

    The notes tell it, so a /stop that a crash has cut off from its answer does not end another thought when it is taken up again.
    """
    ended: dict[int, EndedWork] = {}
    for entry in entries:
        number, seconds = entry.metadata.get("stop"), entry.metadata.get("seconds")
        if type(number) is int:
            duration = float(seconds) if isinstance(seconds, int | float) else 0.0
            ended[number] = EndedWork("thought", str(entry.metadata.get("what")), duration)
    return ended
