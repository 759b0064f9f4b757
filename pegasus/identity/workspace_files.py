"""The owner's files in the workspace: IDENTITY.md, SOUL.md, USER.md and AGENTS.md become part of the prompt.

They hold what a person wants to tell the agent once and for all, in plain Markdown: who it is, what it is like, whom it works for,
how work is done here. A file that is missing or blank leaves nothing in the prompt. Only `pegasus init` makes one: USER.md, with the
person's own words.

They are looked at before each message is worked on. That is one `stat` for each file; a thread reads them when one has changed. So an
edit counts from the next message on, without a restart, and the prompt changes exactly when a file does: a provider then reads the
conversation anew once and finds it in its cache again afterwards. Within the work on a message the prompt stays the same, unless a
message of another chat begins meanwhile.

What counts is the text of the owner. Commands may write in the workspace too, and a model that was talked into something could so give
itself orders for ever. So the files are looked at whenever a program begins or ends that can write there (`running_program`). What
has changed meanwhile may be the program's work: the text before stays in force until an owner has accepted exactly the new one. What
changes while no such program runs is the owner's, and counts at once. So does what a tool writes after an owner has said yes to
exactly that call: it was shown to them, and would otherwise be asked about a second time (`expect`).

The texts in force are kept in a record outside of the workspace (`TextRecord`), in the home, where commands cannot reach it:

    {"texts":{"AGENTS.md":"Write tests first."},"doubted":{"SOUL.md":"…"},"programsRan":true}

It is written before the first program runs that could change the files, and again when all have ended. So it says after a crash which
text was the owner's, and whether anybody else could write since.

The files are bounded, because they are part of every model call. They are read as a task may have left them: only regular files, no
links (one could lead to a secret outside of the workspace), opening one never waits as it would for a pipe, and invalid bytes and
control characters are taken out. Their place is behind the safety section, which says nothing less because of them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import attrs
import trio

from actors import Signal
from pegasus.formatting import cut_text
from pegasus.host import HomeError, write_private
from pegasus.observe import get_logger
from pegasus.wire import WireError, decode_object, encode_json, from_wire, to_wire

WORKSPACE_FILES: Final = ("IDENTITY.md", "SOUL.md", "USER.md", "AGENTS.md")
"""Names of the files, in their order in the prompt: who the agent is, its character, its user, its rules of work."""
ABOUT_OWNER: Final = "USER.md"
"""File about the owner. Where each chat has a conversation of its own, no guest's chat is told what it says."""
SHARED_FILES: Final = tuple(name for name in WORKSPACE_FILES if name != ABOUT_OWNER)
"""Files that are part of the prompt of guests' chats, too."""
TASK_FILES: Final = ("AGENTS.md",)
"""Files that are part of the prompt of tasks, too. A task speaks to nobody, so character and user do not matter to it."""
HEARTBEAT_FILE: Final = "HEARTBEAT.md"
"""File of what the agent looks after by itself. It is no part of the prompt but a message, and as much the owner's as the others."""
OWNER_FILES: Final = (*WORKSPACE_FILES, HEARTBEAT_FILE)
"""Files that count only as their owner has written or accepted them."""
NOTES_FILE: Final = "memory/MEMORY.md"
"""Notes for the chats of owners (`agent.scope = "chat"`). Written by consolidation too, and else treated like the others."""
MAX_TEXT: Final = 6_000
"""Characters of a file that are used: about 1,500 tokens."""
MOST_BYTES: Final = 4 * MAX_TEXT + 4
"""Bytes of a file that are read: a character has at most four."""
MAX_LEAN_TEXT: Final = 600
"""Characters of a file in a lean prompt: about 150 tokens."""

_HEADING: Final = """\
## Notes of Your Owner

The owner of this installation wrote these files for you. Follow them in everything that the sections above leave open."""
"""Head of the owner's files in the prompt. It says that they rank below the rules of the program."""
_NOT_TEXT: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters except newline and tab, and lone surrogates."""

_log = get_logger("identity")


class OwnerFile(NamedTuple):
    """A file as it was read."""

    stamp: tuple[int, int, int]
    """Time of the last change of any kind (ctime, which nobody can set), size and inode; while they are the same, the file is not
    read again."""
    text: str
    """Content without characters that are no text, longer than MAX_TEXT if the file is; "" for a blank file."""
    has_links: bool = False
    """True if it has a second name, through which it can be changed by whoever may write there."""
    is_whole: bool = True
    """The text is all of the file, but for blanks at its ends."""


@attrs.frozen(eq=False, repr=False)
class TextRecord:
    """The texts of an owner: `TextRecord({"AGENTS.md": "Write tests first."})`.

    A file outside of the workspace keeps it, so that a restart begins with the texts that counted before.
    """

    texts: Mapping[str, str]
    """Texts in force, by the name of the file."""
    doubted: Mapping[str, str] = attrs.field(factory=dict)
    """Texts that were found and that nobody has accepted."""
    programs_ran: bool = False
    """Programs that can write in the workspace were running when this was written, or may have begun since."""


NOTHING_KNOWN = TextRecord({}, programs_ran=True)
"""The record in place of one that cannot be read: every file is doubted."""


def read_record(path: Path) -> TextRecord | None:
    """Return the record, None if there is none yet. One that cannot be read makes every file doubted, and is logged."""
    try:
        return from_wire(decode_object(path.read_bytes()), TextRecord)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, WireError) as error:
        _log.warning("the record of the owner's texts cannot be read", file=str(path), error=str(error))
        return NOTHING_KNOWN


@attrs.define(eq=False, repr=False)
class WorkspaceFiles:
    """The owner's files in one folder, as they were when they were last looked at.

    Example::

        files = WorkspaceFiles(home.workspace, home.owner_texts)
        files.load()
        files.section(WORKSPACE_FILES)  # "## Notes of Your Owner …", "" if there is none

    One object serves the Main Agent, which refreshes it, and all tasks.
    """

    folder: Path
    """The workspace, in which programs of tasks can write as well."""
    record: Path | None = None
    """File outside of the folder that keeps the texts in force; None: they are kept in memory only."""
    in_thread: bool = True
    """True if files are read and written in a thread. Tests in virtual time do it directly."""
    names: tuple[str, ...] = OWNER_FILES
    """Paths of the files in the folder."""
    read: Callable[[Path, Mapping[str, OwnerFile]], OwnerFile | None] | None = None
    """Returns a file, given its path and those that are known; None: the operating system's. A disk in memory has its own."""
    version: int = 0
    """Grows by 1 with each change of the texts in force."""
    _found: dict[str, OwnerFile] = attrs.field(factory=dict, init=False)
    """The files that are there, by name, as they were read last."""
    _texts: dict[str, str] = attrs.field(factory=dict, init=False)
    """The texts in force by name; blank ones are left out."""
    _doubted: dict[str, str] = attrs.field(factory=dict, init=False)
    """Texts that were found and do not count before an owner has accepted them; "" for a file that is gone."""
    _expected: dict[str, str] = attrs.field(factory=dict, init=False)
    """Texts that owners have said yes to before a tool writes them, by name."""
    doubt: Signal = attrs.field(factory=Signal, init=False)
    """Given when there is a new one of these."""
    _running: int = attrs.field(default=0, init=False)
    """Programs that can write in the folder at present."""
    _is_guarded: bool = attrs.field(default=False, init=False)
    """The record says that programs run, so that after a crash a changed file is doubted."""
    _looking: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    """Held while the files are looked at, so that no program begins meanwhile."""

    # ------------------------------------------------------------------ the prompt

    def section(self, names: tuple[str, ...], *, lean: bool = False) -> str:
        """Return the section of the prompt about these files, "" if none of them says anything."""
        limit = MAX_LEAN_TEXT if lean else MAX_TEXT
        parts = [f"### {name}\n\n{cut_text(self._texts[name], limit)}" for name in names if name in self._texts]
        return "\n\n".join([_HEADING, *parts]) if parts else ""

    def text(self, name: str) -> str:
        """Return the text in force of one file, "" if it says nothing. The first `MAX_TEXT` characters are there at least."""
        return self._texts.get(name, "")

    # ------------------------------------------------------------------ looking

    def load(self) -> None:
        """Read the record and the files. Blocks; for the start, when no program runs."""
        kept = read_record(self.record) if self.record is not None else None
        if kept is not None:
            self._texts, self._doubted = dict(kept.texts), dict(kept.doubted)
            self._is_guarded = kept.programs_ran
        self._take(self._read_folder(self._found), is_owners=not self._is_guarded)

    async def refresh(self) -> None:
        """Read what has changed. Never raises; a file that cannot be read counts as missing. Cancelled: nothing has changed.

        Usually nothing has: then there is nothing to wait for, unless a text is expected, which may be there already.
        """
        is_quiet = self.in_thread and not self._expected and not self._looking.locked()
        if is_quiet and not self._has_changed(self._found):
            return
        async with self._looking:
            await self._look(self._found)

    async def _look(self, known: dict[str, OwnerFile]) -> None:
        """Read the files; those that are known and have the same stamp are not read. The caller has the lock.

        The stamps alone are looked at in the event loop: every message waits for them, and usually nothing has changed. They take some
        microseconds in the home, where the journal writes as well.
        """
        found = known
        if not self.in_thread:
            found = self._read_folder(known)
        elif self._has_changed(known):
            found = await trio.to_thread.run_sync(self._read_folder, known, abandon_on_cancel=True)
        if self._take(found, is_owners=not self._running):
            await self._note_change()

    def _has_changed(self, known: Mapping[str, OwnerFile]) -> bool:
        """Return whether a file may say something else than is known. One that is there and cannot be read counts as changed."""
        for name in self.names:
            file = known.get(name)
            # Not by Path: with it, this took four times as long, for every message.
            if _read_stamp(f"{self.folder}/{name}") != (file.stamp if file is not None else None):
                return True
        return False

    def _read_folder(self, known: Mapping[str, OwnerFile]) -> dict[str, OwnerFile]:
        """Return the files that are there, by name. Unchanged ones are not read. Blocks."""
        files = {}
        for name in self.names:
            path = self.folder / name
            if self.read is not None:
                file = self.read(path, known)
            elif path.parent != self.folder and path.parent.is_symlink():
                file = None
            else:
                file = _read_file(path, known.get(name))
            if file is not None:
                files[name] = file
        return files

    def _take(self, found: dict[str, OwnerFile], *, is_owners: bool) -> bool:
        """Compare what was found with the texts in force. Return whether these have changed.

        is_owners: nobody else can have written the files. The log names those whose text is new, and those that are too long.
        """
        self._found = found
        changed = []
        for name in self.names:
            file = found.get(name)
            text = file.text if file is not None else ""
            if is_expected := text == self._expected.get(name):
                del self._expected[name]  # it counts once: another program may bring the same text back later
            if text == self._texts.get(name, ""):
                self._doubted.pop(name, None)
            elif text == self._doubted.get(name) and not is_expected:
                continue
            elif is_expected or (is_owners and not (file is not None and file.has_links)):
                self._put(name, text)
                changed.append(name)
            else:
                self._doubted[name] = text
                self.doubt.notify()
                _log.warning("a file of the workspace was changed while a program ran; an owner is asked", file=name)
        if changed:
            self._log_change(changed)
        return bool(changed)

    def _put(self, name: str, text: str) -> None:
        """Bring a text into force."""
        self._doubted.pop(name, None)
        self._texts.pop(name, None)
        if text:
            self._texts[name] = text

    def _log_change(self, names: list[str]) -> None:
        self.version += 1
        files = [name for name in WORKSPACE_FILES if name in self._texts]
        _log.info("texts of the owner have changed", changed=names, in_the_prompt=files)
        for name in names:
            if (length := len(self._texts.get(name, ""))) > MAX_TEXT:
                _log.warning("only the beginning of a file is in the prompt", file=name, length=length, used=MAX_TEXT)

    async def rewrite(
        self, name: str, change: Callable[[str], str | None], write: Callable[[bytes], Awaitable[None]]
    ) -> bool:
        """Let the program itself change a file: the text in force becomes `change(text)`. Return whether it has that text now.

        Nothing is written where `change` returns None, while the file says something that no owner has accepted yet, where all of it
        cannot be shown as text, or where it has a second name. write: makes the file hold these bytes, durably; what it raises is
        raised, and then nothing has changed. Not interrupted by a cancel.
        """
        is_written = False
        with trio.CancelScope(shield=True):
            async with self._looking:
                is_written = await self._rewrite(name, change, write)
        return is_written

    async def _rewrite(
        self, name: str, change: Callable[[str], str | None], write: Callable[[bytes], Awaitable[None]]
    ) -> bool:
        """Do what `rewrite` says, while nobody else looks at the files."""
        await self._look(self._found)
        before, file = self._texts.get(name, ""), self._found.get(name)
        text = change(before)
        if text is None:
            return False
        text = _NOT_TEXT.sub("", text).strip()
        if name in self._doubted:
            if self._doubted[name] != text:  # if it is the same, a crash has come between the file and the record
                return False
        elif text == before:
            return True
        elif file is not None and not (file.is_whole and not file.has_links):
            return False
        else:
            await write(f"{text}\n".encode() if text else b"")
        self._put(name, text)
        self._log_change([name])
        await self._note_change()
        return True

    # ------------------------------------------------------------------ programs that can write there

    @asynccontextmanager
    async def running_program(self) -> AsyncIterator[None]:
        """Doubt what changes while the block runs: somebody else than the owner can write in the folder. Raises OSError.

        Leaving the block looks once more, also on cancel; the program must have ended by then, with all that it has started.
        """
        async with self._looking:
            await self._look(self._found)
            if not self._is_guarded:
                try:
                    await self._save()
                except HomeError as error:
                    raise OSError(str(error)) from None
                self._is_guarded = True
            self._running += 1
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                async with self._looking:
                    await self._look({})
                    self._running -= 1

    def close(self) -> None:
        """Note that no program runs any more, so that what changes from now on is the owner's. For an orderly stop; blocks.

        Without it, as after a crash, what is different at the next start is doubted.
        """
        if self._is_guarded and not self._running:
            self._take(self._read_folder({}), is_owners=True)
            try:
                self._write(programs_ran=False)
            except HomeError as error:
                _log.warning("the files of the workspace could not be noted", error=str(error))

    async def _note_change(self) -> None:
        """Write the texts in force if programs may have run. If that fails, a crash makes an owner be asked about them."""
        if self._is_guarded:
            try:
                await self._save()
            except HomeError as error:
                _log.warning("the files of the workspace could not be noted", error=str(error))

    async def _save(self) -> None:
        """Write the record for a time in which programs run. Raises HomeError."""
        write = partial(self._write, programs_ran=True)
        if self.in_thread:
            await trio.to_thread.run_sync(write)
        else:
            write()

    def _write(self, *, programs_ran: bool) -> None:
        """Write the record; it is on disk then. Blocks. Raises HomeError."""
        if self.record is not None:
            record = TextRecord(dict(self._texts), dict(self._doubted), programs_ran)
            write_private(self.record, encode_json(to_wire(record)) + "\n")

    # ------------------------------------------------------------------ what an owner decides

    @property
    def doubted(self) -> Mapping[str, str]:
        """Texts that were found and do not count yet, by the name of the file; "" for a file that is gone."""
        return dict(self._doubted)

    def expect(self, name: str, after: bytes, before: bytes | None = None) -> None:
        """Note that a tool is about to make a file hold `after`, to which an owner has said yes. Called in threads.

        name: path in the folder; others than `names` are ignored. The text counts when the file has it, and not before.
        before: content of the file, if `after` was made of it by a change: it counts only if all of that is the owner's, since they
        were shown the change alone.
        """
        if name not in self.names:
            return
        known = before is None or _text_of(before) == self._texts.get(name, "")
        if known and len(after) < MOST_BYTES:
            self._expected[name] = _text_of(after)

    async def accept(self, name: str, text: str) -> bool:
        """Bring a doubted text into force, from the next message on. Return False if the file says something else by now."""
        async with self._looking:
            if self._doubted.get(name) != text:
                return False
            self._put(name, text)
            self._log_change([name])
            await self._note_change()
        return True


def _read_stamp(path: str) -> tuple[int, int, int] | None:
    """Return the stamp of a file, None if there is none."""
    try:
        return _stamp_of(os.lstat(path))
    except OSError:
        return None


def _stamp_of(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ctime_ns, status.st_size, status.st_ino


def _read_file(path: Path, known: OwnerFile | None) -> OwnerFile | None:
    """Return the content of a file; None if there is none, or it is not a regular file that can be read."""
    try:
        status = path.lstat()
        stamp = _stamp_of(status)
        if known is not None and known.stamp == stamp:
            return known
        if not stat.S_ISREG(status.st_mode):
            return None
        # O_NOFOLLOW and O_NONBLOCK: the file may have been exchanged for a link or a pipe since.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            content = stream.read(MOST_BYTES)
    except OSError:
        return None
    return parse_owner_file(content, stamp, has_links=status.st_nlink > 1)


def parse_owner_file(content: bytes, stamp: tuple[int, int, int], *, has_links: bool = False) -> OwnerFile:
    """Return a file with this content. A content of MOST_BYTES or more may have been cut off."""
    decoded = content.decode("utf-8", "replace")
    text = _NOT_TEXT.sub("", decoded)
    is_whole = text == decoded and text.encode() == content and len(content) < MOST_BYTES
    return OwnerFile(stamp, text.strip(), has_links, is_whole)


def _text_of(content: bytes) -> str:
    """Return the text that a file with this content has in the prompt."""
    return parse_owner_file(content, (0, 0, 0)).text
