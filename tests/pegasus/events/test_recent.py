"""The last events with their numbers: who comes back gets what follows, or learns that something is missing."""

import trio

from actors import Child, open_supervisor
from pegasus.events import Emit, Event, EventReader, EventType, RecentEvents, event_bus, event_json, keep_events
from pegasus.events.bus import MAX_EVENT, MAX_ITEMS, MAX_KEPT, MAX_TEXT
from pegasus.wire import encode_json


def event(n=0, **payload):
    return Event(EventType.TASK_NOTIFY, 1000, "task", "t1", {"message": str(n), **payload})


def test_an_event_as_json():
    assert event_json(event(7)) == {
        "type": "TASK_NOTIFY",
        "ts": 1000,
        "source": "task",
        "taskId": "t1",
        "data": {"message": "7"},
    }


def test_numbers_grow_by_one_from_the_first():
    recent = RecentEvents(first=100)
    assert (recent.newest, recent.oldest) == (99, 100)
    for n in range(3):
        recent.add(event(n))
    assert [each.n for each in recent.after(99)[0]] == [100, 101, 102]
    assert [each.n for each in recent.after(101)[0]] == [102]
    assert recent.after(102) == ([], False)


def test_only_the_last_are_kept_and_a_gap_is_told():
    recent = RecentEvents(first=1)
    for n in range(MAX_KEPT + 5):
        recent.add(event(n))
    assert recent.oldest == 6
    kept, is_gap = recent.after(5)
    assert (len(kept), is_gap) == (MAX_KEPT, False)
    kept, is_gap = recent.after(4)
    assert (len(kept), is_gap) == (MAX_KEPT, True)


def test_a_number_of_another_process_is_a_gap():
    recent = RecentEvents(first=1_772_020_800_000)
    recent.add(event())
    assert recent.after(1_772_000_000_000)[1]
    assert recent.after(recent.newest + 1)[1]


def test_long_texts_and_lists_are_cut_and_a_whole_event_is_bounded():
    cut = event_json(event(text="x" * 5000, many=["y" * 1000] * 500))
    assert len(cut["data"]["text"]) == MAX_TEXT + 1
    assert len(cut["data"]["many"]) == MAX_ITEMS
    assert len(encode_json(cut)) < MAX_EVENT + 10 * MAX_ITEMS
    assert event_json(event(deep={"a": [1, None, True, {"b": "c"}]}))["data"]["deep"] == {
        "a": [1, None, True, {"b": "c"}]
    }


async def test_the_actor_keeps_what_the_bus_publishes_and_wakes_the_readers(autojump_clock):
    recent = RecentEvents(first=1)
    async with open_supervisor(name="root") as root:
        bus = await root.start_child(Child("bus", event_bus))
        await root.start_child(Child("recent", keep_events, bus, recent))
        await bus.tell(Emit((event(1),)))
        with trio.fail_after(1):
            await recent.wait_beyond(0)
        assert [each.event["data"]["message"] for each in recent.after(0)[0]] == ["1"]


def test_an_event_has_an_id_and_names_the_event_that_caused_it():
    """Whether it is kept as it is or as JSON; another process gives other ids."""
    first = event()
    caused = Event(EventType.TASK_NOTIFY, 1000, "task", "t1", {}, parent_id=first.id, line=b"{}\n")
    recent, later = RecentEvents(first=100), RecentEvents(first=200)
    for each in (recent, later):
        each.add(first)
        each.add(caused)
    [one, two], _ = recent.after(99)
    assert one.event["id"] == two.event["cause"] != two.event["id"]
    assert "cause" not in one.event
    assert {each.event["id"] for each in later.after(199)[0]}.isdisjoint((one.event["id"], two.event["id"]))


async def test_a_reader_gets_what_came_while_it_was_busy_and_is_told_of_a_gap():
    recent = RecentEvents(first=1)
    recent.add(event(0))
    reader = EventReader(recent, 0)
    numbers = [[each.n for each in (await anext(reader))[0]]]
    recent.add(event(1))
    recent.add(event(2))
    numbers.append([each.n for each in (await anext(reader))[0]])
    assert numbers == [[1], [2, 3]]
    for n in range(MAX_KEPT + 1):
        recent.add(event(n))
    kept, is_gap = await anext(reader)
    assert (len(kept), kept[-1].n, is_gap) == (MAX_KEPT, recent.newest, True)


async def test_a_reader_waits_for_the_next_event(autojump_clock):
    recent = RecentEvents(first=1)
    recent.add(event(0))
    reader = EventReader(recent)
    with trio.move_on_after(1) as scope:
        await anext(reader)
    assert scope.cancelled_caught
