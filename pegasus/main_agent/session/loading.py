"""Loading a session at start: read it, set damaged lines aside, repair it, and write the outcome back.

A process may die at any moment, so the file may end in half a line, in a tool call without a result, or in a message without an
answer. Damaged lines are copied to a file beside the session before they are removed from it, since a person may still be able to
read them. Open calls get their true result where their effect is recorded elsewhere: replies in the outbox, tasks in the task
system (`tool_calls.recorded_results`). Everything else is marked as cancelled.

Repairing is idempotent. A crash during it leaves a file that the next start repairs again, with the same outcome. A session that
is well-formed, which is the usual case, is not written at all.

The order of the writes is: the copy of the damaged lines first, then the repaired session in place of the old one (in one atomic step
of the journal). A crash between them leaves one copy too many, and nothing is lost. The disk may refuse to write at that time.
Loading then waits and tries again, because an agent that thinks about a session which it cannot write would lose its thoughts.

Pictures that the newest entries name are read as well, since the first request to the model shows them. The garbage collector pauses
while the entries are made: a long session is some hundred thousand objects, none of which is garbage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from actors import Ref
from pegasus.collector import collector_paused
from pegasus.conversation import (
    BadEntry,
    Entry,
    Pictures,
    decode,
    encode,
    is_well_formed,
    new_fence,
    repair_log,
)
from pegasus.formatting import truncate
from pegasus.json_lines import BadLine, scan_lines
from pegasus.main_agent.session.files import GLOBAL, SessionFiles
from pegasus.main_agent.session.session import Session, until_written
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage, Lease, ReadFile, ReplaceFile, SetAside, TakeLease

_log = get_logger("session")

FindResults: TypeAlias = Callable[[Sequence[Entry]], Awaitable[Mapping[tuple[int | None, str], str]]]
"""Returns the true results of the open calls among entries, by item and call id, where their effect is recorded."""


async def load_session(
    journal: Ref[JournalMessage],
    clock: Callable[[], int],
    files: SessionFiles = GLOBAL,
    find_results: FindResults | None = None,
    make_fence: Callable[[], str] = new_fence,
    lease: Lease | None = None,
) -> Session:
    """Take the lease of a session and return the session, well-formed again. A missing file is an empty session.

    clock: returns the wall clock, ms. find_results: finds the results of open calls; None: there are none. make_fence: makes the id
    for fences, if the session has none yet. lease: that of the session, if it was taken already.

    Raises StorageError if the file cannot be read. Cancelled: the file is as it was, or repaired.
    """
    path = files.path
    # First the lease: from here on an agent that still runs with this session can write nothing, so what is read stays as it is.
    lease = lease or await journal.ask(TakeLease, files.owner)
    content = await journal.ask(ReadFile, path)
    with collector_paused():
        entries, bad_lines = _decode_lines(content)
    # The usual case costs no write and asks nobody for results.
    if bad_lines or not is_well_formed(entries):
        results = {} if find_results is None else await find_results(entries)
        repaired = repair_log(entries, lambda made: results.get((made.item, made.call.id)), clock())
        for note in (*map(str, bad_lines), *repaired.notes):
            _log.warning("repaired the session", path=path, problem=note)
        if bad_lines:
            aside = b"".join(line.raw.removesuffix(b"\n") + b"\n" for line in bad_lines)
            await until_written(lambda: journal.ask(SetAside, path, aside), path)
        entries = list(repaired.entries)
        content = b"".join(map(encode, entries))
        await until_written(lambda: journal.ask(ReplaceFile, path, content, lease), path)
    pictures = Pictures()
    await pictures.load(journal, entries)
    with collector_paused():
        return Session(entries, journal, files, pictures, make_fence, lease, content.count(b"\n"))


async def read_archive(journal: Ref[JournalMessage], files: SessionFiles, name: str) -> list[Entry]:
    """Return the entries of an archive of a session, well-formed. Lines that hold none are left out; the archive still has them.

    It is read as a whole, like a session at a start. Raises StorageError.
    """
    content = await journal.ask(ReadFile, f"{files.folder}/{files.file(name)}")
    with collector_paused():
        entries, _ = _decode_lines(content)
        if is_well_formed(entries):
            return entries
        return list(repair_log(entries, lambda made: None, entries[-1].ts if entries else 0).entries)


def _decode_lines(content: bytes) -> tuple[list[Entry], list[BadLine]]:
    """Return the entries of a file, and the lines that hold none as they stand there; both in the order of the file.

    A line may be bad in two ways: it is no JSON (cut off by a crash, or damaged), or it is JSON that is no entry.
    """
    entries: list[Entry] = []
    bad_lines: list[BadLine] = []
    for line in scan_lines(content):
        if isinstance(line, BadLine):
            bad_lines.append(line)
            continue
        try:
            entries.append(decode(line.value))
        except BadEntry as error:
            raw = content[line.offset : line.offset + line.length]
            excerpt = truncate(raw.decode(errors="replace"), 80)
            bad_lines.append(BadLine(line.number, line.offset, raw, f"{error} ({excerpt})"))
    return entries, bad_lines
