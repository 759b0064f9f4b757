"""Trace of a run as lines of text that are the same whenever the run is repeated (`Trace`), and its parts.

Events are written down at the moment they are published, by a stream that keeps nothing (`Listener`). A task that reads
a stream would change the schedule of the program that is observed.

A line holds what is the same in each run: virtual times, paths, numbers of runs and names of types. It does not hold the
repr of a message, which may show an address or the order of a set. Addresses that come in through a note or an error's
text are removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest

import trio

from actors._cell import ActorSystem
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
from actors._supervisor import Supervisor

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
    """Stream of events that keeps nothing and calls a function. It works as long as a reference to it is held."""

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


class Trace:
    """Lines of text: events of trees, and notes. Memory addresses are left out, so that two runs can be compared.

    ::

        trace = Trace()
        async with open_supervisor() as supervisor:
            trace.watch(supervisor)
            ...
        assert "t=0.000 line (run 2) is up" in trace

    Equal to a Trace, or to any list or tuple of strings, with the same lines.
    """

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self.lines = list(lines)
        """Lines so far, each with its time as "t=1.250 …" if it was written within a run of Trio."""
        self._listeners: list[Listener] = []

    def watch(self, supervisor: Supervisor) -> None:
        """Write down what happens from now on in the whole tree that this supervisor belongs to.

        The first starts of its children have happened already when a supervisor is open; to see them, open it without
        children and use start_child.
        """
        self._listeners.append(listen(supervisor._loop.system, self._note_event))

    def note(self, text: str) -> None:
        """Add a line, with the time if there is one."""
        at = f"t={trio.current_time():.3f} " if trio.lowlevel.in_trio_run() else ""
        self.lines.append(normal(at + text))

    def _note_event(self, event: Event) -> None:
        self.note(describe_event(event))

    def difference(self, other: Trace | Iterable[str]) -> str:
        """Return the first line that differs, with the line before it; "" if none does."""
        return first_difference(self.lines, other)

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace | list | tuple) and self.lines == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return f"Trace({self.lines!r})"


def first_difference(once: Iterable[str], again: Iterable[str]) -> str:
    """Return the first line that differs, with the line before it; "" if none does."""
    before = ""
    for number, (mine, yours) in enumerate(zip_longest(once, again, fillvalue="(the end)"), 1):
        if mine != yours:
            return f"{before}  line {number}, once:  {mine}\n  line {number}, again: {yours}"
        before = f"  line {number}, both:  {mine}\n"
    return ""
