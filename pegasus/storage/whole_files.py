"""Reading, replacing and archiving a file as a whole. Such messages are rare, and each ends a round of the journal's loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from pegasus.storage.messages import (
    Archive,
    ArchiveName,
    ReadFile,
    ReadFiles,
    RemoveOldFiles,
    ReplaceFile,
    StorageError,
    WholeFile,
)
from pegasus.storage.volume import Disk, Volume


async def answer_whole_file(
    message: WholeFile, disk: Disk, flush: Callable[[], Awaitable[StorageError | None]]
) -> None:
    """Do what the message asks for, and answer it. Its paths are valid. Raises StorageError.

    flush: writes the notes, and returns the error if the disk refuses. Archiving first flushes them: a session that was archived
    cannot show any more what is done.
    """
    match message:
        case ReadFile(reply, path):
            reply.send(await disk.run(Volume.read, path))
        case ReadFiles(reply, paths):
            reply.send(await disk.run(_read_each, paths))
        case ReplaceFile(reply, path, content):
            await disk.run(Volume.replace, path, content)
            reply.send(None)
        case RemoveOldFiles(reply, path, since, before, most):
            reply.send(await disk.run(Volume.remove_old, path, since, before, most))
        case Archive(reply, path, content, at, name, prefix):
            if (error := await flush()) is not None:
                raise error
            reply.send(await disk.run(Volume.archive, path, content, at, name, prefix))
        case ArchiveName(reply, path, at, prefix):
            reply.send(await disk.run(Volume.archive_name, path, at, prefix))


def _read_each(volume: Volume, paths: Sequence[str]) -> tuple[bytes | StorageError, ...]:
    """Return the content of each file, or the error in its place, so that one bad file does not hide the others."""
    contents: list[bytes | StorageError] = []
    for path in paths:
        try:
            contents.append(volume.read(path))
        except StorageError as error:
            contents.append(error)
    return tuple(contents)
