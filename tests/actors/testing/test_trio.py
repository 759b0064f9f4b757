"""What the simulator takes for granted about Trio's private parts."""

from __future__ import annotations

from collections import deque

import pytest
import trio
from trio._core import _run

from actors.testing import _trio, simulate


def test_this_trio_schedules_as_we_take_for_granted() -> None:
    _trio.canary()


def test_another_way_to_draw_the_tasks_of_a_round_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Trio copied its queue by something else than an iterator."""
    monkeypatch.setattr(_trio.RunQueue, "__iter__", deque.__iter__)
    with pytest.raises(RuntimeError, match=r"Trio [\d.]+ schedules in a way that .*_trio\.py does not know"):
        simulate(trio.lowlevel.checkpoint)


@pytest.mark.parametrize("sorts", [False, True], ids=["reverses", "sorts and shuffles"])
def test_both_ways_of_trio_to_order_a_round_are_known(sorts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one is pytest-trio's, when hypothesis is there."""
    monkeypatch.setattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", sorts)
    _trio.canary()


def test_another_random_source_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", False)
    monkeypatch.setattr(_trio.Choice, "random", lambda self: 0.0)
    with pytest.raises(RuntimeError, match="does not know"):
        _trio.canary()


def test_a_task_without_its_counters_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_trio, "step_of", lambda task: None)
    with pytest.raises(RuntimeError, match="does not know"):
        _trio.canary()


def test_trio_is_as_before_after_a_simulation() -> None:
    source = _run._r
    simulate(trio.lowlevel.checkpoint, seeds=[0])
    assert _run._r is source


async def test_a_simulation_inside_trio_is_refused() -> None:
    with pytest.raises(RuntimeError, match="call it from a function that is not async"):
        simulate(trio.lowlevel.checkpoint)
