"""The pure half of a supervisor: which children there are, in which state, and what an exit means for them.

No Trio here, no clock and no effects: the supervisor's task tells the table what happened (`exited`, `start_failed`,
`due` …) and does what the table answers. The rules are OTP's (supervisor.erl), odd corners included:

* a temporary child is forgotten as soon as it is down, however that came about;
* a transient child that ended normally stays in the list, and comes back when its group is restarted;
* every restart costs one credit, and so does every repeated attempt after a start that failed;
* such an attempt stands behind what has happened meanwhile: until its turn, those of the group that have been started
  stay up, the others are down, and without the one that failed the attempt is off;
* an exit is about one attempt: that of an earlier one (which was absorbed while its group was stopped) says nothing.
"""

from __future__ import annotations

import math
from enum import Enum
from random import Random
from typing import Never, TypeAlias

import attrs

from actors._spec import AutoShutdown, Child, Intensity, Restart, Strategy


class State(Enum):
    """Where a child is in its life."""

    DOWN = "down"  # not running, and waiting for nothing of its own
    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"
    WAITING = "waiting"  # not running, will be restarted


TRANSITIONS: dict[State, frozenset[State]] = {
    State.DOWN: frozenset({State.STARTING, State.WAITING}),
    State.STARTING: frozenset({State.UP, State.STOPPING, State.DOWN, State.WAITING}),
    State.UP: frozenset({State.STOPPING, State.DOWN}),
    State.STOPPING: frozenset({State.DOWN}),
    State.WAITING: frozenset({State.STARTING, State.DOWN, State.WAITING}),
}
RUNNING = frozenset({State.STARTING, State.UP, State.STOPPING})


@attrs.define(eq=False, repr=False)
class Entry:
    """A child and its state. attempt: how many times it was started. failures: how many failed in a row."""

    child: Child[Never]
    state: State = State.DOWN
    attempt: int = 0
    failures: int = 0
    up_since: float = math.inf

    def go(self, state: State) -> None:
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"child {self.child.name!r} cannot go from {self.state.value} to {state.value}")
        self.state = state


class Verdict(Enum):
    """What an end means, if it is not a restart."""

    ABSORBED = "absorbed"  # nothing: it belongs to something that has been dealt with
    LET_GO = "let go"  # the child stays down
    TRY_AGAIN = "try again"  # its start, in its turn: see `try_again`
    SHUT_DOWN = "shut down"  # a significant child: stop everything and end normally
    GIVE_UP = "give up"  # one restart too many: stop everything and fail


@attrs.frozen
class Replace:
    """Stop these children in this order and, `delay` seconds after the end, start the group of `leader`."""

    leader: str
    stop: tuple[str, ...]
    delay: float


Decision: TypeAlias = Verdict | Replace


@attrs.define(eq=False, repr=False)
class Pending:
    """A restart that waits for its time. members: in start order, those that are to come back."""

    due: float
    members: tuple[str, ...]


class Table:
    """The children of one supervisor in start order."""

    def __init__(self, strategy: Strategy, intensity: Intensity, auto_shutdown: AutoShutdown, random: Random) -> None:
        self.entries: dict[str, Entry] = {}
        self.pending: list[Pending] = []
        self._strategy = strategy
        self._intensity = intensity
        self._auto_shutdown = auto_shutdown
        self._random = random
        self._incidents: list[float] = []

    # ------------------------------------------------------------ the list

    def add(self, child: Child[Never]) -> None:
        """Put a new child at the end; the caller has made sure that the name is free."""
        self.entries[child.name] = Entry(child)

    def remove(self, name: str) -> None:
        self._withdraw(name)
        del self.entries[name]

    def running(self) -> tuple[str, ...]:
        """Who has to be stopped, in that order: the last started first."""
        return tuple(name for name in reversed(self.entries) if self.entries[name].state in RUNNING)

    # ------------------------------------------------------------ one child's life

    def starting(self, name: str) -> int:
        """It is being started; returns the number of this attempt."""
        entry = self.entries[name]
        entry.go(State.STARTING)
        entry.attempt += 1
        entry.up_since = math.inf
        return entry.attempt

    def up(self, name: str, now: float) -> None:
        entry = self.entries[name]
        entry.go(State.UP)
        entry.up_since = now

    def stopping(self, name: str) -> None:
        self.entries[name].go(State.STOPPING)

    def down(self, name: str) -> None:
        """It has ended because it was told to, or will not be started after all."""
        entry = self.entries[name]
        if entry.state is not State.DOWN:
            entry.go(State.DOWN)
        self._withdraw(name)
        if entry.child.restart is Restart.TEMPORARY:
            del self.entries[name]

    # ------------------------------------------------------------ what an end means

    def exited(self, name: str, attempt: int, abnormal: bool, now: float) -> Decision:
        """A child that was up has ended by itself (or, if `attempt` is an old one, while it was being stopped)."""
        entry = self.entries.get(name)
        if entry is None or entry.attempt != attempt or entry.state is not State.UP:
            return Verdict.ABSORBED
        entry.go(State.DOWN)
        restart = entry.child.restart
        if restart is Restart.PERMANENT or (restart is Restart.TRANSIENT and abnormal):
            return self._restart(entry, now, self._delay(entry, now))
        if restart is Restart.TEMPORARY:
            del self.entries[name]
        return self._after_end(entry)

    def start_failed(self, name: str, now: float) -> Decision:
        """A start that belongs to a restart has failed. OTP knows no backoff; with one, it is as if it had crashed."""
        entry = self.entries[name]
        if entry.child.backoff is not None:
            entry.go(State.DOWN)
            return self._restart(entry, now, self._delay(entry, now))
        for member in self.group(name):  # those whose turn would have come after it
            if self._is_to_be_tried(member):
                self.entries[member].go(State.DOWN)
        entry.go(State.WAITING)
        return Verdict.TRY_AGAIN

    def try_again(self, name: str, now: float) -> Decision:
        """It is the turn of a child whose start has failed, unless something else has been done to it meanwhile."""
        if not self._is_to_be_tried(name):
            return Verdict.ABSORBED
        return self._restart(self.entries[name], now, 0.0)

    def comes_back(self, name: str) -> bool:
        """Whether it runs, or will without being asked for."""
        if self.entries[name].state is not State.DOWN:
            return True
        return any(name in self.group(other) for other in self.entries if self._is_to_be_tried(other))

    def _is_to_be_tried(self, name: str) -> bool:
        """It waits, but for no time."""
        entry = self.entries.get(name)
        return entry is not None and entry.state is State.WAITING and not any(name in p.members for p in self.pending)

    def _after_end(self, entry: Entry) -> Decision:
        if not entry.child.significant:
            return Verdict.LET_GO
        others = any(e.child.significant and e.state is not State.DOWN for e in self.entries.values())
        if self._auto_shutdown is AutoShutdown.ALL_SIGNIFICANT and others:
            return Verdict.LET_GO
        return Verdict.SHUT_DOWN

    def _restart(self, entry: Entry, now: float, delay: float) -> Decision:
        name = entry.child.name
        if not self._spend(now):
            return Verdict.GIVE_UP
        stop = tuple(n for n in reversed(self.group(name)) if self.entries[n].state in RUNNING)
        return Replace(name, stop, delay)

    def _spend(self, now: float) -> bool:
        """Take one credit; False if there was none. A restart exactly `period` seconds ago still counts, as in OTP."""
        since = now - self._intensity.period
        self._incidents = [time for time in self._incidents if time >= since]
        self._incidents.append(now)
        return len(self._incidents) <= self._intensity.restarts

    def _delay(self, entry: Entry, now: float) -> float:
        backoff = entry.child.backoff
        if backoff is None:
            return 0.0
        if now - entry.up_since >= backoff.reset_after:
            entry.failures = 0
        entry.failures += 1
        return backoff.delay(entry.failures, self._random)

    # ------------------------------------------------------------ restarts that wait

    def group(self, leader: str) -> tuple[str, ...]:
        """Who is restarted when this child is, in start order."""
        names = tuple(self.entries)
        if self._strategy is Strategy.ONE_FOR_ONE:
            return (leader,)
        return names if self._strategy is Strategy.ONE_FOR_ALL else names[names.index(leader) :]

    def schedule(self, leader: str, due: float) -> None:
        """The group's running children are down; bring all of it back at `due`, or later if one of them must wait."""
        members = self.group(leader)
        for name in members:
            due = max(due, self._withdraw(name))
            self.entries[name].go(State.WAITING)
        self.pending.append(Pending(due, members))

    def next_due(self) -> float:
        """When the next waiting restart is due; infinity if none waits."""
        return min((pending.due for pending in self.pending), default=math.inf)

    def take_due(self, now: float) -> tuple[str, ...]:
        """Whom to start now, in order: the group whose time has come first, or nobody."""
        return self._take(self.pending, now)

    def take(self, leader: str, now: float) -> tuple[str, ...]:
        """The same, of the group that has been put in line for this child, should another one wait as well."""
        return self._take([pending for pending in self.pending if leader in pending.members], now)

    def _take(self, pending: list[Pending], now: float) -> tuple[str, ...]:
        first = min(pending, key=lambda pending: pending.due, default=None)
        if first is None or first.due > now:
            return ()
        self.pending.remove(first)
        return first.members

    def _withdraw(self, name: str) -> float:
        """Take a child out of the restart it waits for (the rest of its group still comes); returns when that was due."""
        for pending in self.pending:
            if name in pending.members:
                pending.members = tuple(member for member in pending.members if member != name)
                if not pending.members:
                    self.pending.remove(pending)
                return pending.due
        return -math.inf
