"""Messages: order, room, and that every one of them ends in exactly one way."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import trio

from actors import (
    ActorDied,
    ActorError,
    AskTimeout,
    Child,
    DeadLetter,
    Inbox,
    Intensity,
    Mailbox,
    MailboxFull,
    Overflow,
    Overflowed,
    Ref,
    Restart,
    open_supervisor,
)
from tests.actors.kit import (
    Add,
    Boom,
    Crash,
    Probe,
    Total,
    Work,
    actor,
    all_that_waits,
    counter,
    happened,
    idle,
    settle,
    tree,
)

NEVER = Intensity(10**6)


async def gated(inbox: Inbox[Any], gate: trio.Event, got: list[Any]) -> None:
    """Holds each message until the gate opens."""
    async for message in inbox:
        got.append(message)
        await gate.wait()


async def test_messages_of_one_sender_arrive_in_order_also_when_it_has_to_wait() -> None:
    got: list[Any] = []

    async def slow(inbox: Inbox[int]) -> None:
        async for message in inbox:
            got.append(message)
            await trio.sleep(0.1)

    async with actor(slow, mailbox=Mailbox(2), shutdown=60) as ref, trio.open_nursery() as nursery:

        async def send(first: int) -> None:
            for n in range(first, first + 10):
                await ref.tell(n)

        nursery.start_soon(send, 0)
        nursery.start_soon(send, 100)
        await trio.sleep(10)
    assert [n for n in got if n < 100] == list(range(10))
    assert [n for n in got if n >= 100] == list(range(100, 110))


async def test_a_full_mailbox_lets_the_sender_wait() -> None:
    gate = trio.Event()
    got: list[Any] = []
    async with actor(gated, gate, got, mailbox=Mailbox(1)) as ref:
        for n in range(2):  # one in hand, one in the mailbox
            await ref.tell(n)
            await settle()
        with pytest.raises(MailboxFull, match=r"int to 'actor': its mailbox is full \(1 messages\)"):
            ref.tell_nowait(2)
        with trio.move_on_after(1) as scope:
            await ref.tell(3)
        assert scope.cancelled_caught
        gate.set()
        await ref.tell(4)
        await settle()
    assert got == [0, 1, 4]


@pytest.mark.parametrize(
    ("overflow", "left"),
    [(Overflow.DROP_OLDEST, [0, 3, 4]), (Overflow.DROP_NEWEST, [0, 1, 2])],
)
async def test_a_full_mailbox_may_drop_messages_and_says_so(overflow: Overflow, left: list[int]) -> None:
    gate = trio.Event()
    got: list[Any] = []
    async with tree(Child("a", gated, gate, got, mailbox=Mailbox(2, overflow))) as (supervisor, events):
        ref = supervisor.ref("a")
        for n in range(5):
            await ref.tell(n)
            await settle()
        gate.set()
        await settle()
        [info] = supervisor.children()
        assert (info.sent, info.handled, info.dropped) == (5, 3, 2)
        assert [event.message for event in happened(events, Overflowed)] == sorted({0, 1, 2, 3, 4} - set(left))
    assert got == left


async def test_a_full_mailbox_may_refuse_messages() -> None:
    gate = trio.Event()
    async with tree(Child("a", gated, gate, [], mailbox=Mailbox(1, Overflow.REJECT))) as (supervisor, events):
        ref = supervisor.ref("a")
        await ref.tell(0)
        await settle()
        await ref.tell(1)
        with pytest.raises(MailboxFull):
            await ref.tell(2)
        with pytest.raises(MailboxFull):
            await ref.ask(Total)
        assert len(happened(events, Overflowed)) == 2
        assert supervisor.children()[0].sent == 2
        gate.set()


@pytest.mark.parametrize("overflow", [Overflow.DROP_OLDEST, Overflow.DROP_NEWEST])
async def test_the_asker_of_a_dropped_question_hears_so_at_once(overflow: Overflow) -> None:
    gate = trio.Event()
    async with actor(gated, gate, [], mailbox=Mailbox(1, overflow)) as ref:
        await ref.tell(0)
        await settle()
        first = await ref.request(Total)
        second = await ref.request(Total)
        with trio.fail_after(1), pytest.raises(MailboxFull):
            await (first if overflow is Overflow.DROP_OLDEST else second).get()
        gate.set()


async def test_waiting_for_room_ends_at_the_deadline_of_the_ask() -> None:
    gate = trio.Event()
    async with actor(gated, gate, [], mailbox=Mailbox(1)) as ref:
        await ref.tell(0)
        await settle()
        await ref.tell(1)
        begun = trio.current_time()
        with pytest.raises(AskTimeout):
            await ref.ask(Total, timeout=2)
        assert trio.current_time() == begun + 2
        gate.set()


async def test_receive_nowait_takes_only_what_is_there() -> None:
    batches = []

    async def batches_them(inbox: Inbox[int]) -> None:
        async for first in inbox:
            batch = [first, *all_that_waits(inbox)]
            batches.append(batch)

    async with actor(batches_them) as ref:
        for n in range(3):
            ref.tell_nowait(n)
        await settle()
        ref.tell_nowait(3)
        await settle()
    assert batches == [[0, 1, 2], [3]]


async def test_a_batch_is_answered_when_all_of_it_is_done() -> None:
    """What a group commit does: questions of one batch are kept, and answered together."""

    async def commits(inbox: Inbox[Total]) -> None:
        async for first in inbox:
            await settle()
            batch = [first, *all_that_waits(inbox)]
            await trio.sleep(1)
            for message in batch:
                message.reply.send(len(batch))

    async with actor(commits) as ref:
        answers = [await ref.request(Total) for _ in range(5)]
        assert [await answer.get() for answer in answers] == [5] * 5


async def test_only_one_task_receives_at_a_time() -> None:
    async def two_readers(inbox: Inbox[Any]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inbox.receive)
            nursery.start_soon(inbox.receive)

    async with tree(Child("a", two_readers, restart=Restart.TEMPORARY)) as (_, events):
        await settle()
        assert "BusyResourceError" in repr(happened(events))


async def test_cancelling_receive_takes_no_message() -> None:
    got = []

    async def impatient(inbox: Inbox[int]) -> None:
        for _ in range(3):
            with trio.move_on_after(1):
                await inbox.receive()
                pytest.fail("there was none")
        got.append(await inbox.receive())

    async with actor(impatient) as ref:
        await trio.sleep(5)
        await ref.tell(1)
        await settle()
    assert got == [1]


# ------------------------------------------------------------ messages and restarts


async def test_the_mailbox_outlives_a_crash_and_the_message_in_hand_does_not() -> None:
    probe = Probe()
    async with tree(Child("p", probe.run)) as (supervisor, events):
        ref = supervisor.ref("p")
        for message in (1, Crash("first"), 2, 3):
            ref.tell_nowait(message)
        await settle()
        assert probe.got == [1, Crash("first"), 2, 3]
        [letter] = happened(events, DeadLetter)
        assert letter.message == Crash("first")
        assert letter.attempt == 1
        assert "crashed with Boom: first" in letter.why
        [info] = supervisor.children()
        assert (info.sent, info.handled, info.dead) == (4, 3, 1)


async def test_messages_wait_while_a_restart_waits() -> None:
    from actors import Backoff

    probe = Probe()
    child = Child("p", probe.run, backoff=Backoff(2, 2))
    async with open_supervisor([child]) as supervisor:
        ref = supervisor.ref("p")
        await ref.tell(Crash())
        await settle()
        await ref.tell("waits")
        assert supervisor.children()[0].state == "waiting"
        await trio.sleep(5)
        assert probe.got == [Crash(), "waits"]


async def test_telling_nobody_is_a_dead_letter_and_no_error() -> None:
    async with tree() as (supervisor, events):
        await supervisor.ref("nobody").tell("hello?")
        supervisor.ref("no/body").tell_nowait("hello?")
        assert [(e.path, e.message, e.why, e.attempt) for e in happened(events, DeadLetter)] == [
            ("nobody", "hello?", "the actor is not running", 0),
            ("no/body", "hello?", "the actor is not running", 0),
        ]


async def test_what_a_stopped_actor_did_not_handle_becomes_dead_letters() -> None:
    gate = trio.Event()
    async with tree(Child("a", gated, gate, [], mailbox=Mailbox(1), shutdown=1)) as (supervisor, events):
        ref = supervisor.ref("a")
        async with trio.open_nursery() as nursery:
            for n in range(4):  # in hand, queued, and two that stand in line
                nursery.start_soon(ref.tell, n)
                await settle()
            await supervisor.stop_child("a")
            await ref.tell(4)
        letters = happened(events, DeadLetter)
        assert [letter.message for letter in letters] == [1, 2, 3, 0, 4]
        [info] = supervisor.children()
        assert (info.sent, info.handled, info.dead, info.depth) == (5, 0, 5, 0)


async def test_a_restarted_child_takes_messages_again() -> None:
    probe = Probe()
    async with open_supervisor([Child("p", probe.run)]) as supervisor:
        await supervisor.stop_child("p")
        await supervisor.ref("p").tell("lost")
        await supervisor.restart_child("p")
        await supervisor.ref("p").tell("found")
        await settle()
    assert probe.got == ["found"]


async def test_a_supervisor_takes_no_messages() -> None:
    from actors import supervisor as subtree

    async with tree(Child("s", subtree([Child("a", idle)]))) as (supervisor, events):
        await supervisor.ref("s").tell("hello?")
        [letter] = happened(events, DeadLetter)
        assert letter.path == "s"
        with pytest.raises(ActorDied):
            await supervisor.ref("s").ask(Total)


@pytest.mark.parametrize("seed", range(20))
async def test_no_message_is_lost_or_counted_twice(seed: int) -> None:
    """sent = handled + queued + dropped + dead, whatever happens: crashes, stops, timeouts, full mailboxes."""
    random = Random(seed)

    async def shaky(inbox: Inbox[Any]) -> None:
        async for message in inbox:
            await trio.sleep(random.choice((0, 0, 0.1, 1)))
            if random.random() < 0.1:
                raise Boom
            if isinstance(message, Total) and random.random() < 0.8:
                message.reply.send(1)

    async def send(ref: Ref[Any]) -> None:
        for _ in range(30):
            await trio.sleep(random.random())
            try:
                match random.randrange(4):
                    case 0:
                        await ref.ask(Total, timeout=random.choice((0.5, 5)))
                    case 1:
                        ref.tell_nowait(Add(1))
                    case 2:
                        await (await ref.request(Total)).get(random.choice((0.5, 2)))
                    case 3:
                        with trio.move_on_after(random.random()):
                            await ref.tell(Add(1))
            except ActorError:
                continue

    children = [
        Child(overflow.name, shaky, mailbox=Mailbox(2, overflow), shutdown=random.choice((0, 0.5, 5)))
        for overflow in Overflow
    ]
    async with open_supervisor(children, intensity=NEVER) as supervisor:
        async with trio.open_nursery() as nursery:
            for child in children:
                for _ in range(3):
                    nursery.start_soon(send, supervisor.ref(child.name))
            for _ in range(5):
                await trio.sleep(4)
                name = random.choice(children).name
                await supervisor.stop_child(name)
                await trio.sleep(1)
                await supervisor.restart_child(name)
        for info in supervisor.children():
            assert info.sent > 30
            assert info.sent == info.handled + info.depth + info.dropped + info.dead
            assert info.high_water <= info.capacity
        await trio.sleep(
            1000
        )  # in which everything that waits is handled, and a lost message would still count as waiting
        assert [info.depth for info in supervisor.children()] == [0] * len(children)


async def test_an_actor_that_asks_gets_its_answer_before_it_goes_on() -> None:
    async with actor(counter) as ref:
        assert await ref.ask(Work, 1.0) == "done"
