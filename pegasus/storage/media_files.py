"""Files that travel with messages: kept below data/media by their content, loaded when a reply is delivered.

The name of such a file is the SHA-256 of its content. So the same content is kept once, whoever sends it, and keeping it again changes
nothing. A file that was damaged is recognised. Whatever becomes of the file that somebody attached, the copy stays.

A file is kept before the message that names it is posted. A crash between the two leaves a file that nobody names.

`pegasus.storage.retention` removes them when they are old. A file is old when its content was not kept again for `media.keep_days`. A
reply that nobody fetches is given up after GIVEN_UP_DAYS, so a file stays longer than that in any case, and no reply in the outbox
misses one. An item that is being worked on has kept its files a moment ago. A session goes on naming a file that was removed; in
place of a picture it then shows a line that says so.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Final

import attrs
import trio

from actors import Ref
from pegasus.messages import Media, OutboundMessage, StoredFile
from pegasus.observe import get_logger
from pegasus.storage.messages import JournalMessage, ReadFile, ReadFiles, ReplaceFile, StorageError

MEDIA_FOLDER: Final = "media"
"""Folder of the files, below data/. Sessions and the outbox name files in it, so it must not change."""
TRANSCRIPTS: Final = "transcripts"
"""Folder below data/ of what recordings say."""

_log = get_logger("media")
_KEPT_NAME: Final = re.compile(rf"{MEDIA_FOLDER}/([0-9a-f]{{64}})\.[a-z0-9]{{1,8}}")


async def keep_file(journal: Ref[JournalMessage], content: bytes, extension: str) -> str:
    """Keep a file and return its path below data/. On return it is on disk. extension: lower-case letters and digits.

    Raises StorageError and ActorError. Keeping the same content again is the same file.
    """
    path = await trio.to_thread.run_sync(kept_path, content, extension)
    await journal.ask(ReplaceFile, path, content)
    return path


def kept_path(content: bytes, extension: str) -> str:
    """Return the path below data/ of a kept file with this content. Blocks: hashing megabytes takes long."""
    return f"{MEDIA_FOLDER}/{hashlib.sha256(content).hexdigest()}.{extension}"


def is_kept_name(name: str) -> bool:
    """Return whether this is the name of a kept file, as messages have it: `media/<sha256>.<ext>`, and nothing around it."""
    return _KEPT_NAME.fullmatch(name) is not None


async def read_kept(journal: Ref[JournalMessage], name: str) -> bytes | None:
    """Return the content of a kept file; None if it is gone or damaged. name: one that `is_kept_name` accepts.

    Raises StorageError and ActorError.
    """
    content = await journal.ask(ReadFile, name)
    is_whole = await trio.to_thread.run_sync(lambda: hashlib.sha256(content).hexdigest() in name)
    return content if is_whole else None


async def load_files(reply: OutboundMessage, journal: Ref[JournalMessage]) -> OutboundMessage:
    """Return a reply with the content of its files, as it is delivered.

    A file that is gone, damaged or cannot be read is named at the end of the text instead, since waiting for it would hold up
    everything behind it. Raises StorageError and ActorError if the journal does not answer.
    """
    wanted = [file for file in reply.files if _KEPT_NAME.fullmatch(file.file)]
    if not reply.files or reply.media:
        return reply
    contents = await journal.ask(ReadFiles, tuple(file.file for file in wanted)) if wanted else ()
    found = await trio.to_thread.run_sync(_encode_each, wanted, contents)
    lost = [file for file in reply.files if file not in found]
    for file in lost:
        _log.warning("a file of a reply is gone or damaged", file=file.file, to=str(reply.channel.address))
    lines = [f"[file {file.name}: it cannot be read any more]" for file in lost]
    text = "\n".join([reply.text, *lines] if reply.text else lines) if lines else reply.text
    return attrs.evolve(reply, text=text, media=tuple(found.values()), files=tuple(found))


def _encode_each(files: Sequence[StoredFile], contents: Sequence[bytes | StorageError]) -> dict[StoredFile, Media]:
    """Return the files that are what they were when they were kept, in base64. Blocks: they may be megabytes."""
    found: dict[StoredFile, Media] = {}
    for file, content in zip(files, contents, strict=True):
        if isinstance(content, bytes) and hashlib.sha256(content).hexdigest() in file.file:
            found[file] = Media(file.name, file.mime, b64encode(content).decode("ascii"))
    return found
