"""Logs to stderr and a file, never to stdout, through structlog.

structlog costs more time to import than everything else a start has to do, so it is imported after the daemon is ready:
entries before that wait in a bounded buffer. A logger never raises and never waits.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import trio

from pegasus.observe.render import Entry, as_json, as_line, masking, unfold
from pegasus.observe.sinks import RotatingFile, Sink, Stream

LEVELS: Final[Mapping[str, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
BUFFER: Final = 1000


class Logger:
    """Writes entries under a name: `log.info("client connected", peer=address)`. Callable from any thread."""

    __slots__ = ("_fields", "_name")

    def __init__(self, name: str, fields: Mapping[str, object]) -> None:
        self._name = name
        self._fields = fields

    def bind(self, **fields: object) -> Logger:
        """The same logger with fields that every entry gets."""
        return Logger(self._name, {**self._fields, **fields})

    def debug(self, event: str, /, **fields: object) -> None:
        self._log("debug", event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._log("info", event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self._log("warning", event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        self._log("error", event, fields)

    def exception(self, event: str, /, *, error: BaseException, **fields: object) -> None:
        """An error entry with the traceback of `error`."""
        self._log("error", event, fields, error)

    def _log(self, level: str, event: str, fields: Mapping[str, object], error: BaseException | None = None) -> None:
        if LEVELS[level] >= _pipeline.threshold:
            _pipeline.take(level, self._name, event, {**self._fields, **fields}, _traceback(error))


def get_logger(name: str) -> Logger:
    """The logger of a room or actor, as "gateway"."""
    return Logger(name, {})


def configure_logging(
    file: Path | None,
    *,
    level: str = "info",
    format: str = "line",
    secrets: Iterable[str] = (),
    clock: Callable[[], float] = time.time,
) -> None:
    """Say where entries go and how they look; cheap. Again while logging, it takes effect at once (a reload).

    file: None = stderr only. secrets: texts that are masked wherever they would appear. Where
    stderr is that very file, as when a chat has started the daemon, each entry is written once. clock: seconds since the
    epoch.
    """
    _pipeline.configure(_Plan(file, level, format, tuple(secrets), clock))


async def start_logging() -> None:
    """Begin to write, with what waited in the buffer first. To be called once the daemon is ready.

    The import of structlog happens in a thread, so that the event loop goes on. Entries of Python's own logging and
    warnings modules, from warning upward (with level debug: info), join in.
    """
    await trio.to_thread.run_sync(_import_structlog)
    _pipeline.start()


def stop_logging() -> bool:
    """Write what still waits, also if logging never started, and close the file.

    False: configure_logging was not called before, and nothing was written.
    """
    return _pipeline.stop()


def _import_structlog() -> None:
    import structlog  # noqa: F401


def _traceback(error: BaseException | None) -> str:
    if error is None:
        return ""
    import traceback

    return "".join(traceback.format_exception(error))


# ------------------------------------------------------------------ the pipeline


class _Plan:
    def __init__(
        self,
        file: Path | None,
        level: str,
        format: str,
        secrets: tuple[str, ...],
        clock: Callable[[], float],
    ) -> None:
        self.file = file
        self.level = level
        self.format = format
        self.secrets = secrets
        self.clock = clock


class _Pipeline:
    """Entry → buffer → structlog's processors → sinks. One for the process, as stderr is."""

    def __init__(self) -> None:
        self.threshold = LEVELS["debug"]
        self.lost = 0
        self._plan: _Plan | None = None
        self._buffer: list[Entry] = []
        self._sinks: list[Sink] = []
        self._loggers: Any = None
        self._bridge: _Bridge | None = None
        self._lock = threading.RLock()

    def configure(self, plan: _Plan) -> None:
        with self._lock:
            self._plan = plan
            self.threshold = LEVELS[plan.level]
            if self._loggers is not None:
                self._close()
                self.start()

    def start(self) -> None:
        """Imports structlog if nobody did."""
        with self._lock:
            if self._plan is None or self._loggers is not None:
                return
            self._sinks = _open_sinks(self._plan)
            self._loggers = _processors(self._plan, self._put)
            self._bridge = _Bridge(logging.INFO if self._plan.level == "debug" else logging.WARNING)
            self._bridge.join()
            waiting, self._buffer = self._buffer, []
            for entry in waiting:
                if LEVELS[entry.level] >= self.threshold:
                    self._emit(entry)
            if self.lost:
                self.take("warning", "log", "entries lost before logging started", {"count": self.lost}, "")
                self.lost = 0

    def stop(self) -> bool:
        with self._lock:
            configured = self._plan is not None
            if self._buffer:
                self.start()
            self._close()
            self._plan = None
            self.threshold = LEVELS["debug"]
            return configured

    def take(self, level: str, logger: str, event: str, fields: Mapping[str, object], exception: str) -> None:
        with self._lock:
            at = self._plan.clock() if self._plan else time.time()
            if self._loggers is not None:
                self._emit(Entry(level, logger, event, fields, at, exception))
            elif len(self._buffer) < BUFFER:
                still = {key: _still(value) for key, value in fields.items()}
                self._buffer.append(Entry(level, logger, event, still, at, exception))
            else:
                self.lost += 1

    def _emit(self, entry: Entry) -> None:
        try:
            getattr(self._loggers, entry.level)(entry.event, entry=entry)
        except Exception:  # a value that cannot be shown must not stop an actor
            self._put(f"(a log entry of {entry.logger} could not be shown)")

    def _put(self, line: str) -> None:
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        for sink in self._sinks:
            sink.write(data)

    def _close(self) -> None:
        for sink in self._sinks:
            sink.close()
        if self._bridge is not None:
            self._bridge.leave()
        self._sinks, self._loggers, self._bridge = [], None, None


def _still(value: object) -> object:
    """The value as it is now: what waits in the buffer must not change, nor keep anything alive."""
    if isinstance(value, str | int | float | None):
        return value
    try:
        return repr(value)
    except Exception:
        return f"({type(value).__name__} that cannot be shown)"


def _open_sinks(plan: _Plan) -> list[Sink]:
    sinks: list[Sink] = [RotatingFile(plan.file)] if plan.file is not None else []
    if plan.file is None or not _is_stderr(plan.file):
        sinks.append(Stream(2))
    return sinks


def _is_stderr(file: Path) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(2))
    except OSError:
        return False


def _processors(plan: _Plan, put: Callable[[str], None]) -> Any:
    import structlog

    class Output:
        """What structlog calls with the finished line."""

        debug = info = warning = error = staticmethod(put)

    render = as_json if plan.format == "json" else as_line
    return structlog.wrap_logger(
        Output(),
        processors=[unfold, render, masking(plan.secrets)],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[plan.level]),
        cache_logger_on_first_use=True,
    )


class _Bridge(logging.Handler):
    """Python's own logging, as libraries use it, joins in."""

    def join(self) -> None:
        root = logging.getLogger()
        self._level_before = root.level
        root.addHandler(self)
        root.setLevel(self.level)
        logging.captureWarnings(True)

    def leave(self) -> None:
        root = logging.getLogger()
        logging.captureWarnings(False)
        root.removeHandler(self)
        root.setLevel(self._level_before)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level = next((name for name in ("error", "warning", "info") if record.levelno >= LEVELS[name]), "debug")
            error = record.exc_info[1] if record.exc_info else None
            Logger(record.name, {})._log(level, record.getMessage(), {}, error)
        except Exception:
            self.handleError(record)


_pipeline = _Pipeline()
