"""Attachments of a message as text: PDFs and documents by `pdf_text` and `document_text`, recordings by a model.

A recording is written down once, by the model that the setting `models.transcribe` names. Its text is kept below data/ under the
SHA-256 of the recording, so a restart, and whoever sends the same recording again, does not pay twice. Only a crash between the answer
of the service and the write does.

A voice message is its sender's own words, spoken instead of typed; any other recording is a file, which may hold anybody's. The
channel knows which it is (`Media.voice`); one that was forwarded is a file.

    readings = await AttachmentReader(journal, lambda: models.audio("transcribe")).read(message.media, 20_000, label)
    readings[0]  # Reading("Buy milk", is_voice=True)
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import trio

from actors import Ref
from pegasus.file_types import recognise
from pegasus.media.reader_process import Reading
from pegasus.messages import Media
from pegasus.models import Label, ModelError
from pegasus.observe import get_logger
from pegasus.storage import TRANSCRIPTS, JournalMessage, ReadFile, ReplaceFile, StorageError
from pegasus.wire import WireError, decode_object, encode_json

if TYPE_CHECKING:
    from pegasus.models import AudioModel

_log = get_logger("media")

_CHARSET: Final = re.compile(r"charset=[\"']?([\w.-]{1,40})")
PDF: Final = "application/pdf"
"""MIME type of the files that `pdf_text` reads."""
MOST_READERS: Final = 2
"""PDFs and documents that are read at the same time: each may take a whole core, and the memory that `reader_process` allows."""
LONGEST_WORDS: Final = 100_000
"""Characters of one recording's text. Somebody who speaks for two hours says less."""
_NOT_SET: Final = "you cannot hear it: models.transcribe is not set"
"""Note about a recording where no model can hear; it names the setting, so that the model can say what to do."""


@attrs.frozen(eq=False, repr=False)
class AttachmentReader:
    """Reads PDFs, documents and recordings."""

    _journal: Ref[JournalMessage]
    """Keeps the transcripts, below data/."""
    _hearer: Callable[[], AudioModel | None] = lambda: None
    """Returns the model that writes recordings down, if there is one now."""
    _readers: trio.CapacityLimiter = attrs.field(init=False, factory=lambda: trio.CapacityLimiter(MOST_READERS))

    async def read(self, media: Sequence[Media], most_characters: int, label: Label) -> dict[int, Reading]:
        """Return what the PDFs, documents and recordings among the attachments say, by their index.

        most_characters: of all PDFs and documents together. label: whom calls are counted for. Raises nothing but Cancelled; what goes
        wrong is in the readings. Cancelled: what was written down by then is kept.
        """
        readings: dict[int, Reading] = {}
        room = most_characters
        for index, file in enumerate(media):
            # Decoding and hashing of megabytes would hold up all others.
            decoded = await trio.to_thread.run_sync(_decode, file)
            if decoded is None:
                continue
            mime, content, digest = decoded
            if is_recording(mime):
                readings[index] = await self._transcribe(content, mime, digest, label, is_voice=file.voice)
            elif room <= 0:
                readings[index] = Reading(note="it is too long to be shown here beside the others")
            else:
                from pegasus.media.document_text import read_document
                from pegasus.media.pdf_text import read_pdf

                # A mail program, and some browsers, say in which character set a text is.
                charset = _CHARSET.search(file.mime)
                async with self._readers:
                    if mime == PDF:
                        reading = await read_pdf(content, room)
                    else:
                        reading = await read_document(content, room, charset[1] if charset else "")
                room -= len(reading.text)
                readings[index] = reading
        return readings

    async def _transcribe(self, content: bytes, mime: str, digest: str, label: Label, *, is_voice: bool) -> Reading:
        """Return the words of a recording, from the disk if they were written down before."""
        path = f"{TRANSCRIPTS}/{digest}.json"
        try:
            known = await self._journal.ask(ReadFile, path)
            if known:
                return _heard(str(decode_object(known.decode("utf-8", "replace")).get("text", "")), is_voice=is_voice)
        except (StorageError, ValueError, WireError) as error:
            _log.warning("a transcript cannot be read", file=path, error=str(error))
        # Asked for each recording: the settings may have changed since the last one.
        model = self._hearer()
        if model is None:
            return Reading(note=_NOT_SET)
        try:
            text = await model.transcribe(content, mime, attrs.evolve(label, role="transcribe"))
        except ModelError as error:
            _log.warning("a recording was not written down", model=model.name, error=str(error))
            return Reading(note=f"you cannot hear it: {error}")
        try:
            with trio.CancelScope(shield=True):  # it was paid for
                await self._journal.ask(ReplaceFile, path, encode_json({"model": model.name, "text": text}).encode())
        # The words are used all the same; the next message with this recording pays for it again.
        except StorageError as error:
            _log.warning("a transcript cannot be kept", file=path, error=str(error))
        return _heard(text, is_voice=is_voice)


def _heard(text: str, *, is_voice: bool) -> Reading:
    """Return the reading of a recording with these words."""
    text = text.strip()
    if not text:
        return Reading(note="nothing is said in it")
    left_out = f"the first {LONGEST_WORDS:,} characters are shown" if len(text) > LONGEST_WORDS else ""
    return Reading(text[:LONGEST_WORDS], "written down by a machine", left_out, is_voice)


def _decode(file: Media) -> tuple[str, bytes, str] | None:
    """Return type, content and SHA-256 of a file that is read here; None for any other. Blocks: it may be megabytes."""
    try:
        # The type is judged by the beginning, so that a film or an archive is not decoded as a whole. 65,536 is a multiple of
        # four, so the piece is valid base64.
        head = b64decode(file.data[:65_536], validate=True)
    except ValueError:
        return None
    from pegasus.media.document_text import is_document

    mime = recording_type(recognise(head, file.name) or "", file.mime)
    if mime != PDF and not is_recording(mime) and not is_document(head):
        return None
    try:
        content = b64decode(file.data, validate=True)
    except ValueError:
        return None
    return mime, content, hashlib.sha256(content).hexdigest()


def recording_type(found: str, claimed: str) -> str:
    """Return the type of a file. Only the claimed type tells a recording from a film in the same container."""
    claimed = claimed.partition(";")[0].strip().lower()
    if found in ("video/mp4", "video/webm") and claimed.startswith("audio/"):
        return found.replace("video", "audio")
    return found


def is_recording(mime: str) -> bool:
    """Return whether a type is that of a recording that may be written down."""
    return mime.startswith("audio/")
