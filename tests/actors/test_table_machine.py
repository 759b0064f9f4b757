"""The pure table of children under any sequence of events: a supervisor without tasks, clock or effects.

The machine does what the supervisor's task does (actors/_loop.py), and keeps its own, simpler books to compare with.
A child's process may end at any moment; the table hears of it later, or when something else has been done to the child.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any, ClassVar

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from actors import AutoShutdown, Backoff, Child, Intensity, Restart, Strategy
from actors._table import RUNNING, Replace, State, Table, Verdict
from tests.actors.kit import idle

STEPS = """
down -> starting, waiting
starting -> up, stopping, down, waiting
up -> stopping, down
stopping -> down
waiting -> starting, down, waiting
"""
ALLOWED = {
    (State(before.strip()), State(after.strip()))
    for line in STEPS.strip().splitlines()
    for before, afters in [line.split("->")]
    for after in afters.split(",")
}
NAMES = "abcde"
MOSTLY = st.sampled_from([True, True, True, False])
OUTCOMES = st.lists(MOSTLY, max_size=6)  # of the starts that follow; those after them succeed
FAST = settings(max_examples=100, stateful_step_count=40, deadline=None, derandomize=True, database=None)


@attrs.frozen
class Process:
    """What the table's children stand for: one run of one child."""

    name: str
    attempt: int
    child: Child = attrs.field(eq=False, repr=False)


class Watched:
    """A table, each of whose calls is checked: a child takes at most one step, and that is one of the list."""

    def __init__(self, table: Table, seen: set[tuple[State, State]]) -> None:
        self._table = table
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._table, name)
        return self._check(found) if callable(found) else found

    def _check(self, call: Any) -> Any:
        def checked(*args: Any) -> Any:
            before = {name: entry.state for name, entry in self._table.entries.items()}
            result = call(*args)
            for name, entry in self._table.entries.items():
                step = (before.get(name, entry.state), entry.state)
                assert step[0] is step[1] or step in ALLOWED, (name, step)
                self._seen.add(step)
            return result

        return checked


class Supervising(RuleBasedStateMachine):
    seen: ClassVar[set[tuple[State, State]]] = set()
    verdicts: ClassVar[set[object]] = set()

    @initialize(
        strategy=st.sampled_from(Strategy),
        restarts=st.integers(0, 5),
        auto_shutdown=st.sampled_from(AutoShutdown),
    )
    def open(self, strategy: Strategy, restarts: int, auto_shutdown: AutoShutdown) -> None:
        self.strategy, self.auto_shutdown = strategy, auto_shutdown
        self.intensity = Intensity(restarts, 10.0)
        self.now = 0.0
        self.begin_anew()

    def begin_anew(self) -> None:
        self.table: Any = Watched(Table(self.strategy, self.intensity, self.auto_shutdown, Random(0)), type(self).seen)
        self.order: list[str] = []
        self.alive: set[Process] = set()  # has been started, and neither ended nor was stopped
        self.news: list[tuple[Process, bool] | str] = []  # ends not heard of, whether abnormal; starts to try again
        self.limbo: set[str] = set()  # starts that failed and are to be tried again
        self.incidents: list[float] = []
        self.coming_back: set[str] = set()
        self.temporary: set[str] = set()
        self.over = False

    # ------------------------------------------------------------ the books

    def spec(self, name: str) -> Child:
        return self.table.entries[name].child

    def state(self, name: str) -> State | None:
        entry = self.table.entries.get(name)
        return None if entry is None else entry.state

    def named(self, *states: State) -> list[str]:
        return [name for name in self.order if self.state(name) in states]

    def group(self, leader: str) -> list[str]:
        match self.strategy:
            case Strategy.ONE_FOR_ONE:
                return [leader]
            case Strategy.REST_FOR_ONE:
                return self.order[self.order.index(leader) :]
        return list(self.order)

    def forget(self, name: str) -> None:
        self.coming_back.discard(name)
        self.limbo.discard(name)
        if name in self.temporary:
            self.order.remove(name)
            self.temporary.remove(name)

    def ended(self, name: str) -> None:
        self.alive = {process for process in self.alive if process.name != name}

    # ------------------------------------------------------------ what others ask for

    @precondition(lambda self: not self.over and len(self.order) < len(NAMES))
    @rule(data=st.data(), restart=st.sampled_from(Restart), backoff=st.booleans(), comes_up=MOSTLY)
    def start_child(self, data: st.DataObject, restart: Restart, backoff: bool, comes_up: bool) -> None:
        name = data.draw(st.sampled_from([name for name in NAMES if name not in self.order]))
        temporary = restart is Restart.TEMPORARY
        may_be_significant = restart is not Restart.PERMANENT and self.auto_shutdown is not AutoShutdown.NEVER
        child = Child(
            name,
            idle,
            restart=restart,
            backoff=Backoff(1, 4, jitter=0, reset_after=3) if backoff and not temporary else None,
            significant=may_be_significant and data.draw(MOSTLY),
        )
        self.table.add(child)
        self.order.append(name)
        self.temporary |= {name} if temporary else set()
        self.begin(name)
        if not (self.strategy is Strategy.ONE_FOR_ONE and data.draw(st.booleans())):
            self.settle(name, comes_up, new=True)
        # else as in a pool, where something else may happen meanwhile

    def begin(self, name: str) -> Process:
        before = self.table.entries[name].attempt
        process = Process(name, self.table.starting(name), self.spec(name))
        assert process.attempt == before + 1
        assert name not in {other.name for other in self.alive}, "two runs of one child at the same time"
        self.alive.add(process)
        return process

    def settle(self, name: str, comes_up: bool, *, new: bool) -> None:
        if comes_up:
            self.table.up(name, self.now)
        else:
            self.go_down(name, forget=new)

    def go_down(self, name: str, *, forget: bool = False) -> None:
        self.ended(name)
        self.table.down(name)
        self.forget(name)
        if forget and name in self.order:
            self.table.remove(name)
            self.order.remove(name)

    @precondition(lambda self: not self.over and self.named(State.STARTING))
    @rule(data=st.data(), comes_up=MOSTLY, aborted=st.booleans())
    def a_start_in_a_pool_settles(self, data: st.DataObject, comes_up: bool, aborted: bool) -> None:
        name = data.draw(st.sampled_from(self.named(State.STARTING)))
        if aborted:
            self.table.stopping(name)
        self.settle(name, comes_up and not aborted, new=self.table.entries[name].attempt == 1)

    @precondition(lambda self: not self.over and self.order)
    @rule(data=st.data(), comes_up=MOSTLY)
    def stop_or_bring_back_or_delete_a_child(self, data: st.DataObject, comes_up: bool) -> None:
        name = data.draw(st.sampled_from(self.order))
        if self.state(name) is not State.DOWN:
            if self.state(name) in RUNNING:
                self.table.stopping(name)
            self.go_down(name)
        elif data.draw(MOSTLY):
            self.begin(name)
            self.settle(name, comes_up, new=False)
        else:
            self.table.remove(name)
            self.order.remove(name)

    # ------------------------------------------------------------ what happens

    @precondition(lambda self: not self.over and self.up_and_alive())
    @rule(data=st.data(), abnormal=MOSTLY)
    def a_process_ends(self, data: st.DataObject, abnormal: bool) -> None:
        process = data.draw(st.sampled_from(self.up_and_alive()))
        self.alive.remove(process)
        self.news.append((process, abnormal))

    def up_and_alive(self) -> list[Process]:
        return sorted((p for p in self.alive if self.state(p.name) is State.UP), key=lambda p: p.name)

    @precondition(lambda self: not self.over and self.up_and_alive())
    @rule(data=st.data(), abnormal=MOSTLY, outcomes=OUTCOMES)
    def a_process_ends_and_all_ends_are_taken_up(
        self, data: st.DataObject, abnormal: bool, outcomes: list[bool]
    ) -> None:
        self.a_process_ends(data, abnormal)
        while self.news and not self.over:
            self.take_up_exit(outcomes)

    @precondition(lambda self: not self.over and self.news)
    @rule(outcomes=OUTCOMES)
    def the_supervisor_takes_up_an_end(self, outcomes: list[bool]) -> None:
        self.take_up_exit(outcomes)

    def take_up_exit(self, outcomes: list[bool]) -> None:
        item = self.news.pop(0)
        if isinstance(item, str):
            self.try_again(item, outcomes)
            return
        process, abnormal = item
        name = process.name
        entry = self.table.entries.get(name)
        if entry is not None and entry.child is not process.child:
            return  # another child of that name, whose attempts were counted anew: the supervisor's task knows that
        stale = entry is None or entry.attempt != process.attempt or entry.state is not State.UP
        before = {name: entry.state for name, entry in self.table.entries.items()}
        spec = None if entry is None else entry.child
        decision = self.table.exited(name, process.attempt, abnormal, self.now)
        type(self).verdicts.add(decision if isinstance(decision, Verdict) else Replace)
        if stale:
            assert decision is Verdict.ABSORBED
            assert before == {name: entry.state for name, entry in self.table.entries.items()}
        elif spec.restart is Restart.PERMANENT or (spec.restart is Restart.TRANSIENT and abnormal):
            self.act(decision, name, outcomes)
        else:
            self.forget(name)
            assert decision is (Verdict.SHUT_DOWN if self.ends_with(spec) else Verdict.LET_GO)
            self.over = decision is Verdict.SHUT_DOWN

    def try_again(self, name: str, outcomes: list[bool]) -> None:
        decision = self.table.try_again(name, self.now)
        if name in self.limbo:
            self.act(decision, name, outcomes)
        else:
            assert decision is Verdict.ABSORBED

    def ends_with(self, spec: Child) -> bool:
        others = [name for name in self.order if name != spec.name and self.spec(name).significant]
        alone = all(self.state(name) is State.DOWN for name in others)
        return spec.significant and (self.auto_shutdown is AutoShutdown.ANY_SIGNIFICANT or alone)

    @precondition(lambda self: not self.over)
    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0, 10.0, 11.0]), outcomes=OUTCOMES)
    def time_passes(self, seconds: float, outcomes: list[bool]) -> None:
        self.now += seconds
        self.start_due(outcomes)

    # ------------------------------------------------------------ what the supervisor does then

    def act(self, decision: object, leader: str, outcomes: list[bool]) -> None:
        """One incident: it costs one credit, and has the group stopped in reverse and put in line."""
        self.incidents.append(self.now)
        spent = sum(time >= self.now - self.intensity.period for time in self.incidents)
        if spent > self.intensity.restarts:
            assert decision is Verdict.GIVE_UP
            self.over = True
            return
        running = [name for name in reversed(self.group(leader)) if self.state(name) in RUNNING]
        assert isinstance(decision, Replace)
        assert (decision.leader, decision.stop) == (leader, tuple(running))
        for name in decision.stop:
            if self.state(name) is not State.STOPPING:
                self.table.stopping(name)
            self.ended(name)
            self.table.down(name)
            self.forget(name)
        self.table.schedule(leader, self.now + decision.delay)
        self.coming_back |= set(self.group(leader))
        self.limbo -= set(self.group(leader))
        if decision.delay == 0:
            self.start_group(self.table.take(leader, self.now), outcomes)

    def start_due(self, outcomes: list[bool]) -> None:
        due = self.table.next_due() <= self.now
        names = self.table.take_due(self.now)
        assert bool(names) is due
        self.start_group(names, outcomes)

    def start_group(self, names: tuple[str, ...], outcomes: list[bool]) -> None:
        assert set(names) <= self.coming_back, "a restart that had been called off"
        assert sorted(names, key=self.order.index) == list(names)
        self.coming_back -= set(names)
        for number, name in enumerate(names):
            self.begin(name)
            if all(outcomes[number : number + 1]):
                self.table.up(name, self.now)
                continue
            self.ended(name)
            decision = self.table.start_failed(name, self.now)
            type(self).verdicts.add(decision if isinstance(decision, Verdict) else Replace)
            if decision is Verdict.TRY_AGAIN:
                assert self.spec(name).backoff is None
                self.limbo.add(name)
                self.news.append(name)
            else:
                self.coming_back |= set(names[number + 1 :])
                self.act(decision, name, outcomes[number + 1 :])
            return

    @precondition(lambda self: self.over)
    @rule()
    def it_stops_everybody_and_another_one_begins(self) -> None:
        for name in self.table.running():
            if self.state(name) is not State.STOPPING:
                self.table.stopping(name)
            self.table.down(name)
        assert not self.table.running()
        self.begin_anew()

    # ------------------------------------------------------------ what always holds

    @invariant()
    def order_is_kept_and_who_is_gone_is_forgotten(self) -> None:
        assert list(self.table.entries) == self.order

    @invariant()
    def nobody_runs_and_waits_for_a_restart(self) -> None:
        scheduled = [name for pending in self.table.pending for name in pending.members]
        assert len(scheduled) == len(set(scheduled)), "waits twice"
        assert all(pending.members for pending in self.table.pending)
        if not self.over:
            assert set(scheduled) == self.coming_back
            assert set(self.named(State.WAITING)) == self.coming_back | self.limbo
            assert not self.coming_back & self.limbo

    @invariant()
    def who_waits_for_a_group_comes_back_with_it(self) -> None:
        comes = {name for leader in self.limbo for name in self.group(leader)} | {*self.named(*State)} - {
            *self.named(State.DOWN)
        }
        assert {name for name in self.order if self.table.comes_back(name)} == comes

    @invariant()
    def whom_the_table_calls_running_has_one_process_at_most(self) -> None:
        assert {process.name for process in self.alive} <= set(self.named(*RUNNING))
        assert list(self.table.running()) == list(reversed(self.named(*RUNNING)))

    @invariant()
    def a_temporary_child_that_is_down_is_forgotten(self) -> None:
        assert not [name for name in self.named(State.DOWN, State.WAITING) if name in self.temporary]

    @invariant()
    def credits_are_incidents(self) -> None:
        since = self.now - self.intensity.period
        spent = [time for time in self.table._incidents if time >= since]
        assert spent == [time for time in self.incidents if time >= since]

    @invariant()
    def attempts_only_grow(self) -> None:
        for name in self.order:
            entry = self.table.entries[name]
            assert all(p.attempt == entry.attempt for p in self.alive if p.name == name)
            assert (entry.up_since < math.inf) or entry.state is not State.UP


def test_no_sequence_of_events_breaks_the_table() -> None:
    run_state_machine_as_test(Supervising, settings=FAST)
    assert Supervising.verdicts == {*Verdict, Replace}, "the machine has been everywhere"
    assert not ALLOWED - Supervising.seen
