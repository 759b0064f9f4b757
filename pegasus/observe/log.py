"""Logs to stderr and a file, never to stdout. A logger never raises and never waits.

An entry goes from `Logger` to the process's one `_LogWriter`, which renders it, masks secrets (`pegasus.redaction`) and
hands the line to the sinks (`sinks`). Both parts are plain functions: a logging library would add configuration, levels and
handlers that are not used, and an import of 100 ms before the daemon is ready. Python's own `logging` is bridged instead, so
that entries of libraries and of the warnings module appear in the same log. stdout stays free for the ready line and for the
answers of commands, which programs parse.

Entries from before `configure_logging` wait in a bounded buffer, because loggers are made when modules are imported and the
log file is known only after the settings were read. They are rendered as they were, whatever has changed meanwhile: the
values are turned into text when the entry is made, so that the buffer keeps no object of the program alive.

A line is written by the thread that logs, before the call returns. There is no queue and no writing thread: the last lines
before a crash are those that explain it, and a queue would lose exactly these. The price is one `write(2)` for each entry,
which the sinks keep short by never waiting for a reader. A kill -9 may leave one incomplete line at the end of the file.

An entry becomes one line for people, or one JSON object; secrets are masked in both. Text in an entry may come from strangers. In a
line for people nothing may begin a new line or move a terminal's cursor, so that a message cannot forge an entry; JSON escapes
such characters by itself.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from pegasus.formatting import escape_unprintable
from pegasus.observe.sinks import KEEP, MAX_BYTES, RotatingFile, Sink, Stream
from pegasus.redaction import Redactor

LEVELS: Final[Mapping[str, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
"""Names of the levels, with the numbers that Python's own logging has for them; the bridge compares the two."""
BUFFER: Final = 1000
"""Entries that are kept from before `configure_logging`.

A command that never configures logging, such as `pegasus send`, keeps them until it ends, so that the number must be
bounded. Entries beyond it are counted, and a line of the log says how many are missing.
"""

_SHORTEST_SECRET: Final = 4
"""Characters of the shortest secret that is masked: shorter ones would take ordinary words apart."""
_RESERVED: Final = frozenset({"ts", "level", "logger", "event", "exception"})
"""Keys of a JSON entry that a field of the caller must not replace."""


class Logger:
    """Writer of entries under a name. Callable from any thread.

    Example::

        log = get_logger("gateway")
        log.info("client connected", peer=address)
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, event: str, /, **fields: object) -> None:
        """Write an entry that helps to find a defect."""
        self._log("debug", event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """Write an entry about normal operation."""
        self._log("info", event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Write an entry about something that a person may want to look into."""
        self._log("warning", event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """Write an entry about something that failed."""
        self._log("error", event, fields)

    def exception(self, event: str, /, *, error: BaseException, **fields: object) -> None:
        """Write an error entry with the traceback of `error`, which need not be the exception being handled."""
        self._log("error", event, fields, error)

    def _log(self, level: str, event: str, fields: Mapping[str, object], error: BaseException | None = None) -> None:
        if LEVELS[level] >= _writer.threshold:
            exception = "".join(traceback.format_exception(error)) if error is not None else ""
            _writer.add(level, self._name, event, fields, exception)


def get_logger(name: str) -> Logger:
    """Return the logger of a package or actor, as "gateway". Loggers of one name are interchangeable and cost nothing."""
    return Logger(name)


def configure_logging(
    file: Path | None,
    *,
    level: str = "info",
    format: str = "line",
    secrets: Iterable[str] = (),
    clock: Callable[[], float] = time.time,
    max_bytes: int = MAX_BYTES,
    keep: int = KEEP,
) -> None:
    """Begin to write, with the entries that waited; called again, it changes the configuration at once.

    file: None = stderr only. Where stderr is that very file, as when a chat has started the daemon, each entry is written
    once. level: a key of LEVELS. format: "line" for people or "json" for programs. secrets: texts that are masked wherever
    they would appear. clock: seconds since the epoch. max_bytes, keep: as in `RotatingFile`. A file that cannot be opened
    is no error: see `sinks`.
    """
    _writer.configure(
        file,
        level,
        Redactor(secrets, shortest=_SHORTEST_SECRET),
        format_json if format == "json" else format_line,
        clock,
        partial(RotatingFile, max_bytes=max_bytes, keep=keep),
    )


def forward_logging(secrets: Iterable[str] = ()) -> None:
    """Pass entries on to Python's `logging`, as "pegasus.<name>", until `configure_logging` is called: for use as a library.

    Nothing is written by this process itself, and no handler is installed but one that does nothing. secrets: texts that are masked,
    beside those of earlier calls.
    """
    _writer.forward(secrets)


def stop_logging() -> bool:
    """Close the file; return False if logging was not configured, so that nothing was written."""
    return _writer.stop()


# ------------------------------------------------------------------ writing


class _LogWriter:
    """Path of an entry to the sinks. One for the process, as stderr is."""

    threshold: int
    """Level below which entries are dropped. `Logger` reads it without the lock: a reload takes effect an entry later."""

    def __init__(self) -> None:
        self.threshold = LEVELS["debug"]
        self._configured = False
        """False before `configure` and after `stop`; entries are buffered then."""
        self._clock: Callable[[], float] = time.time
        self._redactor = Redactor()
        self._format: Callable[[LogEntry], str] = format_line
        self._buffer: list[LogEntry] = []
        """Entries that wait for a configuration, at most BUFFER."""
        self._lost = 0
        """Entries for which the buffer had no room."""
        self._sinks: list[Sink] = []
        self._forwards = False
        """Entries go to Python's logging while the log is not configured."""
        self._forwarded_secrets: frozenset[str] = frozenset()
        self._bridge: _LoggingBridge | None = None
        """Handler at the root of Python's logging while the log is configured."""
        self._lock = threading.RLock()
        """Keeps lines whole when several threads log. Re-entrant, since a warning may be raised, and logged, while an
        entry is rendered."""

    def configure(
        self,
        file: Path | None,
        level: str,
        redactor: Redactor,
        format: Callable[[LogEntry], str],
        clock: Callable[[], float],
        open_file: Callable[[Path], Sink],
    ) -> None:
        """Open the sinks and write what has waited; the sinks of the configuration before are closed first."""
        with self._lock:
            self._close()
            self._configured, self._clock, self._redactor, self._format = True, clock, redactor, format
            self.threshold = LEVELS[level]
            self._sinks = _open_sinks(file, open_file)
            self._bridge = _LoggingBridge(logging.INFO if level == "debug" else logging.WARNING)
            self._bridge.join()
            waiting, self._buffer = self._buffer, []
            for entry in waiting:
                if LEVELS[entry.level] >= self.threshold:
                    self._write(entry)
            if self._lost:
                self.add("warning", "log", "entries lost before logging started", {"count": self._lost}, "")
                self._lost = 0

    def forward(self, secrets: Iterable[str]) -> None:
        """Give entries to Python's logging while the log is not configured, those that waited first."""
        with self._lock:
            python = logging.getLogger("pegasus")
            if not any(isinstance(handler, logging.NullHandler) for handler in python.handlers):
                python.addHandler(logging.NullHandler())
            self._forwards = True
            self._forwarded_secrets |= frozenset(secrets)
            if not self._configured:
                self._redactor = Redactor(self._forwarded_secrets, shortest=_SHORTEST_SECRET)
                waiting, self._buffer = self._buffer, []
                for entry in waiting:
                    self._pass_on(entry)

    def _pass_on(self, entry: LogEntry) -> None:
        """Give an entry to Python's logging, without the secrets."""
        python, level = logging.getLogger(f"pegasus.{entry.logger}"), LEVELS[entry.level]
        if python.isEnabledFor(level):
            line = format_line(entry).partition(f" {entry.logger}: ")[2]
            python.log(level, "%s", self._redactor.apply(line))

    def stop(self) -> bool:
        """Close the sinks; return False if there were none."""
        with self._lock:
            configured = self._configured
            self._close()
            self._configured, self._clock = False, time.time
            self.threshold = LEVELS["debug"]
            return configured

    def add(self, level: str, logger: str, event: str, fields: Mapping[str, object], exception: str) -> None:
        """Write an entry, or keep it until logging is configured."""
        fields = {key: _freeze(value) for key, value in fields.items()}
        with self._lock:
            entry = LogEntry(level, logger, event, fields, self._clock(), exception)
            if self._configured:
                self._write(entry)
            elif self._forwards:
                self._pass_on(entry)
            elif len(self._buffer) < BUFFER:
                self._buffer.append(entry)
            else:
                self._lost += 1

    def _write(self, entry: LogEntry) -> None:
        """Render an entry, mask secrets, and hand the line to every sink.

        Secrets are masked in the finished line and not in the fields, because a secret may also stand in the event, in a
        traceback, or across the border between two fields.
        """
        data = self._redactor.apply(self._format(entry)).encode("utf-8", "backslashreplace") + b"\n"
        for sink in self._sinks:
            sink.write(data)

    def _close(self) -> None:
        """Close the sinks and remove the bridge. No effect where nothing is open."""
        for sink in self._sinks:
            sink.close()
        if self._bridge is not None:
            self._bridge.leave()
        self._sinks, self._bridge = [], None


def _freeze(value: object) -> object:
    """Return text, a number or None as it is, and the repr of anything else.

    A buffered entry must not change, nor keep references to objects. A value whose repr fails must not stop an actor.
    """
    if isinstance(value, str | int | float | None):
        return value
    try:
        return repr(value)
    except Exception:
        return f"({type(value).__name__} that cannot be shown)"


def _open_sinks(file: Path | None, open_file: Callable[[Path], Sink]) -> list[Sink]:
    """Return the sinks; stderr is left out where it is the log file, since each entry would be there twice."""
    if file is None:
        return [Stream(2)]
    sinks: list[Sink] = [open_file(file)]
    return sinks if _is_stderr(file) else [*sinks, Stream(2)]


def _is_stderr(file: Path) -> bool:
    """Return True if stderr is this file."""
    try:
        return os.path.samestat(file.stat(), os.fstat(2))
    except OSError:
        return False


class _LoggingBridge(logging.Handler):
    """Handler that passes entries of Python's own logging on, as libraries and the warnings module write them."""

    def join(self) -> None:
        """Install the handler at the root, and give the root its level.

        The root would otherwise drop entries before the handler gets them. Entries of libraries are logged from "warning" on,
        and from "info" on where the log's level is "debug": their own debug entries would hide everything else.
        """
        root = logging.getLogger()
        self._level_before = root.level
        root.addHandler(self)
        root.setLevel(self.level)
        logging.captureWarnings(True)

    def leave(self) -> None:
        """Remove the handler and restore the root's level, so that a test leaves no trace."""
        root = logging.getLogger()
        logging.captureWarnings(False)
        root.removeHandler(self)
        root.setLevel(self._level_before)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record under the name of its logger.

        A library may format a record wrongly; `handleError` then reports on stderr, and its caller goes on.
        """
        try:
            level = next((name for name in ("error", "warning", "info") if record.levelno >= LEVELS[name]), "debug")
            error = record.exc_info[1] if record.exc_info else None
            Logger(record.name)._log(level, record.getMessage(), {}, error)
        except Exception:
            self.handleError(record)


# ------------------------------------------------------------------ rendering


@attrs.frozen
class LogEntry:
    """One event of the log.

    Example::

        format_line(LogEntry("info", "gateway", "client connected", {"peer": "127.0.0.1"}, at=1772029800.0))
    """

    level: str
    """"debug", "info", "warning" or "error"."""
    logger: str
    """Package or actor, as "gateway"."""
    event: str
    """A few words, the same for each entry of its kind, so that they can be searched for; values belong in the fields."""
    fields: Mapping[str, object]
    """Texts, numbers, booleans or None by name."""
    at: float
    """Seconds since the epoch."""
    exception: str = ""
    """Formatted traceback, or ""."""

    @property
    def time_text(self) -> str:
        """The time in UTC: `2026-02-25T14:30:00.123Z`."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.at))
        return f"{seconds}.{int(self.at * 1000) % 1000:03d}Z"

    @property
    def own_fields(self) -> dict[str, object]:
        """The fields; one with a reserved name gets an underscore behind it."""
        return {f"{key}_" if key in _RESERVED else key: value for key, value in self.fields.items()}


def format_line(entry: LogEntry) -> str:
    """Return `2026-02-25T14:30:00.000Z info    gateway: client connected n=3 name="a b"`, a traceback below, indented."""
    fields = "".join(f" {key}={_format_value(value)}" for key, value in entry.own_fields.items())
    line = f"{entry.time_text} {entry.level:<7} {entry.logger}: {escape_unprintable(entry.event)}{fields}"
    return line + "".join(f"\n  | {escape_unprintable(part)}" for part in entry.exception.splitlines())


def format_json(entry: LogEntry) -> str:
    """Return one JSON object in one line, with the keys ts, level, logger, event, the fields, and exception if there is one."""
    head = {"ts": entry.time_text, "level": entry.level, "logger": entry.logger, "event": entry.event}
    tail = {"exception": entry.exception} if entry.exception else {}
    return json.dumps({**head, **entry.own_fields, **tail}, ensure_ascii=False, separators=(",", ":"))


def _format_value(value: object) -> str:
    """Return a field's value: bare where it is one word, else as a JSON string, so that a line can be split at blanks."""
    text = value if isinstance(value, str) else repr(value)
    if text and text.isprintable() and not any(c in ' "=' for c in text):
        return text
    return (
        escape_unprintable(json.dumps(text, ensure_ascii=False))
        if isinstance(value, str) or not text
        else escape_unprintable(text)
    )


_writer = _LogWriter()
