"""Tests on several cores: `--workers N` collects them once, and forks the processes that run them from the one that has collected.

pytest-xdist starts a program for each worker instead, which imports and collects everything once more (ten seconds of CPU for all
tests), and six messages go through its controller for each test.

The unit of work is a file, since its tests share what they have started (`UNITS` names folders that share more). A worker that has
nothing left gets the next file. Files of real time, which wait, and those that only compute are handed out alternately, so that
somebody computes while others wait.

A fork has no threads but its own, so no thread may run when the tests have been collected. What two processes must not share is made
anew in each: the files into which output is captured, random numbers, the folder for temporary folders. At its end a worker calls what
its tests have left to `atexit`. One that dies fails the test that it was in, and another goes on behind that.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import signal
import threading
import traceback
from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import count
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent
UNITS = ("browser",)
"""Folders whose tests share one browser."""
LONG = ("simulation", "blackbox/test_faults.py", "blackbox/test_mcp_real.py", "blackbox/test_load.py")
"""What takes longest and is therefore begun first, so that at the end nobody waits for it. Tests of simulations share nothing."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, metavar="N", help="processes that run the tests, 0: this one")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    option = session.config.option
    if not option.workers or option.collectonly or option.usepdb or session.testsfailed or len(session.items) < 2:
        return None
    _Crew(session).run(option.workers)
    return True


def units_of(items: list[pytest.Item]) -> Iterator[list[int]]:
    """Return the places of the tests that one worker runs one after another, in the order in which the units are begun."""
    units: dict[object, list[int]] = defaultdict(list)
    waits, longest = set(), set()
    for n, item in enumerate(items):
        name = item.path.relative_to(ROOT).as_posix() if item.path.is_relative_to(ROOT) else str(item.path)
        folder = name.partition("/")[0]
        key = folder if folder in UNITS else (name, n) if folder == "simulation" else name
        units[key].append(n)
        if name.startswith(LONG):
            longest.add(key)
        elif item.get_closest_marker("real_time"):
            waits.add(key)
    slow = [unit for key, unit in units.items() if key in waits]
    quick = [unit for key, unit in units.items() if key not in waits | longest]
    yield from (unit for key, unit in units.items() if key in longest)
    for n, unit in enumerate(slow):
        yield unit
        yield from quick[n * len(quick) // (len(slow) + 10) : (n + 1) * len(quick) // (len(slow) + 10)]
    yield from quick[len(slow) * len(quick) // (len(slow) + 10) :]


_GONE = object()


class _Worker:
    """A worker as the main process sees it. at_work: places of the tests it has got and not finished, in their order."""

    def __init__(self, pid: int, connection: Connection, name: str) -> None:
        self.pid = pid
        self.connection = connection
        self.name = name
        self.at_work: deque[int] = deque()


class _Crew:
    """The workers, and the tests that nobody has got yet."""

    def __init__(self, session: pytest.Session) -> None:
        self._session, self._config = session, session.config
        self._left = deque(units_of(session.items))
        self._workers: list[_Worker] = []
        self._numbers = count()

    def run(self, number: int) -> None:
        """Have all tests run, and hear their reports. Raises what ends the session before its end."""
        assert threading.active_count() == 1, f"threads at the fork: {threading.enumerate()}"
        factory: Any = self._config._tmp_path_factory  # type: ignore[attr-defined]
        factory.getbasetemp()  # whoever asks first empties it
        try:
            for _ in range(min(number, len(self._left))):
                self._fork()
            while self._workers:
                ready = wait([worker.connection for worker in self._workers])
                for worker in [worker for worker in self._workers if worker.connection in ready]:
                    self._hear(worker)
        except BaseException:
            for worker in self._workers:
                os.kill(worker.pid, signal.SIGINT)
            for worker in self._workers:
                self._bury(worker)
            raise
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _fork(self) -> None:
        name = f"w{next(self._numbers)}"
        ours, theirs = Pipe()
        if (pid := os.fork()) == 0:
            ours.close()
            for worker in self._workers:
                worker.connection.close()
            _become_worker(self._session, theirs, name)
        theirs.close()
        self._workers.append(_Worker(pid, ours, name))

    def _hear(self, worker: _Worker) -> None:
        try:
            message = worker.connection.recv()
        except EOFError:
            message = _GONE
        if message is _GONE:
            self._workers.remove(worker)
            self._take_over(worker, self._bury(worker))
            return
        if message is None:  # it has nothing left
            is_over = self._session.shouldfail or self._session.shouldstop
            unit = self._left.popleft() if self._left and not is_over else []
            worker.at_work += unit
            worker.connection.send(unit)
            return
        hook = self._config.hook
        for data in message:
            report = hook.pytest_report_from_serializable(config=self._config, data=data)
            hook.pytest_runtest_logreport(report=report)
        done = worker.at_work.popleft()
        item = self._session.items[done]
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _bury(self, worker: _Worker) -> int:
        worker.connection.close()
        return os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])

    def _take_over(self, worker: _Worker, code: int) -> None:
        """Fail the test in which a worker has died, and have another do what is left."""
        if not worker.at_work:
            if code:
                raise RuntimeError(f"worker {worker.name} has ended with exit code {code}")
            return
        item = self._session.items[worker.at_work.popleft()]
        text = f"worker {worker.name} has died here (exit code {code})"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        self._config.hook.pytest_runtest_logreport(report=report)
        if worker.at_work:
            self._left.appendleft(list(worker.at_work))
        self._fork()


# ------------------------------------------------------------------ in a worker


def _become_worker(session: pytest.Session, connection: Connection, name: str) -> None:
    """Run tests until there are none, and end this process."""
    code = 1
    try:
        atexit._clear()  # what is to be called at the end of the main process
        config = session.config
        config.pluginmanager.unregister(name="terminalreporter")
        capture: Any = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
        factory._basetemp = factory.mktemp(name, numbered=False)
        random.seed()
        config.pluginmanager.register(reporting := _Reporting(config))
        _run_tests(session, connection, reporting)
        code = 0
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all, and the main process once more
        with contextlib.suppress(BaseException):
            session._setupstate.teardown_exact(None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
        finally:
            os._exit(code)


def _run_tests(session: pytest.Session, connection: Connection, reporting: _Reporting) -> None:
    """Run the tests of one unit after another; a fixture is torn down when the next test does without it."""
    places = _next_places(connection)
    place = next(places, None)
    while place is not None:
        behind = next(places, None)
        item, following = session.items[place], None if behind is None else session.items[behind]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        connection.send(reporting.take())
        place = behind


def _next_places(connection: Connection) -> Iterator[int]:
    while True:
        connection.send(None)
        if not (unit := connection.recv()):
            return
        yield from unit


class _Reporting:
    """Keeps the reports of a test until its end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._reports: list[Any] = []

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def take(self) -> list[Any]:
        """Return the reports so far, once."""
        reports, self._reports = self._reports, []
        return reports
