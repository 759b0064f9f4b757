"""How a reply carries what its session has not synced yet, so that the two cost one sync.

A Commit appends to a session and posts a reply; the session must be on disk first. Instead of syncing both files, the
line of the reply takes up, as "redo", what was appended to the session since its last sync, and only the outbox is
synced. It is one line of JSON: after a crash either both are there or neither is.

    {"type":"reply", …, "redo":{"path":"main/current.jsonl","offset":1234,"data":"…"}}
    {"type":"settled"}                          all that was carried before this line is in its own file, synced

What makes it sound:

* A line carries all of its file from the last sync, or from where the line before it ended. So the lines that carry a
  file, one after another, are a *run*: with what is before the run, which was synced, they are the whole file. A line
  that does not go on where the run ends was written after a sync of the file, and begins the next run.
* At a start the file is compared with its run. What is different behind the beginning of the run was never synced, so
  nobody was told that it is safe: it is cut off, and the run is written anew.
* "settled" is written after the files were synced, soon (50 ms) and before anything else may change them: it is durable
  before one is archived or replaced, before the outbox is rewritten, and when the journal has stopped. So a file that
  somebody edits while the daemon is down is not "repaired".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from pegasus.wire import encode_line, number_of, text_of

CARRIED_BYTES = 64 << 10
"""What is not synced of one file at most; beyond it a sync costs less than writing it twice."""
SETTLED = encode_line({"type": "settled"})


class Debt(Enum):
    """What the lines of the outbox say about other files that is not settled."""

    NONE = 0
    OWED = 1
    """Some carry what its file has perhaps not synced."""
    WRITTEN = 2
    """All files are synced, and the line that says so is written, but perhaps not synced itself."""

    def after(self, *, carried: bool, settled: bool, synced: bool) -> Debt:
        """After one more write to the outbox. carried: a line of it carries something; settled: one says "settled"."""
        if carried:
            return Debt.OWED
        if settled or self is Debt.WRITTEN:
            return Debt.NONE if synced else Debt.WRITTEN
        return self


class Run(NamedTuple):
    """Bytes that belong into a file at this offset."""

    path: str
    offset: int
    data: bytes

    @property
    def end(self) -> int:
        """Where the run ends in the file."""
        return self.offset + len(self.data)


class Tail(NamedTuple):
    """What was appended to a file since it was synced.

    offset: where that begins. carried: how many bytes of it, from the beginning, are in the outbox. certain: what is before
    the tail is on disk for certain; of a file that another process has left, nobody knows.
    """

    offset: int
    data: bytes = b""
    carried: int = 0
    certain: bool = True

    @property
    def end(self) -> int:
        """The size of the file."""
        return self.offset + len(self.data)

    def plus(self, data: bytes) -> Tail:
        """Some more was appended."""
        return self._replace(data=self.data + data)

    def redo(self, path: str) -> bytes:
        """What a reply's line must hold besides, so that the file need not be synced; b"" if it has to be."""
        if not self.certain or len(self.data) > CARRIED_BYTES:
            return b""
        try:
            data = self.data[self.carried :].decode()
        except UnicodeDecodeError:
            return b""
        return encode_line({"path": path, "offset": self.offset + self.carried, "data": data})[:-1]


def with_redo(line: bytes, redo: bytes) -> bytes:
    """The line of a reply that carries `redo`."""
    return b'%b,"redo":%b}\n' % (line[:-2], redo)


def run_in(redo: Mapping[str, object]) -> Run:
    """What a line carries. Raises KeyError or TypeError."""
    return Run(text_of(redo["path"]), number_of(redo["offset"]), text_of(redo["data"]).encode())


def together(before: Run | None, run: Run) -> Run:
    """The run up to here; `run` goes on with it, or begins anew."""
    if before is None or before.end != run.offset:
        return run
    return before._replace(data=before.data + run.data)
