"""The log of memory: changes of files, how to take one back, and the content of each file that follows from the log.

    {"base":"facts/user.md","hash":…,"text":"…"}          the file before the first change that follows (text null: too large)
    {"n":7,"ts":…,"path":…,"before":…,"after":…,"text":…}   a change, written before the file is
    {"void":7,"ts":…}                                     change 7 was written but not made: process or disk stopped in between

A change keeps the whole text after it, and hashes of the content before and after. So the log is a second copy of memory, and a file
that differs from it was changed by hand. Texts are the bytes of the files decoded with `surrogateescape`, so that bytes that are not
UTF-8 come back unchanged. A change of an earlier home keeps "splices" (character, old text, new text) in place of the text.

**Undo.** A change can be taken back although the file was changed elsewhere since. If a later change touches the same
lines, undoing would silently undo that one too, so it is refused with its number.

**Growth.** A log that has grown by `GROWTH` is shortened to its latest changes. In front of them stand "base" lines, so
that the content of every file still follows from the log.

**Reading.** The log is read once when the process starts, and after an error. From then on `History` follows each line that is
written, so that a change costs an append and no reading. Because it knows the content of each file, an edit by hand becomes visible
as a difference. A line that is damaged (a torn write, an edit by hand) leaves the text before the next change of its file unknown,
which the hashes tell.

Nothing in this file reads or writes a file: `logged_files` does. The only object that changes is `History`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import attrs

from pegasus.json_lines import BadLine, scan_lines
from pegasus.memory.taking_back import difference, split_lines, without_change
from pegasus.messages import Json
from pegasus.wire import encode_line, require_number, to_unicode

LOG: Final = ".log/changes.jsonl"
"""The log's path in the memory folder."""
KEPT_FILE: Final = 65_536
"""Bytes of a file up to which the log holds its content. Of a larger file it has only the hash."""
KEPT_CHANGES: Final = 2 << 20
"""Bytes of changes that stay when the log is shortened. The last change of each file stays however old it is."""
GROWTH: Final = 4 << 20
"""Bytes by which the log grows before it is shortened."""
SHOWN: Final = 2_000
"""Characters of a change's old and new text that are shown; the rest is in the log."""


@attrs.frozen
class Author:
    """Origin of a change."""

    kind: str = "main-agent"
    """main-agent, task, reflection (of that task), user (by a command), or hand (an editor, noticed afterwards)."""
    task: str = ""
    """Id of the task that wrote, for kind task and reflection."""
    user: str = ""
    """Id of the person, as the channel names people."""
    channel: str = ""
    """`<type>:<channelId>` of the message that led to it."""
    why: str = ""
    """Reason that the writer has given."""
    source: str = ""
    """Origin of the words; see `provenance`."""
    key: str = ""
    """Identifies the call that makes the change. A call that is run again after a crash changes nothing more."""


def decode_text(content: bytes) -> str:
    """Return a file as text. `encode_text` makes the same bytes of it."""
    return content.decode("utf-8", "surrogateescape")


def encode_text(text: str) -> bytes:
    """Return the bytes of a text that `decode_text` has made."""
    return text.encode("utf-8", "surrogateescape")


def content_hash(content: bytes) -> str:
    """Return a hash that identifies the content, 16 hex digits; "" for an empty one."""
    return sha256(content).hexdigest()[:16] if content else ""


class KnownContent(NamedTuple):
    r"""The content of a file as it follows from the log.

    Example: `known_content(b"- Likes: tea\n").text` is "- Likes: tea\n", and `ABSENT` stands for a file that does not exist.
    """

    hash: str
    """See `content_hash`; "" for a file that does not exist."""
    text: str | None
    """None if it was too large to be kept, or a line of the log is missing."""

    @property
    def is_unread(self) -> bool:
        """Return whether the file was too large to be read. Only its size is known then; see `unread_content`."""
        return self.hash.endswith(_UNREAD)


_UNREAD: Final = " bytes"
ABSENT: Final = KnownContent("", "")
"""Content of a file that does not exist."""


def known_content(content: bytes) -> KnownContent:
    """Return the entry of the log's state for a file with this content."""
    return KnownContent(content_hash(content), decode_text(content) if len(content) <= KEPT_FILE else None)


def unread_content(size: int) -> KnownContent:
    """Return the entry of a file that is too large to be read. It has the size in place of a hash, so that growing is noticed."""
    return KnownContent(f"{size}{_UNREAD}", None)


@attrs.frozen
class Change:
    """A change of one file."""

    n: int
    """Number of the change, from 1."""
    ts: int
    """Wall clock, ms."""
    path: str
    """The file, as in `facts/user.md`; NOTES for MEMORY.md of the workspace."""
    how: str
    """write, patch, append, undo or edit."""
    by: Author
    """The origin, for people who look at the log."""
    before: KnownContent
    """The file before."""
    after: KnownContent
    """The file after."""
    undoes: int = 0
    """Number of the change that this one takes back, 0 for none."""


# ------------------------------------------------------------------ undo


class CannotUndo(Exception):
    """The change cannot be taken back. The text says why; `Memory.undo` names the change."""


def undo_change(change: Change, later: Sequence[Change], now: str) -> str:
    """Return the file without this change. later: the changes of the file since, in order. now: its text. Raises CannotUndo.

    All lines of the change must be undoable, otherwise none is undone. The one exception is the summary at
    the top of a file: nearly every change renews it, so a later summary stays instead of refusing the undo.
    """
    before, after = change.before.text, change.after.text
    if before is None or after is None:
        raise CannotUndo(f"change {change.n} was too large to be kept; edit the file instead")
    undone = without_change(before, after, now)
    if undone is not None:
        return undone

    def stands_in_the_way(other: Change) -> bool:
        """Return whether the change could not be taken back any more after another one."""
        return other.after.text is None or without_change(before, after, other.after.text) is None

    # A file may have been changed thousands of times, so the texts in between are not all compared.
    place = bisect_left(later, True, key=stands_in_the_way)
    if place == len(later):
        raise CannotUndo("the file was changed later in a way that is not in the log; edit the file instead")
    n = later[place].n
    if later[place].after.text is None:
        raise CannotUndo(f"change {n}, which came later, was too large to be kept; edit the file instead")
    raise CannotUndo(f"change {n} changed the same lines later; undo change {n} first")


# ------------------------------------------------------------------ lines of the log


def change_json(change: Change) -> dict[str, Json]:
    """Return the change as a JSON object, as it stands in the log. Empty values are left out."""
    by = {key: value for key, value in attrs.asdict(change.by).items() if value}
    undoes: dict[str, Json] = {"undoes": change.undoes} if change.undoes else {}
    content = {"before": change.before.hash, "after": change.after.hash, "text": change.after.text}
    return {"n": change.n, "ts": change.ts, "path": change.path, "how": change.how, "by": by, **undoes, **content}


def view_of(change: Change) -> dict[str, Json]:
    """Return a change as JSON for people: that of the log, with the lines that went and came in place of text and hashes.

    removed and added are shortened; null if the log does not keep them.
    """
    view = change_json(attrs.evolve(change, by=attrs.evolve(change.by, key="")))
    for key in ("before", "after", "text"):
        del view[key]
    if change.before.text is None or change.after.text is None:
        return {**view, "removed": None, "added": None}
    old, new = split_lines(change.before.text), split_lines(change.after.text)
    blocks = difference(old, new)
    removed = "".join(line for start, end, _ in blocks for line in old[start:end])
    return {
        **view,
        "removed": _shorten(removed),
        "added": _shorten("".join(line for *_, new in blocks for line in new)),
    }


def _shorten(text: str) -> str:
    """Return at most SHOWN characters, and how many are missing.

    Lone surrogates, which JSON cannot carry, become "?".
    """
    text = to_unicode(text)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}\n… ({len(text) - SHOWN:,} more characters)\n"


def parse_change(line: Mapping[str, Any], known: KnownContent) -> Change:
    """Return the change that a JSON object stands for. known: content of its file after the lines before it.

    Raises KeyError, TypeError or ValueError. Unknown keys are ignored.
    """
    fields = {field.name for field in attrs.fields(Author)}
    by = Author(**{key: str(value) for key, value in line["by"].items() if key in fields})
    before = known if known.hash == str(line["before"]) else KnownContent(str(line["before"]), None)
    text = _follow_splices(before.text, line["splices"]) if "splices" in line else line["text"]
    hash = str(line["after"])
    if text is not None and content_hash(encode_text(text)) != hash:
        text = None
    n, ts, undoes = require_number(line["n"]), require_number(line["ts"]), require_number(line.get("undoes", 0))
    return Change(n, ts, str(line["path"]), str(line["how"]), by, before, KnownContent(hash, text), undoes)


def _follow_splices(text: str | None, splices: Any) -> str | None:
    """Return the text after a change of an earlier home."""
    for at, old, new in reversed(splices or ()):
        start = require_number(at)
        text = None if text is None else f"{text[:start]}{new}{text[start + len(old) :]}"
    return None if splices is None else text


def change_line(change: Change) -> bytes:
    """Return the line that is appended to the log for a change."""
    return encode_line(change_json(change))


def void_line(n: int, ts: int) -> bytes:
    """Return the line that is appended to the log for a change that was not made."""
    return encode_line({"void": n, "ts": ts})


# ------------------------------------------------------------------ what follows from the log


class History:
    """State that follows from the lines of the log.

    For example:

        history, changes = read_log(data)
        history.of("facts/user.md").text   # the content that the file must have
    """

    def __init__(self) -> None:
        self.files: dict[str, KnownContent] = {}
        """The files that exist, by path."""
        self.count = 0
        """Number of the last change, void ones included."""
        self.last: Change | None = None
        """The last change, unless it is void."""
        self.keys: set[str] = set()
        """Keys of the calls that made changes."""
        self.size = self.lines = 0
        """Bytes and lines of the log."""
        self.shortened_size = 0
        """Bytes of the log when it was shortened."""
        self.damaged: list[bytes] = []
        """Lines that are no records."""

    def of(self, path: str) -> KnownContent:
        """Return the content of a file."""
        return self.files.get(path, ABSENT)

    def add(self, change: Change) -> None:
        """Apply the next change of the log to the content of its file."""
        self.put(change.path, change.after)
        self.count, self.last = change.n, change
        self.keys.add(change.by.key)

    def retract_last(self) -> None:
        """Take back the last change, which was not made."""
        if self.last is not None:
            self.put(self.last.path, self.last.before)
            self.keys.discard(self.last.by.key)
            self.last = None

    def put(self, path: str, known: KnownContent) -> None:
        """Set the content of a file, such as that from before the changes that follow."""
        if known.hash:
            self.files[path] = known
        else:
            self.files.pop(path, None)


def read_log(data: bytes) -> tuple[History, list[Change]]:
    """Return the state after all lines of a log, and the changes that were made, oldest first.

    Lines that are no records are left out; see `History.damaged`.
    """
    history, made = History(), list[Change]()
    history.size, history.lines = len(data), data.count(b"\n")
    for line in scan_lines(data):
        if isinstance(line, BadLine):
            history.damaged.append(line.raw)
            continue
        value = line.value
        try:
            if "void" in value:
                n = require_number(value["void"])
                if history.last is not None and history.last.n == n:
                    history.retract_last()
                    made.pop()
            elif "base" in value:
                text = value["text"]
                history.put(str(value["base"]), KnownContent(str(value["hash"]), None if text is None else str(text)))
            else:
                made.append(parse_change(value, history.of(str(value["path"]))))
                history.add(made[-1])
        except (KeyError, TypeError, ValueError, AttributeError):
            history.damaged.append(data[line.offset : line.offset + line.length])
    return history, made


def shortened(data: bytes, kept: int = KEPT_CHANGES) -> bytes:
    """Return a shorter log, from which the same content of every file follows.

    It keeps the newest changes, `kept` bytes of them, and the last change of each file however old it is. What it leaves
    out cannot be undone any more. It is written as one replaced file, so a crash leaves either log.
    """
    history, made = read_log(data)
    stay = {change.n for change in {change.path: change for change in made}.values()}
    for change in reversed(made):
        kept -= len(change_line(change))
        if kept < 0:
            break
        stay.add(change.n)
    staying = [change for change in made if change.n in stay]
    # The content of each file in front of the first change that stays.
    bases = history.files | {change.path: change.before for change in reversed(staying)}
    lines = [encode_line({"base": path, **known._asdict()}) for path, known in bases.items() if known.hash]
    return b"".join([*lines, *map(change_line, staying)])
