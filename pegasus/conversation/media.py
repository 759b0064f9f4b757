"""Files that people attach to a message: pictures are kept for the model to see, small texts are read out, others are named.

For the text of the message, every attachment becomes a label:

    (attached picture: cat.png, image/png, 52,113 bytes)
    (attached: notes.txt, text/plain, 120 bytes; it reads:)
    …
    (end of notes.txt)
    (attached: report.pdf, application/pdf, 80,233 bytes, 12 pages; it reads:)
    …

and behind each its path below data/, as `[Image: media/<sha256>.png]` or `[File: media/<sha256>.pdf]`. Every attachment is kept there.
It is written before the entry that names it, so a crash leaves at most a file that nobody names. The entry's metadata has
`media: [{"name","mime","file","bytes"}]` for pictures and `files` for all others. `pegasus.media` has read PDFs, documents and
recordings before.

Only the newest pictures of a conversation are in memory (`Pictures`) and shown to the model (see `projection`).

Everything about an attachment comes from a stranger: its name, its type, its bytes. A name is put on one line and loses characters
that cannot be seen; the bytes of a picture are checked before a provider gets them, since a request with one bad picture is refused
as a whole; and a text is cleaned together with the message that it belongs to. What cannot be used is named in words, so that the
model can say why it does not see it. Decoding and hashing megabytes takes long, so it is done in a thread.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Final

import attrs
import trio

from actors import Ref
from pegasus.conversation.entry import Entry, sanitize_name
from pegasus.file_types import extension_of, is_text, recognise
from pegasus.media import BY_TASK, Reading, recording_type
from pegasus.messages import Json, Media
from pegasus.models import EXTENSIONS, MOST_PICTURES, Image, picture_problem
from pegasus.observe import get_logger
from pegasus.storage import MEDIA_FOLDER, JournalMessage, ReadFile, ReplaceFile, StorageError, kept_path

_log = get_logger("conversation")

MOST_BYTES: Final = 12 * 1024 * 1024
"""Bytes (before base64) of the pictures that a conversation shows at a time, far below the limit of a provider's request."""
LONGEST_TEXT: Final = 20_000
"""Characters of a text file that is put into the message. A longer one is only named: half a file misleads the model."""
LONGEST_TEXTS: Final = 40_000
"""Characters of all text files of one message that are read out."""

_MIMES: Final = {extension: mime for mime, extension in EXTENSIONS.items()}
"""By extension of a stored picture. Entries name only such files, so an edited session cannot make the agent read another file."""
_FILE: Final = re.compile(rf"{MEDIA_FOLDER}/[0-9a-f]{{64}}\.(?:{'|'.join(_MIMES)})")
_TEXT_TYPES: Final = frozenset(
    f"application/{kind}"
    for kind in ("json", "xml", "yaml", "x-yaml", "toml", "javascript", "x-sh", "x-python", "sql", "csv", "x-ndjson")
)
"""MIME types of text that do not begin with "text/"."""
_BINARY: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
"""Control characters that stand in no text."""
_TEXT_SUFFIXES: Final = (".txt", ".md", ".csv", ".log")
"""File names that are text where the MIME type says nothing."""


@attrs.frozen(eq=False)
class KeptMedia:
    """Outcome of `keep_media`."""

    labels: tuple[str, ...] = ()
    """Text for the message, one label for each attachment, in its order. Not cleaned yet: `user_content` does that."""
    refs: tuple[Json, ...] = ()
    """Value of the entry's metadata "media"; empty if there is no picture."""
    files: tuple[Json, ...] = ()
    """Value of the metadata "files": what is kept and no picture for the model."""
    spoken: tuple[str, ...] = ()
    """Words of voice messages: the sender's own, spoken instead of typed. They have no label."""


async def keep_media(
    journal: Ref[JournalMessage],
    media: Sequence[Media],
    pictures: Pictures | None = None,
    readings: Mapping[int, Reading] = MappingProxyType({}),
) -> KeptMedia:
    """Write the attachments of a message to disk and return its labels. On return they are on disk.

    media: attachments as they came from the channel, their bytes in base64. pictures: receives the pictures for the model; None: they
    are only stored. readings: what PDFs, documents and recordings among them say, by index. Calling it again changes nothing, since a
    file's name is its hash.

    Raises StorageError if the disk refuses to write; some pictures may be on disk then. No attachment makes it fail, however damaged.
    Cancelled: as after a StorageError.
    """
    if not media:
        return KeptMedia()
    labels, spoken, found = await trio.to_thread.run_sync(_examine, media, readings)
    refs: list[Json] = []
    files: list[Json] = []
    # Files first, entry second: an entry never names a file that is not on disk. A crash in between leaves files that
    # the sweep removes.
    for attachment in found:
        await journal.ask(ReplaceFile, attachment.file, attachment.data)
        (files if attachment.image is None else refs).append(attachment.ref)
        if pictures is not None and attachment.image is not None:
            pictures.put(attachment.file, attachment.image)
    return KeptMedia(tuple(labels), tuple(refs), tuple(files), tuple(spoken))


@attrs.frozen(eq=False, repr=False)
class _Attachment:
    """An attachment that is kept: its file below data/, and the picture that it is, if models can see it."""

    name: str
    """File name for the model, on one line; "unnamed" if there is none."""
    mime: str
    """Type that the content has, where it is recognised; else the one that the sender claims."""
    data: bytes
    """Content, decoded from base64."""
    file: str
    """Path below data/, made of the hash of the data."""
    image: Image | None = None
    """The picture for the model; None if it is none, or one that the model cannot be shown."""

    @property
    def ref(self) -> Json:
        """Return what the entry's metadata keeps of it. `refs_of` reads this after a restart."""
        return {"name": self.name, "mime": self.mime, "file": self.file, "bytes": len(self.data)}

    @property
    def label(self) -> str:
        """Return the line of the message by which the model names the file, for example to attach it to a reply."""
        return f"[{'Image' if self.mime in EXTENSIONS else 'File'}: {self.file}]"


def _examine(media: Sequence[Media], readings: Mapping[int, Reading]) -> tuple[list[str], list[str], list[_Attachment]]:
    """Return the labels of all attachments, the words of voice messages, and what is kept. Blocks: it decodes and hashes megabytes."""
    labels: list[str] = []
    spoken: list[str] = []
    found: list[_Attachment] = []
    text_room = LONGEST_TEXTS
    for index, file in enumerate(media):
        name = sanitize_name(file.name) or "unnamed"
        mime = sanitize_name(file.mime).partition(";")[0].strip().lower()
        mime = "image/jpeg" if mime == "image/jpg" else mime
        description = f"{name}, {mime or 'of no known type'}"
        try:
            data = b64decode(file.data, validate=True)
        except ValueError:
            labels.append(f"(attached: {description}; it is damaged)")
            continue
        if known := recognise(data, name):  # what it is counts, not what it claims to be
            mime = recording_type(known, mime)
            description = f"{name}, {mime}"
        description += f", {len(data):,} bytes"
        path = kept_path(data, EXTENSIONS.get(mime) or extension_of(mime))
        if mime.startswith("image/"):
            # The bounds are those of one request, so the picture is checked together with those before it.
            problem = picture_problem(mime, file.data) or _room_problem(found, data)
            image = Image(mime, file.data, name) if problem is None else None
            kept = _Attachment(name, mime, data, path, image)
            label = f"(attached: {description}; you cannot see it: {problem})" if problem else ""
            text = _read_text(mime, name, data, is_known=known is not None) if problem else None
            if text and len(text) <= min(LONGEST_TEXT, text_room):
                # A drawing in SVG, or a page that was sent under a wrong name.
                text_room -= len(text)
                label = f"{label[:-1]}; it reads:)\n{text}\n(end of {name})"
            labels.append(f"{label or f'(attached picture: {description})'}\n{kept.label}")
            found.append(kept)
            continue
        kept = _Attachment(name, mime, data, path)
        found.append(kept)
        reading, text = readings.get(index), _read_text(mime, name, data, is_known=known is not None)
        if reading is not None and reading.text and reading.is_voice:
            spoken.append(reading.text if not reading.left_out else f"{reading.text}\n({reading.left_out})")
            continue
        if reading is not None:
            label = _reading_label(description, name, reading)
        elif text is None:
            label = f"(attached: {description}; you cannot open this kind of file; {BY_TASK})"
        elif len(text) > min(LONGEST_TEXT, text_room):
            label = f"(attached: {description}; it is too long to be shown here; {BY_TASK})"
        else:
            text_room -= len(text)
            label = f"(attached: {description}; it reads:)\n{text}\n(end of {name})"
        labels.append(f"{label}\n{kept.label}")
    return labels, spoken, found


def _reading_label(description: str, name: str, reading: Reading) -> str:
    """Return the label of a PDF or a recording."""
    note = f", {reading.note}" if reading.note else ""
    if not reading.text:
        return f"(attached: {description}; {reading.note})"
    end = f"; {reading.left_out}" if reading.left_out else ""
    return f"(attached: {description}{note}; it reads:)\n{reading.text}\n(end of {name}{end})"


def _room_problem(found: Sequence[_Attachment], data: bytes) -> str | None:
    """Return why a picture cannot be shown beside those before it in the message; None if it can."""
    images = [kept for kept in found if kept.image is not None]
    if len(images) >= MOST_PICTURES:
        return f"only {MOST_PICTURES} pictures of a message can be shown"
    if len(data) + sum(len(kept.data) for kept in images) > MOST_BYTES:
        return f"the pictures of a message may have {MOST_BYTES >> 20} MB together"
    return None


def _read_text(mime: str, name: str, data: bytes, *, is_known: bool) -> str | None:
    """Return the text of a file that is text, else None. is_known: its first bytes are those of another kind of files.

    A text in UTF-8, or in UTF-16 with its byte order mark, is read whatever the channel claims that it is. Other bytes must be
    claimed to be text, and be one of Western Europe without control characters; `pegasus.media` knows other character sets.
    """
    if is_known:
        return None
    is_claimed = mime.startswith("text/") or mime in _TEXT_TYPES or mime.endswith(("+json", "+xml"))
    is_claimed = is_claimed or PurePosixPath(name).suffix.lower() in _TEXT_SUFFIXES
    if not is_claimed and (not is_text(data[:8_192]) or _BINARY.search(data)):
        return None
    try:
        text = data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
    except UnicodeDecodeError:
        # A text that is no UTF-8 comes of an older program. Bytes that no such text has mark a binary file with a wrong name.
        if _BINARY.search(data) or data.startswith((b"\xff\xfe", b"\xfe\xff")):
            return None
        text = data.decode("cp1252", "replace")
    return None if "\0" in text else text


# ------------------------------------------------------------------ the pictures in memory


class Pictures:
    """The pictures of one conversation that are in memory, newest last, within MOST_PICTURES and MOST_BYTES.

    They are kept in base64, as providers want them, so that a request does not encode megabytes each time. A single picture that
    exceeds MOST_BYTES alone stays, since otherwise the newest picture could never be shown.

    Example:
        pictures = Pictures()
        await pictures.load(journal, entries)
        projection = Projection(entries, pictures)
    """

    def __init__(self) -> None:
        self._images: dict[str, Image] = {}
        """Pictures by their file."""
        self._bytes = 0
        """Length of all of them in base64."""

    def get(self, file: str) -> Image | None:
        """Return the picture of this file, None if it is not in memory."""
        return self._images.get(file)

    def put(self, file: str, image: Image) -> None:
        """Keep a picture as the newest one. The oldest are dropped while there are too many."""
        self._drop(file)
        self._images[file] = image
        self._bytes += len(image.data)
        while len(self._images) > MOST_PICTURES or (self._bytes > MOST_BYTES * 4 // 3 and len(self._images) > 1):
            self._drop(next(iter(self._images)))

    def _drop(self, file: str) -> None:
        """Remove a picture from memory, if it is there. Its file stays on disk."""
        image = self._images.pop(file, None)
        self._bytes -= len(image.data) if image else 0

    async def load(self, journal: Ref[JournalMessage], entries: Sequence[Entry]) -> None:
        """Read the newest pictures that these entries name. A picture that cannot be read is left out, and that is logged."""
        refs = list(_newest_refs(entries))
        for name, file in reversed(refs):
            try:
                data = await journal.ask(ReadFile, file)
            except StorageError as error:
                _log.warning("a picture cannot be read", file=file, error=str(error))
                continue
            mime = _MIMES[file.rpartition(".")[2]]
            encoded = (await trio.to_thread.run_sync(b64encode, data)).decode("ascii")
            if data and not picture_problem(mime, encoded):
                self.put(file, Image(mime, encoded, name))
            else:
                _log.warning("a picture is gone or damaged", file=file)


def _newest_refs(entries: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    """Yield (name, file) of the newest pictures within the bounds, newest first, each file once."""
    seen: set[str] = set()
    total = 0
    for entry in reversed([entry for entry in entries if "media" in entry.metadata]):
        for name, file, size in reversed(refs_of(entry)):
            if file in seen:
                continue
            seen.add(file)
            total += size
            if len(seen) > MOST_PICTURES or (total > MOST_BYTES and len(seen) > 1):
                return
            yield name, file


def refs_of(entry: Entry) -> list[tuple[str, str, int]]:
    """Return (name, file, bytes) of each picture that a message or a result names. A reference that is malformed is left out."""
    media: Any = entry.metadata.get("media") if entry.role in ("user", "tool") else None
    refs: list[tuple[str, str, int]] = []
    for ref in media if isinstance(media, list) else ():
        file, size = (ref.get("file"), ref.get("bytes")) if isinstance(ref, dict) else (None, None)
        if isinstance(file, str) and _FILE.fullmatch(file):
            refs.append(
                (sanitize_name(str(ref.get("name", ""))), file, size if isinstance(size, int) and size > 0 else 0)
            )
    return refs
