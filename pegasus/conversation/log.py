"""The log of a conversation: its entries, and the turns that every provider accepts.

An entry is one line of a session file, or one message of a task. It is written once and never changed. On disk it is a JSON object
whose empty parts are absent:

    {"ts":1772029800000,"role":"assistant","content":"…","toolCalls":[{"id":"c1","name":"reply","arguments":{…}}],"metadata":{…}}

Reading is more lenient than `wire.from_wire`, and deliberately so. `from_wire` guards against what strangers send: it refuses JSON
that is nested deeply, or a number where a whole number belongs. An entry is our own record of something that has happened, perhaps
written by another program or an older version, and refusing it would lose it. So `decode` takes every line that can be
understood, and its own BadEntry says what is wrong with the others.

Providers are strict. Turns must alternate and begin with the user's, every tool call must be followed by exactly one result, and no
text may be empty. The log is not like that: two people may write one after the other, a thought may be empty, a note may stand
anywhere. A `Projection` merges neighbours of one role and leaves out what is empty. It is kept up to date entry by entry, at a cost
that does not grow with the log.

Text from outside stands between fences (see `fences`), and a note of the program begins with `NOTE`, which is escaped in everything
that people and files say (see `sanitize`).

A tool result is part of the user's turn, as providers want it. Results come first in that turn, then the text of messages that were
written while the tools ran. A result whose call is not in the last assistant turn is left out: providers would refuse the request.

Turns that were shown once are shown the same way again, byte for byte, so that a provider finds them in its cache. The one exception
are pictures: when a conversation shows more than a request may hold, the older half of them is replaced by a line of text. Replacing
one at a time would change an old turn with every new picture, and each change makes the provider read everything behind it again.

A projection holds no state beside the turns that could not be computed again from the entries. It is made anew when the session is
loaded and after each compaction. The log must be repaired before (see `repair`); entries are never changed or removed.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, get_args

import attrs
import trio

from actors import Ref
from pegasus.conversation.fences import shown_text
from pegasus.conversation.sanitize import NOTE, sanitize_name
from pegasus.messages import Json, Metadata
from pegasus.models import AssistantTurn, Image, ToolCall, ToolResult, Turn, UserTurn, picture_problem
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage, ReadFile, StorageError
from pegasus.wire import decode_object, encode_line

_log = get_logger("session")

Role = Literal["user", "assistant", "tool", "system"]
"""Author of an entry. Notes of the program ("system") are shown to a provider as text of the user, in their place."""
MEDIA_FOLDER: Final = "media"
"""Folder of the pictures, below data/. Entries name files in it, so it must not change."""
MOST_SHOWN: Final = 20
"""Pictures that a conversation shows at a time. With more, Anthropic refuses pictures above 2000 pixels."""
MOST_BYTES: Final = 12 * 1024 * 1024
"""Bytes (before base64) of the pictures that a conversation shows at a time, far below the limit of a provider's request."""

_ROLES: Final[frozenset[str]] = frozenset(get_args(Role))
_OPENING: Final = "(The conversation before this point is not available.)"
"""Text of the user turn that is put before a log which begins with the assistant's. Providers refuse such a conversation."""
_MIMES: Final = {"png": "image/png", "jpg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}
"""By extension of a stored picture. Entries name only such files, so an edited session cannot make the agent read another file."""
_FILE: Final = re.compile(rf"{MEDIA_FOLDER}/[0-9a-f]{{64}}\.(?:{'|'.join(_MIMES)})")


@attrs.frozen
class Entry:
    """Something that was said, thought, called or returned.

    Example: `Entry(now, "tool", '{"queued":true}', call_id="c1")` is the result of the call `c1`.
    """

    ts: int
    """Wall clock, ms since the epoch."""
    role: Role
    """Author: "user" (a message, a notification), "assistant" (a thought), "tool" (a result) or "system" (a note of the program)."""
    content: str = ""
    """Text. Of a user entry the first line is the metadata line of its channel."""
    calls: tuple[ToolCall, ...] = ()
    """Tool calls of an assistant entry."""
    call_id: str | None = None
    """Of a tool entry: the call that it is the result of. None for every other role."""
    metadata: Metadata = attrs.field(factory=dict)
    """Facts beside the text.

    user: "item" (number in the inbox), "messageId", "userId", "media", "skill". assistant: "thinking", "thinkingOf", "usage",
    "stopReason", "spoken". tool: "error" (true if the call failed). Any role: "type" (kind of a note of ours), "ends" (true if the
    note ends the work on its item), "outside", "fence" and "fencedFrom" (text from outside; see `fences`).
    """

    @property
    def item(self) -> int | None:
        """Number in the inbox of the message that this user entry holds; None for every other entry."""
        number = self.metadata.get("item")
        return number if type(number) is int and self.role == "user" else None

    @property
    def failed(self) -> bool:
        """True if this is the result of a call that failed or was cancelled."""
        return self.metadata.get("error") is True


class BadEntry(ValueError):
    """JSON that is no entry. The text says what is wrong, for the log line about the damaged line."""


def encode(entry: Entry) -> bytes:
    """Return the entry as one JSON line, newline included."""
    return encode_line(to_json(entry))


def to_json(entry: Entry) -> dict[str, Json]:
    """Return the entry as a JSON object without its empty parts. `decode` is the way back."""
    line: dict[str, Json] = {"ts": entry.ts, "role": entry.role}
    if entry.content:
        line["content"] = entry.content
    if entry.calls:
        line["toolCalls"] = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in entry.calls]
    if entry.call_id is not None:
        line["toolCallId"] = entry.call_id
    if entry.metadata:
        line["metadata"] = entry.metadata
    return line


def decode(value: object) -> Entry:
    """Return the entry of a parsed line. Unknown keys are ignored, so that files of newer versions can be read. Raises BadEntry."""
    if not isinstance(value, dict):
        raise BadEntry(f"an object is wanted, found {type(value).__name__}")
    role: Any = value.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise BadEntry(f"unknown role {role!r}")
    ts, content, metadata = value.get("ts", 0), value.get("content", ""), value.get("metadata", {})
    if not isinstance(ts, (int, float)) or not isinstance(content, str) or not isinstance(metadata, dict):
        raise BadEntry("ts must be a number, content a string, metadata an object")
    call_id, calls = value.get("toolCallId"), value.get("toolCalls", [])
    if (role == "tool") is not isinstance(call_id, str):
        raise BadEntry("toolCallId belongs to role tool, and only there")
    if not isinstance(calls, list):
        raise BadEntry("toolCalls must be a list")
    known_role: Any = role
    return Entry(_whole(ts), known_role, content, tuple(map(_decode_call, calls)), call_id, metadata)


def _whole(ts: float) -> int:
    """Return a time as whole ms. Other programs wrote fractions. Raises BadEntry for NaN and infinity."""
    try:
        return int(ts)
    except (ValueError, OverflowError) as error:  # NaN, Infinity
        raise BadEntry("ts must be a number") from error


def _decode_call(value: Any) -> ToolCall:
    """Return a call of a parsed line. Arguments that cannot be read become {}, since the call has happened. Raises BadEntry."""
    if not isinstance(value, dict):
        raise BadEntry("a tool call must be an object")
    call_id, name, arguments = value.get("id"), value.get("name"), value.get("arguments", {})
    if isinstance(arguments, str):  # JSON within a string, as other programs have written it
        try:
            arguments = decode_object(arguments)
        except ValueError:
            arguments = {}
    if not isinstance(call_id, str) or not isinstance(name, str) or not isinstance(arguments, dict):
        raise BadEntry("a tool call needs id, name and an arguments object")
    return ToolCall(call_id, name, arguments)


# ------------------------------------------------------------------ pictures


class Pictures:
    """The pictures of one conversation that are in memory, newest last, within MOST_SHOWN and MOST_BYTES.

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
        while len(self._images) > MOST_SHOWN or (self._bytes > MOST_BYTES * 4 // 3 and len(self._images) > 1):
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
            if len(seen) > MOST_SHOWN or (total > MOST_BYTES and len(seen) > 1):
                return
            yield name, file


def refs_of(entry: Entry) -> list[tuple[str, str, int]]:
    """Return (name, file, bytes) of each picture that a user entry names. A reference that is malformed is left out."""
    media: Any = entry.metadata.get("media") if entry.role == "user" else None
    refs: list[tuple[str, str, int]] = []
    for ref in media if isinstance(media, list) else ():
        file, size = (ref.get("file"), ref.get("bytes")) if isinstance(ref, dict) else (None, None)
        if isinstance(file, str) and _FILE.fullmatch(file):
            refs.append(
                (sanitize_name(str(ref.get("name", ""))), file, size if isinstance(size, int) and size > 0 else 0)
            )
    return refs


# ------------------------------------------------------------------ turns


class Projection:
    """Turns of a repaired log. `append` adds an entry to them.

    Example:
        projection = Projection(entries)
        projection.append(Entry(now, "user", "hello"))
        request = ModelRequest(prompt, tuple(projection.turns), tools)
    """

    def __init__(self, entries: Iterable[Entry] = (), pictures: Pictures | None = None) -> None:
        self.turns: list[Turn] = []
        """Alternating turns, the first one the user's."""
        self._pictures = pictures
        """Source of the pictures that entries name. A picture that is not there is shown as a line of text."""
        self._picture_turns: list[int] = []
        """Indexes of the turns that have pictures, oldest first."""
        self._open_calls: dict[str, ToolCall] = {}
        """Calls of the last assistant turn, by id: the results that follow belong to them."""
        for entry in entries:
            self.append(entry)

    def append(self, entry: Entry) -> None:
        """Add an entry. A tool entry must follow the assistant entry that called it (see `repair`), else it is left out."""
        if entry.role == "tool":
            call = self._open_calls.get(entry.call_id or "")
            if call is not None:
                result = ToolResult(call.id, call.name, shown_text(entry) or "(no output)", entry.failed)
                self._add_user(results=(result,))
        elif entry.role == "assistant":
            self._add_assistant(entry)
        elif "media" in entry.metadata:
            self._add_with_pictures(entry)
        else:
            self._add_user(text=_user_text(entry))

    def _add_user(
        self, *, text: str = "", results: tuple[ToolResult, ...] = (), images: tuple[Image, ...] = ()
    ) -> None:
        if not text.strip() and not results and not images:
            return
        last = self.turns[-1] if self.turns else None
        if isinstance(last, UserTurn):
            merged = "\n\n".join(part for part in (last.text, text) if part.strip())
            self.turns[-1] = UserTurn(last.results + results, merged, last.images + images)
        else:
            self.turns.append(UserTurn(results, text, images))

    def _add_assistant(self, entry: Entry) -> None:
        text = entry.content if entry.content.strip() else ""
        if not text and not entry.calls:
            return
        if not self.turns:
            self.turns.append(UserTurn(text=_OPENING))
        thinking, thinking_of = entry.metadata.get("thinking"), entry.metadata.get("thinkingOf")
        blocks: tuple[Json, ...] = tuple(thinking) if isinstance(thinking, list) else ()
        turn = AssistantTurn(text, entry.calls, blocks, thinking_of if isinstance(thinking_of, str) else None)
        last = self.turns[-1]
        if isinstance(last, AssistantTurn):
            # Two thoughts meet only if everything between them was empty. The thinking blocks of the first are left out,
            # because a provider accepts them at their own place only.
            joined = "\n\n".join(part for part in (last.text, turn.text) if part)
            turn = AssistantTurn(joined, last.calls + turn.calls, turn.thinking, turn.thinking_of)
            self.turns[-1] = turn
        else:
            self.turns.append(turn)
        self._open_calls = {call.id: call for call in turn.calls}

    # ------------------------------------------------------------------ pictures

    def _add_with_pictures(self, entry: Entry) -> None:
        """Add a user entry that names pictures. One that is not in memory becomes a line of text behind the message."""
        images: list[Image] = []
        notes: list[str] = []
        for name, file, _ in refs_of(entry):
            image = self._pictures.get(file) if self._pictures is not None else None
            if image is None:
                notes.append(_gone_note(name))
            else:
                images.append(attrs.evolve(image, name=name))
        self._add_user(text="\n".join((_user_text(entry), *notes)), images=tuple(images))
        if images and self._picture_turns[-1:] != [len(self.turns) - 1]:
            self._picture_turns.append(len(self.turns) - 1)
        self._bound_pictures()

    def _bound_pictures(self) -> None:
        """Replace the older half of the pictures by text, if there are more than a request may hold.

        Whole turns lose their pictures first, oldest turn first, until at most half of the bounds is used or one turn is left. If
        that turn alone exceeds the bounds, it keeps as many of its newest pictures as a request may hold.
        """
        shown = [turn.images for turn in map(self.turns.__getitem__, self._picture_turns) if isinstance(turn, UserTurn)]
        if not _exceed_bounds(shown, 1):
            return
        while len(shown) > 1 and _exceed_bounds(shown, 2):
            del shown[0]
            self._hide_pictures(self._picture_turns.pop(0), 0)
        if shown:  # many messages may be one turn, and then that turn alone may have too many
            images = shown[0]
            kept = next(n for n in range(len(images), -1, -1) if not _exceed_bounds([images[len(images) - n :]], 1))
            if kept < len(images):
                self._hide_pictures(self._picture_turns[0], kept)

    def _hide_pictures(self, index: int, kept: int) -> None:
        """Put text in place of a turn's pictures, except for the last `kept` of them.

        The pictures stay on disk, and `Pictures` may still hold them; only the turns change. A hidden picture is not shown again.
        """
        turn = self.turns[index]
        if isinstance(turn, UserTurn):
            first = len(turn.images) - kept
            notes = (_gone_note(image.name) for image in turn.images[:first])
            self.turns[index] = UserTurn(turn.results, "\n".join((turn.text, *notes)), turn.images[first:])


def _user_text(entry: Entry) -> str:
    """Return the text of an entry that is nobody's thought. A note of the program begins with a mark that nobody can type."""
    text = shown_text(entry)
    return f"{NOTE} {text}" if entry.role == "system" and text.strip() else text


def _gone_note(name: str) -> str:
    return f"(The picture {name} is no longer shown.)"


def _exceed_bounds(shown: list[tuple[Image, ...]], divisor: int) -> bool:
    """Return whether these are more pictures, or more bytes of pictures, than the bounds divided by `divisor`."""
    count = sum(map(len, shown))
    size = sum(len(image.data) for images in shown for image in images) * 3 // 4
    return count * divisor > MOST_SHOWN or size * divisor > MOST_BYTES
