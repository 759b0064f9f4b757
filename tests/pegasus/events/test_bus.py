"""The bus in virtual time: order, subscribers of every sort, restarts."""

import gc
import weakref
from contextlib import asynccontextmanager
from random import Random

import attrs
import pytest
import trio

from actors import Backoff, Child, Intensity, Mailbox, MailboxFull, Overflow, open_supervisor
from pegasus.events import (
    BusStatus,
    Deliver,
    Emit,
    Event,
    EventType,
    GetBusStatus,
    Subscribe,
    event_bus,
)
from pegasus.events.bus import BACKLOG

E = EventType
TASK = "00112233aabbccdd"
BUS = Mailbox(capacity=1024)


def event(type=E.HEARTBEAT, id="", priority=None, task_id=None):
    return Event(type, 1, "test", task_id, {}, priority, id=id)


def line(id, type=E.STEP_COMPLETED, priority=None):
    """An event of a task."""
    return event(type, id, priority, TASK)


@attrs.frozen
class Crash:
    pass


class Reader:
    """A subscriber. got: ids in order. pause: seconds it takes for each."""

    def __init__(self, pause=0.0):
        self.got = []
        self.pause = pause
        self.runs = 0
        self.enough = trio.Event()
        self.want = None

    async def run(self, inbox):
        self.runs += 1
        async for message in inbox:
            match message:
                case Deliver(events):
                    for it in events:
                        await trio.sleep(self.pause)
                        self.got.append(it.id)
                        if len(self.got) == self.want:
                            self.enough.set()
                case Crash():
                    raise RuntimeError("crash")

    async def until(self, count):
        self.want = count
        if len(self.got) < count:
            self.enough = trio.Event()
            with trio.fail_after(1000):
                await self.enough.wait()


@asynccontextmanager
async def running(**readers):
    """bus, and the refs of the readers; none has subscribed."""
    backoff = Backoff(first=1, limit=1, jitter=0)
    async with open_supervisor([], intensity=Intensity(9, 1000)) as root:
        bus = await root.start_child(Child("bus", event_bus, mailbox=BUS))
        refs = {}
        for name, reader in readers.items():
            mailbox = getattr(reader, "mailbox", Mailbox(capacity=4))
            refs[name] = await root.start_child(Child(name, reader.run, mailbox=mailbox, backoff=backoff))
        yield bus, refs, root


async def emit(bus, *events):
    for it in events:
        await bus.tell(Emit((it,)))


def emit_together(bus, *events):
    """Events that wait in the mailbox of the bus at the same time."""
    for it in events:
        bus.tell_nowait(Emit((it,)))


async def test_the_most_urgent_goes_first_and_equals_in_order():
    reader = Reader()
    async with running(reader=reader) as (bus, refs, _):
        await bus.ask(Subscribe, refs["reader"], None, True)
        together = [event(E.HEARTBEAT, "90a"), line("335a"), event(E.SYSTEM_STARTED, "0")]
        together += [line("own", priority=5), line("335b"), event(E.HEARTBEAT, "90b")]
        emit_together(bus, *together)
        await reader.until(6)
    assert reader.got == ["0", "own", "90a", "90b", "335a", "335b"]


async def test_what_is_emitted_together_stays_together():
    """It goes as early as its most urgent event, so that a task is not seen to be over before its answer."""
    reader = Reader()
    async with running(reader=reader) as (bus, refs, _):
        await bus.ask(Subscribe, refs["reader"], None, True)
        bus.tell_nowait(Emit((line("335"),)))
        bus.tell_nowait(Emit((line("300", E.REASON_DONE), line("335b"), line("220", E.TASK_COMPLETED))))
        bus.tell_nowait(Emit((line("210", E.TASK_STATE_CHANGED),)))
        await reader.until(5)
        assert (await bus.ask(GetBusStatus)).emitted == 5
    assert reader.got == ["210", "300", "335b", "220", "335"]


async def test_what_is_emitted_together_is_delivered_together_as_far_as_it_is_wanted():
    got = []

    async def reader(inbox):
        got.extend([[it.id for it in message.events] async for message in inbox])

    async with open_supervisor([]) as root:
        bus = await root.start_child(Child("bus", event_bus, mailbox=BUS))
        ref = await root.start_child(Child("reader", reader))
        await bus.ask(Subscribe, ref, frozenset({E.STEP_COMPLETED, E.TASK_COMPLETED}))
        await bus.tell(Emit((line("1"), line("2", E.TASK_STATE_CHANGED), line("3", E.TASK_COMPLETED))))
        await bus.tell(Emit((line("4", E.TASK_STATE_CHANGED),)))
        await bus.tell(Emit((line("5"),)))
        await trio.sleep(1)
    assert got == [["1", "3"], ["5"]]


async def test_any_batch_is_sorted_and_stable():
    random, reader = Random(4), Reader()
    events = [event(random.choice(list(EventType)), str(n), random.choice([None, 7])) for n in range(500)]
    async with running(reader=reader) as (bus, refs, _):
        await bus.ask(Subscribe, refs["reader"], None, True)
        emit_together(bus, *events)
        await reader.until(500)
    assert reader.got == [
        it.id for it in sorted(events, key=lambda it: it.type if it.priority is None else it.priority)
    ]


async def test_who_subscribes_gets_nothing_that_was_emitted_before():
    reader = Reader()
    async with running(reader=reader) as (bus, refs, _):
        emit_together(bus, event(id="before"))
        await bus.ask(Subscribe, refs["reader"])
        await emit(bus, event(id="after"))
        await reader.until(1)
    assert reader.got == ["after"]


async def test_a_subscriber_gets_the_types_it_asked_for():
    some, every = Reader(), Reader()
    async with running(some=some, every=every) as (bus, refs, _):
        await bus.ask(Subscribe, refs["some"], frozenset({E.HEARTBEAT, E.TASK_FAILED}))
        await bus.ask(Subscribe, refs["every"])
        await emit(bus, event(id="1"), line("2"), line("3", E.TASK_FAILED))
        await every.until(3)
        await some.until(2)
    assert (sorted(some.got), sorted(every.got)) == (["1", "3"], ["1", "2", "3"])


async def test_a_subscriber_gets_what_is_emitted_from_then_on():
    reader = Reader()
    async with running(reader=reader) as (bus, refs, _):
        await emit(bus, event(id="before"))
        await bus.ask(Subscribe, refs["reader"])
        await emit(bus, event(id="after"))
        await reader.until(1)
    assert reader.got == ["after"]


async def test_subscribing_again_replaces_the_types():
    reader = Reader()
    async with running(reader=reader) as (bus, refs, _):
        await bus.ask(Subscribe, refs["reader"])
        await bus.ask(Subscribe, refs["reader"], frozenset({E.TASK_FAILED}))
        await emit(bus, event(id="1"), line("2", E.TASK_FAILED))
        await reader.until(1)
        await trio.sleep(1)
        status = await bus.ask(GetBusStatus)
    assert reader.got == ["2"]
    assert status == BusStatus(pending=0, emitted=2, subscribers=("reader",), dropped=0)


@pytest.mark.parametrize("broken", ["slow", "stuck", "dead", "refusing"])
async def test_a_bad_subscriber_delays_nobody(broken):
    good, bad = Reader(), Reader(pause={"slow": 5, "stuck": 1e6}.get(broken, 0))
    if broken == "refusing":
        bad.pause = 1e6
        bad.mailbox = Mailbox(capacity=1, overflow=Overflow.REJECT)
    async with running(good=good, bad=bad) as (bus, refs, root):
        await bus.ask(Subscribe, refs["bad"], None, True)
        await bus.ask(Subscribe, refs["good"], None, True)
        if broken == "dead":
            await root.stop_child("bad")
        begun = trio.current_time()
        await emit(bus, *[line(str(n)) for n in range(2000)])
        await good.until(2000)
        assert trio.current_time() == begun
        assert good.got == [*map(str, range(2000))]
        await root.stop()


async def test_a_slow_one_gets_all_in_order_if_it_is_essential():
    reader = Reader(pause=0.01)
    async with running(reader=reader) as (bus, refs, _):
        await bus.ask(Subscribe, refs["reader"], None, True)
        await emit(bus, *[event(id=str(n)) for n in range(3 * BACKLOG)])
        await reader.until(3 * BACKLOG)
    assert reader.got == [*map(str, range(3 * BACKLOG))]


async def test_what_is_for_observers_only_reaches_nobody_who_is_moved_by_events():
    observer, moved = Reader(), Reader()
    async with running(observer=observer, moved=moved) as (bus, refs, _):
        await bus.ask(Subscribe, refs["observer"])
        await bus.ask(Subscribe, refs["moved"], None, True)
        await bus.tell(Emit((event(id="seen"),), for_observers=True))
        await emit(bus, event(id="moves"))
        await observer.until(2)
        await moved.until(1)
    assert (observer.got, moved.got) == (["seen", "moves"], ["moves"])


async def test_a_slow_one_that_is_not_essential_loses_the_oldest_and_it_is_said(caplog):
    reader, quick = Reader(pause=0.01), Reader()
    async with running(reader=reader, quick=quick) as (bus, refs, _):
        await bus.ask(Subscribe, refs["reader"])
        await bus.ask(Subscribe, refs["quick"], None, True)
        total = 3 * BACKLOG
        await emit(bus, *[event(id=str(n)) for n in range(total)])
        await quick.until(total)
        dropped = (await bus.ask(GetBusStatus)).dropped
        await reader.until(total - dropped)
    assert dropped >= total - BACKLOG - 10
    assert reader.got[-BACKLOG:] == [*map(str, range(total - BACKLOG, total))]
    assert reader.got == sorted(reader.got, key=int)


async def test_one_that_refuses_gets_all_in_order_when_it_has_room():
    reader = Reader(pause=0.3)
    reader.mailbox = Mailbox(capacity=1, overflow=Overflow.REJECT)
    async with running(reader=reader) as (bus, refs, _):
        await bus.ask(Subscribe, refs["reader"], None, True)
        await emit(bus, *[event(id=str(n)) for n in range(20)])
        await reader.until(20)
        for _ in range(2):
            refs["reader"].tell_nowait(Deliver((event(id="fills it"),)))
            await trio.sleep(0.1)
        with pytest.raises(MailboxFull):
            refs["reader"].tell_nowait(Crash())
    assert reader.got[:20] == [*map(str, range(20))]


async def test_one_that_crashes_gets_what_comes_when_it_runs_again():
    reader = Reader()
    async with running(reader=reader) as (bus, refs, _):
        await bus.ask(Subscribe, refs["reader"], None, True)
        await emit(bus, event(id="1"))
        await reader.until(1)
        await refs["reader"].tell(Crash())
        await emit(bus, event(id="2"), event(id="3"))
        await reader.until(3)
    assert (reader.got, reader.runs) == (["1", "2", "3"], 2)


# ------------------------------------------------------------------ beginning anew


async def test_a_subscriber_that_subscribes_again_after_a_crash_gets_what_waited_for_it():
    reader = Reader()
    async with running(reader=reader) as (bus, refs, _):
        await bus.ask(Subscribe, refs["reader"], None, True)
        await refs["reader"].tell(Crash())
        await trio.sleep(0.1)
        await emit(bus, *[event(E.WEBHOOK_TRIGGERED, f"hook{n}") for n in range(10)])  # mailbox and backlog
        await bus.ask(Subscribe, refs["reader"], None, True)
        await emit(bus, event(id="new"))
        await reader.until(11)
    assert reader.got == [*(f"hook{n}" for n in range(10)), "new"]


async def test_a_bus_that_starts_anew_serves_who_subscribes_anew():
    reader = Reader()

    async def frail(inbox, state):
        if state.pop("crash", False):
            inbox.started()
            await trio.sleep(1)
            raise RuntimeError("crash")
        await event_bus(inbox)

    async with open_supervisor([Child("bus", frail, {"crash": True}, mailbox=BUS)]) as root:
        bus = root.ref("bus")
        ref = await root.start_child(Child("reader", reader.run))
        answer = await bus.request(Subscribe, ref, None, True)  # waits in the mailbox
        await emit(bus, event(id="1"))
        await answer.get()
        await reader.until(1)
    assert reader.got == ["1"]


# ------------------------------------------------------------------ much of it


async def test_ten_thousand_events_for_several_subscribers():
    readers = {f"r{n}": Reader() for n in range(4)}
    async with running(**readers) as (bus, refs, _):
        for ref in refs.values():
            await bus.ask(Subscribe, ref, None, True)
        await emit(bus, *[line(str(n)) for n in range(10_000)])
        for reader in readers.values():
            await reader.until(10_000)
        assert (await bus.ask(GetBusStatus)).pending == 0
    for reader in readers.values():
        assert reader.got == [*map(str, range(10_000))]


async def test_what_was_handed_out_is_not_kept():
    reader = Reader()
    async with running(reader=reader) as (bus, refs, _):
        await bus.ask(Subscribe, refs["reader"], None, True)
        kept = []
        for n in range(100):
            it = line(str(n)) if n % 2 else event(id=str(n))
            kept.append(weakref.ref(it))
            await emit(bus, it)
        await reader.until(100)
        del it
        await emit(bus, line("last"))
        await reader.until(101)
        gc.collect()
        assert sum(it() is not None for it in kept) == 0


# ------------------------------------------------------------------ events


def test_an_event_names_its_cause():
    cause = Event(E.MESSAGE_RECEIVED, 7, "cli:main")
    effect = Event(E.TASK_CREATED, 7, "agent", TASK, parent_id=cause.id)
    assert effect.parent_id == cause.id != effect.id
