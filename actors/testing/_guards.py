"""Guards against everything that is not the same in each run of a simulated program.

That is the global random source, the wall clock, threads, sockets and processes. There are three ways to notice their use,
each of which sees something that the others do not:

* every such function is **replaced** where it can be looked up: in its own module, and in every module that has imported
  it by name. The replacement raises Nondeterminism at the line of the program that calls it;
* functions written in C that are kept in another way (a default argument, an attribute), and `datetime.now`, which cannot
  be replaced, are seen by a **profile function**. It makes the program several times slower, so only some runs have it;
* the **state** of the global random source is compared before and after all runs, which sees its use by any reference.

Calls that decide nothing are allowed: the time stamp of a log record, the stopwatch of the test runner.

**Who called** is found by walking up the stack. Modules that only pass a call on (`THROUGH`) are skipped, so
`uuid.uuid4()` counts as a call of the program's line and not of the module uuid. A call with no other frame above it, or
from an allowed module, is let through to the real function.

**The error is kept as well as raised.** A program that catches Exception around the call would hide it, so the run asks
for `caught` at its end.

Everything replaced is put back when `installed` is left, also after an error. The replacements stay in place over all
runs of a simulation, because finding the places to replace takes longer than a run; `active` is true only within one.
"""

from __future__ import annotations

import datetime
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from threading import get_ident
from types import FrameType, ModuleType

from trio.lowlevel import Task, current_task

from actors.testing._faults import Nondeterminism
from actors.testing._trio import THREADS

CLOCKS = (
    *(
        f"{clock}{unit}"
        for clock in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
        for unit in ("", "_ns")
    ),
    *("clock_gettime", "localtime", "gmtime", "ctime"),
)
HARMLESS = ("trio", "logging", "threading", "queue", "selectors", "_pytest", "pytest", "hypothesis", "coverage")
"""Modules whose clocks decide nothing in the program: the time stamp of a log record, the test runner's stopwatch."""
THROUGH = (
    "random",
    "uuid",
    "secrets",
    "tempfile",
    "datetime",
    "socket",
    "subprocess",
    "threading",
    "trio",
    "outcome",
    "ssl",
)
"""Modules that only pass on what somebody else asked them for."""
OWN = __name__.rpartition(".")[0]
"""Package of the test kit, whose own calls are never guarded: the scheduler and Trio's run loop need the real ones."""
ADVICE = {
    "clock": "use trio.current_time()",
    "sleep": "use trio.sleep()",
    "random": "use a random.Random that is handed in, as simulation.random",
    "thread": "hand in something that does without",
    "process": "hand in something that does without",
    "socket": "hand in a stream in memory, as trio.testing.memory_stream_pair()",
}


class Guards:
    """Guards of one simulation.

    ::

        guards = Guards(allow=["some_library"])
        with guards.installed():
            with guards.watching(thoroughly=False):
                ...  # one run
            if guards.caught is not None: ...

    allow: modules that may use everything, with their submodules.
    """

    def __init__(self, allow: Collection[str] = ()) -> None:
        self.active = False
        """True if a simulated program runs now."""
        self.caught: Nondeterminism | None = None
        """The first use in the present or last run."""
        self._thread = get_ident()
        """Only the thread of the simulation is guarded; other threads of the test runner may do what they like."""
        self._random_before: object = None
        self._allowed = tuple(allow)

    def trip(self, name: str, what: str, frame: FrameType | None) -> Nondeterminism | None:
        """Return the error for a call of a guarded function; None if the caller is allowed to use it.

        name: of the function, for the error. what: a key of ADVICE. frame: that of the caller. The first error of a run
        is also kept in `caught`.
        """
        if not self.active or get_ident() != self._thread or _is_from(frame, (OWN,)):
            return None
        if what == "clock" and _is_from(frame, HARMLESS):
            return None
        # The one to blame is whoever called the library, not the library that passes the call on.
        while frame is not None and _is_from(frame, THROUGH):
            frame = frame.f_back
        line = frame.f_lineno if frame is not None else 0
        if frame is None or _is_from(frame, (OWN,)):
            frame, line = _await_of_program()
        if _is_from(frame, self._allowed):
            return None
        where = "main" if frame is None else f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}"
        error = Nondeterminism(f"{name} is called at {where}; it is not the same in each run: {ADVICE[what]}")
        if self.caught is None:
            self.caught = error
        return error

    @contextmanager
    def watching(self, *, thoroughly: bool) -> Iterator[None]:
        """Guard a run of the program.

        thoroughly: with the profile function, too. A profile function that was set before, as by a coverage tool, is put
        back afterwards; meanwhile it sees nothing.
        """
        self.caught = None
        self.active = True
        before = sys.getprofile()
        if thoroughly:
            sys.setprofile(self._profile)
        try:
            yield
        finally:
            if thoroughly:
                sys.setprofile(before)
            self.active = False

    @property
    def random_moved(self) -> bool:
        """True if the global random source has been used since `installed`, by whatever reference.

        It does not say by whom, nor in which run. `simulate` then repeats the runs with the profile function to find out.
        """
        return bool(random._inst.getstate() != self._random_before)

    def _profile(self, frame: FrameType, event: str, called: object) -> None:
        """Look at a call of a function written in C. Called for every call of the program, so names are compared first."""
        if event == "c_call" and (name := getattr(called, "__name__", "")) in NAMES:
            named, what = _identify(called, name)
            if what:
                self.trip(f"{named}()", what, frame)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the functions that can be replaced, and put them back at the end.

        First those of FORBIDDEN in their own modules, then every global variable of another module that is the same
        object, so that `from time import time` is covered as well. A reference in a default argument, a closure or an
        attribute is not found; that is what the profile function is for. The global random source is guarded by changing
        the class of the one instance, since its bound methods are module-level functions with references everywhere.
        """
        undo: list[tuple[object, str, object]] = []
        replaced: dict[int, Callable[..., object]] = {}
        for owner, attribute, what in FORBIDDEN:
            real = getattr(owner, attribute)
            replaced[id(real)] = guarded = self._guarded(real, _name_of(owner, attribute), what)
            undo.append((owner, attribute, real))
            setattr(owner, attribute, guarded)
        # All places are found before the first one is changed: a change could hide another place of the same function.
        for module, attribute, real in _imported_by_name(replaced):
            undo.append((module, attribute, real))
            setattr(module, attribute, replaced[id(real)])
        generator: random.Random = random._inst
        # The class is changed and not the instance replaced: bound methods of it are held in many modules.
        generator.__class__ = _guarded_random(self)
        self._random_before = generator.getstate()
        try:
            yield
        finally:
            generator.__class__ = random.Random
            # In reverse, so that a variable which was replaced twice ends with what it was at first.
            for owner, attribute, real in reversed(undo):
                setattr(owner, attribute, real)

    def _guarded(self, real: Callable[..., object], name: str, what: str) -> Callable[..., object]:
        """Return a function that checks the caller and then calls the real one."""
        trip = self.trip

        def guarded(*args: object, **options: object) -> object:
            """Call the real function, unless the caller may not: then the error is raised in the program, where it is to be mended.

            Call the real function, unless the program may not use it; then raise Nondeterminism at the caller's line.
            """
            # Formatting a time that the program has is harmless; without an argument these read the clock.
            if not (args and name in WITH_A_TIME):
                error = trip(f"{name}()", what, sys._getframe(1))
                if error is not None:
                    raise error
            return real(*args, **options)

        return guarded


# `random.random`, `getrandbits` and so on are bound methods of one instance. `choice`, `shuffle` and the other methods
# written in Python end in `random` or `getrandbits` of that instance, which `_guarded_random` replaces.
FORBIDDEN: tuple[tuple[object, str, str], ...] = (
    *((time, name, "clock") for name in CLOCKS),
    (time, "sleep", "sleep"),
    *((random, name, "random") for name in ("random", "getrandbits", "seed", "setstate")),
    (random, "_urandom", "random"),
    (os, "urandom", "random"),
    (THREADS, "start_thread_soon", "thread"),
    (threading.Thread, "start", "thread"),
    (socket.socket, "__init__", "socket"),
    (subprocess.Popen, "__init__", "process"),
)
"""Functions that are replaced: their owner, their name there, and the key of the advice in ADVICE."""
WITH_A_TIME = frozenset({"time.localtime", "time.gmtime", "time.ctime"})
"""Functions that are harmless when they are given a time."""
NAMES = frozenset({*CLOCKS, "sleep", "random", "getrandbits", "urandom", "now", "utcnow", "today"})
"""Names of functions written in C that the profile function looks at. All others cost it one look-up."""


def _name_of(owner: object, attribute: str) -> str:
    """Return the name under which a program knows a function, for the error."""
    if owner is THREADS:
        return "trio.to_thread.run_sync"
    if attribute == "_urandom":
        return "os.urandom"
    name = getattr(owner, "__qualname__", None)
    module = getattr(owner, "__module__", "") if name else getattr(owner, "__name__", "")
    path = f"{module}.{name}" if name else module
    return path if attribute == "__init__" else f"{path}.{attribute}"


def _identify(called: object, name: str) -> tuple[str, str]:
    """Return name and kind of a function written in C, if it is a forbidden one; "" and "" if it is not."""
    owner = getattr(called, "__self__", None)
    if owner is time:
        return f"time.{name}", "sleep" if name == "sleep" else "clock"
    if owner is random._inst:
        return f"random.{name}", "random"
    if owner is posix and name == "urandom":
        return "os.urandom", "random"
    if isinstance(owner, type) and issubclass(owner, datetime.date):
        return f"{owner.__name__}.{name}", "clock"
    return "", ""


posix = sys.modules[os.urandom.__module__]


def _guarded_random(guards: Guards) -> type[random.Random]:
    """Return a class for the global generator. Its methods written in Python (choice, shuffle…) end in these two."""

    class Guarded(random.Random):
        """Example: `random._inst.__class__ = _guarded_random(guards)` guards `random.random`, which is a method of that object."""

        def random(self) -> float:
            """Return the next number, after asking whether the caller may draw one.

            Check the caller, and return a number of the real source.
            """
            self._trip()
            return super().random()

        def getrandbits(self, k: int, /) -> int:
            """Return bits, likewise. `randrange`, `choice` and `shuffle` end in this method.

            Check the caller, and return bits of the real source.
            """
            self._trip()
            return super().getrandbits(k)

        def _trip(self) -> None:
            error = guards.trip("the global random source", "random", sys._getframe(2))
            if error is not None:
                raise error

    return Guarded


def _imported_by_name(replaced: Collection[int]) -> list[tuple[ModuleType, str, object]]:
    """Return the places where a module that is not Python's or Trio's has one of these functions, under any name.

    replaced: ids of the functions. Python's own modules are left out: Trio's run loop, logging and the test runner work
    by them, and calls that the program makes through them are seen at their end, in the replaced function.
    """
    found = []
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        if (
            top in sys.stdlib_module_names
            or top == "trio"
            or name.startswith(OWN)
            or not isinstance(module, ModuleType)
        ):
            continue
        found += [(module, key, value) for key, value in list(vars(module).items()) if id(value) in replaced]
    return found


def _await_of_program() -> tuple[FrameType | None, int]:
    """Return the innermost await of the program's own code, and its line, for a task that a library has started.

    `trio.open_tcp_stream`, say, makes its sockets in tasks of its own. Then the task that waits for them is the one to look at.
    """
    task: Task | None = current_task()
    while task is not None:
        own = [at for at in task.iter_await_frames() if not _is_from(at[0], (*THROUGH, OWN))]
        if own:
            return own[-1]
        task = task.parent_nursery.parent_task if task.parent_nursery is not None else None
    return None, 0


def _is_from(frame: FrameType | None, modules: Collection[str]) -> bool:
    """Return whether the code of a frame is in one of these modules or below it."""
    if frame is None:
        return False
    module = str(frame.f_globals.get("__name__", ""))
    return any(module == name or module.startswith(f"{name}.") for name in modules)
