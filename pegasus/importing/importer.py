"""An import: finding what a foreign home has, saying what would be done with it, and bringing it into a home of Pegasus, once.

Everything is written by the journal, as at any other time, while the home is held: no daemon runs. What was imported is on record
in `data/imports.json`, by kind of home and origin, so that a second import brings nothing twice, also if its owner has changed or
deleted it here since. The record is written last. A crash before that is no harm: names of archives, ids of jobs and paths of
memory depend on what is imported alone, so the next import finds it there.

Nothing that is here is overwritten. A note whose page exists is left out. A session gets the first name that is free, or that has
exactly its content: the latter is what an import before a crash has left. A job that is here keeps its state.

`plan_import` says beforehand what `carry_out_import` will do. Both make their lines with the same functions. Two refusals show only
then: of a page that memory does not take (`MemoryRefused`), and of all jobs if the file of jobs is damaged.

What was imported counts as words from outside (`pegasus.outside`), unless the person vouches for it (`ImportTarget.is_mine`). Results
of tools count so even then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

import attrs

from actors import Ref
from pegasus.access import Principal, Role
from pegasus.conversation import encode
from pegasus.formatting import format_time, plural, truncate
from pegasus.host import read_if_there
from pegasus.importing import hermes, nanobot, openclaw
from pegasus.importing.foreign_home import (
    CannotRead,
    Findings,
    ForeignFolder,
    FoundJob,
    FoundSession,
    ImportedNote,
    ImportLine,
    UnknownLayout,
    left_out,
)
from pegasus.importing.rest import add_rest
from pegasus.main_agent import GLOBAL, SessionFiles, session_files_of
from pegasus.memory import FOLDER, Author, MemoryRefused, memory_in
from pegasus.messages import Address, ChannelInfo
from pegasus.schedule import Job, ScheduleError, draft_job, next_run, read_job
from pegasus.storage import JournalMessage, KeyedStore, ReadFile, ReplaceFile, StorageError
from pegasus.wire import decode_object, encode_line

HOMES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[ForeignFolder], Findings]]]] = {
    "openclaw": (openclaw.MARKS, openclaw.read_openclaw),
    "nanobot": (nanobot.MARKS, nanobot.read_nanobot),
    "hermes": (hermes.MARKS, hermes.read_hermes),
}
"""By name: what such a home has in it, and the function that reads one."""
RECORD: Final = "imports.json"
"""Things that were imported, with what each has become, below data/: `{"openclaw": {"memory USER.md": "facts/openclaw-user.md"}}`."""
OWNER: Final = ChannelInfo("cli", "main")
"""The person who imports."""


def read_foreign_home(path: Path, source: str) -> Findings:
    """Return what a foreign home has. Blocks while it reads; changes nothing. Raises UnknownLayout.

    Example: `read_foreign_home(Path.home() / ".openclaw", "openclaw")`.

    source: one of HOMES. A folder that has none of a home's files is refused, so that a typing error does not
    pass for an empty home.
    """
    marks, read = HOMES[source]
    try:
        folder = ForeignFolder(path)
        if not set(folder.names("", "")) & set(marks):
            raise UnknownLayout(f"{path}: found none of {', '.join(marks)}, which a home of {source} has")
        found = read(folder)
        add_rest(found, folder)
        return found
    except (OSError, CannotRead) as error:
        raise UnknownLayout(f"{path}: {getattr(error, 'strerror', None) or error}") from None


@attrs.frozen(eq=False, repr=False)
class ImportTarget:
    """The home that is imported into.

    Example::

        target = ImportTarget(home.data, settings.agent.scope, clock)
        for line in plan_import(found, target):
            print(line.outcome, line.origin, line.reason)
    """

    data: Path
    """Its data folder."""
    scope: str
    """The setting `agent.scope`."""
    clock: Callable[[], int]
    """Wall clock, ms."""
    is_mine: bool = False
    """The person has read the notes and jobs, and vouches for them as their own words."""


def plan_import(found: Findings, target: ImportTarget) -> list[ImportLine]:
    """Return what an import would do, without doing it. Blocks while it reads.

    It reads the files of the home itself, without a journal.
    """
    record = _read_record(read_if_there(target.data / RECORD))
    folder, before = target.data / FOLDER, partial(_before, record, found)
    return [
        *(before("memory", note.origin) or _note_line(note, (folder / note.path).exists()) for note in found.notes),
        *(before("session", session.origin) or _session_line(session) for session in found.sessions),
        *(before("job", job.origin) or _job_line(job, target, found.source)[0] for job in found.jobs),
        *found.left_out,
    ]


async def carry_out_import(found: Findings, target: ImportTarget, journal: Ref[JournalMessage]) -> list[ImportLine]:
    """Import, and return what became of each thing.

    Raises StorageError if the disk refuses; what was written until then stays, and the next import goes on from there.

    The steps have this order: notes, sessions, jobs, record. Cancelled or after a crash, what was written
    stays; the next import finds it, by the record or by its content, and does not bring it twice.
    """
    record = _read_record(await journal.ask(ReadFile, RECORD))
    # The record is read once. What this import does is added to it at the end only.
    steps = _ImportSteps(found, target, journal, record)
    lines = [line async for line in steps.lines()]
    done = record.setdefault(found.source, {})
    done.update({_key(line.kind, line.origin): line.target for line in lines if line.outcome in ("imported", "paused")})
    await journal.ask(ReplaceFile, RECORD, encode_line(record))
    return [*lines, *found.left_out]


@attrs.frozen(eq=False, repr=False)
class _ImportSteps:
    """The steps of one import.

    Notes and sessions are written one by one, since each is a file. Jobs are in one file, which is written
    once.
    """

    _found: Findings
    _target: ImportTarget
    _journal: Ref[JournalMessage]
    _record: Mapping[str, Mapping[str, str]]

    async def lines(self) -> AsyncIterator[ImportLine]:
        """Carry out one step after the other, and yield what became of it."""
        for note in self._found.notes:
            yield _before(self._record, self._found, "memory", note.origin) or await self._note(note)
        # Two sessions of one chat may end in the same second.
        taken: set[str] = set()
        for session in self._found.sessions:
            yield _before(self._record, self._found, "session", session.origin) or await self._session(session, taken)
        for line in await self._jobs():
            yield line

    async def _note(self, note: ImportedNote) -> ImportLine:
        """Write a note as a page of memory. The change is in memory's own log, so that it can be undone there."""
        memory = memory_in(self._target.data, self._journal, self._target.clock)
        if any(file.path == note.path for file in await memory.list()):
            return _note_line(note, is_there=True)
        # Memory keeps with each change from where its text comes.
        source = "user" if self._target.is_mine else "file"
        by = Author("user", channel="cli:import", why=f"imported from {self._found.source}", source=source)
        try:
            await memory.write(note.path, _page(note), by)
        except MemoryRefused as error:
            return left_out("memory", note.origin, str(error))
        return ImportLine("imported", "memory", note.origin, note.path)

    async def _session(self, session: FoundSession, taken: set[str]) -> ImportLine:
        """Write a conversation as an archive of a session. taken: paths that this import has used, of which none is used twice."""
        line = _session_line(session)
        if line.outcome != "imported":
            return line
        files = _files_of(session, self._target.scope, self._found.source)
        entries = session.entries
        if self._target.is_mine:
            # Without the mark they count as the person's own words. Results of tools keep it: nobody can vouch
            # for those.
            entries = tuple(attrs.evolve(entry, metadata={}) if entry.role != "tool" else entry for entry in entries)
        content = b"".join(map(encode, entries))
        for name in _archive_names(session):
            path = f"{files.folder}/{files.file(name)}"
            # Read from the disk directly. Nothing else writes there: the home is held by this import.
            present = read_if_there(self._target.data / path)
            if path not in taken and present in (b"", content):
                break
        taken.add(path)
        # Equal content is from an import before a crash, and is not written again.
        if present != content:
            await self._journal.ask(ReplaceFile, path, content)
        return attrs.evolve(line, target=path)

    async def _jobs(self) -> list[ImportLine]:
        """Add the jobs to those of the home, in one step."""
        lines: list[ImportLine] = []
        store = KeyedStore("jobs", read_job)
        store.use(self._journal)
        async with store.change():
            new: dict[str, Job] = {}
            for found in self._found.jobs:
                line = _before(self._record, self._found, "job", found.origin)
                if line is None:
                    line, job = _job_line(found, self._target, self._found.source)
                    # A job that is here keeps its state: it may have been paused or changed since.
                    if job is not None and job.id not in store.rows:
                        new.setdefault(job.id, job)
                lines.append(line)
            if new:
                await store.save(new)
        return lines


# ------------------------------------------------------------------ lines


def _key(kind: str, origin: str) -> str:
    """Return the key of the record for a thing: "memory USER.md"."""
    return f"{kind} {origin}"


def _before(record: Mapping[str, Mapping[str, str]], found: Findings, kind: str, origin: str) -> ImportLine | None:
    target = record.get(found.source, {}).get(_key(kind, origin))
    return None if target is None else ImportLine("there", kind, origin, target)


def _note_line(note: ImportedNote, is_there: bool) -> ImportLine:
    """Return the line of a note. is_there: memory has a page of this name."""
    if is_there:
        return left_out("memory", note.origin, f"{note.path} is there already; rename or delete it to import this")
    return ImportLine("imported", "memory", note.origin, note.path)


def _session_line(session: FoundSession) -> ImportLine:
    """Return the line of a session.

    One without entries is left out, and lost parts are named beside the outcome.
    """
    if not session.entries:
        return left_out("session", session.origin, "there is nothing in it that was said")
    left = f"{plural(session.left_out, 'part')} left out: no text that can be read" if session.left_out else ""
    return ImportLine("imported", "session", session.origin, reason=left)


def _job_line(found: FoundJob, target: ImportTarget, source: str) -> tuple[ImportLine, Job | None]:
    """Return the line of a job, and the job, None if there can be none.

    The id follows from the kind of home and the origin, so that the same job has the same id at each import.
    Texts that `draft_job` would refuse for their length are cut beforehand only where nothing is lost by that:
    the name.
    """
    now, principal = target.clock(), Principal(Role.OWNER, OWNER)
    try:
        draft = draft_job(
            {**found.values, "name": truncate(str(found.values.get("name", "")), 60)}, now, principal, None
        )
    except ScheduleError as error:
        return left_out("job", found.origin, str(error)), None
    job = attrs.evolve(
        draft,
        id=f"j-{sha256(f'{source} {found.origin}'.encode()).hexdigest()[:8]}",
        enabled=not found.paused,
        next=None if found.paused else next_run(draft.schedule, now),
        outside=() if target.is_mine else ("file",),
    )
    outcome = ImportLine("paused" if found.paused else "imported", "job", found.origin, job.id, "; ".join(found.paused))
    return outcome, job


# ------------------------------------------------------------------ forms


def _page(note: ImportedNote) -> str:
    """Return a note as a page of memory, with a heading and a summary.

    A note that has a heading and a summary already is kept as it is.
    """
    if note.text.startswith("# ") and "\n> Summary:" in note.text:
        return note.text
    return f"# Imported notes\n\n> Summary: notes of another agent, imported\n\n{note.text}"


def _files_of(session: FoundSession, scope: str, source: str) -> SessionFiles:
    """Return the session of the chat that a conversation belongs to; that of the import itself if no chat is known.

    Without a conversation for each chat (`agent.scope` is not "chat") all archives belong to the one session
    that there is.
    """
    if scope != "chat":
        return GLOBAL
    is_known = session.type and session.channel_id
    return session_files_of(scope, Address(session.type, session.channel_id) if is_known else Address("import", source))


def _archive_names(session: FoundSession) -> Iterator[str]:
    """Yield the names that its archive may have: that of its last time, then with numbers.

    The name is the time of the last message, as it would be if the session had been archived here. The numbers
    have an end so that a loop over them has one.
    """
    stem = format_time(max((entry.ts for entry in session.entries), default=0), "%Y-%m-%d-%H%M%S")
    yield f"{stem}.jsonl"
    for number in range(2, 1_000_000):
        yield f"{stem}-{number}.jsonl"


def _read_record(content: bytes) -> dict[str, dict[str, str]]:
    """Return the record. One that cannot be read counts as an error: an import could bring everything twice."""
    if not content.strip():
        return {}
    try:
        found = decode_object(content)
    except ValueError as error:
        raise StorageError(f"{RECORD} cannot be read ({error}); move it away to import everything anew") from None
    return {
        source: {str(key): str(value) for key, value in items.items()}
        for source, items in found.items()
        if isinstance(items, dict)
    }
