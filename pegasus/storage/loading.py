"""Reading inbox and outbox at the start: damage is set aside and reported, and never hides what is whole.

A process that was killed may have left the end of a record, or records that are not on the disk yet. A power failure
may have left NUL bytes. An editor, or a version of the future, may have left anything.

* What is read is made durable first, since the journal answers from it (a duplicate is answered at once).
* A torn end is moved to `<file>.torn-<n>`. If there is no room for the copy it is cut off all the same: nobody was
  promised that it is safe, and the next record must not be joined to it.
* Bad lines elsewhere are copied to `<file>.bad-<n>`, and the log is rewritten without them. If there is no room for
  the copy they stay where they are and are skipped.
* A file that cannot be read at all (permissions, a folder in its place) ends the start with an error that names it.
  To go on without it would be to forget accepted messages and to number replies from 1 again.

A damaged line must not stop a start, and must not vanish silently either. So bad lines are copied to a file
beside the log, reported, and left out by the next rewrite. A torn last line is the normal trace of a power
failure: it was never answered, and is cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pegasus.observe import get_logger
from pegasus.storage.carried_lines import SETTLED, restore_run
from pegasus.storage.directory import Directory
from pegasus.storage.inbox import InboxLog
from pegasus.storage.log_file import RecordLog
from pegasus.storage.messages import StorageError
from pegasus.storage.outbox import OutboxLog
from pegasus.storage.volume import Disk, Volume
from pegasus.wire import BadLine, scan_lines

Report = Callable[[str], object]
"""Logs for the operator what was found and done."""

MAX_NAMED_LINES = 5
"""Bad lines that a report describes."""

_log = get_logger("journal")


class Logs(NamedTuple):
    """Everything durable that the journal holds in memory.

    Inbox and outbox share the directory: addresses come from accepted messages and connections, and replies go to them.
    """

    directory: Directory
    """Known addresses."""
    inbox: InboxLog
    """Accepted messages."""
    outbox: OutboxLog
    """Replies that were posted."""
    damaged: tuple[RecordLog[Any], ...]
    """Logs with bad lines, of which there is a copy by now."""


async def load_logs(disk: Disk, max_waiting: int, report: Report, now: int) -> Logs:
    """Return the logs as they are on disk. A missing file is an empty one. now: wall clock, ms.

    Lines of sessions that replies of an earlier version carry are in those files afterwards. Raises StorageError if a
    file cannot be read, or cannot be written where it must be.
    """
    directory = Directory()
    inbox, outbox = InboxLog(directory, max_waiting), OutboxLog()
    logs: tuple[RecordLog[Any], ...] = (inbox, outbox)
    contents = await disk.run(Volume.read_durable, [log.path for log in logs])
    damaged = [log for log, content in zip(logs, contents, strict=True) if await _replay(disk, log, content, report)]
    if contents[1] and not contents[0]:
        _log.warning("the inbox is gone or empty, though there are replies; what waited in it is lost", path=inbox.path)
        inbox.begin_above(now // 1000)
    await _restore_carried_lines(disk, outbox, report)
    return Logs(directory, inbox, outbox, tuple(damaged))


async def _replay(disk: Disk, log: RecordLog[Any], content: bytes, report: Report) -> bool:
    """Give the log its records. Return whether there were bad ones that may be left out from now on."""
    bad: list[BadLine] = []
    size = len(content)
    for line in scan_lines(content):
        if isinstance(line, BadLine):
            if line.torn:
                size = line.offset
                await _set_tail_aside(disk, log.path, line, report)
            else:
                bad.append(line)
        elif problem := log.replay(line):
            raw = content[line.offset : line.offset + line.length]
            bad.append(BadLine(line.number, line.offset, raw, problem))
    log.loaded(size)
    return bool(bad) and await _copy_bad_lines(disk, log.path, bad, report)


async def _set_tail_aside(disk: Disk, path: str, torn: BadLine, report: Report) -> None:
    """Cut the file off before a torn line, after copying the line.

    If there is no room for the copy, it is in the report.
    """
    try:
        copy = await disk.run(Volume.set_tail_aside, path, torn.offset, torn.raw)
        report(f"{path}, {torn}; its {len(torn.raw)} bytes were set aside in {copy}")
    except StorageError as error:
        await disk.run(Volume.cut, path, torn.offset)
        report(f"{path}, {torn}; cut off: {torn.raw[:200]!r} (no copy: {error})")


async def _copy_bad_lines(disk: Disk, path: str, bad: list[BadLine], report: Report) -> bool:
    lines = "; ".join(map(str, bad[:MAX_NAMED_LINES])) + ("; …" if len(bad) > MAX_NAMED_LINES else "")
    try:
        copy = await disk.run(Volume.keep_copy, path, b"".join(line.raw for line in bad), "bad")
    except StorageError as error:
        report(f"{path}: {len(bad)} bad lines were skipped and left where they are: {lines} ({error})")
        return False
    report(f"{path}: {len(bad)} bad lines were set aside in {copy}: {lines}")
    return True


async def _restore_carried_lines(disk: Disk, outbox: OutboxLog, report: Report) -> None:
    """Put lines that replies of an earlier version carry into their files, and note durably that this is done."""
    runs = outbox.carried.unsettled()
    for run in runs:
        if problem := await disk.run(restore_run, run):
            report(problem)
    if runs:
        await disk.run(Volume.append, ((outbox.path, SETTLED),))
        outbox.loaded(outbox.size + len(SETTLED))
