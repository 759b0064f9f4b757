"""Starts in the caller's task and starts through the queue: both are serialised with exits, requests and stops."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import pytest
import trio

from actors import ActorError, Backoff, Child, Exited, Inbox, Intensity, Restarting, Started, open_supervisor
from tests.actors.kit import Boom, Crash, counter, happened, idle, settle

WHO: ContextVar[str] = ContextVar("who", default="supervisor")


async def slow(inbox: Inbox[Any], seconds: float = 2) -> None:
    await trio.sleep(seconds)
    inbox.started()
    await idle(inbox)


async def resists(inbox: Inbox[Any]) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(3)


async def test_what_is_asked_during_a_start_waits_for_it() -> None:
    async with open_supervisor([Child("first", idle)]) as supervisor, trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.start_child, Child("slow", slow))
        await settle()
        await supervisor.stop_child("first")
        assert trio.current_time() == 2
        assert [child.state for child in supervisor.children()] == ["down", "up"]


async def test_a_crash_during_a_start_is_heard_after_it() -> None:
    async with open_supervisor([Child("first", counter)], intensity=Intensity(9)) as supervisor:
        events = supervisor.events()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.start_child, Child("slow", slow))
            await settle()
            supervisor.ref("first").tell_nowait(Crash())
        await settle()
        assert [(type(event), event.time) for event in happened(events, Exited, Restarting)] == [
            (Exited, 0),
            (Restarting, 2),
        ]


async def test_a_stop_does_not_wait_for_a_start() -> None:
    """Whoever has asked for it hears so at once, though the child takes its time to unwind."""
    refused = []

    async def start() -> None:
        with pytest.raises(ActorError, match="the supervisor is stopping"):
            await supervisor.start_child(Child("resists", resists, shutdown=0))
        refused.append(trio.current_time())

    async with trio.open_nursery() as nursery, open_supervisor() as supervisor:
        nursery.start_soon(start)
        await settle()
        await trio.sleep(1)
        await supervisor.stop()
    assert refused == [1]


async def test_a_restart_that_falls_due_during_a_start_waits_for_it() -> None:
    child = Child("first", counter, backoff=Backoff(1, 1, jitter=0))
    async with open_supervisor([child], intensity=Intensity(3, 10)) as supervisor:
        events = supervisor.events()
        await supervisor.ref("first").tell(Crash())
        await settle()
        await supervisor.start_child(Child("slow", slow))
        await settle()
        assert [(event.path, event.time) for event in happened(events, Started)] == [("slow", 2), ("first", 2)]


async def test_a_start_waits_for_a_restart_that_is_under_way() -> None:
    async def slow_second_run(inbox: Inbox[Any]) -> None:
        if inbox.attempt == 1:
            inbox.started()
            raise Boom
        await slow(inbox)

    async with open_supervisor([Child("first", slow_second_run)], intensity=Intensity(9)) as supervisor:
        await settle()
        await supervisor.start_child(Child("second", idle))
        assert trio.current_time() == 2
        assert [child.state for child in supervisor.children()] == ["up", "up"]


@pytest.mark.parametrize("patience", [1, 3])
async def test_a_queued_start_whose_caller_leaves_before_or_after_it_has_begun_leaves_no_child(patience: float) -> None:
    async with open_supervisor() as supervisor, trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.start_child, Child("slow", slow))
        await settle()
        with trio.move_on_after(patience) as scope:
            await supervisor.start_child(Child("late", slow))
        assert scope.cancelled_caught
        await trio.sleep(5)
        assert [child.name for child in supervisor.children()] == ["slow"]


async def test_a_start_by_a_cancelled_caller_does_not_begin() -> None:
    began = []

    async def record(inbox: Inbox[Any]) -> None:
        began.append(inbox.attempt)

    async with open_supervisor() as supervisor:
        with trio.CancelScope() as scope:
            scope.cancel()
            await supervisor.start_child(Child("late", record))
        await settle()
        assert supervisor.children() == ()
    assert began == []


async def test_a_child_inherits_the_context_of_its_supervisor_whoever_starts_it() -> None:
    seen = []

    async def looks(inbox: Inbox[Any]) -> None:
        seen.append(WHO.get())
        await counter(inbox)

    async with open_supervisor(intensity=Intensity(9)) as supervisor:
        WHO.set("asker")
        ref = await supervisor.start_child(Child("looks", looks))
        await ref.tell(Crash())
        await settle()
    assert seen == ["supervisor", "supervisor"]
