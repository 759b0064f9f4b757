"""The answer to `/undo`: the last changes of memory, and of files that tasks have made, are taken back, whichever was last.

An owner takes back what work for owners has changed; a guest, what their own tasks have changed in their files. The
command's key stands with each change that it takes back, so that a command that is carried out again after a crash takes
back nothing more.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import Final

import attrs
import trio

from actors import ActorError
from pegasus.access import Principal
from pegasus.app.services import Services
from pegasus.formatting import quote
from pegasus.host import command_name
from pegasus.memory import Author, Change, MemoryRefused
from pegasus.messages import InboundMessage
from pegasus.storage import StorageError
from pegasus.tasks import GetTask, TaskError
from pegasus.tools import COMMAND, FileChange, ToolError, UndoRefused, diff_block, take_back

MOST_UNDONE: Final = 20
"""Changes that one /undo takes back at most."""
LOOKED_AT: Final = 200
"""Changes of memory among which the last ones that count are looked for."""


@attrs.frozen(eq=False, repr=False)
class UndoCommand:
    """One `/undo` of a person.

    Example: `await UndoCommand(services, message, person).answer("2")`.
    """

    services: Services
    """The services of the tree."""
    message: InboundMessage
    """The command."""
    person: Principal
    """Its writer."""

    async def answer(self, wanted: str) -> str:
        """Take back as many changes as are wanted, "" for one, and return what was done."""
        if not self.person.is_owner and not self.person.guest:
            return "Only my owner takes back what I have changed."
        if not ((wanted := wanted or "1").isdecimal() and wanted.isascii() and 1 <= int(wanted[:4]) <= MOST_UNDONE):
            return f"/undo: found {quote(wanted, 40)}; allowed: a number from 1 to {MOST_UNDONE}."
        memories, files = await self._memories(), await self._files()
        undone = {change.undoes for change in memories}
        again = [change for change in memories if change.by.key == self._key]
        lines = [undone_line(change) for change in again[::-1]]
        for change in [change for change in files if change.undone == self._key][::-1]:
            lines += await self._take_file_back(change)
        waiting: list[Change | FileChange] = [
            change for change in memories if change.how not in ("undo", "edit") and change.n not in undone
        ]
        waiting += [change for change in files if not change.undone]
        # Changes of one millisecond keep their order: sorting is stable.
        waiting.sort(key=lambda change: change.at if isinstance(change, FileChange) else change.ts, reverse=True)
        return await self._take_back(waiting, int(wanted) - len(lines), lines)

    async def _take_back(self, waiting: list[Change | FileChange], wanted: int, lines: list[str]) -> str:
        """Take back the first of these changes, and return the answer. lines: what was done before."""
        command: FileChange | None = None
        for change in waiting:
            if wanted <= 0:
                break
            if isinstance(change, FileChange) and change.how == COMMAND:
                command = command or change
                continue
            try:
                done = await (self._take_file_back(change) if isinstance(change, FileChange) else self._forget(change))
            except (MemoryRefused, ToolError, UndoRefused) as error:
                lines.append(f"{str(error)[:1].upper()}{str(error)[1:]}. Nothing older was touched.")
                # Others read along in a group, and a file may be private.
                if isinstance(error, UndoRefused) and (error.before or error.there) and not self.person.is_apart:
                    lines.append(f"Taking it back would change this:\n{diff_block(error.there, error.before)}")
                break
            lines += done
            wanted -= len(done)
        if command is not None:
            task = await self._task_name(command.task)
            lines.append(f"Later {task} ran commands ({command.root}). What commands change is not kept, so it stays.")
        if lines:
            return "\n".join(lines)
        if self.person.is_owner:
            log = f"{command_name()} memory log shows older ones of memory"
            return f"There is no change of my memory or of a file to take back. {log}."
        return "There is no change of a file of yours to take back."

    @property
    def _key(self) -> str:
        """The name of this command, in the log of memory and with the changes of files."""
        return f"{self.message.channel.address} {self.message.id} /undo"

    async def _memories(self) -> list[Change]:
        """Return the last changes of memory, newest first; none for a guest, whose notes nobody else sees."""
        return list(await self.services.memory.log(limit=LOOKED_AT)) if self.person.is_owner else []

    async def _files(self) -> list[FileChange]:
        """Return the kept changes of files, newest first."""
        kept = self.services.environment.kept_changes
        if kept is None:
            return []
        return await trio.to_thread.run_sync(kept.changes, self.person.guest)

    async def _forget(self, change: Change) -> list[str]:
        """Take back a change of memory. Raises MemoryRefused."""
        channel = self.message.channel
        author = Author("user", user=channel.user_id or "", channel=str(channel.address), key=self._key)
        return [undone_line(await self.services.memory.undo(change.n, author))]

    async def _take_file_back(self, change: FileChange) -> list[str]:
        """Take back a change of a file; return a line about it, none if it was never made. Raises UndoRefused, ToolError."""
        kept = self.services.environment.kept_changes
        assert kept is not None  # noqa: S101  its changes come from there
        work = partial(take_back, kept, change, self._key, self._expect)
        if not await trio.to_thread.run_sync(work):
            return []
        return [await self._file_line(change)]

    def _expect(self, path: str, content: bytes) -> None:
        """Tell the owner's files what one of them will say: the owner has just asked for it. Called in a thread."""
        files = self.services.environment.files
        if self.person.is_owner and files is not None:
            files.expect(os.path.relpath(path, os.path.realpath(files.folder)), content)

    async def _file_line(self, change: FileChange) -> str:
        """Return what an undo has done to a file."""
        task, path = await self._task_name(change.task), self._shown(change.path)
        if change.how == "move":
            return f"Taken back: {path} is {self._shown(change.former_path)} again, as before {task} moved it."
        if change.how == "delete":
            return f"Taken back: {path}, which {task} had deleted, is there again."
        if not change.before:
            return f"Taken back: {path}, which {task} had made, is gone."
        return f"Taken back: {path} is as it was before {task} changed it."

    def _shown(self, path: str) -> str:
        """Return a path for people: from the workspace on, if it lies there."""
        desk = os.path.join(os.path.realpath(self.services.environment.workspace), "")
        return f"`{path.removeprefix(desk)}`"  # a reply is Markdown, which would read marks in a name

    async def _task_name(self, task_id: str) -> str:
        """Return the name of a task for people."""
        work, number = self.services.main_agent.work, 0
        if work is not None:
            with suppress(ActorError, StorageError, TaskError):
                task = await work.agent.ask(GetTask, task_id)
                number = task.number if task is not None else 0
        return f"task {number}" if number else "a task"


def undone_line(change: Change) -> str:
    """Return what an undo of memory has done, with the number that takes it back again."""
    return f"Change {change.undoes} of {change.path} is taken back ({command_name()} memory undo {change.n} makes it again)."
