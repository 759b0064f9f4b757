"""The history of one address, or of a whole conversation, read back from the session for people: what they wrote, and were told.

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

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Final

import attrs

from pegasus.conversation import Entry, clean_text, parse_metadata_line
from pegasus.json_lines import LONGEST_LINE
from pegasus.main_agent.session.archives import archive_names, is_archive, open_archive, read_line, says_apart
from pegasus.main_agent.session.files import CURRENT, SessionFiles, session_files_of
from pegasus.main_agent.session.media_queue import files_sent_by
from pegasus.main_agent.session.session import CUT, REPLACED, REPLY_NAME, text_of_end_note
from pegasus.messages import FOLDER, IN_REPLY_TO, Address, ChannelInfo, Json, OutboundMessage, Said
from pegasus.models import ToolCall
from pegasus.outside import FENCED_FROM, Untrusted, parse_fence
from pegasus.storage import PostResult, StoredFiles, size_of
from pegasus.wire import decode_object, encode_json, to_wire

MAX_MESSAGES: Final = 200
"""Messages of one page."""
MAX_CHARACTERS: Final = 400_000
"""Characters of one page, beyond which it ends: an answer must fit into a frame."""
MAX_READ: Final = 16 << 20
"""Bytes that are looked at for one page. In a session with many other conversations a page may hold few messages, or none."""
INSTEAD_OF: Final = "insteadOf"
"""Key of the metadata of a message: the ids of those in whose place it was said, oldest first. Stored."""
MAX_FILES: Final = 20
"""Files of one message that are named."""
_BLOCK: Final = 1 << 16
"""Bytes that are read at a time."""
_THREAD: Final = re.compile(r"\[channel: .*? \| id: .*? \| thread: (.*?)(?: \| user: .*)?\](?:\n|\Z)")
"""Metadata line of a message in a thread."""
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
    channel: Address | None = None
    """Channel that it was said on, in the escaped form of metadata lines; None if it is not known."""
    begins: bool = False
    """A new conversation begins with it: a line stands above."""
    folder: str = ""
    """Of a message: the folder of its sender that the work is done in, "" for the workspace."""


@attrs.frozen(eq=False, repr=False)
class OwnMessage:
    """A message of an owner in a session, as far as a person may go back to it."""

    id: str
    """Id that its sender gave it."""
    text: str
    """Text as it was written."""
    address: Address
    """Address that it came from, in the escaped form of metadata lines."""
    user_id: str | None
    """Person who wrote it, if the channel says so."""
    thread: str | None
    """Thread that it was written in."""


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
    begins: bool = False
    """A new conversation begins behind the last message."""


def read_history(data: StoredFiles, scope: str, address: Address, before: Place | None, limit: int) -> HistoryPage:
    """Return the messages with an address before a place, at most about `limit`; the newest ones if it is None.

    scope: the setting `agent.scope`. Blocks. Raises OSError; a file that is gone meanwhile counts as empty.
    """
    return _read_back(data, session_files_of(scope, address), before or Place(CURRENT, -1), limit, address.escaped)


def read_conversation(data: StoredFiles, files: SessionFiles, before: Place, limit: int) -> HistoryPage:
    """Return what was said in a conversation, on any channel, before a place, at most about `limit` messages.

    Each names its channel, and the first one behind a /new is marked. Blocks. Raises OSError as `read_history` does.
    """
    return _read_back(data, files, before, limit, None)


def read_messages(data: StoredFiles, files: SessionFiles, name: str, most: int) -> tuple[list[PastMessage], bool]:
    """Return what was said in one file, oldest first, and whether that is all: at most about so many bytes at its end are read.

    Blocks. Raises OSError.
    """
    reader = _HistoryReader(data, files, None, most, most_bytes=most)
    reached = reader.read(Place(name, -1))
    return list(reader.oldest_first()), not reached


def find_message(data: StoredFiles, files: SessionFiles, id: str | None) -> OwnMessage | None:
    """Return the message `id` of the running session, None for the last one; None if there is none that may be replaced.

    Messages of guests may not: they would be said again with an owner's rights. Blocks. Raises OSError.
    """
    wanted = encode_json(id).encode() if id is not None else b'"messageId"'
    with suppress(FileNotFoundError), open_archive(data, CURRENT, files) as file:
        size = size_of(file)
        if says_apart(file.readline(LONGEST_LINE)):
            return None
        for _, raw in _lines_backwards(file, size):
            entry = read_line(raw) if wanted in raw else None
            if entry is not None and may_go_back_to(entry, id) and (address := parse_metadata_line(entry.content)):
                user, thread = entry.metadata.get("userId"), _THREAD.match(entry.content)
                return OwnMessage(
                    str(entry.metadata["messageId"]),
                    _written_text(entry),
                    address,
                    user if isinstance(user, str) else None,
                    thread[1] if thread else None,
                )
    return None


def may_go_back_to(entry: Entry, id: str | None) -> bool:
    """Return whether an entry is a message of an owner, with this id if one is given, or said in place of the one that had it.

    Somebody may go back to a message that was answered again a moment before, of which they do not know yet.
    """
    before = entry.metadata.get(INSTEAD_OF)
    known = [entry.metadata.get("messageId"), *(before if isinstance(before, list) else [])]
    return is_message(entry) and Untrusted.GUEST not in entry.outside and (id is None or id in known)


def reworded(entry: Entry, text: str) -> Entry:
    """Return a message with another text. What is attached to it stays; a skill that it called does not."""
    line = entry.content.partition("\n")[0]
    _, start = parse_fence(entry.metadata, len(entry.content))
    if start <= len(line) + 1:
        start = _labels_start(entry) or len(entry.content)
    attached = entry.content[start:]
    own = f"{line}\n{clean_text(text)}"
    metadata = {key: value for key, value in entry.metadata.items() if key != "skill"}
    if FENCED_FROM in metadata:
        metadata[FENCED_FROM] = len(own) + 1
    return attrs.evolve(entry, content=f"{own}\n{attached}" if attached else own, metadata=metadata)


def _read_back(
    data: StoredFiles, files: SessionFiles, place: Place, limit: int, address: Address | None
) -> HistoryPage:
    """Return a page that ends at a place, which may begin in an older file. address: None for all."""
    names = [*archive_names(data, files), CURRENT]
    reader = _HistoryReader(data, files, address, min(limit, MAX_MESSAGES))
    while True:
        reached = reader.read(place)
        if reached:
            return reader.page(Place(place.file, reached))
        first, kept = _beginning(data, files, place.file)
        older = reader.begin_older(first, place.file, names)
        if older is None:
            return reader.page(None)
        place = Place(older, _end_before(data, files, older, kept))
        # The page ends exactly between two files; the next one begins where the older file does.
        if reader.is_full and place.end:
            return reader.page(place)


def _beginning(data: StoredFiles, files: SessionFiles, name: str) -> tuple[Entry | None, Entry | None]:
    """Return the first entry of a file, and its first message if that was taken over from an older file. Raises OSError."""
    with suppress(FileNotFoundError), open_archive(data, name, files) as file:
        first = read_line(file.readline(LONGEST_LINE))
        if first is None or first.metadata.get("type") == "new":
            return first, None
        left = _BLOCK
        while left > 0 and (raw := file.readline(LONGEST_LINE)):
            left -= len(raw)
            if (entry := read_line(raw)) is not None and is_message(entry):
                return first, entry
        return first, None
    return None, None


def _end_before(data: StoredFiles, files: SessionFiles, name: str, kept: Entry | None) -> int:
    """Return where reading of a file begins backwards: its end, or the line of a message that the newer file has taken over.

    A compaction takes the newest messages over, so both files have them. Raises OSError.
    """
    with suppress(FileNotFoundError), open_archive(data, name, files) as file:
        size = size_of(file)
        if kept is None:
            return size
        id = encode_json(kept.metadata["messageId"]).encode()
        for start, raw in _lines_backwards(file, size):
            if id in raw and (entry := read_line(raw)) is not None and entry.ts == kept.ts and is_message(entry):
                return start
            if size - start > MAX_READ:
                break
        return size
    return 0


class _HistoryReader:
    """Collects the messages of one address, or of all, newest first."""

    def __init__(
        self, data: StoredFiles, files: SessionFiles, address: Address | None, limit: int, most_bytes: int = MAX_READ
    ) -> None:
        self._data = data
        self._files = files
        """Names of these files."""
        self._address = address
        """The address, in the escaped form that metadata lines have; None for all."""
        self._limit, self._most_bytes = limit, most_bytes
        """Messages, and bytes, after which the page ends."""
        self._found: list[PastMessage] = []
        """Messages of the page, newest first."""
        self._replies: list[PastMessage] = []
        """Replies to the message that is met next, newest first; those of direct speech and notes only count if it is from here."""
        self._results: dict[str, Entry] = {}
        """Results of calls that are met next, by the id of the call."""
        self._characters = self._bytes = 0
        self._is_line_last = False
        """A new conversation begins behind all messages of the page."""

    @property
    def is_full(self) -> bool:
        """True if the page should end at the next message."""
        most_characters = max(MAX_CHARACTERS, self._limit)
        return (
            len(self._found) >= self._limit or self._characters >= most_characters or self._bytes >= self._most_bytes
        ) and not self._replies

    def page(self, before: Place | None) -> HistoryPage:
        """Return the page. before: where the next older one ends."""
        return HistoryPage(self.oldest_first(), before, self._is_line_last)

    def begin_older(self, first: Entry | None, name: str, names: Sequence[str]) -> str | None:
        """Return the file that comes before the file `name`, None if there is none. first: its first entry. names: all, oldest first.

        That is the one that the first entry names. Where a person has gone back to a message, it is not the file before: that one
        has the replaced messages, and those before them once more.
        """
        if first is not None and first.metadata.get("type") == "new":
            if self._found and self._address is None:
                self._found[-1] = attrs.evolve(self._found[-1], begins=True)
            elif not self._found:
                self._is_line_last = self._address is None
        previous = first.metadata.get("previousSession") if first is not None else None
        if isinstance(previous, str) and (not previous or previous in names):
            return previous or None
        replaced = first.metadata.get(REPLACED) if first is not None else None
        skipped = replaced if isinstance(replaced, list) else []
        older = [each for each in names[: names.index(name) if name in names else 0] if each not in skipped]
        return older[-1] if older else None

    def oldest_first(self) -> Sequence[PastMessage]:
        """Return the messages of the page, and the replies to the one that would come next."""
        return [*(reply for reply in reversed(self._replies) if reply.seq), *reversed(self._found)]

    def read(self, place: Place) -> int:
        """Read a file backwards. Return how many bytes of it are left, 0 at its beginning."""
        with suppress(FileNotFoundError), open_archive(self._data, place.file, self._files) as file:
            size = size_of(file)
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
        address = Address(str(facts.get("channelType")), str(facts.get("channelId")))
        goes_here = self._address in (None, address)
        if goes_here and isinstance(text, str) and type(seq) is int:
            files = facts.get("files")
            names = tuple(map(str, files[:MAX_FILES])) if isinstance(files, list) else ()
            self._replies.append(PastMessage("agent", text.strip(), ts, seq=seq, media=names, channel=address))

    def _take_message(self, entry: Entry) -> None:
        """Take a message or a task's notification: whatever was said since then answers it."""
        address = parse_metadata_line(entry.content)
        if address is None:  # a note of the program
            return
        is_here = self._address in (None, address)
        is_own = is_here and is_message(entry)
        id = str(entry.metadata.get("messageId") or "") if is_own else ""
        # Replies with a number were addressed by their call. The others went to the writer of this message.
        for reply in self._replies:
            if is_here or reply.seq:
                self._add(attrs.evolve(reply, id=id, channel=reply.channel or address))
        self._replies.clear()
        if is_own:
            names, folder = _media_names(entry), str(entry.metadata.get(FOLDER) or "")
            self._add(
                PastMessage("user", _written_text(entry), entry.ts, id, media=names, channel=address, folder=folder)
            )

    def _add(self, message: PastMessage) -> None:
        """Put a message on the page."""
        self._found.append(message)
        self._characters += len(message.text)


def said_in(entries: Sequence[Entry], replies: Sequence[PostResult], chat: str, now: int) -> tuple[Said, ...]:
    """Return what clients elsewhere are shown of what a session has just written: messages of people, and replies.

    chat: that the session belongs to, "" for all channels. now: wall clock, ms.
    """
    said: list[Said] = []
    for entry in entries:
        address = parse_metadata_line(entry.content) if is_message(entry) else None
        if address is not None:
            user_id, id = entry.metadata.get("userId"), str(entry.metadata["messageId"])
            # The line has the names in an escaped form, which a name of a client never needs.
            channel = ChannelInfo(address.type, address.channel_id, user_id if isinstance(user_id, str) else None)
            said.append(Said("user", _written_text(entry), channel, entry.ts, id, media=_media_names(entry), chat=chat))
    for reply in replies:
        if isinstance(reply, OutboundMessage):
            names, id = tuple(file.name for file in reply.files), str(reply.metadata.get(IN_REPLY_TO, ""))
            said.append(Said("agent", reply.text, reply.channel, now, id, reply.seq, names, chat=chat))
    return tuple(said)


def is_message(entry: Entry) -> bool:
    """Return whether an entry is what a person has written, and no note of the program."""
    return entry.role == "user" and "type" not in entry.metadata and "messageId" in entry.metadata


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

    A line longer than LONGEST_LINE is none of ours; it is yielded in pieces, none of which can be decoded.
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
        buffer = file.read(size) + (buffer if len(buffer) <= LONGEST_LINE else b"\n")


def history_json(page: HistoryPage, *, with_channels: bool = False) -> dict[str, Json]:
    """Return a page as the control plane sends it. with_channels: the messages of a conversation name theirs."""
    messages: list[Json] = []
    for message in page.messages:
        line: dict[str, Json] = {"from": message.sender, "text": message.text, "ts": message.ts}
        line |= {"id": message.id} if message.id else {}
        line |= {"seq": message.seq} if message.seq else {}
        line |= {"media": list(message.media)} if message.media else {}
        line |= {"cut": True} if message.cut else {}
        line |= {"begins": True} if message.begins else {}
        if message.channel is not None and with_channels:
            line["channel"] = to_wire(message.channel)
        messages.append(line)
    return {
        "messages": messages,
        "before": None if page.before is None else str(page.before),
        **({"begins": True} if page.begins else {}),
    }
