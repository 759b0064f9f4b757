"""What people attach to a message: pictures are kept for the model to see, small texts are read out, the rest is named.

A picture is a file of its own, `media/<sha256>.<ext>` below data/, written before the entry that names it; the entry's
metadata has `media: [{"name","mime","file","bytes"}]`. Only so many of the newest are held in memory and shown.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import attrs
import trio

from actors import Ref
from pegasus.conversation.entry import Entry
from pegasus.conversation.sanitize import escape_imitations, sanitize_for_prompt
from pegasus.messages import Json, Media
from pegasus.models import Image
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage, ReadFile, ReplaceFile, StorageError

_log = get_logger("session")

FOLDER: Final = "media"
MOST_SHOWN: Final = 20
MOST_BYTES: Final = 12 * 1024 * 1024
"""Pictures, and their bytes, that a conversation shows at a time; beyond 20 Anthropic takes smaller ones only."""

_LONGEST_TEXT, _LONGEST_TEXTS = 20_000, 40_000  # characters read out of one file, and of all files of a message
_LONGEST_NAME = 120
_TEXT_TYPES: Final = tuple(
    f"application/{kind}"
    for kind in ("json", "xml", "yaml", "x-yaml", "toml", "javascript", "x-sh", "x-python", "sql", "csv", "x-ndjson")
)
_FILE: Final = r"media/[0-9a-f]{64}\.(?:png|jpg|gif|webp)"
_MIMES: Final = {"png": "image/png", "jpg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}


@attrs.frozen(eq=False)
class Kept:
    """labels: clean lines of text for the message, in its order. refs: for the entry's metadata "media"; [] if there is no picture."""

    labels: tuple[str, ...] = ()
    refs: tuple[Json, ...] = ()


class Pictures:
    """The pictures of one conversation that are in memory, newest last, within the bounds."""

    def __init__(self) -> None:
        self._images: dict[str, Image] = {}
        self._bytes = 0

    def get(self, file: str) -> Image | None:
        """The picture of a ref's "file", if it is here."""
        return self._images.get(file)

    def put(self, file: str, image: Image) -> None:
        """Keep it; the oldest give way."""
        self._drop(file)
        self._images[file] = image
        self._bytes += len(image.data)
        while len(self._images) > MOST_SHOWN or (self._bytes > MOST_BYTES * 4 // 3 and len(self._images) > 1):
            self._drop(next(iter(self._images)))

    def _drop(self, file: str) -> None:
        image = self._images.pop(file, None)
        self._bytes -= len(image.data) if image else 0

    async def load(self, journal: Ref[JournalMessage], entries: Sequence[Entry]) -> None:
        """Read the newest pictures that these entries name. What cannot be read is left out, and logged."""
        wanted: list[tuple[str, str, int]] = []
        for entry in reversed([entry for entry in entries if "media" in entry.metadata]):
            wanted += reversed(refs_of(entry))
            if len(wanted) >= MOST_SHOWN or sum(size for _, _, size in wanted) >= MOST_BYTES:
                break
        for name, file, _ in reversed(list(_within(wanted))):
            try:
                data = await journal.ask(ReadFile, file)
            except StorageError as error:
                _log.warning("a picture cannot be read", file=file, why=str(error))
                continue
            encoded = await trio.to_thread.run_sync(_encode, data)
            if data and not refusal(_mime_of(file), encoded):
                self.put(file, Image(_mime_of(file), encoded, name))
            else:
                _log.warning("a picture is gone or damaged", file=file)


def _within(wanted: Iterable[tuple[str, str, int]]) -> Iterable[tuple[str, str, int]]:
    """The first of them that keep to the bounds, each file once."""
    seen: set[str] = set()
    total = 0
    for name, file, size in wanted:
        if file not in seen:
            seen.add(file)
            total += size
            if len(seen) > MOST_SHOWN or (total > MOST_BYTES and len(seen) > 1):
                return
            yield name, file, size


def refs_of(entry: Entry) -> list[tuple[str, str, int]]:
    """(name, file, bytes) of each picture that an entry names; what is malformed is no picture."""
    media: Any = entry.metadata.get("media") if entry.role == "user" else None
    found: list[tuple[str, str, int]] = []
    for ref in media if isinstance(media, list) else ():
        file, size = (ref.get("file"), ref.get("bytes")) if isinstance(ref, dict) else (None, None)
        if isinstance(file, str) and re.fullmatch(_FILE, file):
            found.append((str(ref.get("name", "")), file, size if isinstance(size, int) and size > 0 else 0))
    return found


# ------------------------------------------------------------------ taking in


async def keep_media(journal: Ref[JournalMessage], media: Sequence[Media], pictures: Pictures | None = None) -> Kept:
    """Write the pictures to disk, and say in words what was attached. On return they are on disk.

    pictures: where they are put for the model to see. Doing it again changes nothing. Raises StorageError if the disk
    refuses; nothing that was attached ever makes it fail.
    """
    if not media:
        return Kept()
    found = await trio.to_thread.run_sync(_look_at, tuple(media))
    refs: list[Json] = []
    for image, file, data in found.images:
        await journal.ask(ReplaceFile, file, data)
        refs.append({"name": image.name, "mime": image.mime, "file": file, "bytes": len(data)})
        if pictures is not None:
            pictures.put(file, image)
    return Kept(tuple(found.labels), tuple(refs))


class _Found:
    """room: characters of text that may still be read out."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.images: list[tuple[Image, str, bytes]] = []
        self.room = _LONGEST_TEXTS


def _look_at(media: tuple[Media, ...]) -> _Found:
    """Blocking: hashes and decodes what may be megabytes."""
    found = _Found()
    for file in media:
        found.labels.append(escape_imitations(sanitize_for_prompt(_take(file, found))))
    return found


def _take(file: Media, found: _Found) -> str:
    name = _one_line(file.name) or "unnamed"
    mime = _one_line(file.mime).partition(";")[0].strip().lower()
    mime = "image/jpeg" if mime == "image/jpg" else mime
    what = f"{name}, {mime or 'of no known type'}"
    try:
        data = b64decode(file.data, validate=True)
    except ValueError:
        return f"(attached: {what}; it is damaged)"
    what += f", {len(data):,} bytes"
    if mime.startswith("image/"):
        return _take_picture(name, mime, file.data, data, what, found)
    text = _text_of(mime, name, data)
    if text is None:
        return f"(attached: {what}; you cannot open this kind of file)"
    if len(text) > min(_LONGEST_TEXT, found.room):
        return f"(attached: {what}; it is too long to be shown here)"
    found.room -= len(text)
    return f"(attached: {what}; it reads:)\n{text}\n(end of {name})"


def _take_picture(name: str, mime: str, encoded: str, data: bytes, what: str, found: _Found) -> str:
    import hashlib

    from pegasus.models import EXTENSIONS, MOST_PICTURES

    why = refusal(mime, encoded)
    if why is None and len(found.images) >= MOST_PICTURES:
        why = f"only {MOST_PICTURES} pictures of a message can be shown"
    if why is None and len(data) + sum(len(kept) for _, _, kept in found.images) > MOST_BYTES:
        why = f"the pictures of a message may have {MOST_BYTES >> 20} MB together"
    if why is not None:
        return f"(attached: {what}; you cannot see it: {why})"
    file = f"{FOLDER}/{hashlib.sha256(data).hexdigest()}.{EXTENSIONS[mime]}"
    found.images.append((Image(mime, encoded, name), file, data))
    return f"(attached picture: {what})"


def refusal(mime: str, encoded: str) -> str | None:
    """Why no model would take this picture; None if it would."""
    from pegasus.models import picture_problem

    return picture_problem(mime, encoded)


def _text_of(mime: str, name: str, data: bytes) -> str | None:
    """The text of a file that is one."""
    by_name = mime in ("", "application/octet-stream") and PurePosixPath(name).suffix.lower() in (
        ".txt",
        ".md",
        ".csv",
        ".log",
    )
    if not (mime.startswith("text/") or mime in _TEXT_TYPES or mime.endswith(("+json", "+xml")) or by_name):
        return None
    try:
        text = data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_NAME]


def _mime_of(file: str) -> str:
    return _MIMES[file.rpartition(".")[2]]


def _encode(data: bytes) -> str:
    return b64encode(data).decode("ascii")
