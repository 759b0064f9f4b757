"""The pure table of children: which steps there are, and that there are no others."""

from __future__ import annotations

import itertools
import math
from random import Random
from typing import Any

import pytest

from actors import AutoShutdown, Backoff, Child, Intensity, Restart, Strategy
from actors._table import RUNNING, TRANSITIONS, ChildEntry, Replace, State, Table, Verdict
from tests.actors.kit import idle


def table_of(*names: str, strategy: Strategy = Strategy.ONE_FOR_ONE, restarts: int = 1, **options: Any) -> Table:
    table = Table(strategy, Intensity(restarts), AutoShutdown.NEVER, Random(0))
    for name in names:
        table.add(Child(name, idle, **options))
        table.starting(name)
        table.up(name, 0.0)
    return table


ALLOWED = {(before, after) for before, afters in TRANSITIONS.items() for after in afters}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(State, State)))
def test_only_the_steps_of_the_table_are_possible(before: State, after: State) -> None:
    entry = ChildEntry(Child("a", idle), before)
    if (before, after) in ALLOWED:
        entry.change_to(after)
        assert entry.state is after
    else:
        with pytest.raises(RuntimeError, match=f"child 'a' cannot go from {before.value} to {after.value}"):
            entry.change_to(after)


def test_nothing_starts_that_runs() -> None:
    assert all((state, State.STARTING) not in ALLOWED for state in RUNNING)


def test_an_exit_of_an_earlier_attempt_says_nothing() -> None:
    table = table_of("a")
    table.stopping("a")
    table.down("a")
    table.starting("a")
    table.up("a", 1.0)
    assert table.exited("a", 1, True, 2.0) is Verdict.ABSORBED
    assert table.exited("gone", 1, True, 2.0) is Verdict.ABSORBED
    assert isinstance(table.exited("a", 2, True, 2.0), Replace)


@pytest.mark.parametrize(
    ("strategy", "stopped"),
    [(Strategy.ONE_FOR_ONE, ()), (Strategy.REST_FOR_ONE, ("c",)), (Strategy.ONE_FOR_ALL, ("c", "a"))],
)
def test_a_restart_stops_the_group_in_reverse(strategy: Strategy, stopped: tuple[str, ...]) -> None:
    table = table_of("a", "b", "c", strategy=strategy)
    assert table.exited("b", 1, True, 0.0) == Replace("b", stopped, 0.0)


def test_credits_are_counted_over_the_period_both_ends_included() -> None:
    table = table_of("a", restarts=2)
    verdicts = []
    for now in (0.0, 4.0, 5.1, 9.0, 10.0):
        verdicts.append(table.exited("a", table.entries["a"].attempt, True, now))
        if verdicts[-1] is Verdict.GIVE_UP:
            break
        table.starting("a")
        table.up("a", now)
    assert [verdict is Verdict.GIVE_UP for verdict in verdicts] == [False, False, False, True]


@pytest.mark.parametrize("start", [0.0, 0.1, 0.2, 0.4, 0.7, 0.9, 1.2, 2.9, 3.3, 86400.2])
@pytest.mark.parametrize(("later", "counts"), [(0.0, True), (0.0005, False)])
def test_a_restart_counts_for_exactly_the_period_from_whatever_time(start: float, later: float, counts: bool) -> None:
    table = table_of("a", restarts=1)
    assert table.exited("a", 1, True, start) == Replace("a", (), 0.0)
    table.starting("a")
    table.up("a", start)
    decision = table.exited("a", 2, True, start + 5.0 + later)
    assert (decision is Verdict.GIVE_UP) is counts


def test_a_restart_that_waits_is_due_once() -> None:
    table = table_of("a", backoff=Backoff(3, 9, jitter=0))
    decision = table.exited("a", 1, True, 0.0)
    assert decision == Replace("a", (), 3.0)
    table.schedule("a", 3.0)
    assert (table.next_due(), table.take_due(2.9)) == (3.0, ())
    assert (table.take_due(3.0), table.take_due(3.0), table.next_due()) == (("a",), (), math.inf)


def test_of_two_that_wait_the_one_that_is_due_first_comes_first() -> None:
    table = table_of("a", "b")
    for name, due in (("a", 5.0), ("b", 3.0)):
        table.exited(name, 1, False, 0.0)
        table.schedule(name, due)
    assert table.next_due() == 3.0
    assert (table.take_due(9.0), table.take_due(9.0)) == (("b",), ("a",))


def test_a_group_can_be_taken_before_another_that_is_due_as_well() -> None:
    table = table_of("a", "b", restarts=2)
    for name in "ab":
        table.exited(name, 1, True, 0.0)
        table.schedule(name, 0.0)
    assert (table.take("b", 0.0), table.take("b", 0.0), table.take("a", 0.0)) == (("b",), (), ("a",))


def test_a_start_that_failed_in_a_restart_is_tried_again_when_it_is_its_turn() -> None:
    """Until then it costs nothing, and who was to come after it is down."""
    table = table_of("a", "b", "c", strategy=Strategy.ONE_FOR_ALL, restarts=2)
    for name in table.exited("a", 1, True, 0.0).stop:
        table.stopping(name)
        table.down(name)
    table.schedule("a", 0.0)
    table.take("a", 0.0)
    table.starting("a")
    table.up("a", 0.0)
    table.starting("b")
    assert table.start_failed("b", 0.0) is Verdict.TRY_AGAIN
    assert [entry.state for entry in table.entries.values()] == [State.UP, State.WAITING, State.DOWN]
    assert [table.comes_back(name) for name in "abc"] == [True, True, True]
    assert table.try_again("b", 0.0) == Replace("b", ("a",), 0.0)


def test_a_start_that_failed_is_not_tried_again_when_its_child_was_stopped() -> None:
    table = table_of("a", "b", strategy=Strategy.REST_FOR_ONE, restarts=2)
    table.exited("a", 1, True, 0.0)
    table.stopping("b")
    table.down("b")
    table.schedule("a", 0.0)
    table.take("a", 0.0)
    table.starting("a")
    table.start_failed("a", 0.0)
    table.down("a")
    assert table.try_again("a", 0.0) is Verdict.ABSORBED
    assert not table.comes_back("b")


@pytest.mark.parametrize("restart", [Restart.TRANSIENT, Restart.TEMPORARY])
def test_who_is_not_restarted_is_let_go(restart: Restart) -> None:
    table = table_of("a", restart=restart)
    assert table.exited("a", 1, False, 0.0) is Verdict.LET_GO
    assert ("a" in table.entries) == (restart is Restart.TRANSIENT)
