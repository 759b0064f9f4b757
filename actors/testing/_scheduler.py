"""Scheduler of one simulated run: the order in which tasks run, the clock, and the perturbations.

Trio works in **rounds**: each task that can run goes on until its next await. In each round the scheduler puts those
tasks in the order in which they were spawned; a perturbation changes that. A task that lags is held back for a number of
rounds in which some other task runs. When all others wait, it is let go, since more rounds would change nothing. A task
that is delayed is held back for some virtual time.

**A fault must be one that could happen in earnest.** A crash is raised where Cancelled could be raised as well, and in
the same way: the task is taken out of whatever queue it waits in. It never replaces the value that a task was woken
with, or a message would be lost that no real crash loses. So a task that has been woken is left alone (its next
checkpoint will do), and so is a task inside a shield of its own. A cancel is the real one: an actor is killed as its
supervisor would; for any other task the nursery that it lives in is cancelled, for `main` all of it.

**Ends.** When no task can run and no deadline is due, the program waits for ever: a Deadlock, which names what each task
waits for and which task holds that. A program that takes more than `max_steps` steps is Endless. In both cases the
program is cancelled, so that its finally blocks run, then forced out of its waits, and abandoned if that does not end it.

**Runs are compared by `steps`**, a list of small values: for each step of a task its number, counted from the first task
of the run, for each jump of the clock the new time, for each note its text. Two runs with equal lists took the same steps
at the same times. Lines with names and places are only written for a run that is shown to a person (`detailed`), because
looking for the place of a task takes longer than its step.

**Trio swallows errors of an instrument**, and aborts with TrioInternalError on those of a clock. So what goes wrong in here
is kept in `problem` as far as possible, and raised only to abandon a run that cannot be ended otherwise.
"""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable
from types import FrameType
from typing import Final

import trio
from trio.lowlevel import Task

from actors._cell import CURRENT
from actors._incarnation import MACHINERY
from actors.testing import _trio
from actors.testing._faults import Choices, Deadlock, Endless, InjectedCrash, Kind, Perturbation, SimulationError
from actors.testing._trees import normal

GRACE: Final = 1000
"""Steps that a program may still take after it was cancelled for taking too many, and each time that it was forced to end."""
MAX_PUSHES: Final = 20
"""Number of times that the tasks of a program that does not end are forced out of their waits, before it is abandoned."""


class ForcedOut(BaseException):
    """Raised in the tasks of a program where cancelling it did not end them.

    Not an Exception, so that an `except Exception` around the await does not keep the task alive.

    Example: a task in `with trio.CancelScope(shield=True): await trio.sleep_forever()` leaves its wait with this error.
    """


class Scheduler:
    """Order of one run, as Trio asks for it (see `Loop` in _trio.py), and the record of what it has done so far.

    hits: tasks that may be hit by faults; None for all. look: called whenever all tasks wait. detailed: write a trace
    for people. find_places: only note in `places` at which checkpoints such a fault could strike.

    Example: `Scheduler(Seeded(3, Faults()), None, max_steps=1000)`, given to `_trio.run` as its loop.
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
        """Around the program."""
        self.steps: list[int | float | str] = []
        """Numbers of the tasks as they ran, times that the clock jumped to, and notes. Equal for equal runs."""
        self.taken = 0
        """Number of steps that tasks have taken, those of Trio's own tasks included."""
        self.done: dict[Perturbation, str] = {}
        """Perturbations that took effect, and where."""
        self.strikes_drawn = 0
        """Number of waits for which the choices were asked for a crash or a cancel."""
        self.delays_drawn = 0
        """Number of checkpoints for which the choices were asked for a delay."""
        self.places: list[tuple[str, int]] = []
        """Tasks and checkpoints at which a fault of the kind `find_places` could strike, in the order of the run."""
        self.problem: SimulationError | None = None
        """The first problem that the scheduler has found."""
        self._choices = choices
        self._hits = hits
        self._max_steps = max_steps
        self._look = look
        self._detailed = detailed
        self._find_places = find_places
        # A detailed run takes the long way, too: only that writes lines.
        self._holds_one_alone = choices.holds_one_alone or detailed
        self._runner: _trio.Runner
        self._round = 0
        """Number of the present round. Rounds in which nothing can run do not count, unless some task lags."""
        self._names: dict[int, str] = {}
        """By number of the task; "" for a task of Trio's own. The first entry is the first task of this run."""
        self._name_counts: dict[str, int] = {}
        """Number of tasks so far that would have this name."""
        self._hittable: dict[int, bool] = {}
        """By number of the task: whether faults may hit it. Asked once for each task, when it waits for the first time."""
        self._lagging: list[tuple[int, Task]] = []
        """Tasks that are held back, and the rounds in which they are let go."""
        self._delayed: list[tuple[float, Task]] = []
        """Tasks that are held back, and the times at which they are let go."""
        self._pauses: list[tuple[float, Callable[[Task], bool]]] = []
        """Groups of tasks that are paused, and the times at which they go on."""
        self._let_go: set[int] = set()
        """Numbers of tasks that were let go, and must not be held back again before they have run."""
        self._pending: list[tuple[int, Task, int, Perturbation]] = []
        """Crashes and cancels to come: the round, the task, the checkpoint for which it is meant."""
        self._pushes = 0
        """Number of times that the tasks have been forced out of their waits."""

    @property
    def after_step(self) -> Callable[[Task], None] | None:
        """Function to call after each step of a task; None if there is no need."""
        return self._after_step if self._choices.strikes or self._find_places is not None else None

    @property
    def found_target(self) -> bool:
        """True if some task could be hit by faults. Only known if faults were looked for.

        `simulate` raises ValueError if no run has such a task: the faults would never strike, and the test prove nothing.
        """
        return any(self._hittable.values())

    def note(self, text: str) -> None:
        """Write a line into the trace."""
        text = normal(text)
        self.steps.append(f"t={self.now:.3f} {text}" if self._detailed else text)

    def pause(self, tasks: Callable[[Task], bool], seconds: float) -> None:
        """Let no task run for which the function returns true, until so much virtual time has passed."""
        self._pauses.append((self.now + seconds, tasks))

    def lines(self) -> tuple[str, ...]:
        """Return the steps as text. Of a run that was not `detailed`, the places of the tasks are missing."""
        first = min(self._names, default=0)
        return tuple(
            step if isinstance(step, str) else f"t={step:.3f}" if isinstance(step, float) else self._names[step + first]
            for step in self.steps
        )

    # ------------------------------------------------------------ what Trio asks

    def begin(self, runner: _trio.Runner) -> None:
        """Take Trio's runner, at the beginning of the run. It has no task yet."""
        self._runner = runner

    def draw(self, queue: _trio.RunQueue) -> list[Task]:
        """Return the tasks of the next round in their order.

        Most rounds have a single task and no perturbation. They take a shorter way, which a simulation of 10,000
        schedules needs to stay within its limit (docs/performance.md).
        """
        if queue or self._lagging:
            self._round += 1
        # Before the queue is read: Trio empties it afterwards, and a task that is woken in between never runs.
        if self.taken > self._max_steps:
            self._too_long()
        if self._pending:
            self._strike_pending(self._round)
        ready = queue.ready()
        if self._lagging:
            ready += self._released(self._round)
        elif len(ready) == 1 and not self._holds_one_alone and not self._pauses:
            self._record_single(ready[0])
            return ready
        if len(ready) > 1:
            ready.sort(key=_trio.number_of)
        if self._pauses:
            ready = self._without_paused(ready)
        chosen = self._choose(ready)
        self._record(chosen)
        self.taken += len(chosen)
        return chosen

    def idle(self, deadline: float) -> None:
        """Find out what is next when no task is runnable.

        In this order: faults that were to come rounds later, tasks that lag, the invariants, the next deadline or the
        end of a delay. Before the program is called deadlocked, garbage is collected, because a Reply or a channel in it
        may wake a task when it is finalised.
        """
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
        gc.collect(1)
        if runner.is_idle:
            self._deadlocked()

    def _jump(self, until: float) -> None:
        """Move the clock, and let go the tasks whose delay ends then.

        The time may be the present one: a deadline that is due already, or a delay of a task that ends with another's.
        Trio itself wakes the tasks whose deadlines have come.
        """
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
        """Ask the choices about each task. Return those that run now, late ones last; hold the others back."""
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
        """Return the perturbation of a task that is about to go on. One that was just let go is not held again.

        Its checkpoint is still the same one then, so a list of perturbations would hold it back for ever.
        """
        if number in self._let_go:
            self._let_go.discard(number)
            return None
        hit = self._choices.delays and self._may_hit(task, number)
        self.delays_drawn += hit
        hold = self._choices.hold(name, _trio.step_of(task), alone, hit)
        if hold is not None:
            self._did(hold, task)
        return hold

    def _without_paused(self, ready: list[Task]) -> list[Task]:
        """Hold back those of the tasks that are paused, and return the others."""
        self._pauses = [(until, tasks) for until, tasks in self._pauses if until > self.now]
        running = []
        for task in ready:
            until = max((until for until, tasks in self._pauses if tasks(task)), default=0.0)
            if until:
                self._delayed.append((until, task))
            else:
                running.append(task)
        return running

    def _released(self, round: int) -> list[Task]:
        """Return the tasks whose lag ends in this round."""
        due = [task for until, task in self._lagging if until <= round]
        self._lagging = [(until, task) for until, task in self._lagging if until > round]
        self._let_go.update(_trio.number_of(task) for task in due)
        return due

    def _record_single(self, task: Task) -> None:
        """Record a round with one task and no perturbation: `_choose` and `_record` without what they need not do."""
        number, names = _trio.number_of(task), self._names
        if number not in names:
            self._meet(task, number)
        if names[number]:
            self.steps.append(number - next(iter(names)))
        self._let_go.discard(number)
        self.taken += 1

    def _record(self, chosen: list[Task]) -> None:
        """Record the tasks of a round: their numbers, or lines for people."""
        first, names = next(iter(self._names), 0), self._names
        if not self._detailed:
            self.steps += [number - first for task in chosen if names[number := _trio.number_of(task)]]
            return
        for task in chosen:
            if name := names[_trio.number_of(task)]:
                self.steps.append(f"t={self.now:.3f} {name} @{_trio.step_of(task)} {own_place(task)}".rstrip())

    # ------------------------------------------------------------ strikes

    def _after_step(self, task: Task) -> None:
        """Handle the step of a task. Trio would only log an error, so it becomes the problem of the run."""
        try:
            self._stepped(task)
        except Exception as error:
            self.problem = self.problem or SimulationError(f"the simulation cannot go on: {error!r}")
            self.problem.__cause__ = error
            self.scope.cancel()

    def _stepped(self, task: Task) -> None:
        """Strike a task that begins to wait, now or some rounds later, or note that it could be struck here.

        Now means before any other task of the round runs, so that nothing has happened to its wait yet.
        """
        number = _trio.number_of(task)
        name = self._names[number]
        if not name or _trio.has_ended(task) or not self._may_hit(task, number):
            return
        step = _trio.step_of(task)
        if self._find_places is not None:
            if self._find_places is Kind.CANCEL or _trio.can_raise(task):
                self.places.append((name, step))
            return
        self.strikes_drawn += 1
        perturbation = self._choices.strike(name, step)
        if perturbation is None:
            return
        if perturbation.amount:
            self._pending.append((self._round + int(perturbation.amount), task, step, perturbation))
        else:
            self._strike(task, perturbation)

    def _strike_pending(self, round: float) -> None:
        """Carry out the faults that are due, on tasks that still wait where they were meant to be struck.

        A task that has gone on since is spared; the fault then does not count as one that took effect.
        """
        due = [strike for strike in self._pending if strike[0] <= round]
        self._pending = [strike for strike in self._pending if strike[0] > round]
        for _, task, step, perturbation in due:
            if _trio.step_of(task) == step and not _trio.has_ended(task):
                self._strike(task, perturbation)

    def _strike(self, task: Task, perturbation: Perturbation) -> None:
        """Carry out a fault, and record it if it took effect. The place is looked up before: the fault may move the task."""
        where = own_place(task)
        if strike_task(task, perturbation, self.scope if self._runner.is_main(task) else None):
            self.done[perturbation] = where
            self.note(perturbation.describe())

    # ------------------------------------------------------------ names

    def _meet(self, task: Task, number: int) -> str:
        """Name a task: the last part of Trio's name for it, with "#2" for the second of that name, and so on.

        The name of an actor's task is its path, which stays whole. A function's is its qualified name, of which modules,
        classes and enclosing functions are left out.
        """
        name = ""
        if not self._runner.is_system(task):
            name = task.name.rpartition("<locals>.")[2]
            if name.replace(".", "").replace("_", "").isalnum():
                name = name.rpartition(".")[2]
            name = self._unique(name)
        self._names[number] = name
        return name

    def _unique(self, name: str) -> str:
        """Return the name with its number. A task may really be called "save#2", so the result is made unique as well."""
        self._name_counts[name] = count = self._name_counts.get(name, 0) + 1
        return name if count == 1 else self._unique(f"{name}#{count}")

    def _may_hit(self, task: Task, number: int) -> bool:
        """Return whether faults may hit the task. It must have run once, or it is not known whose task it is."""
        if _trio.step_of(task) == 0:
            return False
        if number not in self._hittable:
            self._hittable[number] = self._hits is None or self._hits(task)
        return self._hittable[number]

    def _did(self, perturbation: Perturbation, task: Task) -> None:
        """Record that a perturbation took effect."""
        self.done[perturbation] = own_place(task) if self._detailed else ""

    # ------------------------------------------------------------ ends

    def _deadlocked(self) -> None:
        """Note the deadlock, and end the program: by a cancel, then by force, and at last by abandoning the run.

        Called again each time that all tasks wait for ever. After a cancel, that is the case when some task shields its wait.
        """
        tasks = self._runner.tasks()
        if self.problem is None:
            names = {task: self._names[_trio.number_of(task)] for task in tasks}
            self.problem = Deadlock(self.now, {name: own_stack(task, names) for task, name in names.items()})
        if not self.scope.cancel_called:
            self.scope.cancel(reason="the simulation has found a deadlock")
            return
        self._push(self.problem)

    def _too_long(self) -> None:
        """Note that the program takes too many steps, and end it: by a cancel, then by force, and at last by abandoning the run.

        A loop in a shield goes on after the cancel. No time passes while it does, so nothing ends that waits for a time, either.
        """
        if self.problem is None:
            self.problem = Endless(f"the program takes more than {self._max_steps} steps")
            self.scope.cancel(reason="the simulation has found no end")
        if self.taken > self._max_steps + GRACE * (self._pushes + 1):
            self._push(self.problem)

    def _push(self, problem: SimulationError) -> None:
        """Force all tasks out of their waits. Raises the problem instead, which abandons the run, when that was in vain."""
        self._pushes += 1
        if self._pushes > MAX_PUSHES:
            raise problem
        for task in self._runner.tasks():
            _trio.force_out(task, ForcedOut())


# ------------------------------------------------------------ faults


def strike_task(task: Task, perturbation: Perturbation, main: trio.CancelScope | None) -> bool:
    """Crash or cancel the task. Return whether that was possible.

    A crash is not possible where an await cannot raise (see `can_raise` in _trio.py); a cancel, of an actor that has ended.
    A task that an actor has started has the actor's context, so it is the actor that is killed.

    main: the scope of the program, if it is its main task.
    """
    if perturbation.kind is Kind.CRASH:
        return _trio.raise_in(task, InjectedCrash(f"{perturbation.task} at its checkpoint {perturbation.step}"))
    incarnation = task.context.get(CURRENT)
    if main is not None:
        main.cancel(reason="a simulated cancel")
    elif incarnation is not None:
        if incarnation.done:
            return False
        incarnation.kill("a simulated cancel")
    elif task.parent_nursery is not None:
        task.parent_nursery.cancel_scope.cancel(reason="a simulated cancel")
    return True


# ------------------------------------------------------------ places

OTHERS: Final = (*MACHINERY, contextlib.__file__)
"""Files whose frames are left out of the stacks of a deadlock: nobody looks for the fault of a program there."""
HOLDABLE: Final = (trio.Lock, trio.StrictFIFOLock, trio.CapacityLimiter)
# Channels and nurseries are not among them: their own frames say enough ("waits in MemoryReceiveChannel.receive").
AWAITABLE: Final = (*HOLDABLE, trio.Semaphore, trio.Event, trio.Condition)
"""Objects of Trio that a task can wait for, and that are worth naming."""


def own_stack(task: Task, names: dict[Task, str]) -> tuple[str, ...]:
    """Return where the program's own code waits, and for what, without the depths of Trio and of this package.

    names: of the tasks that may hold what it waits for.
    """
    lines: list[str] = []
    own: list[FrameType] = []
    inner = ""
    for frame, line in task.iter_await_frames():
        code = frame.f_code
        if not code.co_filename.startswith(OTHERS):
            lines.append(f"{code.co_filename}:{line} in {code.co_qualname}")
            own.append(frame)
            inner = ""
            continue
        target = frame.f_locals.get("self")
        if isinstance(target, AWAITABLE) and " for " not in inner and code.co_name != "__aenter__":
            name = f"{type(target).__name__}.{code.co_name}"
            inner = f"waits in {name}{_variable_of(target, own)}{_holders_of(target, names)}"
        elif not inner:
            inner = f"waits in {code.co_qualname}"
    return (*lines, inner) if inner else tuple(lines)


def _variable_of(target: object, frames: list[FrameType]) -> str:
    """Return a variable or attribute under which the program's code knows an object; "" if none is found.

    frames: of the program's own code, outermost first. The innermost is searched first: local variables, attributes of
    `self`, globals. The result is the end of a sentence: " for 'self.lock'".
    """
    for frame in reversed(frames):
        attributes = getattr(frame.f_locals.get("self"), "__dict__", {})
        for prefix, variables in (("", frame.f_locals), ("self.", attributes), ("", frame.f_globals)):
            for name, value in variables.items():
                if value is target:
                    return f" for {prefix + name!r}"
    return ""


def _holders_of(target: object, names: dict[Task, str]) -> str:
    """Return the tasks that hold a lock or a limiter, as the end of a sentence."""
    holders: list[object] = []
    if isinstance(target, trio.Lock | trio.StrictFIFOLock):
        holders = [target.statistics().owner]
    elif isinstance(target, trio.CapacityLimiter):
        holders = target.statistics().borrowers
    known = sorted(name for task, name in names.items() if task in holders)
    return f", held by {', '.join(known)}" if known else ""


def own_place(task: Task) -> str:
    """Return the innermost await of the program's own code, as "file:line in function"; "" for a task that has none."""
    place = ""
    for frame, line in task.iter_await_frames():
        if not frame.f_code.co_filename.startswith(OTHERS):
            place = f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}"
    return place
