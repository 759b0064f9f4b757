"""The log of memory: changes of files, how to take one back, and the content of each file that follows from the log.

    {"base":"facts/user.md","hash":…,"text":"…"}   the file before the first change that follows (text null: too large)
    {"n":7,"ts":…,"path":…,"how":…,"splices":…}    a change, written before the file is
    {"void":7,"ts":…}                              change 7 was written but not made: process or disk stopped in between

A change is a list of *splices* (see `splices`), so it is small however long the file is. The log is a second copy of
memory, and a file that differs from it was changed by hand. Texts are the bytes of the files decoded with
`surrogateescape`, so that bytes that are not UTF-8 come back unchanged.

**Undo.** A change can be taken back although the file was changed elsewhere since. If a later change touches the same
lines, undoing would silently undo that one too, so it is refused with its number.

**Growth.** A log that has grown by `GROWTH` is shortened to its latest changes. In front of them stand "base" lines, so
that the content of every file still follows from the log.

**Reading.** The log is read once when the process starts, and after an error. From then on `History` follows each line that is
written, so that a change costs an append and no reading. Because it knows the content of each file, a splice can be computed
without having read the file before, and an edit by hand becomes visible as a difference. A line that is damaged (a torn write, an
edit by hand) makes the text of its file unknown, as later splices have nothing to be applied to. The hash of the file is still
known from the next line on, so changes are still noticed; only their text can be neither shown nor undone.

Nothing in this file reads or writes a file: `logged_files` does. The only object that changes is `History`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import attrs

from pegasus.json_lines import BadLine, scan_lines
from pegasus.memory.pages import is_summary
from pegasus.memory.splices import CannotUndo, Splice, applied, applied_or_refused, inverse, splices_undone
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


@attrs.frozen
class Change:
    """A change of one file, as a line of the log.

    For example:

        change = Change(7, now, "facts/user.md", "patch", Author("task", task="t-1"), content_hash(a), content_hash(b), difference(…))
    """

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
    before: str
    """Hash of the file before; "" if it did not exist or was empty."""
    after: str
    """Hash of the file after."""
    splices: tuple[Splice, ...] | None = ()
    """In the order of the text; None if the content was too large to be kept."""
    undoes: int = 0
    """Number of the change that this one takes back, 0 for none."""


def decode_text(content: bytes) -> str:
    """Return a file as text. `encode_text` makes the same bytes of it."""
    return content.decode("utf-8", "surrogateescape")


def encode_text(text: str) -> bytes:
    """Return the bytes of a text that `decode_text` has made."""
    return text.encode("utf-8", "surrogateescape")


def content_hash(content: bytes) -> str:
    """Return a hash that identifies the content, 16 hex digits; "" for an empty one."""
    return sha256(content).hexdigest()[:16] if content else ""


# ------------------------------------------------------------------ undo


def undo_change(change: Change, later: Sequence[Change], text: str) -> str:
    """Return the file without this change. later: the changes of the file since, in order. Raises CannotUndo.

    All splices of the change must be undoable, otherwise none is undone. The one exception is the summary at
    the top of a file: nearly every change renews it, so a later summary stays instead of refusing the undo.
    """
    if change.splices is None:
        raise CannotUndo(f"change {change.n} was too large to be kept; edit the file instead")
    after = text  # goes back, change by change, to the file right after the change itself
    for other in reversed(later):
        if other.splices is None:
            raise CannotUndo(f"change {other.n}, which came later, was too large to be kept; edit the file instead")
        after = applied_or_refused(after, inverse(other.splices))
    undone = splices_undone(change.splices, after, text)
    if undone is None:
        n = _last_touching(change.splices, later)
        raise CannotUndo(f"change {n} changed the same lines later; undo change {n} first")
    return undone


def _last_touching(splices: Iterable[Splice], later: Sequence[Change]) -> int:
    """Return the number of the last of these changes that touches the lines of the splices.

    The places of the lines are followed through the changes. To compare the texts after each change would take minutes
    for a file that was changed thousands of times.
    """
    places = [(at, at + len(new)) for at, new, old in inverse(splices) if not (is_summary(old) and is_summary(new))]
    last = later[-1].n
    for change in later:
        made, moved = change.splices or (), []
        for start, end in places:
            touching = [splice for splice in made if splice.at < end and splice.at + len(splice.old) > start]
            last = change.n if touching else last
            before = sum(len(new) - len(old) for at, old, new in made if at + len(old) <= start)
            longer = sum(len(new) - len(old) for _, old, new in touching)
            first = min([start, *(at for at, _, _ in touching)])
            behind = max([end, *(at + len(old) for at, old, _ in touching)])
            moved.append((first + before, behind + before + longer))
        places = moved
    return last


# ------------------------------------------------------------------ lines of the log


def change_json(change: Change) -> dict[str, Json]:
    """Return the change as a JSON object. Empty values are left out."""
    by = {key: value for key, value in attrs.asdict(change.by).items() if value}
    line: dict[str, Json] = {"n": change.n, "ts": change.ts, "path": change.path, "how": change.how, "by": by}
    if change.undoes:
        line["undoes"] = change.undoes
    line |= {"before": change.before, "after": change.after}
    line["splices"] = None if change.splices is None else [list(splice) for splice in change.splices]
    return line


def view_of(change: Change) -> dict[str, Json]:
    """Return a change as JSON for people: that of the log, with the lines that went and came in place of splices and hashes.

    removed and added are shortened; null if the log does not keep them.
    """
    view = change_json(change)
    for key in ("before", "after", "splices"):
        del view[key]
    view["by"] = {key: value for key, value in attrs.asdict(change.by).items() if value and key != "key"}
    splices = change.splices
    view["removed"] = None if splices is None else _shorten("".join(splice.old for splice in splices))
    view["added"] = None if splices is None else _shorten("".join(splice.new for splice in splices))
    return view


def _shorten(text: str) -> str:
    """Return at most SHOWN characters, and how many are missing.

    Lone surrogates, which JSON cannot carry, become "?".
    """
    text = to_unicode(text)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}\n… ({len(text) - SHOWN:,} more characters)\n"


def parse_change(line: Mapping[str, Any]) -> Change:
    """Return the change that a JSON object stands for. Raises KeyError, TypeError or ValueError. Unknown keys are ignored."""
    known = {field.name for field in attrs.fields(Author)}
    by = Author(**{key: str(value) for key, value in line["by"].items() if key in known})
    found = line["splices"]
    splices = None if found is None else tuple(Splice(require_number(at), str(old), str(new)) for at, old, new in found)
    path, how, before, after = (str(line[key]) for key in ("path", "how", "before", "after"))
    n, ts, undoes = require_number(line["n"]), require_number(line["ts"]), require_number(line.get("undoes", 0))
    return Change(n, ts, path, how, by, before, after, splices, undoes)


def change_line(change: Change) -> bytes:
    """Return the line that is appended to the log for a change."""
    return encode_line(change_json(change))


def void_line(n: int, ts: int) -> bytes:
    """Return the line that is appended to the log for a change that was not made."""
    return encode_line({"void": n, "ts": ts})


# ------------------------------------------------------------------ what follows from the log


class KnownContent(NamedTuple):
    r"""The content of a file as it follows from the log.

    Example: `known_content(b"- Likes: tea\n").text` is "- Likes: tea\n", and `ABSENT` stands for a file that does not exist.
    """

    hash: str
    """See `content_hash`; "" for a file that does not exist."""
    text: str | None
    """None if it was too large to be kept, or a line of the log is missing."""


ABSENT: Final = KnownContent("", "")
"""Content of a file that does not exist."""


def known_content(content: bytes) -> KnownContent:
    """Return the entry of the log's state for a file with this content."""
    return KnownContent(content_hash(content), decode_text(content) if len(content) <= KEPT_FILE else None)


class History:
    """State that follows from the lines of the log.

    For example:

        history = parse_history(data)
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
        self.size = 0
        """Bytes of the log."""
        self.shortened_size = 0
        """Bytes of the log when it was shortened."""
        self.damaged: list[bytes] = []
        """Lines that are no records."""
        self._before = ABSENT
        """Content of the last change's file before it."""

    def of(self, path: str) -> KnownContent:
        """Return the content of a file."""
        return self.files.get(path, ABSENT)

    def add(self, change: Change) -> None:
        """Apply the next change of the log to the content of its file."""
        before = self.of(change.path)
        self.put(change.path, _after(before, change))
        self.count, self.last, self._before = change.n, change, before
        self.keys.add(change.by.key)

    def retract_last(self) -> None:
        """Take back the last change, which was not made."""
        if self.last is not None:
            self.put(self.last.path, self._before)
            self.keys.discard(self.last.by.key)
            self.last = None

    def put(self, path: str, known: KnownContent) -> None:
        """Set the content of a file, such as that from before the changes that follow."""
        if known.hash:
            self.files[path] = known
        else:
            self.files.pop(path, None)


def _after(before: KnownContent, change: Change) -> KnownContent:
    """Return the content of a file after a change, without the text if that does not follow from the log.

    Splices that do not fit mean that a line is missing before them. Then the hash is all that is known.
    """
    if not change.after:
        return ABSENT
    if before.text is None or change.splices is None:
        return KnownContent(change.after, None)
    try:
        text = applied(before.text, change.splices)
    except ValueError:  # a line before this one is missing
        return KnownContent(change.after, None)
    return KnownContent(change.after, text if len(encode_text(text)) <= KEPT_FILE else None)


class _Void(NamedTuple):
    """A change that was not made."""

    n: int
    """Number of that change."""


class _Base(NamedTuple):
    """The content of a file before the changes that follow."""

    path: str
    known: KnownContent


def _records(data: bytes, damaged: list[bytes]) -> Iterable[Change | _Base | _Void]:
    """Yield the records of a log. Lines that are none are added to `damaged`.

    A record of the right shape may still be wrong; `parse_history` compares the hashes at the end.
    """
    for line in scan_lines(data):
        if isinstance(line, BadLine):
            damaged.append(line.raw)
            continue
        value = line.value
        try:
            if "void" in value:
                yield _Void(require_number(value["void"]))
            elif "base" in value:
                text = value["text"]
                yield _Base(str(value["base"]), KnownContent(str(value["hash"]), None if text is None else str(text)))
            else:
                yield parse_change(value)
        except (KeyError, TypeError, ValueError, AttributeError):
            damaged.append(data[line.offset : line.offset + line.length])


def parse_history(data: bytes) -> History:
    """Return the state after all lines of a log. Lines that are no records are left out; see `History.damaged`."""
    history = History()
    history.size = len(data)
    for record in _records(data, history.damaged):
        match record:
            case Change():
                history.add(record)
            case _Base(path, known):
                history.put(path, known)
            case _Void(n):
                if history.last is not None and history.last.n == n:
                    history.retract_last()
    for path, known in history.files.items():
        if (
            known.text is not None and content_hash(encode_text(known.text)) != known.hash
        ):  # a line in front of it is missing
            history.files[path] = KnownContent(known.hash, None)
    return history


def changes_in(data: bytes) -> list[Change]:
    """Return every change that was made, in order."""
    made: dict[int, Change] = {}
    for record in _records(data, []):
        if isinstance(record, Change):
            made[record.n] = record
        elif isinstance(record, _Void):
            made.pop(record.n, None)
    return list(made.values())


def shortened(data: bytes, kept: int = KEPT_CHANGES) -> bytes:
    """Return a shorter log, from which the same content of every file follows.

    It keeps the newest changes, `kept` bytes of them, and the last change of each file however old it is. What it leaves
    out cannot be undone any more. It is written as one replaced file, so a crash leaves either log.
    """
    made = {change.n: change for change in changes_in(data)}
    last_of = {change.path: change.n for change in made.values()}
    stay = set(last_of.values())
    for n, change in reversed(made.items()):
        kept -= len(change_line(change))
        if kept < 0:
            break
        stay.add(n)
    history, bases = History(), dict[str, KnownContent]()
    for record in _records(data, []):
        if isinstance(record, _Base):
            history.put(record.path, record.known)
        elif isinstance(record, Change) and record.n in made:
            if record.n in stay:
                bases.setdefault(record.path, history.of(record.path))
            history.add(record)
    for path, known in history.files.items():
        bases.setdefault(path, known)
    lines = [encode_line({"base": path, **known._asdict()}) for path, known in bases.items() if known.hash]
    return b"".join([*lines, *(change_line(made[n]) for n in sorted(stay))])
