"""Data files of earlier versions: replies that carry lines of a session.

Earlier versions synced only the outbox when a reply was posted together with session lines. The session was written
but not synced, and the reply's record carried a copy of everything that the session had not synced yet. Some
milliseconds later the session was synced too, and a "settled" record said so:

    {"type":"reply", …, "redo":{"path":"main/current.jsonl","offset":1234,"data":"…"}}
    {"type":"settled"}                      all that was carried before this line is in its own file, synced

This version writes neither, but it must be able to start on such files, also after a crash between the two syncs.
After a power failure the copy may be the only one.

* The copies of a file, one after another, are a *run*. A copy that does not begin where the run ends was made after
  a sync of the file, and begins the next run. A "settled" record ends all runs.
* At the start each file is compared with its run. What differs behind the beginning of the run was never synced, so
  nobody was promised that it is safe; it is cut off and the run is written there.
* Then "settled" is appended, so that the next start leaves a file alone that somebody has edited meanwhile. A rewrite
  of the outbox that copies such replies ends with "settled" for the same reason.
"""

from __future__ import annotations

import attrs

from pegasus.storage.messages import StorageError
from pegasus.storage.record_log import count_field
from pegasus.storage.volume import Volume
from pegasus.wire import encode_line

SETTLED = encode_line({"type": "settled"})
"""Record that says that all carried lines before it are in their files."""


@attrs.frozen
class CarriedLines:
    """The "redo" part of a reply's record: text that belongs into a file at this offset.

    Example: `CarriedLines("main/current.jsonl", '{"role": "assistant"}', 4096)`, in a reply of an earlier version.
    """

    path: str
    """File below data/."""
    data: str
    """Text of whole lines."""
    offset: int = count_field()
    """Byte of the file at which they begin."""


NOTHING_CARRIED = CarriedLines("", "", 0)
"""The "redo" part of a reply that has none."""


@attrs.frozen(eq=False, repr=False)
class CarriedRun:
    """Bytes that belong into a file at this offset, put together from the copies in several replies.

    Example: `CarriedRun("main/current.jsonl", 4096, b"...")` is what `restore_run` writes at byte 4096 if the
    file does not hold it.
    """

    path: str
    """File below data/."""
    offset: int
    """Byte of the file at which the run begins."""
    data: bytes
    """Whole lines: those of replies in a row, put one behind the other."""


class CarriedRuns:
    """The runs of all files, collected while the outbox is read.

    Example::

        runs.add(record.redo)  # for each reply of the outbox, in order
        for run in runs.unsettled():
            problem = await disk.run(restore_run, run)
    """

    def __init__(self) -> None:
        self.was_used = False
        """A reply that carries lines is in the outbox, settled or not."""
        self._runs: dict[str, CarriedRun] = {}

    def add(self, lines: CarriedLines) -> None:
        """Take over what a reply carries."""
        self.was_used = True
        run, data = self._runs.get(lines.path), lines.data.encode()
        if run is not None and run.offset + len(run.data) == lines.offset:
            self._runs[lines.path] = CarriedRun(run.path, run.offset, run.data + data)
        else:
            self._runs[lines.path] = CarriedRun(lines.path, lines.offset, data)

    def settle(self) -> None:
        """Take over a "settled" record."""
        self._runs.clear()

    def unsettled(self) -> list[CarriedRun]:
        """Return the runs that may be missing in their files."""
        return list(self._runs.values())


def restore_run(volume: Volume, run: CarriedRun) -> str:
    """Make the file hold the run at its place, durably. Return what was wrong with it, "" if nothing was.

    A copy is kept of bytes that are not a beginning of the run. A file that ends before the run begins is left alone:
    somebody has deleted or emptied it. Raises StorageError; then the file is as it was, and a new try is safe.
    """
    path, offset, data = run.path, run.offset, run.data
    [found] = volume.read_durable([path])
    if len(found) < offset:
        return f"{path} has {len(found)} bytes, and had {offset} when replies were kept; it is left as it is"
    behind = found[offset:]
    if behind.startswith(data):
        return ""
    copy = "" if data.startswith(behind.rstrip(b"\0")) else _keep_copy(volume, path, behind)
    volume.replace(path, found[:offset] + data)
    return f"{path}, from byte {offset} on: {len(data)} bytes were missing, and were written from the outbox{copy}"


def _keep_copy(volume: Volume, path: str, data: bytes) -> str:
    try:
        return f"; what was there instead is in {volume.keep_copy(path, data, 'torn')}"
    except StorageError as error:
        return f"; in the place of {data[:200]!r} (no copy: {error})"
