"""Observation of supervision trees: their events as lines of text (`Trace`), and what is true of them at any moment.

Events are written down at the moment they are published, by a stream that keeps nothing (`Listener`). A task that reads
a stream would change the schedule of the program that is observed.

A line holds what is the same in each run: virtual times, paths, numbers of runs and names of types. It does not hold the
repr of a message, which may show an address or the order of a set. Addresses that come in through a note or an error's
text are removed.

**Invariants** hold whatever crashes when. `check_tree` looks once, on request. `Trees` watches all trees of a simulated
run by itself: whenever all tasks wait, when nothing is half done, and at the end of each supervisor. For that it wraps two
methods of the library while the simulation runs: the task of a supervisor, to see each one begin and end, and the making
of a tree, to get its events.

**Why when all tasks wait.** The library changes several places one after the other, but never awaits in between, so the
invariants hold at every checkpoint. Checking at every one would be slow. A contradiction that is there at all mostly
stays, and is found at the next moment of rest.

**An exit on its way is not a contradiction.** A run that has ended stays "up" in its supervisor's table until the
supervisor's task takes the exit from its queue, in its turn. So "up, but not running" is only a problem when no exit is
in that queue, because then nobody would ever restart the child.

Problems are collected and not raised where they are found: an error raised in the middle of the run would itself change
what the program does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import zip_longest

import attrs
import trio

from actors._cell import ActorCell, ActorSystem
from actors._events import (
    DeadLetter,
    Event,
    Events,
    Exited,
    GaveUp,
    Overflowed,
    Restarting,
    Started,
    Stuck,
    describe_exit,
)
from actors._incarnation import NOTHING
from actors._loop import SupervisorLoop
from actors._supervisor import Supervisor
from actors._table import RUNNING, State
from actors.testing._faults import BrokenTree

# With the word before it, so that "<object at 0x7f…>" becomes "<object>" and "function f at 0x7f…" stays readable.
ADDRESS = re.compile(r" ?(object )?at 0x[0-9a-f]+|0x[0-9a-f]{6,}")


def normal(text: str) -> str:
    """Return the text without the memory addresses that a repr may have."""
    return ADDRESS.sub("", text)


def describe_event(event: Event) -> str:
    """Return what happened as a line, without the time: "lines/first (run 2) is up"."""
    who = f"{event.path or 'root'} (run {event.attempt})"
    match event:
        case Started():
            text = f"{who} is up"
        case Exited():
            text = f"{who} ended: {describe_exit(event.exit)}"
        case Restarting():
            text = f"{who} will be started again in {event.delay:.3f} s"
        case DeadLetter():
            text = f"{who}: {type(event.message).__name__} is a dead letter: {event.why}"
        case Overflowed():
            text = f"{who}: no room for {type(event.message).__name__}"
        case Stuck():
            text = f"{who} is stuck at {event.stack[-1] if event.stack else 'an unknown place'}"
        case GaveUp():
            text = f"{who} gave up: {event.brief}"
    return normal(text)


class Listener(Events):
    """Stream of events that keeps nothing and calls a function. It works as long as a reference to it is held.

    Example::

        listener = Listener(lambda event: print(describe_event(event)))
        system.hub.subscribe(listener)  # `listen` does both
    """

    def __init__(self, on_event: Callable[[Event], object]) -> None:
        super().__init__(1)
        self._on_event = on_event
        """Called by the task that publishes, in the middle of what that task does. It must neither await nor raise."""

    def _publish(self, event: Event) -> None:
        self._on_event(event)


def listen(system: ActorSystem, on_event: Callable[[Event], object]) -> Listener:
    """Call `on_event` with each event from now on, until the Listener that is returned is dropped."""
    listener = Listener(on_event)
    system.hub.subscribe(listener)
    return listener


class Trace(list[str]):
    """Lines of text: events of trees, and notes. Memory addresses are left out, so that two runs can be compared.

    ::

        trace = Trace()
        async with open_supervisor() as supervisor:
            trace.watch(supervisor)
            ...
        assert "t=0.000 line (run 2) is up" in trace

    A line begins with its time, as "t=1.250 …", if it was written within a run of Trio.
    """

    def __init__(self, lines: Iterable[str] = ()) -> None:
        super().__init__(lines)
        self._listeners: list[Listener] = []
        """Streams of the trees that are watched. A tree holds its streams weakly."""

    def watch(self, supervisor: Supervisor) -> None:
        """Write down what happens from now on in the whole tree that this supervisor belongs to.

        The first starts of its children have happened already when a supervisor is open; to see them, open it without
        children and use start_child.
        """
        self._listeners.append(listen(supervisor._loop.system, lambda event: self.note(describe_event(event))))

    def note(self, text: str) -> None:
        """Add a line, with the time if there is one."""
        at = f"t={trio.current_time():.3f} " if trio.lowlevel.in_trio_run() else ""
        self.append(normal(at + text))

    def difference(self, other: Iterable[str]) -> str:
        """Return the first line that differs, with the line before it; "" if none does."""
        return first_difference(self, other)

    def __str__(self) -> str:
        return "\n".join(self)


def first_difference(once: Iterable[str], again: Iterable[str]) -> str:
    """Return the first line that differs, with the line before it; "" if none does."""
    before = ""
    for number, (mine, yours) in enumerate(zip_longest(once, again, fillvalue="(the end)"), 1):
        if mine != yours:
            return f"{before}  line {number}, once:  {mine}\n  line {number}, again: {yours}"
        before = f"  line {number}, both:  {mine}\n"
    return ""


# ------------------------------------------------------------ invariants


def check_tree(supervisor: Supervisor) -> None:
    """Raise BrokenTree, naming each contradiction, unless the tree below is sound. At any moment, also after its end.

    ::

        async with open_supervisor(children) as supervisor:
            ...
            check_tree(supervisor)
        check_tree(supervisor)

    Messages: sent = handled + queued + dropped + dead, in every mailbox, and none is overfull. Children: one that is up
    runs, or its exit is on its way to the supervisor; one that is down does not run, takes no messages, and holds none.
    Questions: an actor that has ended holds none that is still open.
    """
    _refuse([problem for loop in _below(supervisor._loop) for problem in problems_of(loop)])


def problems_of(loop: SupervisorLoop) -> list[str]:
    """Return the contradictions of one supervisor and its children, in words; nested supervisors are left out."""
    if list(loop.table.entries) != list(loop.children.cells):
        return [f"{_name(loop)} has children {list(loop.table.entries)} and addresses {list(loop.children.cells)}"]
    return [
        f"{cell.path}: {problem}"
        for name, cell in loop.children.cells.items()
        for problem in (
            *_message_problems(cell),
            *_run_problems(loop, name, cell),
            *_address_problems(loop, name, cell),
        )
    ]


def _message_problems(cell: ActorCell) -> Iterator[str]:
    """Yield what is wrong with the mailbox and its counters (see _cell.py for the equation)."""
    queued = _queued(cell)
    given = cell.depth == queued + 1 and _was_given_one(cell)
    if cell.depth != queued and not given:
        yield (
            f"{cell.sent} messages sent, but {cell.handled} handled + {queued} queued + {cell.dropped} dropped "
            f"+ {cell.dead} dead = {cell.handled + queued + cell.dropped + cell.dead}"
        )


def _run_problems(loop: SupervisorLoop, name: str, cell: ActorCell) -> Iterator[str]:
    """Yield contradictions between a child's state in the table and its present run."""
    run, state = cell.incarnation, loop.table.entries[name].state
    is_running = run is not None and not run.done
    if is_running and state not in RUNNING:
        yield f"it is {state.value}, and still runs"
    if state is State.UP and not is_running and not loop.ending and run not in loop.queue:
        yield "it counts as up, but its run has ended, and no exit is on its way to its supervisor"
    if run is not None and run.done and (run.held or run.current is not NOTHING):
        yield "its run has ended, and still holds a question or a message"
    if is_running and run is not None and any(not exchange.open for exchange in run.held):
        yield "it holds a question that is closed"
    if loop.finished.is_set() and is_running:
        yield "its supervisor has ended, and it still runs"


def _address_problems(loop: SupervisorLoop, name: str, cell: ActorCell) -> Iterator[str]:
    """Yield what is wrong with an address: open for messages that nobody would get, or senders that wait for nothing."""
    if cell.open and not cell.expected:
        yield "it is not expected to run again, and takes messages"
    if not cell.open and _queued(cell):
        yield f"it takes no messages, and {_queued(cell)} are in its mailbox"
    if loop.finished.is_set() and cell.expected:
        yield "its supervisor has ended, and it is expected to run again"


def _queued(cell: ActorCell) -> int:
    """Return the number of messages in the mailbox itself. There is none before the first start."""
    return cell.receiving.statistics().current_buffer_used if cell.attempt else 0


def _was_given_one(cell: ActorCell) -> bool:
    """Return whether a message may be on its way to a task that has waited for it, and has not run since."""
    return cell.has_receiver and not cell.receiving.statistics().tasks_waiting_receive


def _below(loop: SupervisorLoop) -> Iterator[SupervisorLoop]:
    """Yield a supervisor and all that its children, at any depth, are or have opened."""
    yield loop
    for cell in loop.children.cells.values():
        if cell.incarnation is not None:
            for nested in cell.incarnation.nested:
                yield from _below(nested)


def _name(loop: SupervisorLoop) -> str:
    return loop.path or loop.name


def _refuse(problems: list[str]) -> None:
    if problems:
        raise BrokenTree("\n".join(problems))


# ------------------------------------------------------------ all trees of a run


@attrs.define(eq=False)
class Trees:
    """Watcher of all trees of a run.

    One instance serves all runs of a simulation, since wrapping the methods of the library once is enough; `start` is
    called before each run.

    Example::

        with trees.watched():
            trees.start(note=None)
            ...  # one run
            trees.check()
    """

    problems: list[str] = attrs.Factory(list)
    """Contradictions found in this run."""
    _loops: dict[SupervisorLoop, None] = attrs.Factory(dict)
    """Supervisors whose task runs now, in the order in which they began."""
    _note: Callable[[str], None] | None = None
    """Function that gets the lines; None if the run needs no trace."""
    _listeners: list[Listener] = attrs.Factory(list)
    """Streams of the trees of this run. A tree holds its streams weakly."""

    def start(self, note: Callable[[str], None] | None) -> None:
        """Begin a new run. note: called with a line for each event."""
        self.problems = []
        self._loops.clear()
        self._note = note
        self._listeners.clear()

    def look(self) -> None:
        """Check all trees. For a moment at which all tasks wait. After the first problems nothing more is looked for."""
        if not self.problems:
            self.problems += [problem for loop in self._loops for problem in problems_of(loop)]

    def check(self) -> None:
        """Raise BrokenTree if contradictions were found in this run."""
        _refuse(self.problems)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch every supervisor and every tree that is made meanwhile.

        Each supervisor is checked once more when its task ends, however it ends: nothing may be left running, expected
        or held then. The wrapped methods are put back when the block is left.
        """
        run, init = SupervisorLoop.run, ActorSystem.__init__
        trees = self

        async def watched_run(loop: SupervisorLoop, up: Callable[[], object]) -> None:
            """Run a supervisor, and check it when it has ended, also by an error.

            Run a supervisor's task, and check its tree when it ends, also by an error or a cancel.
            """
            trees._loops[loop] = None
            try:
                await run(loop, up)
            finally:
                trees._loops.pop(loop, None)
                trees.problems += problems_of(loop)

        def watched_init(system: ActorSystem, *args: object) -> None:
            """Make a tree, and listen to it from its first event on.

            Make a tree as usual, and subscribe to its events before anything happens in it.
            """
            init(system, *args)  # type: ignore[arg-type]
            trees._listen(system)

        SupervisorLoop.run = watched_run  # type: ignore[method-assign, assignment]
        ActorSystem.__init__ = watched_init  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            SupervisorLoop.run = run  # type: ignore[method-assign]
            ActorSystem.__init__ = init  # type: ignore[method-assign]

    def _listen(self, system: ActorSystem) -> None:
        if self._note is not None:
            self._listeners.append(listen(system, self._note_event))

    def _note_event(self, event: Event) -> None:
        if self._note is not None:
            self._note(describe_event(event))
