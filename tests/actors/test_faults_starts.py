"""Who starts a child and leaves, at whatever moment, leaves nothing behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import pytest
import trio

from actors import ActorDied, Child, Inbox, Intensity, Restart, Supervisor, open_pool, open_supervisor
from actors.testing import simulate
from tests.actors.kit import Boom, idle

OFTEN = Intensity(9)


async def up_after(inbox: Inbox[Any], seconds: float) -> None:
    await trio.sleep(seconds)
    inbox.started()
    await idle(inbox)


async def up_for_a_moment(inbox: Inbox[Any], seconds: float) -> None:
    await trio.sleep(seconds)
    inbox.started()
    raise Boom


async def fails_after(inbox: Inbox[Any], seconds: float) -> None:
    await trio.sleep(seconds)
    raise Boom


every_owner = pytest.mark.parametrize("owner", [open_supervisor, open_pool])


@every_owner
@pytest.mark.parametrize("run", [up_after, up_for_a_moment, fails_after])
@pytest.mark.parametrize("restart", [Restart.PERMANENT, Restart.TEMPORARY])
def test_a_start_that_is_cancelled_as_it_succeeds_or_fails_leaves_no_child(
    owner: Callable[..., AbstractAsyncContextManager[Supervisor]], run: Any, restart: Restart
) -> None:
    """The start and the patience of the one who asked for it both take a second; each seed takes another order."""

    async def main() -> None:
        async with owner(intensity=OFTEN) as root:
            child = Child("b", run, 1.0, restart=restart)
            with trio.move_on_after(1) as scope:
                try:
                    await root.start_child(child)
                except ActorDied:
                    assert run is fails_after
            assert scope.cancelled_caught
            await trio.sleep(3)
            assert root.children() == ()
            await root.start_child(Child("b", up_after, 0.0))
            assert [info.state for info in root.children()] == ["up"]

    simulate(main, seeds=range(25))


@every_owner
@pytest.mark.parametrize("run", [up_after, up_for_a_moment, fails_after])
def test_so_does_a_restart_that_somebody_has_asked_for(
    owner: Callable[..., AbstractAsyncContextManager[Supervisor]], run: Any
) -> None:
    async def main() -> None:
        async with owner(intensity=OFTEN) as root:
            with suppress(ActorDied):
                await root.start_child(Child("b", second_time, run))
            await root.stop_child("b")
            with trio.move_on_after(1) as scope, suppress(ActorDied):
                await root.restart_child("b")
            await trio.sleep(3)
            assert scope.cancelled_caught
            assert [info.state for info in root.children()] == ["down"]
            assert not root.ref("b").alive

    simulate(main, seeds=range(25))


async def second_time(inbox: Inbox[Any], run: Any) -> None:
    await (up_after(inbox, 0) if inbox.attempt == 1 else run(inbox, 1.0))


@every_owner
@pytest.mark.parametrize("stopped", [False, True])
async def test_a_start_that_resists_and_is_cancelled_is_forgotten_once_it_has_ended(
    owner: Callable[..., AbstractAsyncContextManager[Supervisor]], stopped: bool
) -> None:
    """Also when somebody else has told it to stop before."""

    async def resists(inbox: Inbox[Any]) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(3)

    async with owner() as root, trio.open_nursery() as nursery:
        nursery.start_soon(start_for, root, 2.0, Child("b", resists))
        await trio.sleep(1)
        if stopped:
            nursery.start_soon(root.stop_child, "b")
        await trio.sleep(4)
        assert root.children() == ()


@every_owner
async def test_nothing_is_kept_of_a_cancelled_start_that_was_stopped_as_well(
    owner: Callable[..., AbstractAsyncContextManager[Supervisor]],
) -> None:
    class Thing:
        pass

    async def resists(inbox: Inbox[Any], thing: Thing) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(3)

    thing = Thing()
    kept = weakref.ref(thing)
    async with owner() as root, trio.open_nursery() as nursery:
        nursery.start_soon(start_for, root, 1.0, Child("b", resists, thing, restart=Restart.TEMPORARY))
        del thing
        await trio.sleep(2)
        await root.stop_child("b")
        await trio.sleep(2)
        assert root.children() == ()
        gc.collect()
        assert kept() is None


async def start_for(root: Supervisor, seconds: float, child: Child[Any]) -> None:
    with trio.move_on_after(seconds):
        await root.start_child(child)
