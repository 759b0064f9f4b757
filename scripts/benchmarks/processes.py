"""Child processes and what the kernel says about them (Linux)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

PYTHON = sys.executable
READY_TIMEOUT = 60.0
"""Seconds until a process that never says it is ready counts as failed."""

_PRIVATE = ("PEGASUS", "ANTHROPIC", "OPENAI", "GEMINI", "PYTHON", "NOTIFY_SOCKET", "COVERAGE")


class BenchError(Exception):
    """A run failed: there is no measurement."""


def environment(**more: str) -> dict[str, str]:
    """This process's, without what would change how Pegasus or Python behaves."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)}
    return kept | more


@attrs.frozen(eq=False)
class Running:
    """A process that has said it is ready. line: what it said; seconds: from before exec until then."""

    process: subprocess.Popen[str]
    line: str
    seconds: float

    @property
    def pid(self) -> int:
        return self.process.pid

    def cpu(self) -> float:
        """User and system seconds so far, all threads, ended ones too, to the nanosecond (clock_getcpuclockid)."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def memory(self) -> dict[str, int]:
        """Bytes resident: `rss`, `pss` (shared pages divided by their users), and `peak`."""
        rollup = _kilobytes(Path(f"/proc/{self.pid}/smaps_rollup"))
        status = _kilobytes(Path(f"/proc/{self.pid}/status"))
        return {"rss": rollup["Rss"], "pss": rollup["Pss"], "peak": status["VmHWM"]}

    def check(self) -> None:
        """Raises BenchError if the process has ended."""
        code = self.process.poll()
        if code is not None:
            raise BenchError(f"{_words(self.process.args)} ended with exit code {code}")


def _kilobytes(file: Path) -> dict[str, int]:
    fields = (line.split() for line in file.read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in fields if words[2:] == ["kB"]}


def _words(args: Any) -> str:
    return " ".join(map(str, args))


@contextmanager
def running(
    args: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, end: signal.Signals = signal.SIGTERM
) -> Iterator[Running]:
    """Start a process, wait for its first line on stdout, and end it on leaving. log: where its stderr goes."""
    with log.open("ab") as stderr:
        began = time.perf_counter()
        process = subprocess.Popen(
            args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, env=env or environment()
        )
    try:
        line = _first_line(process)
        seconds = time.perf_counter() - began
        if not line:
            raise BenchError(f"{_words(args)} was not ready; it said:\n{_tail(log)}")
        yield Running(process, line.strip(), seconds)
    finally:
        _end(process, end)


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    timer = threading.Timer(READY_TIMEOUT, process.kill)
    timer.start()
    try:
        return process.stdout.readline()
    finally:
        timer.cancel()


def _end(process: subprocess.Popen[str], end: signal.Signals) -> None:
    with process:
        process.send_signal(end)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])


@attrs.frozen
class Ran:
    """What a process took to its end, or until it was ready. wall, cpu: seconds."""

    wall: float
    cpu: float


def run(args: Sequence[str]) -> Ran:
    """Run a process to its end. Raises BenchError if it fails."""
    began = time.perf_counter()
    process = subprocess.Popen(args, stdin=subprocess.DEVNULL, env=environment())
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise BenchError(f"{_words(args)} ended with exit code {process.returncode}")
    return Ran(wall, usage.ru_utime + usage.ru_stime)
