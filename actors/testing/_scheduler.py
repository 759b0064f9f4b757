"""Who runs when: the loop of one simulated run.

Each round the tasks that can run are put in the order in which they were spawned; what the choices say changes that.
A lag is counted in rounds in which some other task ran. When all others wait, a laggard is let go.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable

import trio
from trio.lowlevel import Task

from actors.testing import _trio
from actors.testing._errors import Deadlock, Endless, SimulationError
from actors.testing._faults import Choices
from actors.testing._plan import Kind, Perturbation
from actors.testing._stack import own_place, own_stack
from actors.testing._strike import strike
from actors.testing._words import normal

GRACE = 1000
"""Steps that a program may still take after it was cancelled for taking too many, before it is abandoned."""
PUSHES = 3
"""How many times the tasks of a deadlocked program are forced out of what they wait in, before it is abandoned."""


class ForcedOut(BaseException):
    """Ends the tasks of a deadlocked program where cancelling it did not."""


class Scheduler:
    """What Trio asks (see _trio.Loop), and what the run has done so far.

    hits: which tasks may be hit by faults, all if None. look: called whenever all tasks wait. scope: around the program.
    steps: numbers of tasks as they ran, times the clock jumped to, and notes. done: the perturbations that took effect,
    and where. find_places: only note in `places` at which checkpoints such a fault could strike. problem: what the
    scheduler has found wrong.
    """

    def __init__(
        self,
        choices: Choices,
        hits: Callable[[Task], bool] | None,
        *,
        max_steps: int,
        look: Callable[[], object] = lambda: None,
        detailed: bool = False,
        find_places: Kind | None = None,
    ) -> None:
        self.now = 0.0
        self.scope = trio.CancelScope()
        self.steps: list[int | float | str] = []
        self.taken = 0
        self.done: dict[Perturbation, str] = {}
        self.places: list[tuple[str, int]] = []
        self.problem: SimulationError | None = None
        self._choices = choices
        self._hits = hits
        self._max_steps = max_steps
        self._look = look
        self._detailed = detailed
        self._find_places = find_places
        self._holds_one_alone = choices.holds_one_alone or detailed
        self._runner: _trio.Runner
        self._round = 0
        self._names: dict[int, str] = {}  # by number; "" for a task of Trio's own
        self._named: dict[str, int] = {}
        self._hittable: dict[int, bool] = {}
        self._lagging: list[tuple[int, Task]] = []  # let go in which round
        self._delayed: list[tuple[float, Task]] = []  # let go when
        self._let_go: set[int] = set()
        self._pending: list[tuple[int, Task, int, Perturbation]] = []  # strikes: in which round, at which checkpoint
        self._pushes = 0

    @property
    def after_step(self) -> Callable[[Task], None] | None:
        """What is to be called after each step of a task."""
        return self._after_step if self._choices.strikes or self._find_places is not None else None

    def note(self, text: str) -> None:
        text = normal(text)
        self.steps.append(f"t={self.now:.3f} {text}" if self._detailed else text)

    def lines(self) -> tuple[str, ...]:
        """The steps as text; of a run that was not `detailed`, without where the tasks are."""
        first = min(self._names, default=0)
        return tuple(
            step if isinstance(step, str) else f"t={step:.3f}" if isinstance(step, float) else self._names[step + first]
            for step in self.steps
        )

    # ------------------------------------------------------------ what Trio asks

    def begin(self, runner: _trio.Runner) -> None:
        self._runner = runner

    def draw(self, queue: _trio.RunQueue) -> list[Task]:
        if queue or self._lagging:
            self._round += 1
        if self._pending:
            self._strike_pending(self._round)
        ready = queue.ready()
        if self._lagging:
            ready += self._released(self._round)
        elif len(ready) == 1 and not self._holds_one_alone:  # most rounds
            self._record_one(ready[0])
            return ready
        if len(ready) > 1:
            ready.sort(key=_trio.number_of)
        chosen = self._choose(ready)
        self._record(chosen)
        self.taken += len(chosen)
        if self.taken > self._max_steps:
            self._too_long()
        return chosen

    def idle(self, deadline: float) -> None:
        runner = self._runner
        if self._pending:
            self._strike_pending(math.inf)
        if self._lagging:
            for task in self._released(min(until for until, _ in self._lagging)):
                runner.make_ready(task)
        if not runner.is_idle or runner.somebody_waits_for_idleness:
            return
        self._look()
        until = min([deadline, *(until for until, _ in self._delayed)])
        if until < math.inf:
            self._jump(until)
            return
        gc.collect(1)  # of what this run has made: it may be that garbage holds a Reply, or a channel
        if runner.is_idle:
            self._deadlocked()

    def _jump(self, until: float) -> None:
        if until > self.now:
            self.now = until
            if not self._detailed:
                self.steps.append(until)
        due = [task for when, task in self._delayed if when <= until]
        self._delayed = [(when, task) for when, task in self._delayed if when > until]
        for task in due:
            self._let_go.add(_trio.number_of(task))
            self._runner.make_ready(task)

    # ------------------------------------------------------------ rounds

    def _choose(self, ready: list[Task]) -> list[Task]:
        names, number_of = self._names, _trio.number_of
        alone = len(ready) == 1 and not self._lagging
        ranks: dict[Task, float] = {}
        chosen = []
        for task in ready:
            number = number_of(task)
            name = names[number] if number in names else self._meet(task, number)
            hold = self._hold(task, number, name, alone) if name else None
            if hold is None:
                chosen.append(task)
            elif hold.kind is Kind.LATE:
                chosen.append(task)
                ranks[task] = hold.amount
            elif hold.kind is Kind.LAG:
                self._lagging.append((self._round + int(hold.amount), task))
            else:
                self._delayed.append((self.now + hold.amount, task))
        if ranks:
            chosen.sort(key=lambda task: ranks.get(task, 0))
        return chosen

    def _hold(self, task: Task, number: int, name: str, alone: bool) -> Perturbation | None:
        if number in self._let_go:
            self._let_go.discard(number)
            return None
        hit = self._choices.delays and self._may_hit(task, number)
        hold = self._choices.hold(name, _trio.step_of(task), alone, hit)
        if hold is not None:
            self._did(hold, task)
        return hold

    def _released(self, round: int) -> list[Task]:
        """The laggards whose round has come."""
        due = [task for until, task in self._lagging if until <= round]
        self._lagging = [(until, task) for until, task in self._lagging if until > round]
        self._let_go.update(_trio.number_of(task) for task in due)
        return due

    def _record_one(self, task: Task) -> None:
        number, names = _trio.number_of(task), self._names
        if number not in names:
            self._meet(task, number)
        if names[number]:
            self.steps.append(number - next(iter(names)))
        self._let_go.discard(number)
        self.taken += 1
        if self.taken > self._max_steps:
            self._too_long()

    def _record(self, chosen: list[Task]) -> None:
        first, names = next(iter(self._names), 0), self._names
        if not self._detailed:
            self.steps += [number - first for task in chosen if names[number := _trio.number_of(task)]]
            return
        for task in chosen:
            if name := names[_trio.number_of(task)]:
                self.steps.append(f"t={self.now:.3f} {name} @{_trio.step_of(task)} {own_place(task)}".rstrip())

    # ------------------------------------------------------------ strikes

    def _after_step(self, task: Task) -> None:
        """Trio would only log an error of this."""
        try:
            self._stepped(task)
        except Exception as error:
            self.problem = self.problem or SimulationError(f"the simulation cannot go on: {error!r}")
            self.problem.__cause__ = error
            self.scope.cancel()

    def _stepped(self, task: Task) -> None:
        number = _trio.number_of(task)
        name = self._names[number]
        if not name or _trio.has_ended(task) or not self._may_hit(task, number):
            return
        step = _trio.step_of(task)
        if self._find_places is not None:
            if self._find_places is Kind.CANCEL or _trio.can_raise(task):
                self.places.append((name, step))
            return
        perturbation = self._choices.strike(name, step)
        if perturbation is None:
            return
        if perturbation.amount:
            self._pending.append((self._round + int(perturbation.amount), task, step, perturbation))
        else:
            self._strike(task, perturbation)

    def _strike_pending(self, round: float) -> None:
        due = [one for one in self._pending if one[0] <= round]
        self._pending = [one for one in self._pending if one[0] > round]
        for _, task, step, perturbation in due:
            if _trio.step_of(task) == step and not _trio.has_ended(task):
                self._strike(task, perturbation)

    def _strike(self, task: Task, perturbation: Perturbation) -> None:
        where = own_place(task)
        if strike(task, perturbation, self.scope if self._runner.is_main(task) else None):
            self.done[perturbation] = where
            self.note(perturbation.describe())

    # ------------------------------------------------------------ names

    def _meet(self, task: Task, number: int) -> str:
        """Name a task: the last part of Trio's name for it; "#2" for the second with that name, and so on."""
        name = ""
        if not self._runner.is_system(task):
            name = task.name.rpartition("<locals>.")[2]
            if name.replace(".", "").replace("_", "").isalnum():
                name = name.rpartition(".")[2]
            name = self._unique(name)
        self._names[number] = name
        return name

    def _unique(self, name: str) -> str:
        self._named[name] = count = self._named.get(name, 0) + 1
        return name if count == 1 else self._unique(f"{name}#{count}")

    def _may_hit(self, task: Task, number: int) -> bool:
        """What kind of task it is shows when it has run once."""
        if _trio.step_of(task) == 0:
            return False
        if number not in self._hittable:
            self._hittable[number] = self._hits is None or self._hits(task)
        return self._hittable[number]

    def _did(self, perturbation: Perturbation, task: Task) -> None:
        self.done[perturbation] = own_place(task) if self._detailed else ""

    # ------------------------------------------------------------ ends

    def _deadlocked(self) -> None:
        tasks = self._runner.tasks()
        if self.problem is None:
            self.problem = Deadlock(self.now, {self._names[_trio.number_of(task)]: own_stack(task) for task in tasks})
        if not self.scope.cancel_called:
            self.scope.cancel(reason="the simulation has found a deadlock")
            return
        self._pushes += 1
        if self._pushes > PUSHES:
            raise self.problem
        for task in tasks:
            _trio.force_out(task, ForcedOut())

    def _too_long(self) -> None:
        if self.problem is None:
            self.problem = Endless(f"the program takes more than {self._max_steps} steps")
            self.scope.cancel(reason="the simulation has found no end")
        if self.taken > self._max_steps + GRACE:
            raise self.problem
