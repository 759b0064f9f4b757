"""The conversation with one address, read back from the session for people: what they wrote, and what they were told.

A chat window that is opened again shows it. It is made from the session and its archives, in which everything that was said stands
already, and not from a second copy. Notes of the program, thoughts and tool calls are left out, and so are commands such as /status:
they are no part of a session. A draft at which a person has ended the answer is one of the replies, marked as cut.

A page of the history is read backwards from the end of a file, so the newest messages come first and cost the same however long the
session is. The place where a page begins is a file name and a number of bytes (`Place`). Files are only appended to and then archived,
so a place stays valid. Only the current session may have become an archive meanwhile; the reader then begins anew.

Replies are found in four places: calls of the reply tool (their result has the number), texts in direct speech, drafts that were cut
off, and notes that begin as `session.note_of` writes them. The last three go to whoever wrote the message that is worked on, which
stands before them in the file; reading backwards, they are kept until it is met.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Final

import attrs

from pegasus.conversation import Entry, parse_metadata_line
from pegasus.main_agent.session.archives import LONGEST, archive_names, is_archive, open_archive, read_line
from pegasus.main_agent.session.files import CURRENT, SessionFiles, session_files_of
from pegasus.main_agent.session.media_queue import files_sent_by
from pegasus.main_agent.session.session import CUT, REPLY_NAME, text_of_end_note
from pegasus.messages import Address, Json
from pegasus.models import ToolCall
from pegasus.outside import parse_fence
from pegasus.wire import decode_object

MAX_MESSAGES: Final = 200
"""Messages of one page."""
MAX_CHARACTERS: Final = 400_000
"""Characters of one page, beyond which it ends: an answer must fit into a frame."""
MAX_READ: Final = 16 << 20
"""Bytes that are looked at for one page. In a session with many other conversations a page may hold few messages, or none."""
MAX_FILES: Final = 20
"""Files of one message that are named."""
_BLOCK: Final = 1 << 16
"""Bytes that are read at a time."""
_LABEL: Final = re.compile(r"^\(attached(?: picture)?: (.{1,256}?), [\w.+-]+/[\w.+-]+, ", re.MULTILINE)
"""Beginning of the label of a file, as `conversation.media` writes it."""


@attrs.frozen
class Place:
    """End of a page of the history: everything on the page stands before it.

    Example: `Place.parse("2026-02-25-143000.jsonl:1200")`. As text it is what a client sends back.
    """

    file: str
    """CURRENT, or the name of an archive."""
    end: int
    """Bytes from the beginning of the file; -1 for its end."""

    def __str__(self) -> str:
        return f"{self.file}:{self.end}"

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """Return the place; None if the text is none."""
        file, colon, end = text.rpartition(":")
        known = file == CURRENT or is_archive(file)
        return cls(file, int(end)) if colon and known and end.isascii() and end.isdecimal() and len(end) < 16 else None


@attrs.frozen(eq=False, repr=False)
class PastMessage:
    """Something that was said."""

    sender: str
    """"user" or "agent"."""
    text: str
    """Text as it was written or sent; "" for files alone."""
    ts: int
    """Wall clock, ms."""
    id: str = ""
    """Of a message: the id that its sender gave it. Of a reply: that of the message that it answers, if that is known."""
    seq: int = 0
    """Of a reply: its number, if that is known."""
    media: tuple[str, ...] = ()
    """Names of the files that came with it."""
    cut: bool = False
    """Of a reply: it is a draft at which a person has ended the answer."""


@attrs.frozen(eq=False, repr=False)
class HistoryPage:
    """A part of a conversation.

    Example::

        page = read_history(data, "global", Address("web", "c1"), None, 50)
        older = read_history(data, "global", Address("web", "c1"), page.before, 50)
    """

    messages: Sequence[PastMessage]
    """Oldest first."""
    before: Place | None
    """End of the next older page; None at the beginning of everything."""


def read_history(data: str, scope: str, address: Address, before: Place | None, limit: int) -> HistoryPage:
    """Return the messages of a conversation before a place, at most about `limit`; the newest ones if it is None.

    data: `<home>/data`. scope: the setting `agent.scope`. Blocks. Raises OSError; a file that is gone meanwhile counts as empty.
    """
    files = session_files_of(scope, address)
    folder = os.path.join(data, files.folder)
    names = [*archive_names(folder, files), CURRENT]
    place = before or Place(CURRENT, -1)
    reader = _HistoryReader(folder, files, address.escaped, min(limit, MAX_MESSAGES))
    while True:
        reached = reader.read(place)
        older = names[: names.index(place.file)] if place.file in names else []
        if reached:
            return HistoryPage(reader.oldest_first(), Place(place.file, reached))
        if not older:
            return HistoryPage(reader.oldest_first(), None)
        place = Place(older[-1], -1)
        # The page ends exactly between two files; the next one begins at the end of the older file.
        if reader.is_full:
            size = os.stat(os.path.join(folder, files.file(place.file)), follow_symlinks=False).st_size
            return HistoryPage(reader.oldest_first(), Place(place.file, size))


class _HistoryReader:
    """Collects the messages of one address, newest first."""

    def __init__(self, folder: str, files: SessionFiles, address: Address, limit: int) -> None:
        self._folder = folder
        """Path of the folder of the session and its archives."""
        self._files = files
        """Names of these files."""
        self._address = address
        """The conversation, in the escaped form that metadata lines have."""
        self._limit = limit
        """Messages after which the page ends."""
        self._found: list[PastMessage] = []
        """Messages of the page, newest first."""
        self._replies: list[PastMessage] = []
        """Replies to the message that is met next, newest first; those of direct speech and notes only count if it is from here."""
        self._results: dict[str, Entry] = {}
        """Results of calls that are met next, by the id of the call."""
        self._characters = self._bytes = 0

    @property
    def is_full(self) -> bool:
        """True if the page should end at the next message."""
        return (
            len(self._found) >= self._limit or self._characters >= MAX_CHARACTERS or self._bytes >= MAX_READ
        ) and not self._replies

    def oldest_first(self) -> Sequence[PastMessage]:
        """Return the messages of the page, and the replies to the one that would come next."""
        return [*(reply for reply in reversed(self._replies) if reply.seq), *reversed(self._found)]

    def read(self, place: Place) -> int:
        """Read a file backwards. Return how many bytes of it are left, 0 at its beginning."""
        with suppress(FileNotFoundError), open_archive(self._folder, place.file, self._files) as file:
            size = os.fstat(file.fileno()).st_size
            for start, raw in _lines_backwards(file, size if place.end < 0 else min(place.end, size)):
                self._bytes += len(raw)
                if (entry := read_line(raw)) is None:
                    continue
                self._take(entry)
                if self.is_full:
                    return start
        return 0

    def _take(self, entry: Entry) -> None:
        """Take the next older entry. Results and replies are kept until the call or the message before them is met."""
        if entry.role == "tool":
            self._results[entry.call_id or ""] = entry
        elif entry.role == "assistant":
            self._take_thought(entry)
        elif entry.role == "user":
            self._take_message(entry)
        elif files := files_sent_by(entry):
            self._replies.append(PastMessage("agent", "", entry.ts, media=tuple(file.name for file in files)))

    def _take_thought(self, entry: Entry) -> None:
        """Take what a thought has told people, the last call first.

        The results that were kept belong to the calls of this thought, so they are forgotten behind it.
        """
        content = entry.content
        if entry.metadata.get("spoken") is True and content.strip():
            names = tuple(file.name for file in files_sent_by(entry))
            self._replies.append(PastMessage("agent", content.strip(), entry.ts, media=names))
        elif entry.metadata.get("type") == CUT:
            self._replies.append(PastMessage("agent", content.strip(), entry.ts, cut=True))
        elif (text := text_of_end_note(entry)) is not None:
            self._replies.append(PastMessage("agent", text, entry.ts))
        for call in reversed(entry.calls):
            if call.name == REPLY_NAME:
                self._take_reply(call, entry.ts)
        self._results.clear()

    def _take_reply(self, call: ToolCall, ts: int) -> None:
        """Take a call of the reply tool that was posted to this address, as its result says."""
        result = self._results.get(call.id)
        if result is None or result.failed:
            return
        try:
            facts: dict[str, Any] = decode_object(result.content)
        except ValueError:
            return
        text, seq = call.arguments.get("text", ""), facts.get("seq")
        goes_here = Address(str(facts.get("channelType")), str(facts.get("channelId"))) == self._address
        if goes_here and isinstance(text, str) and type(seq) is int:
            files = facts.get("files")
            names = tuple(map(str, files[:MAX_FILES])) if isinstance(files, list) else ()
            self._replies.append(PastMessage("agent", text.strip(), ts, seq=seq, media=names))

    def _take_message(self, entry: Entry) -> None:
        """Take a message or a task's notification: whatever was said since then answers it."""
        address = parse_metadata_line(entry.content)
        if address is None:  # a note of the program
            return
        is_here = address == self._address
        is_message = is_here and "type" not in entry.metadata and "messageId" in entry.metadata
        id = str(entry.metadata.get("messageId") or "") if is_message else ""
        # Replies with a number were addressed by their call. The others went to the writer of this message.
        for reply in self._replies:
            if is_here or reply.seq:
                self._add(attrs.evolve(reply, id=id))
        self._replies.clear()
        if is_message:
            self._add(PastMessage("user", _written_text(entry), entry.ts, id, media=_media_names(entry)))

    def _add(self, message: PastMessage) -> None:
        """Put a message on the page."""
        self._found.append(message)
        self._characters += len(message.text)


def _written_text(entry: Entry) -> str:
    """Return the text of a message without what the program has added: metadata line, labels of files, text of a skill."""
    skill = entry.metadata.get("skill")
    if isinstance(skill, str) and skill:
        return f"/{skill}"
    begin = entry.content.find("\n") + 1
    text = entry.content[begin : _labels_start(entry)].rstrip("\n") if begin else ""
    # The program has put a backslash before lines that imitate a metadata line.
    return "\n".join(line[1:] if line.startswith("\\[") else line for line in text.split("\n"))


def _media_names(entry: Entry) -> tuple[str, ...]:
    """Return the names in the labels of files."""
    start = _labels_start(entry)
    return () if start is None else tuple(_LABEL.findall(entry.content[start:])[:MAX_FILES])


def _labels_start(entry: Entry) -> int | None:
    """Return where the labels of files begin in the content of a message, None if it has none."""
    found = _LABEL.search(entry.content)
    if found is None:
        return None
    _, own = parse_fence(entry.metadata, len(entry.content))  # the metadata line, and an owner's own words
    return own if own > entry.content.find("\n") + 1 else found.start()


def _lines_backwards(file: BinaryIO, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines before `end`, the last first, each with the place where it begins.

    A line longer than LONGEST is none of ours; it is yielded in pieces, none of which can be decoded.
    """
    buffer, start = b"", end
    while start > 0 or buffer:
        cut = buffer.rfind(b"\n", 0, len(buffer) - 1)
        if cut >= 0 or start == 0:
            line = buffer[cut + 1 :]
            buffer = buffer[: cut + 1]
            yield start + len(buffer), line
            continue
        size = min(_BLOCK, start)
        start -= size
        file.seek(start)
        # Of a line that is too long only the mark of its end is kept, so that memory stays bounded.
        buffer = file.read(size) + (buffer if len(buffer) <= LONGEST else b"\n")


def history_json(page: HistoryPage) -> dict[str, Json]:
    """Return a page as the control plane sends it."""
    messages: list[Json] = []
    for message in page.messages:
        line: dict[str, Json] = {"from": message.sender, "text": message.text, "ts": message.ts}
        line |= {"id": message.id} if message.id else {}
        line |= {"seq": message.seq} if message.seq else {}
        line |= {"media": list(message.media)} if message.media else {}
        line |= {"cut": True} if message.cut else {}
        messages.append(line)
    return {"messages": messages, "before": None if page.before is None else str(page.before)}
