"""The session: the Main Agent's one conversation, an append-only log on disk and the same in memory.

What is in memory is what the file will hold. Every write but a note returns only when its lines are on disk, so the model never
builds on something that a power failure takes away, and no reply is sent whose thought is lost. While the disk refuses (full,
read-only), writing waits and tries again: nothing is dropped, and the agent continues at the same place when there is room.

Three kinds of writes differ in what a cancel leaves behind, which matters because /stop may come while the disk refuses:

* `commit` writes a decision (a thought, posts). Cancelled, it has not happened.
* `add` writes a fact (the result of a tool call). Cancelled, the fact stays in memory, and the next write puts it on disk before
  anything else.
* `note` writes a fact that is on disk elsewhere, and does not wait.

The progress of the work on an item is read from the session and kept nowhere else, so a restart continues where the think loop was.
Items are worked on one after another, though not always in the order of their numbers. The entries behind an item's user entry
belong to it, up to the user entry of the next item. An item that has a later one behind it is done, or was taken along by that one
(see `think_loop`).

See `loading` for how a session is read and repaired at start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Final, TypeVar

import attrs
import trio

from actors import Answer, Ref
from pegasus.conversation import (
    Entry,
    Pictures,
    Projection,
    encode,
    fence_of,
    new_fence,
    parse_metadata_line,
)
from pegasus.main_agent.session.files import GLOBAL, SessionFiles
from pegasus.main_agent.session.media_queue import MediaQueue
from pegasus.main_agent.session.names import with_id
from pegasus.main_agent.session.pending_notes import carried_over
from pegasus.messages import APART, Address, Json, Metadata, OutboundMessage
from pegasus.models import ToolCall
from pegasus.observe import get_logger
from pegasus.outside import OUTSIDE, Untrusted, join_outside
from pegasus.retry import retry
from pegasus.storage import (
    Archive,
    ArchiveName,
    Commit,
    Item,
    JournalMessage,
    Lease,
    Post,
    PostResult,
    ReplaceFile,
    StorageError,
)

_log = get_logger("session")
_T = TypeVar("_T")

REPLY_NAME: Final = "reply"
"""Name of the tool by which the agent speaks."""
OUTWARD: Final = frozenset({REPLY_NAME, "spawn_subagent", "spawn_task", "resume_task"})
"""Tools whose success leads to no further thought: their effect is outside, and there is nothing to read in the result."""
CHAT: Final = "chat"
"""Key in the metadata of a file's first entry: the chat that the session belongs to."""
NEW_CONVERSATION: Final = "(A new conversation begins.)"
"""Content of the first entry of a session that was begun anew."""
HOOK: Final = "hook-"
"""Beginning of the ids of messages that hooks send. What they say is from outside, and nobody hears the answer."""
UNFINISHED: Final = "unfinished"
"""`metadata.type` of the note behind an answer that is not whole. It leads to another thought."""
CUT: Final = "cut"
"""`metadata.type` of the assistant's entry with a draft that a person has ended the answer at."""
REPLACED: Final = "replaced"
"""Key in the metadata of a file's first entry: archives whose beginning the session has kept, since a person went back in it."""
_NOTE_START: Final = "(I told the user: "
"""Beginning of a note about a text that was not the model's. Stored, so it must not change."""
USE_SKILL: Final = "use_skill"
"""Name of the tool that follows a skill (see `skill_invocation`). Its result is the skill's text, or that it became a task."""
TASK_RESULT: Final = '{"taskId":'
"""Beginning of the result of a skill that became a task. It leads to no further thought, since the task will report."""


async def until_written(write: Callable[[], Awaitable[_T]], what: str) -> _T:
    """Call `write` until it raises no StorageError, with growing pauses, and return its result.

    what: words for the log. A call of `write` is never interrupted, since nobody could say then whether it has happened; a pause is.
    """

    async def attempt() -> _T:
        with trio.CancelScope(shield=True):
            result = await write()
        return result  # noqa: RET504 mypy takes a scope for one that swallows

    def log(error: Exception, seconds: float) -> None:
        _log.error("the disk refuses to write, trying again", what=what, error=str(error), seconds=seconds)

    return await retry(attempt, StorageError, log)


def _tell_nobody(entries: Sequence[Entry], results: Sequence[PostResult]) -> None:
    """Leave what was written to readers of the file."""


class NextStep(Enum):
    """Step that an item needs next.

    Example: `session.progress(item.n).next is NextStep.THINK`. The values are words for logs and tests.
    """

    RECORD = "its message is not in the session yet"
    THINK = "a thought"
    NOTHING = "it is done"


@attrs.frozen(eq=False, repr=False)
class ItemProgress:
    """Progress of the work on an item.

    Example: `ItemProgress(NextStep.THINK, thoughts=2, replies=1)` for an item whose last tool result is not answered yet.
    """

    next: NextStep
    """Step that is due; NOTHING if the item needs only its `CompleteItem`."""
    thoughts: int = 0
    """Model calls made about it."""
    replies: int = 0
    """Replies posted for it."""
    is_recorded: bool = False
    """Its message is in the session."""
    skills: tuple[str, ...] = ()
    """Names of the inline skills in force, in the order in which they came into force."""


@attrs.define(eq=False, repr=False)
class _ItemWork:
    """Work on an item that its entries show so far; each entry is looked at once, when it comes."""

    start: int
    """Index of its user entry."""
    thoughts: int = 0
    """Model calls made about it."""
    replies: int = 0
    """Replies posted for it."""
    is_pending: bool = True
    """A thought is due."""
    is_over: bool = False
    """A later item has begun, or a note has ended this one."""
    calls: dict[str, ToolCall] = attrs.field(factory=dict)
    """Calls of the last thought, by id."""
    skills: dict[str, None] = attrs.field(factory=dict)
    """Skills in force. One that comes into force twice keeps its first place."""

    def follow(self, entry: Entry) -> None:
        """Take the next entry, the user entry first."""
        if self.is_over or entry.metadata.get("ends") is True:
            self.is_over = True
            return
        call = self.calls.get(entry.call_id or "")
        if entry.role == "assistant":
            self.thoughts, self.is_pending = self.thoughts + 1, False
            self.replies += entry.metadata.get("spoken") is True
            self.calls = {call.id: call for call in entry.calls}
        elif entry.metadata.get("type") == UNFINISHED:
            self.is_pending = True
        elif entry.role == "tool":
            name = call.name if call is not None else ""
            self.replies += name == REPLY_NAME and not entry.failed
            self.is_pending = self.is_pending or _leads_to_thought(name, entry)
        self.skills |= dict.fromkeys(_skill_in_force(entry, call))

    @property
    def progress(self) -> ItemProgress:
        """Progress of the item now."""
        step = NextStep.THINK if self.is_pending and not self.is_over else NextStep.NOTHING
        return ItemProgress(step, self.thoughts, self.replies, True, tuple(self.skills))


class Session:
    """A conversation in a file below data/.

    A write raises LeaseLost if another agent has loaded the same session since, and Changed if the file has lines that are not in
    memory. Then nothing of it has happened.

    Example:
        session = await load_session(journal, clock)
        await session.add(message_entry)
        [reply] = await session.commit((thought,), (post,))
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        journal: Ref[JournalMessage],
        files: SessionFiles = GLOBAL,
        pictures: Pictures | None = None,
        make_fence: Callable[[], str] = new_fence,
        lease: Lease | None = None,
        lines: int | None = None,
    ) -> None:
        """Take over the entries of the file. lines: the number of its lines; None: it is not known, and a write does not name it."""
        self.files = files
        """Names of its files."""
        self.pictures = Pictures() if pictures is None else pictures
        """Pictures of its entries that the model can see."""
        self.replies: dict[str, OutboundMessage] = {}
        """Replies posted for the item being worked on, by the keys of their posts. The actor empties it when the next item begins."""
        self.on_written: Callable[[Sequence[Entry], Sequence[PostResult]], None] = _tell_nobody
        """Is told what was said, once it is on disk: entries that were added, and what became of posts that came with entries."""
        self._journal = journal
        """The only writer of the files."""
        self.lease = lease
        """Proof towards the journal that the session is ours."""
        self._lines = lines
        """Lines of the file, by which the journal recognises a write that is repeated."""
        self._make_fence = make_fence
        """Makes the id for the fences of a conversation."""
        self._unwritten: tuple[Entry, ...] = ()
        """Facts that are in memory and perhaps not on disk yet. They stay here if a write is cancelled while the disk refuses."""
        self._noted: list[tuple[int, Answer[tuple[PostResult, ...]]]] = []
        """Writes of notes that nobody has waited for: how many of these facts each writes, and its answer."""
        self._writers: dict[Address, set[str]] = {}
        """Ids of the people who were seen in each conversation."""
        self._begin(entries)

    def _begin(self, entries: Sequence[Entry]) -> None:
        """Make the state in memory from these entries, which are on disk: at load, and after the session was archived."""
        self.entries: list[Entry] = []
        """All entries, oldest first."""
        self.projection = Projection((), self.pictures)
        """The entries as turns for a provider."""
        self.call_ids = {call.id for entry in entries for call in entry.calls}
        """Ids of all calls. Those of a new answer are made unique with it, since some providers count from 0 in every answer, and the
        keys of posts and tasks are made of them."""
        self.outside: tuple[Untrusted, ...] = ()
        """Labels of all text from outside that its entries have, and so what whoever reads it has read."""
        self.fence = fence_of(entries) or self._make_fence()
        """Id of the fences around such text."""
        self.is_fresh = True
        """True while nobody has written anything in it."""
        self.is_apart = bool(self.files.chat) and _is_apart(entries)
        """Guests are heard in it. Nothing of the owner's other conversations and of memory may be in it."""
        self.media_queue = MediaQueue()
        """Files that `send_file` has gathered and no entry has sent yet."""
        self._work: dict[int, _ItemWork] = {}
        """Work on each item, in the order in which it began. The last one is the only one that goes on."""
        self._remember(entries)

    # ------------------------------------------------------------------ reading

    def progress(self, item: int, message_id: str | None = None) -> ItemProgress:
        """Return how far the work on this item of the inbox has come.

        message_id: of its message. If another message is recorded under the number, the inbox was lost and counts from 1 again.
        """
        work = self._work.get(item)
        if work is not None and _belongs_to(self.entries[work.start].metadata, message_id):
            return work.progress
        return ItemProgress(NextStep.NOTHING if is_begun_by(self.entries, item, message_id) else NextStep.RECORD)

    def of_item(self, item: int) -> Sequence[Entry]:
        """Return the item's user entry and everything behind it; () if the item is not recorded."""
        work = self._work.get(item)
        return () if work is None else self.entries[work.start :]

    def item_numbers(self) -> list[int]:
        """Return the items that the session shows, the oldest first: the /new that began it, and those that are recorded."""
        closes = self.entries[0].metadata.get("closes") if self.entries else None
        return [*([closes] if type(closes) is int else []), *self._work]

    def is_shared(self, address: Address, user_id: str) -> bool:
        """Return whether somebody else than this person was seen in a conversation."""
        return not self._writers.get(address.escaped, set()) <= {user_id}

    # ------------------------------------------------------------------ writing

    async def add(self, *entries: Entry) -> None:
        """Append what has happened already: a message, the result of a tool call. On return it is on disk.

        While the disk refuses, tries again. Cancelled meanwhile: the entries stay in memory, and the next write puts them on disk.
        """
        new = self._with_chat(entries)
        self._remember(new)
        self._unwritten += new
        await self._write((), ())
        self.on_written(new, ())

    async def note(self, *entries: Entry) -> None:
        """Append what a restart finds out by itself: a message, which the inbox has; the result of a reply, which the outbox has.

        The disk is not waited for: they go to it with the next write, or a moment later. Cancelled: as `add`.
        """
        noted = sum(count for count, _ in self._noted)
        if self._lines is None or noted < len(self._unwritten):
            await self.add(*entries)
            return
        new = self._with_chat(entries)
        self._remember(new)
        self._unwritten += new
        lines = ((self.files.path, b"".join(map(encode, new))),)
        answer = await self._journal.request(Commit, lines, (), self.lease, (), self._lines + noted, (), True)
        self._noted.append((len(new), answer))
        self.on_written(new, ())

    async def commit(self, entries: Sequence[Entry], posts: tuple[Post, ...] = ()) -> tuple[PostResult, ...]:
        """Append entries and post replies as one durable step; return what became of each post.

        The posts reach the disk after the entries. A power failure or a kill in between may leave the entries without
        the posts (see `think_loop`).
        While the disk refuses, tries again. Cancelled meanwhile: nothing of it has happened. Otherwise it is not interrupted.
        """
        entries = self._with_chat(entries)
        results = await self._write(entries, posts)
        for post, result in zip(posts, results, strict=True):
            if isinstance(result, OutboundMessage):
                self.replies[post.key] = result
        self._remember(entries)
        # Without entries a post is the answer to a command, or was posted before a crash already.
        if entries:
            self.on_written((), results)
        return results

    async def _write(self, entries: Sequence[Entry], posts: tuple[Post, ...]) -> tuple[PostResult, ...]:
        """Append the facts that are not written yet, then these entries, and post replies.

        There is no checkpoint between the write and the return, so whatever the caller does next without one belongs to the same step.
        """
        path = self.files.path

        async def write() -> tuple[PostResult, ...]:
            """Write everything at once. Facts count as written only when the journal has answered."""
            noted, self._noted = self._noted, []
            count = sum(count for count, _ in noted)
            new = (*self._unwritten[count:], *entries)
            appends = ((path, b"".join(map(encode, new))),) if new else ()
            after = None if self._lines is None else self._lines + count
            try:
                results = await self._journal.ask(Commit, appends, posts, self.lease, (), after)
            finally:
                for count, answer in noted:
                    await self._settle(count, answer)
            self._unwritten = ()
            if self._lines is not None:
                self._lines += len(new)
            return results

        return await until_written(write, path)

    async def _settle(self, count: int, answer: Answer[tuple[PostResult, ...]]) -> None:
        """Take the answer to the write of a note. Raises StorageError if it was refused, as what came behind it was."""
        await answer.get()
        self._unwritten = self._unwritten[count:]
        if self._lines is not None:
            self._lines += count

    async def restart(self, begin: Callable[[str], Sequence[Entry]], at: int) -> str:
        """Archive the session and go on with `begin(archive's name)`, as one durable step. Return that name.

        Notes that the session has not written yet go along (`pending_notes`).

        at: wall clock, ms. If somebody has deleted the file, it is written again first, since memory still has all of it and the new
        session will say where to read it. While the disk refuses, tries again. Cancelled meanwhile: nothing of it has happened.
        """
        path, prefix = self.files.path, self.files.prefix

        async def write() -> str:
            """Archive the file and write the new one. Raises StorageError, also if the name of the archive was taken meanwhile."""
            name = await self._journal.ask(ArchiveName, path, at, prefix)
            if self._unwritten or (self.entries and not name):
                await self._journal.ask(ReplaceFile, path, b"".join(map(encode, self.entries)), self.lease)
                self._unwritten, self._noted, self._lines = (), [], len(self.entries)
                name = await self._journal.ask(ArchiveName, path, at, prefix)
            entries = begin(name)
            carried = [with_id(self.entries, carried_over(self.entries, first)) for first in entries[:1]]
            entries = self._with_chat((*carried, *entries[1:]), is_first=True)
            content = b"".join(map(encode, entries))
            # If another archive has taken the name meanwhile, this fails and is tried again with the next name.
            await self._journal.ask(Archive, path, content, at, name, prefix, self.lease)
            self._lines = len(entries)
            self._begin(entries)
            return name

        return await until_written(write, path)

    async def enter(self, now: int, *, is_apart: bool) -> None:
        """Go on with a new session if this one is not of the wanted kind: guests are heard in it, or they are not.

        What an owner has said in private must not be heard by a guest who comes later. now: wall clock, ms. Waits as `restart` does.
        """
        if not self.files.chat or self.is_apart is is_apart:
            return
        self.is_apart = is_apart
        if self.entries:
            first = Entry(now, "system", NEW_CONVERSATION, metadata={"type": "new"})
            await self.restart(lambda archive: (first,), now)

    def _with_chat(self, entries: Sequence[Entry], *, is_first: bool = False) -> tuple[Entry, ...]:
        """Return the entries; the first one of a file names the chat that the session belongs to, and says whether guests are heard.

        is_first: they are the first ones, also if there are others now.
        """
        if not self.files.chat or not entries or (self.entries and not is_first):
            return tuple(entries)
        kind: dict[str, Json] = {CHAT: self.files.chat, APART: True} if self.is_apart else {CHAT: self.files.chat}
        first = attrs.evolve(entries[0], metadata={**entries[0].metadata, **kind})
        return (first, *entries[1:])

    def _remember(self, entries: Sequence[Entry]) -> None:
        """Add entries to the state in memory. It never fails and never waits, so memory and file cannot differ after a write."""
        for entry in entries:
            running = next(reversed(self._work.values()), None)
            if entry.role == "user":
                self.is_fresh = False
                if (item := entry.item) is not None:
                    if running is not None:
                        running.is_over = True
                    self._work.pop(item, None)  # the item that was begun last is the last one here
                    self._work[item] = running = _ItemWork(len(self.entries))
                user = entry.metadata.get("userId")
                if isinstance(user, str) and (address := parse_metadata_line(entry.content)) is not None:
                    self._writers.setdefault(address, set()).add(user)
            elif entry.metadata:  # without, it is about no file
                self.media_queue.follow(entry)
            if running is not None:
                running.follow(entry)
            if OUTSIDE in entry.metadata:
                self.outside = join_outside(self.outside, entry.outside)
            self.projection.append(entry)
            self.entries.append(entry)


def _is_apart(entries: Sequence[Entry]) -> bool:
    """Return whether guests are heard in a session: its first line says so, or, in one of an older version, a guest has written."""
    if not entries or entries[0].metadata.get(APART) is True:
        return bool(entries)
    return any(
        Untrusted.GUEST in entry.outside and not str(entry.metadata.get("messageId", HOOK)).startswith(HOOK)
        for entry in entries
        if entry.role == "user"
    )


# ------------------------------------------------------------------ progress of an item


def _skill_in_force(entry: Entry, call: ToolCall | None) -> tuple[str, ...]:
    """Return the name of the inline skill that an entry brings into force, () for most entries. call: whose result it is.

    A person's call of a skill is noted in the user entry. The result of the model's call is the text of the skill, a JSON string; a
    skill that became a task, and a file of a skill, are objects.
    """
    name = entry.metadata.get("skill") if entry.role == "user" else None
    if call is not None and call.name == USE_SKILL and not entry.failed and entry.content.startswith('"'):
        name = call.arguments.get("skill")
    return (name,) if isinstance(name, str) else ()


def _leads_to_thought(name: str, result: Entry) -> bool:
    """Return whether the result of this tool leads to another thought: information does, and every failure."""
    if result.failed:
        return True
    return name not in OUTWARD and not (name == USE_SKILL and result.content.startswith(TASK_RESULT))


def _belongs_to(metadata: Metadata, message_id: str | None) -> bool:
    """Return whether an entry is about this message, as far as its metadata shows.

    Another message under the same item number means that the inbox was lost and has begun to count from 1 again.
    """
    return message_id is None or metadata.get("messageId", message_id) == message_id


def opening_entry(now: int, item: Item, archive: str) -> Entry:
    """Return the first entry of a session that /new begins. archive: name of the session before, "" if there was none."""
    metadata: dict[str, Json] = {"type": "new", "closes": item.n, "messageId": item.message.id}
    if not archive:
        return Entry(now, "system", NEW_CONVERSATION, metadata=metadata)
    text = f"(A new conversation begins. The one before is archived as {archive}.)"
    return Entry(now, "system", text, metadata={**metadata, "previousSession": archive})


def is_begun_by(entries: Sequence[Entry], item: int, message_id: str | None) -> bool:
    """Return whether the /new in this item began this session: its first entry says so."""
    metadata = entries[0].metadata if entries else {}
    number = metadata.get("closes")
    return type(number) is int and number == item and _belongs_to(metadata, message_id)


# ------------------------------------------------------------------ texts that were not the model's


def note_of(text: str) -> str:
    """Return the content of the note about a text that was not the model's, such as an apology."""
    return f"{_NOTE_START}{text})"


def text_of_end_note(entry: Entry) -> str | None:
    """Return the text that people were told, as the note at the end of an item says; None if this is no such note."""
    if entry.metadata.get("ends") is not True or not entry.content.startswith(_NOTE_START):
        return None
    return entry.content.removeprefix(_NOTE_START).removesuffix(")")
