"""Pure half of a supervisor: the list of its children, their states, and what an exit means for them.

There is no Trio here, no clock and no effect. The supervisor's task reports what happened (`exited`, `start_failed`,
`up` …) and carries out the decision that it gets back. So the rules can be read in one piece, and tested against a second
implementation and against Erlang itself. They are those of OTP's supervisor.erl, odd corners included:

* a temporary child is forgotten as soon as it is down, however that came about;
* a transient child that ended normally stays in the list, and comes back when its group is restarted;
* every restart costs one credit, and so does every repeated attempt after a start that failed;
* such an attempt is queued behind what has happened meanwhile: until its turn, those of the group that have been started
  stay up, the others are down, and if the one that failed is stopped, the attempt is called off;
* an exit belongs to one attempt: that of an earlier attempt (which was absorbed while its group was stopped) is ignored.

One thing is not OTP's: a restart may be delayed by a Backoff. Its group is stopped at once, and a `PendingRestart` entry says
when it is started again. OTP measures the period of the intensity in whole seconds, the table exactly.
"""

from __future__ import annotations

import math
from enum import Enum
from random import Random
from typing import Never, TypeAlias

import attrs

from actors._spec import AutoShutdown, Child, Intensity, Restart, Strategy


class State(Enum):
    """State of a child.

    Example: a child whose run crashed goes from UP to WAITING if a restart is allowed, and to DOWN if it is TEMPORARY.
    """

    DOWN = "down"
    """Not running, and with no restart of its own to come."""
    STARTING = "starting"
    """Running, but not up: it has neither received nor called `inbox.started()`."""
    UP = "up"
    """Running, with the start finished. An end from here on is a crash or a return, not a failed start."""
    STOPPING = "stopping"
    """Asked to stop, and not ended yet. The end of this run is absorbed."""
    WAITING = "waiting"
    """Not running, but to be restarted: at the time of a PendingRestart entry, or at once if its start has failed."""


TRANSITIONS: dict[State, tuple[State, ...]] = {
    State.DOWN: (State.STARTING, State.WAITING),
    State.STARTING: (State.UP, State.STOPPING, State.DOWN, State.WAITING),
    State.UP: (State.STOPPING, State.DOWN),
    State.STOPPING: (State.DOWN,),
    State.WAITING: (State.STARTING, State.DOWN, State.WAITING),
}
"""By state: the states that may follow. Anything else is a mistake of this package, and raises RuntimeError."""
RUNNING = frozenset({State.STARTING, State.UP, State.STOPPING})
"""States in which there is a task."""


@attrs.define(eq=False, repr=False)
class ChildEntry:
    """A child and its state.

    Example::

        entry = table.entries["counter"]
        if entry.state is State.DOWN:
            table.starting("counter")
    """

    child: Child[Never]
    """Specification of the child. A restart uses it unchanged."""
    state: State = State.DOWN
    """Present state. Only the methods of Table change it."""
    attempt: int = 0
    """Number of times it was started."""
    failures: int = 0
    """Number of ends in a row that count for its backoff."""
    up_since: float = math.inf
    """Time at which it came up; infinity if it has not since its last start."""

    def change_to(self, state: State) -> None:
        """Enter the next state. Raises RuntimeError for a step that TRANSITIONS does not have, before anything has changed."""
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"child {self.child.name!r} cannot go from {self.state.value} to {state.value}")
        self.state = state


class Verdict(Enum):
    """Decision about an end that needs no stopping and starting of children at once.

    Example: `table.exited("counter", attempt=1, abnormal=True, now=9.0)` of a TEMPORARY child returns `Verdict.LET_GO`.
    """

    ABSORBED = "absorbed"
    """Do nothing: the end belongs to something that has been dealt with."""
    LET_GO = "let go"
    """Leave the child down."""
    TRY_AGAIN = "try again"
    """Queue another attempt of its start; call `try_again` in its turn."""
    SHUT_DOWN = "shut down"
    """Stop everything and end normally: a significant child has ended."""
    GIVE_UP = "give up"
    """Stop everything and fail: one restart too many."""


@attrs.frozen
class Replace:
    """Decision to restart a group of children.

    Example: under REST_FOR_ONE with the children a, b and c, a crash of b is decided as
    `Replace(leader="b", stop=("c",), delay=0.0)`: stop c, and then start b and c.
    """

    leader: str
    """The child whose end is the reason. Its group is restarted, see `Table.group`."""
    stop: tuple[str, ...]
    """Children of the group that run, in the order in which they are to be stopped first."""
    delay: float
    """Seconds from the leader's end to the start of the group."""


Decision: TypeAlias = Verdict | Replace


@attrs.define(eq=False, repr=False)
class PendingRestart:
    """A restart that waits for its time.

    Example: `PendingRestart(due=12.5, members=("b", "c"))` is taken out by `Table.take_due` at time 12.5.
    """

    due: float
    """Time of the start, in seconds on the clock of the table's callers."""
    members: tuple[str, ...]
    """Children to start, in start order."""


class Table:
    """The children of one supervisor.

    ::

        table.add(child)
        attempt = table.starting("counter")
        table.up("counter", now)
        decision = table.exited("counter", attempt, abnormal=True, now=now)

    Times are arguments, in seconds on any clock that does not go back.
    """

    def __init__(self, strategy: Strategy, intensity: Intensity, auto_shutdown: AutoShutdown, random: Random) -> None:
        self.entries: dict[str, ChildEntry] = {}
        """By name, in start order."""
        self.pending: list[PendingRestart] = []
        """Restarts that wait for their time, in no order."""
        self._strategy = strategy
        self._intensity = intensity
        self._auto_shutdown = auto_shutdown
        self._random = random
        self._incidents: list[float] = []
        """Times of the restarts that count against the intensity, oldest first."""

    # ------------------------------------------------------------ the list

    def add(self, child: Child[Never]) -> None:
        """Append a new child. The caller has made sure that the name is free."""
        self.entries[child.name] = ChildEntry(child)

    def remove(self, name: str) -> None:
        """Forget a child, and the restart that it waits for."""
        self._withdraw(name)
        del self.entries[name]

    def running(self) -> tuple[str, ...]:
        """Return the children that have to be stopped, in that order: the last started first."""
        return tuple(name for name in reversed(self.entries) if self.entries[name].state in RUNNING)

    # ------------------------------------------------------------ states of one child

    def starting(self, name: str) -> int:
        """Note that the child is being started. Return the number of this attempt."""
        entry = self.entries[name]
        entry.change_to(State.STARTING)
        entry.attempt += 1
        entry.up_since = math.inf
        return entry.attempt

    def up(self, name: str, now: float) -> None:
        """Note that the child is up."""
        entry = self.entries[name]
        entry.change_to(State.UP)
        entry.up_since = now

    def stopping(self, name: str) -> None:
        """Note that the child is being stopped. Its exit will be absorbed."""
        self.entries[name].change_to(State.STOPPING)

    def down(self, name: str) -> None:
        """Note that the child has ended because it was stopped, or will not be started after all."""
        entry = self.entries[name]
        if entry.state is not State.DOWN:
            entry.change_to(State.DOWN)
        self._withdraw(name)
        if entry.child.restart is Restart.TEMPORARY:
            del self.entries[name]

    # ------------------------------------------------------------ what an end means

    def exited(self, name: str, attempt: int, abnormal: bool, now: float) -> Decision:
        """Decide about a child that was up and has ended by itself.

        attempt: the one that has ended. An old one has ended while it was being stopped, and its place has been taken.
        """
        entry = self.entries.get(name)
        if entry is None or entry.attempt != attempt or entry.state is not State.UP:
            return Verdict.ABSORBED
        entry.change_to(State.DOWN)
        restart = entry.child.restart
        if restart is Restart.PERMANENT or (restart is Restart.TRANSIENT and abnormal):
            return self._restart(entry, now, self._next_delay(entry, now))
        if restart is Restart.TEMPORARY:
            del self.entries[name]
        return self._after_end(entry)

    def start_failed(self, name: str, now: float) -> Decision:
        """Decide about a failed start that belongs to a restart.

        OTP has no backoff. With one, a failed start counts as a crash, and the group is stopped until the time has come.
        """
        entry = self.entries[name]
        if entry.child.backoff is not None:
            entry.change_to(State.DOWN)
            return self._restart(entry, now, self._next_delay(entry, now))
        for member in self.group(name):  # those that would have been started after it
            if self._awaits_retry(member):
                self.entries[member].change_to(State.DOWN)
        entry.change_to(State.WAITING)
        return Verdict.TRY_AGAIN

    def try_again(self, name: str, now: float) -> Decision:
        """Decide about a child whose start has failed, in its turn. Absorbed if something was done to it meanwhile."""
        if not self._awaits_retry(name):
            return Verdict.ABSORBED
        return self._restart(self.entries[name], now, 0.0)

    def comes_back(self, name: str) -> bool:
        """Return whether the child runs, or will run again without being asked for."""
        if self.entries[name].state is not State.DOWN:
            return True
        return any(name in self.group(other) for other in self.entries if self._awaits_retry(other))

    def _awaits_retry(self, name: str) -> bool:
        """Return whether the child waits to be retried immediately: its start failed and no backoff timer is pending."""
        entry = self.entries.get(name)
        return entry is not None and entry.state is State.WAITING and not any(name in p.members for p in self.pending)

    def _after_end(self, entry: ChildEntry) -> Decision:
        """Decide about a child that will not be restarted: only a significant one can end its supervisor.

        A significant sibling that waits for its restart is not down, so it still counts.
        """
        if not entry.child.significant:
            return Verdict.LET_GO
        others = any(e.child.significant and e.state is not State.DOWN for e in self.entries.values())
        if self._auto_shutdown is AutoShutdown.ALL_SIGNIFICANT and others:
            return Verdict.LET_GO
        return Verdict.SHUT_DOWN

    def _restart(self, entry: ChildEntry, now: float, delay: float) -> Decision:
        """Pay for a restart, and decide on it with those of the group that run now, or give up."""
        name = entry.child.name
        if not self._spend(now):
            return Verdict.GIVE_UP
        stop = tuple(n for n in reversed(self.group(name)) if self.entries[n].state in RUNNING)
        return Replace(name, stop, delay)

    def _spend(self, now: float) -> bool:
        """Count a restart against the intensity. Return whether it is allowed.

        A restart exactly `period` seconds ago still counts, as in OTP. The sum is compared, not the difference: who waits
        for `period` seconds from `time` wakes at the very number `time + period`, while `now - period` may be rounded.
        """
        period = self._intensity.period
        self._incidents = [time for time in self._incidents if time + period >= now]
        self._incidents.append(now)
        return len(self._incidents) <= self._intensity.restarts

    def _next_delay(self, entry: ChildEntry, now: float) -> float:
        """Return the delay of a restart, and count the failure that is its reason.

        A start that failed was never up: `up_since` is infinite then, so it does not reset the count.
        """
        backoff = entry.child.backoff
        if backoff is None:
            return 0.0
        if now - entry.up_since >= backoff.reset_after:
            entry.failures = 0
        entry.failures += 1
        return backoff.delay(entry.failures, self._random)

    # ------------------------------------------------------------ restarts that wait

    def group(self, leader: str) -> tuple[str, ...]:
        """Return the children that are restarted together with this one, itself included, in start order."""
        names = tuple(self.entries)
        if self._strategy is Strategy.ONE_FOR_ONE:
            return (leader,)
        return names if self._strategy is Strategy.ONE_FOR_ALL else names[names.index(leader) :]

    def schedule(self, leader: str, due: float) -> None:
        """Enter a restart of the whole group, whose children are all down by now.

        It is due at `due`, or later if one of the group already waits for a later restart, which this one replaces.
        """
        members = self.group(leader)
        for name in members:
            due = max(due, self._withdraw(name))
            self.entries[name].change_to(State.WAITING)
        self.pending.append(PendingRestart(due, members))

    def next_due(self) -> float:
        """Return the time at which the next restart is due; infinity if none waits."""
        return min((pending.due for pending in self.pending), default=math.inf)

    def take_due(self, now: float) -> tuple[str, ...]:
        """Take out the restart that is due first. Return the children to start, in order; none if none is due."""
        return self._take(self.pending, now)

    def take(self, leader: str, now: float) -> tuple[str, ...]:
        """As `take_due`, but only restarts that this child takes part in."""
        return self._take([pending for pending in self.pending if leader in pending.members], now)

    def _take(self, pending: list[PendingRestart], now: float) -> tuple[str, ...]:
        first = min(pending, key=lambda pending: pending.due, default=None)
        if first is None or first.due > now:
            return ()
        self.pending.remove(first)
        return first.members

    def _withdraw(self, name: str) -> float:
        """Take a child out of the restart that it waits for. The others of its group are still restarted.

        Return when that restart was due; -infinity if the child waits for none.
        """
        for pending in self.pending:
            if name in pending.members:
                pending.members = tuple(member for member in pending.members if member != name)
                if not pending.members:
                    self.pending.remove(pending)
                return pending.due
        return -math.inf
