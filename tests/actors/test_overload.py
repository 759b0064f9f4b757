"""Far more messages than room: never more than the mailbox holds, none vanishes, and control waits behind none."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from actors import (
    ActorError,
    Answer,
    Backoff,
    Child,
    Crashed,
    DeadLetter,
    Events,
    Exit,
    Exited,
    Inbox,
    Intensity,
    Killed,
    Mailbox,
    MailboxFull,
    Overflow,
    Overflowed,
    Ref,
    Reply,
    Restart,
    Restarting,
    Started,
    Stopped,
    Supervisor,
    open_supervisor,
    watch,
)
from actors import supervisor as subtree
from tests.actors.kit import Boom, Total, happened, settle, tree

OFTEN = Intensity(10**6)
CAPACITY = 4
SENDERS = 5
EACH = 1_000 * CAPACITY // SENDERS
every_policy = pytest.mark.parametrize("overflow", Overflow, ids=lambda overflow: overflow.value)


@attrs.frozen
class Note:
    """The n-th message of a sender."""

    sender: int
    n: int


@attrs.frozen
class Question:
    reply: Reply[int]
    note: Note


class Desk:
    """An actor that takes a while for each message, and now and then fails."""

    def __init__(self, seconds: float = 0.01, crash_every: int = 0) -> None:
        self.got: list[Note] = []
        self._seconds = seconds
        self._crash_every = crash_every

    async def run(self, inbox: Inbox[Note | Question]) -> None:
        async for message in inbox:
            note = message.note if isinstance(message, Question) else message
            self.got.append(note)
            if note.n % 5 == 0:
                await trio.sleep(self._seconds)
            if self._crash_every and len(self.got) % self._crash_every == 0:
                raise Boom
            if isinstance(message, Question):
                message.reply.send(note.n)

    def child(self, mailbox: Mailbox, **options: Any) -> Child[Note | Question]:
        return Child("desk", self.run, mailbox=mailbox, **options)


def waiting_in(ref: Ref[Any]) -> list[Any]:
    """What is in the mailbox, which is as it was after this."""
    mailbox, messages = ref._cell.receiving, []
    while mailbox.statistics().current_buffer_used:
        messages.append(mailbox.receive_nowait())
    for message in messages:
        ref._cell.sending.send_nowait(message)
    return messages


def notes(messages: list[Any]) -> list[Note]:
    return [message.note if isinstance(message, Question) else message for message in messages]


class Crowd:
    """Several senders who send faster than the desk works: notes, questions, and questions whose asker leaves."""

    def __init__(self, ref: Ref[Any]) -> None:
        self.refused: list[Note] = []
        self.answers: list[Answer[int]] = []
        self._ref = ref

    async def send(self, sender: int) -> None:
        for n in range(EACH):
            note = Note(sender, n)
            try:
                if n % 3:
                    await self._ref.tell(note)
                else:
                    answer = await self._ref.request(Question, note)
                    self.answers += [answer] * (n % 2)
            except MailboxFull:
                self.refused.append(note)
            assert self._ref._cell.receiving.statistics().current_buffer_used <= CAPACITY
            if n % 8 == 0:
                await trio.sleep(0.002)

    async def collect_outcomes(self) -> Counter[str]:
        """What became of the questions; all is settled by now."""
        outcomes: Counter[str] = Counter()
        with trio.fail_after(0.001):
            for answer in self.answers:
                try:
                    await answer.get()
                    outcomes["answered"] += 1
                except ActorError as error:
                    outcomes[type(error).__name__] += 1
        return outcomes


def check_that_all_ended_once(supervisor: Supervisor, events: Events, desk: Desk, crowd: Crowd) -> None:
    """Each note was refused, handled, dropped or buried, or waits; and the counts of the tree say so."""
    assert events.missed == 0
    log = happened(events)
    [info] = supervisor.children()
    dead = notes([event.message for event in log if isinstance(event, DeadLetter)])
    lost = notes([event.message for event in log if isinstance(event, Overflowed)])
    violent = [event for event in log if isinstance(event, Exited) and isinstance(event.exit, Crashed | Killed)]
    queued = notes(waiting_in(supervisor.ref("desk")))
    dropped = lost if info.dropped else []
    in_hand = Counter(dead) & Counter(desk.got)
    ended = Counter(desk.got) - in_hand + Counter(dead) + Counter(dropped) + Counter(queued) + Counter(crowd.refused)
    assert ended == Counter(Note(sender, n) for sender in range(SENDERS) for n in range(EACH))
    assert in_hand.total() <= len(violent)
    assert Counter(lost) == Counter(dropped or crowd.refused)
    assert info.sent == SENDERS * EACH - len(crowd.refused)
    assert info.handled == len(desk.got) - in_hand.total()
    assert (info.depth, info.dropped, info.dead) == (len(queued), len(dropped), len(dead))
    assert info.high_water == CAPACITY


@every_policy
@pytest.mark.parametrize("trouble", ["none", "crashes", "backoff", "stops", "ends"])
async def test_at_a_thousand_times_the_room_nothing_is_lost_or_out_of_order(overflow: Overflow, trouble: str) -> None:
    """crashes: the actor is restarted again and again; stops: it is stopped and started; ends: stopped for good."""
    desk = Desk(crash_every=97 if trouble in ("crashes", "backoff") else 0)
    backoff = Backoff(0.05, 0.05) if trouble == "backoff" else None
    async with open_supervisor(intensity=Intensity(1000, 10**6)) as supervisor:
        events = supervisor.events(10**6)
        ref: Ref[Any] = supervisor.ref("desk")
        crowd = Crowd(ref)
        await supervisor.start_child(desk.child(Mailbox(CAPACITY, overflow), backoff=backoff, shutdown=0.005))
        async with trio.open_nursery() as nursery:
            for sender in range(SENDERS):
                nursery.start_soon(crowd.send, sender)
            if trouble in ("stops", "ends"):
                await trio.sleep(0.1)
                await supervisor.stop_child("desk")
            if trouble == "stops":
                for _ in range(20):
                    await supervisor.restart_child("desk")
                    await trio.sleep(0.03)
                    await supervisor.stop_child("desk")
                await supervisor.restart_child("desk")
        check_that_all_ended_once(supervisor, events, desk, crowd)
    for sender in range(SENDERS):
        numbers = [note.n for note in desk.got if note.sender == sender]
        assert numbers == sorted(set(numbers))
    outcomes = await crowd.collect_outcomes()
    assert outcomes.total() == len(crowd.answers)
    assert outcomes["answered"] > 0
    assert outcomes.keys() <= {"answered", "ActorDied", "MailboxFull"}


# ------------------------------------------------------------ what never waits behind messages

SECOND = 1.0
"""How long the slow desk takes for every message."""


async def slow(inbox: Inbox[Any]) -> None:
    async for message in inbox:
        await trio.sleep(SECOND)
        if message == "crash":
            raise Boom


@asynccontextmanager
async def busy(overflow: Overflow, first: object = "work", **options: Any) -> AsyncIterator[tuple[Supervisor, Events]]:
    """A slow desk half a second into its first message, with a full mailbox and senders that do not give up."""
    child = Child("desk", slow, mailbox=Mailbox(CAPACITY, overflow), **options)
    async with open_supervisor([child, Child("other", slow)], intensity=OFTEN) as supervisor:
        events = supervisor.events(10**6)
        ref: Ref[Any] = supervisor.ref("desk")

        async def insist() -> None:
            while True:
                with suppress(MailboxFull):
                    await ref.tell("work")
                await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            await ref.tell(first)
            await settle()
            for _ in range(SENDERS):
                nursery.start_soon(insist)
            await trio.sleep(SECOND / 2)
            assert supervisor.children()[0].depth == CAPACITY
            yield supervisor, events
            nursery.cancel_scope.cancel()


async def took(work: Callable[[], Awaitable[object]]) -> float:
    begun = trio.current_time()
    await work()
    return trio.current_time() - begun


@every_policy
@pytest.mark.parametrize(
    ("shutdown", "seconds", "exit"),
    [
        (5, SECOND / 2, Stopped()),
        (math.inf, SECOND / 2, Stopped()),
        (0.25, 0.25, Killed("did not stop within 0.25 s")),
        (0, 0, Killed("shutdown=0")),
    ],
)
async def test_a_stop_waits_at_most_for_the_message_in_hand(
    overflow: Overflow, shutdown: float, seconds: float, exit: Exit
) -> None:
    async with busy(overflow, shutdown=shutdown) as (supervisor, _):
        assert await took(lambda: supervisor.stop_child("desk")) == pytest.approx(seconds)
        assert supervisor.ref("desk")._cell.exit == exit
        info = supervisor.children()[0]
        assert (info.state, info.depth) == ("down", 0)


@every_policy
async def test_a_whole_tree_stops_without_regard_to_what_is_queued(overflow: Overflow) -> None:
    async with busy(overflow, shutdown=5) as (supervisor, _):
        assert await took(supervisor.stop) == pytest.approx(SECOND / 2)


@every_policy
async def test_a_watch_returns_at_the_moment_of_the_end(overflow: Overflow) -> None:
    outcomes = []

    async def record_end() -> None:
        down = await watch(ref)
        outcomes.append((type(down.exit), trio.current_time()))

    async with busy(overflow, first="crash") as (supervisor, events), trio.open_nursery() as nursery:
        ref: Ref[Any] = supervisor.ref("desk")
        nursery.start_soon(record_end)
        await trio.sleep(SECOND / 2 + 0.001)
        [exited] = happened(events, Exited)
        assert exited.time == pytest.approx(SECOND)
        assert outcomes == [(Crashed, exited.time)]


@every_policy
async def test_a_crashed_actor_is_back_at_once_with_its_full_mailbox(overflow: Overflow) -> None:
    async with busy(overflow, first="crash") as (supervisor, events):
        await trio.sleep(SECOND / 2 + 0.001)
        seen = happened(events, Exited, Restarting, Started)
        assert [type(event) for event in seen] == [Exited, Restarting, Started]
        assert [event.time for event in seen] == [pytest.approx(SECOND)] * 3
        info = supervisor.children()[0]
        assert (info.state, info.restarts, info.message) == ("up", 1, "str")
        assert info.depth >= CAPACITY - 1


@every_policy
async def test_what_is_asked_of_the_supervisor_does_not_wait(overflow: Overflow) -> None:
    async with busy(overflow) as (supervisor, _):
        assert await took(lambda: supervisor.start_child(Child("third", slow))) == 0
        for work in (supervisor.stop_child, supervisor.restart_child, supervisor.stop_child, supervisor.delete_child):
            assert await took(partial(work, "third")) == 0


@every_policy
async def test_a_stop_is_done_within_a_few_steps_of_senders_that_never_pause(overflow: Overflow) -> None:
    """Time cannot tell here, since none passes; what each sender got in meanwhile can."""
    rounds: Counter[int] = Counter()

    async def quick(inbox: Inbox[Any]) -> None:
        async for _ in inbox:
            pass

    async def pour(sender: int) -> None:
        while True:
            with suppress(MailboxFull):
                await ref.tell(sender)
            rounds[sender] += 1
            await trio.lowlevel.checkpoint()

    async with open_supervisor([Child("desk", quick, mailbox=Mailbox(CAPACITY, overflow))]) as supervisor:
        ref: Ref[Any] = supervisor.ref("desk")
        async with trio.open_nursery() as nursery:
            for sender in range(SENDERS):
                nursery.start_soon(pour, sender)
            while rounds.total() < SENDERS * 100:
                await trio.lowlevel.checkpoint()
            rounds.clear()
            await supervisor.stop_child("desk")
            assert max(rounds.values()) <= 6
            nursery.cancel_scope.cancel()


# ------------------------------------------------------------ standing in line


async def gated(inbox: Inbox[Any], gate: trio.Event, got: list[Any]) -> None:
    """Holds each message until the gate opens."""
    async for message in inbox:
        got.append(message)
        await gate.wait()
        if message == "crash":
            raise Boom
        if message == "leave":
            return


def desk_of_one(gate: trio.Event, got: list[Any], **options: Any) -> Child[Any]:
    return Child("desk", gated, gate, got, mailbox=Mailbox(1), **options)


async def fill(ref: Ref[Any], in_hand: object) -> None:
    await ref.tell(in_hand)
    await settle()
    await ref.tell("queued")


async def fate(work: Callable[[], Awaitable[object]], fates: list[str]) -> None:
    try:
        await work()
        fates.append("sent")
    except ActorError as error:
        fates.append(type(error).__name__)


@pytest.mark.parametrize("end", ["stopped", "killed", "leave", "crash", "supervisor"])
async def test_who_stands_in_line_is_woken_when_the_actor_goes_for_good(end: str) -> None:
    """What was told becomes a dead letter, which is no error; what was asked is answered by ActorDied."""
    gate = trio.Event()
    fates: list[str] = []
    desk = desk_of_one(
        gate,
        [],
        restart=Restart.TRANSIENT if end == "leave" else Restart.PERMANENT,
        shutdown=0 if end == "killed" else 5,
    )
    room = Child("room", subtree([desk], intensity=Intensity(0)), restart=Restart.TEMPORARY)
    async with tree(room) as (root, events):
        ref: Ref[Any] = root.ref("room/desk")
        await fill(ref, end)
        async with trio.open_nursery() as nursery:
            for work in (partial(ref.tell, "told"), partial(ref.ask, Total, "asked"), partial(ref.request, Total)):
                nursery.start_soon(fate, work, fates)
                await settle()
            assert fates == []
            with trio.fail_after(6):
                if end in ("leave", "crash"):
                    gate.set()
                else:
                    await (root.stop() if end == "supervisor" else root.stop_child("room"))
                await settle()
                assert sorted(fates) == ["ActorDied", "sent", "sent"]
        dead = [event.message for event in happened(events, DeadLetter) if event.message != end]
        assert dead[:2] == ["queued", "told"]
        assert [type(message) for message in dead[2:]] == [Total, Total]


@pytest.mark.parametrize("backoff", [None, Backoff(3, 3)])
async def test_who_stands_in_line_survives_a_restart(backoff: Backoff | None) -> None:
    gate = trio.Event()
    got: list[Any] = []
    async with tree(desk_of_one(gate, got, backoff=backoff), intensity=Intensity(1, 60)) as (root, _):
        ref: Ref[Any] = root.ref("desk")
        await fill(ref, "crash")
        async with trio.open_nursery() as nursery:
            for n in range(5):
                nursery.start_soon(ref.tell, n)
                await settle()
            gate.set()
        await settle()
        assert got == ["crash", "queued", 0, 1, 2, 3, 4]
        assert root.children()[0].high_water == 1


async def test_a_cancelled_sender_leaves_the_line() -> None:
    gate = trio.Event()
    got: list[Any] = []
    async with tree(desk_of_one(gate, got)) as (root, _):
        ref: Ref[Any] = root.ref("desk")
        await fill(ref, "first")
        async with trio.open_nursery() as nursery:
            for n in range(6):
                with_limit = partial(tell_within, ref, n, 1 if n % 2 else math.inf)
                nursery.start_soon(with_limit)
                await settle()
            await trio.sleep(2)
            gate.set()
        await settle()
        assert got == ["first", "queued", 0, 2, 4]
        info = root.children()[0]
        assert (info.sent, info.handled) == (5, 5)


async def tell_within(ref: Ref[Any], message: object, seconds: float) -> bool:
    with trio.move_on_after(seconds):
        await ref.tell(message)
        return True
    return False


async def test_a_sender_whose_turn_comes_as_it_is_cancelled_has_sent_or_has_not() -> None:
    """Room and cancel within a few steps of each other: what `tell` says is what happened."""
    said: list[bool] = []
    for steps in range(5):
        gate = trio.Event()
        got: list[Any] = []
        async with tree(desk_of_one(gate, got)) as (root, _):
            ref: Ref[Any] = root.ref("desk")
            await fill(ref, "first")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ref.tell, "last")
                await settle()
                gate.set()
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            await settle()
            info = root.children()[0]
            assert info.sent == info.handled == len(got)
            said.append(not nursery.cancel_scope.cancelled_caught)
            assert said[-1] == ("last" in got)
    assert set(said) == {True, False}


async def test_a_question_that_waits_in_line_ends_at_its_deadline_and_is_never_sent() -> None:
    gate = trio.Event()
    got: list[Any] = []
    async with tree(desk_of_one(gate, got)) as (root, events):
        ref: Ref[Any] = root.ref("desk")
        await fill(ref, "first")
        fates: list[str] = []
        assert await took(partial(fate, partial(ref.ask, Total, timeout=2), fates)) == 2
        assert fates == ["AskTimeout"]
        gate.set()
        await settle()
        assert got == ["first", "queued"]
        assert happened(events, DeadLetter) == []
