"""A start that its asker does itself: one thing after another all the same."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import pytest
import trio

from actors import ActorError, Child, Exited, Inbox, Intensity, Restarting, open_supervisor
from tests.actors.kit import Crash, counter, happened, idle, settle

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
