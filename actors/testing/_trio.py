"""All that the simulator touches of Trio's private parts. `canary` fails, saying what, when a new Trio has other ones.

How Trio runs tasks (trio/_core/_run.py, `unrolled_run`): each round it copies `runner.runq` to a list, clears it, and
runs what is in the list, last one first, after reversing it at random. Here `runner.runq` is a deque whose iterator
gives the tasks of the round in the order wanted, or holds some back, and the random source never reverses.

Time: Trio asks its clock how long to sleep only when no task is runnable. That is the moment to let held-back tasks go,
to jump to the next deadline, or to see that there is none.

**Why the private parts.** Trio's public interface has a clock and instruments, but an instrument can only watch: it
cannot decide which task runs, nor raise an error from a task's await. Both need the run queue and the fields in which Trio
keeps what a task will be woken with. All other files of this package use only the functions and classes of this one, so
that a new Trio concerns this file alone.

**Runs outside a simulation are not touched.** The random source in Trio's place is there only while a simulation runs, and
asks the real one for any run of Trio whose queue is not a `RunQueue`: another thread may have such a run meanwhile.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from operator import attrgetter
from random import Random
from types import CodeType, ModuleType
from typing import Never, Protocol, cast

import outcome
import trio
from trio import _threads
from trio._core import _run
from trio.lowlevel import Task

number_of: Callable[[Task], int] = attrgetter("_counter")
"""Tasks are numbered in the order in which they were spawned, all runs together."""
step_of: Callable[[Task], int] = attrgetter("_schedule_points")
"""Number of times that the task has given up control so far."""
THREADS: ModuleType = _threads
"""The module in which `trio.to_thread.run_sync` looks up `start_thread_soon`, so that the guards can replace it there."""


class Loop(Protocol):
    """Decisions about a run, as Trio asks for them. The scheduler is the implementation; the canary has a small one.

    An error that a method raises ends the whole run: Trio takes it for an error of its own.

    Example: `_trio.run(main, loop, after_step=None)` runs a program with `loop` deciding. `_CanaryLoop` is the shortest one.
    """

    now: float
    """Virtual time, in seconds."""

    def begin(self, runner: Runner) -> None:
        """Note that the run starts."""

    def draw(self, queue: RunQueue) -> list[Task]:
        """Return the tasks of the next round in order, out of those in the queue. Others are held back."""

    def idle(self, deadline: float) -> None:
        """Note that no task is runnable. Make one ready, or set `now`, at most to the next deadline."""


class Runner:
    """Facade of Trio's runner: the few things that a Loop may ask or do.

    Example::

        def idle(self, deadline: float) -> None:
            if self.held_back:
                self.runner.make_ready(self.held_back.pop())
            else:
                self.now = deadline
    """

    def __init__(self, runner: _run.Runner, queue: RunQueue) -> None:
        self._runner = runner
        self._queue = queue

    def make_ready(self, task: Task) -> None:
        """Put back a task that was held back. It runs in the next round, if the loop then chooses it."""
        self._queue.append(task)

    @property
    def is_idle(self) -> bool:
        """True if no task is runnable, and no callback is under way to the run loop."""
        return not self._queue and not self._runner.entry_queue.size()

    @property
    def somebody_waits_for_idleness(self) -> bool:
        """True if some task is in trio.testing.wait_all_tasks_blocked, which Trio wakes before any time passes."""
        return bool(self._runner.waiting_for_idle)

    def is_system(self, task: Task) -> bool:
        """Return whether the task is Trio's own and not the program's."""
        nursery = task.parent_nursery
        if nursery is None:
            return True
        return nursery.parent_task is self._runner.init_task and task is not self._runner.main_task

    def is_main(self, task: Task) -> bool:
        """Return whether this is the task of `main`."""
        return task is self._runner.main_task

    def tasks(self) -> list[Task]:
        """Return the program's own tasks that have not ended, in the order in which they were spawned."""
        return sorted((task for task in self._runner.tasks if not self.is_system(task)), key=number_of)


class RunQueue(deque[Task]):
    """Queue of runnable tasks, in the place of Trio's.

    Trio appends to it, copies it once a round by iterating over it, and clears it. A task that the iterator leaves out is
    no longer in any queue of Trio's then; the loop keeps it and puts it back with `Runner.make_ready`.

    Example::

        runner.runq = RunQueue(loop)  # Trio appends tasks to it
        batch = list(runner.runq)  # and once a round takes those that the loop has drawn
    """

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop

    def ready(self) -> list[Task]:
        """Return the tasks that Trio has put in."""
        return list(super().__iter__())

    def __iter__(self) -> Iterator[Task]:
        """Return the tasks of the round. Trio copies the queue once a round."""
        ready = self._loop.draw(self)
        if len(ready) > 1:
            ready.reverse()
        CHOICE.order = ready
        return iter(ready)


class Choice(Random):
    """Random source in the place of Trio's. During a simulation it leaves the order of tasks alone.

    Example: under a simulation `_run._r.random()` is always 1.0, so Trio leaves a batch of tasks as the loop has drawn it.
    """

    order: list[Task]
    """Tasks of the round as they were given to Trio, to undo the sorting that comes before a shuffle."""
    real: Random
    """Trio's own source, for runs that are not simulated."""

    def random(self) -> float:
        """Return 1.0 in a simulation, by which Trio never reverses the order of a batch."""
        return 1.0 if _is_simulated() else self.real.random()

    def getrandbits(self, k: int, /) -> int:
        """Return bits of the real source. Nothing that Trio schedules depends on them."""
        return self.real.getrandbits(k)

    def shuffle(self, x: object) -> None:
        """Under hypothesis and pytest-trio, Trio sorts the tasks of a round and then shuffles them by this."""
        batch = cast("list[Task]", x)
        if not _is_simulated():
            self.real.shuffle(batch)
        elif set(batch) == set(self.order):
            batch[:] = self.order


CHOICE = Choice(0)
ONE_AT_A_TIME = threading.RLock()
"""Lock for a simulation. Functions are replaced for all threads, so only one may simulate at a time."""


def _is_simulated() -> bool:
    """Return whether this thread runs Trio under a simulation."""
    runner = getattr(_run.GLOBAL_RUN_CONTEXT, "runner", None)
    return runner is not None and isinstance(runner.runq, RunQueue)


class VirtualClock(trio.abc.Clock):
    """Clock that starts at 0, stands still while a task can run, and then jumps to the time that the loop wants.

    Not trio.testing.MockClock: that cannot hold back a task until a virtual time, nor see that there is no deadline left.

    Example: `trio.run(main, clock=VirtualClock(loop))`; `await trio.sleep(60)` takes no real time then.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def start_clock(self) -> None:
        """Install the run queue. This is Trio's first call, just before it makes its first task."""
        runner = _run.GLOBAL_RUN_CONTEXT.runner
        queue = RunQueue(self._loop)
        runner.runq = queue
        self._loop.begin(Runner(runner, queue))

    def current_time(self) -> float:
        """Return the loop's time."""
        return self._loop.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Ask the loop what is next. Trio calls this when nothing is runnable.

        Returns 0, so that Trio looks at its queue and its deadlines again at once. With a task in wait_all_tasks_blocked it
        returns an hour, because Trio wakes such a task instead of sleeping, but only if there is time to sleep.
        """
        runner = _run.GLOBAL_RUN_CONTEXT.runner
        self._loop.idle(deadline)
        return 3600.0 if runner.waiting_for_idle and not runner.runq else 0.0


def run(main: Callable[[], object], loop: Loop, after_step: Callable[[Task], None] | None) -> outcome.Outcome[object]:
    """Call trio.run under a loop, and return its outcome. Errors that Trio itself raises are part of that.

    after_step: called with the task after every step.
    """
    if trio.lowlevel.in_trio_run():
        raise RuntimeError("a simulation is a run of Trio: call it from a function that is not async")
    instruments = [] if after_step is None else [_AfterStep(after_step)]
    with ONE_AT_A_TIME:
        if _run._r is not CHOICE:
            CHOICE.real = _run._r
        _run._r = CHOICE
        try:
            return outcome.capture(trio.run, main, clock=VirtualClock(loop), instruments=instruments)  # type: ignore[arg-type]
        finally:
            _run._r = CHOICE.real
            CHOICE.order = []


class _AfterStep(trio.abc.Instrument):
    """Instrument that reports each step of a task to a function."""

    def __init__(self, call: Callable[[Task], None]) -> None:
        self._call = call

    def after_task_step(self, task: Task) -> None:
        """Report the step. Trio calls this when the task waits again or has ended."""
        self._call(task)


# ------------------------------------------------------------ faults


def can_raise(task: Task) -> bool:
    """Return whether the task waits where an error may come out of its await without anything being lost.

    That is where Trio could raise Cancelled: it is blocked and can be taken out of what it waits in, or it is in a pure
    checkpoint. A task that has been woken already is let be: the value it was woken with would be lost. So is one
    inside a shield that it has put up itself, since code there need not expect that an await raises, and one at the end
    of a nursery, where it is the children that would be cancelled.
    """
    if task._next_send_fn is None:
        return task._abort_func is not None and not _is_in(task, END_OF_NURSERY) and not _is_shielded(task)
    result = task._next_send
    return isinstance(result, outcome.Value) and _is_in(task, CHECKPOINT) and not _is_shielded(task)


def raise_in(task: Task, error: BaseException) -> bool:
    """Raise an error from the task's await, in the way of a cancellation. Return False if that is not possible."""
    if not can_raise(task):
        return False
    if task._next_send_fn is not None:
        task._next_send = outcome.Error(error)
    else:
        task._attempt_abort(_raiser(error))
    return True


def force_out(task: Task, error: BaseException) -> None:
    """Raise an error from the task's await, regardless of shields. Only to end a program that waits for ever."""
    if isinstance(task._next_send, outcome.Value):
        task._next_send = outcome.Error(error)
    elif task._next_send_fn is None and task._abort_func is not None:
        task._attempt_abort(_raiser(error))


def _raiser(error: BaseException) -> Callable[[], Never]:
    """Return a function that raises the error, which is how Trio's abort functions expect it."""

    def throw() -> Never:
        """Raise the error. Trio calls this in the task, at its await.

        Raise the error.
        """
        raise error

    return throw


def _is_shielded(task: Task) -> bool:
    """Return whether the task is inside a shield of its own, and not one outside the nursery that it lives in."""
    outer = task.parent_nursery._cancel_status if task.parent_nursery is not None else None
    status: _run.CancelStatus | None = task._cancel_status
    while status is not None and status is not outer:
        if status._scope.shield:
            return True
        status = status._parent
    return False


CHECKPOINT = trio.lowlevel.checkpoint.__code__
"""Places where nothing else is done. What Trio does at once ends in the shielded one: there, something was done already."""
END_OF_NURSERY = trio.Nursery._nested_child_finished.__code__


def _is_in(task: Task, code: CodeType) -> bool:
    """Return whether this function yields to Trio, by way of the two functions in which all waiting ends."""
    frames = [frame.f_code for frame, _ in task.iter_await_frames()]
    return len(frames) >= 3 and frames[-3] is code


def has_ended(task: Task) -> bool:
    """Return whether the task's function has returned or raised."""
    return task.coro.cr_frame is None


# ------------------------------------------------------------ canary


def canary() -> None:
    """Raise RuntimeError, saying what is different, if this Trio does not work as this file takes for granted.

    Each simulation begins with it. It takes a millisecond, and without it a new Trio could ignore the order of tasks, so
    that every simulation would pass without having tried anything.
    """
    seen: list[str] = []
    loop = _CanaryLoop(seen)

    async def child(name: str) -> None:
        """Run twice, so that the order of two rounds is seen.

        Note the step, let virtual time pass, and note the next one.
        """
        seen.append(name)
        await trio.sleep(1)
        seen.append(name)

    async def main() -> None:
        """Start three children, and look at the counters that this file reads.

        Run three children, and look at the private parts that this file reads.
        """
        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(child, name, name=name)
        task = trio.lowlevel.current_task()
        if not (isinstance(step_of(task), int) and isinstance(number_of(task), int)):
            seen.append("tasks have other counters")
        await trio.lowlevel.checkpoint()

    def after(task: Task) -> None:
        """Note that the places by which waits are told apart are recognised.

        Note the two places of a wait that `can_raise` distinguishes.
        """
        if task.name.endswith("main") and task._next_send_fn is not None and _is_in(task, CHECKPOINT):
            seen.append("checkpoint")
        if task.name.endswith("main") and task._abort_func is not None and _is_in(task, END_OF_NURSERY):
            seen.append("end of nursery")

    result = run(main, loop, after)
    expected = ["end of nursery", "b", "c", "a", "idle 1.0", "b", "c", "a", "checkpoint"]
    if isinstance(result, outcome.Error) or seen != expected:
        raise RuntimeError(
            f"Trio {trio.__version__} schedules in a way that actors/testing/_trio.py does not know: "
            f"expected {expected}, got {seen}, {result}. Compare trio/_core/_run.py with that file."
        )


class _CanaryLoop:
    """Loop that runs three tasks in the order b, c, a: neither that of their start nor its reverse."""

    def __init__(self, seen: list[str]) -> None:
        self.now = 0.0
        self._seen = seen

    def begin(self, runner: Runner) -> None:
        """Keep the runner, as any loop does.

        Keep the runner.
        """
        self._runner = runner

    def draw(self, queue: RunQueue) -> list[Task]:
        """Return the tasks of the round in an order of its own, which the canary then finds or misses.

        Return all tasks that are ready, in the order to be tested.
        """
        return sorted(queue.ready(), key=lambda task: "bca".find(task.name))

    def idle(self, deadline: float) -> None:
        """Let the time jump to the next deadline.

        Jump to the next deadline, and note it.
        """
        if self._runner.is_idle and deadline != float("inf"):
            self.now = deadline
            self._seen.append(f"idle {deadline}")
