"""Invariants of a supervision tree: what is true at any moment, whatever crashes when.

`check_tree` looks once, on request. `Trees` watches all trees of a simulated run by itself: whenever all tasks wait, when
nothing is half done, and at the end of each supervisor. For that it wraps two methods of the library while the
simulation runs: the task of a supervisor, to see each one begin and end, and the making of a tree, to hear its events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from actors._cell import ActorCell, ActorSystem
from actors._events import Event
from actors._incarnation import NOTHING
from actors._loop import SupervisorLoop
from actors._supervisor import Supervisor
from actors._table import RUNNING, State
from actors.testing._errors import BrokenTree
from actors.testing._trace import Listener, listen, say


def check_tree(supervisor: Supervisor) -> None:
    """Raise BrokenTree, naming each contradiction, unless the tree below is sound. At any moment, also after its end.

    Messages: sent = handled + queued + dropped + dead, in every mailbox, and none is overfull. Children: one that is up
    runs, or its exit is on its way to the supervisor; one that is down does not run, takes no messages, and holds none.
    Questions: an actor that has ended holds none that is still open.
    """
    _refuse([problem for core in _below(supervisor._loop) for problem in problems_of(core)])


def problems_of(core: SupervisorLoop) -> list[str]:
    """Return the contradictions of one supervisor and its children, in words; nested supervisors are left out."""
    if list(core.table.entries) != list(core.children.cells):
        return [f"{_name(core)} has children {list(core.table.entries)} and addresses {list(core.children.cells)}"]
    return [
        f"{cell.path}: {problem}"
        for name, cell in core.children.cells.items()
        for problem in (*_messages(cell), *_life(core, name, cell), *_closed(core, name, cell))
    ]


def _messages(cell: ActorCell) -> Iterator[str]:
    queued = len(cell.queue)
    if cell.sent != cell.handled + queued + cell.dropped + cell.dead:
        yield (
            f"{cell.sent} messages sent, but {cell.handled} handled + {queued} queued + {cell.dropped} dropped "
            f"+ {cell.dead} dead = {cell.handled + queued + cell.dropped + cell.dead}"
        )
    if queued > cell.mailbox.capacity:
        yield f"{queued} messages in a mailbox for {cell.mailbox.capacity}"


def _life(core: SupervisorLoop, name: str, cell: ActorCell) -> Iterator[str]:
    life, state = cell.incarnation, core.table.entries[name].state
    runs = life is not None and not life.done
    if runs and state not in RUNNING:
        yield f"it is {state.value}, and still runs"
    if state is State.UP and not runs and not core.ending and life not in core.queue:
        yield "it counts as up, but its run has ended, and its supervisor will not hear of it"
    if life is not None and life.done and (life.held or life.current is not NOTHING):
        yield "its run has ended, and still holds a question or a message"
    if runs and life is not None and any(not exchange.open for exchange in life.held):
        yield "it holds a question that is closed"
    if core.finished.is_set() and runs:
        yield "its supervisor has ended, and it still runs"


def _closed(core: SupervisorLoop, name: str, cell: ActorCell) -> Iterator[str]:
    if cell.open and not cell.expected:
        yield "it is not expected to run again, and takes messages"
    if not cell.open and cell.queue:
        yield f"it takes no messages, and {len(cell.queue)} are in its mailbox"
    if cell.senders and len(cell.queue) < cell.mailbox.capacity:
        yield "somebody waits for room in a mailbox that has some"
    if core.finished.is_set() and cell.expected:
        yield "its supervisor has ended, and it is expected to run again"


def _below(core: SupervisorLoop) -> Iterator[SupervisorLoop]:
    yield core
    for cell in core.children.cells.values():
        if cell.incarnation is not None:
            for nested in cell.incarnation.nested:
                if isinstance(nested, SupervisorLoop):
                    yield from _below(nested)


def _name(core: SupervisorLoop) -> str:
    return core.path or core.name


def _refuse(problems: list[str]) -> None:
    if problems:
        raise BrokenTree("\n".join(problems))


# ------------------------------------------------------------ all trees of a run


@attrs.define(eq=False)
class Trees:
    """Watcher of all trees of a run."""

    problems: list[str] = attrs.Factory(list)
    """Contradictions found in this run."""
    _cores: dict[SupervisorLoop, None] = attrs.Factory(dict)
    _note: Callable[[str], None] | None = None
    _listeners: list[Listener] = attrs.Factory(list)

    def start(self, note: Callable[[str], None] | None) -> None:
        """Begin a new run. note: called with a line for each event."""
        self.problems = []
        self._cores.clear()
        self._note = note
        self._listeners.clear()

    def look(self) -> None:
        """Check all trees. For a moment at which all tasks wait."""
        if not self.problems:
            self.problems += [problem for core in self._cores for problem in problems_of(core)]

    def check(self) -> None:
        """Raise BrokenTree if contradictions were found in this run."""
        _refuse(self.problems)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch every supervisor and every tree that is made meanwhile."""
        run, init = SupervisorLoop.run, ActorSystem.__init__
        trees = self

        async def watched_run(core: SupervisorLoop, up: Callable[[], object]) -> None:
            trees._cores[core] = None
            try:
                await run(core, up)
            finally:
                trees._cores.pop(core, None)
                trees.problems += problems_of(core)

        def watched_init(system: ActorSystem, *args: object) -> None:
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
            self._listeners.append(listen(system, self._hear))

    def _hear(self, event: Event) -> None:
        if self._note is not None:
            self._note(say(event))
