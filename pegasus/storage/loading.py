"""Reading inbox and outbox at start: damage is set aside and reported, never hidden and never in the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from pegasus.observe import get_logger
from pegasus.storage import inbox, outbox
from pegasus.storage.addresses import Directory
from pegasus.storage.disk import Disk
from pegasus.storage.inbox import InboxLog
from pegasus.storage.messages import StorageError
from pegasus.storage.outbox import OutboxLog
from pegasus.storage.volume import Volume
from pegasus.wire import BadLine, Line, scan_lines

Report = Callable[[str], object]
"""Tells a person what was found and done."""

_NAMED = 5

_log = get_logger("journal")


class Logs(NamedTuple):
    """Everything durable that the journal holds in memory. damaged: paths of files with bad lines, copied aside by now."""

    directory: Directory
    inbox: InboxLog
    outbox: OutboxLog
    damaged: tuple[str, ...]


class _Log(Protocol):
    def replay(self, line: Line) -> str | None: ...
    def loaded(self, size: int) -> None: ...


async def load(disk: Disk, max_waiting: int, report: Report, now: int) -> Logs:
    """The logs as they are on disk; a missing file is an empty one. What replies carried of other files is in those now.

    now: wall clock, ms. Raises StorageError if one cannot be read, or written where it must be.
    """
    directory = Directory()
    accepted, replies = InboxLog(directory, max_waiting), OutboxLog()
    logs: tuple[tuple[str, _Log], ...] = ((inbox.PATH, accepted), (outbox.PATH, replies))
    contents = await disk.run(Volume.open_logs, [path for path, _ in logs])
    damaged = [
        path
        for (path, log), content in zip(logs, contents, strict=True)
        if await _replay(disk, path, content, log, report)
    ]
    if contents[1] and not contents[0]:
        _log.warning("the inbox is gone or empty, though replies are there; what waited in it is lost", path=inbox.PATH)
        accepted.begin_above(now // 1000)
    for run in replies.take_runs():
        if wrong := await disk.run(Volume.redo, run):
            report(wrong)
    return Logs(directory, accepted, replies, tuple(damaged))


async def _replay(disk: Disk, path: str, data: bytes, log: _Log, report: Report) -> bool:
    """Give the log its records; whether there were bad ones, which are copied aside and may be left out from now on."""
    bad: list[BadLine] = []
    size = len(data)
    for line in scan_lines(data):
        if isinstance(line, BadLine):
            if line.torn:
                size = line.offset
                await _set_tail_aside(disk, path, line, report)
            else:
                bad.append(line)
        elif problem := log.replay(line):
            bad.append(BadLine(line.number, line.offset, data[line.offset : line.offset + line.length], problem))
    log.loaded(size)
    return bool(bad) and await _copy_aside(disk, path, bad, report)


async def _set_tail_aside(disk: Disk, path: str, torn: BadLine, report: Report) -> None:
    """Cut the tail off in any case: nobody was told that it is safe, and the next record must not be glued to it."""
    try:
        copy = await disk.run(Volume.set_tail_aside, path, torn.offset, torn.raw)
        report(f"{path}, {torn}; its {len(torn.raw)} bytes were set aside in {copy}")
    except StorageError as error:
        await disk.run(Volume.cut, path, torn.offset)
        report(f"{path}, {torn}; cut off: {torn.raw[:200]!r} (no copy: {error})")


async def _copy_aside(disk: Disk, path: str, bad: list[BadLine], report: Report) -> bool:
    named = "; ".join(map(str, bad[:_NAMED])) + ("; …" if len(bad) > _NAMED else "")
    try:
        copy = await disk.run(Volume.keep_copy, path, b"".join(line.raw for line in bad), "bad")
    except StorageError as error:
        report(f"{path}: {len(bad)} bad lines were skipped and left where they are: {named} ({error})")
        return False
    report(f"{path}: {len(bad)} bad lines were set aside in {copy}: {named}")
    return True
