"""A session as a transcript: who wrote what on which channel, which work was given to tasks, and what came of it.

Two readers need this. The model that summarises gets a text, in parts that fit its window. The code that carries open tasks and
questions over gets the same as a sequence of events. Both are read from the entries alone, which must be repaired: every tool
call has its result right behind it.

The text of an event is shortened by kind. What people and the agent said to each other is the reason for the summary and stays
long; thoughts and tool results led to it and are excerpts. If the whole does not fit into MOST_PARTS calls of the summarising
model, every text is shortened further until it does, so that a summary has a bounded price however long the session is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs

from pegasus.conversation import Entry, parse_metadata_line
from pegasus.formatting import format_time
from pegasus.main_agent.compaction.planning import cut_middle, estimate_tokens, is_memory_index, is_opening
from pegasus.main_agent.queue_items import TASK_NOTIFY
from pegasus.messages import Address, Json, Metadata
from pegasus.models import ToolCall
from pegasus.storage import UNDELIVERED_REPLY, escape_field
from pegasus.wire import decode_object

MESSAGE_LENGTH: Final = 2_000
"""Characters of a message or a reply that the summarising model sees."""
RESULT_LENGTH: Final = 1_500
"""Characters of a task's result that it sees."""
THOUGHT_LENGTH: Final = 300
"""Characters of a thought that it sees."""
OTHER_LENGTH: Final = 200
"""Characters that it sees of anything else, such as the result of a tool."""
MOST_PARTS: Final = 8
"""Number of calls that one summary may take. Of a longer session every text is shortened more."""
DELEGATING: Final = frozenset({"spawn_subagent", "spawn_task", "resume_task", "use_skill"})
"""Tools that give work to a task. Their result has its id."""

# The headings that `queue_items` writes. Their form must stay readable here, because session files hold them.
_TASK_HEADING: Final = re.compile(r"\[Task \S+ (completed|failed|needs information|update)\]")


# ------------------------------------------------------------------ events


@attrs.frozen
class MessageEvent:
    """A person's message.

    Example: `MessageEvent(ts, Address("slack", "#general"), "Is the report done?", "zhangsan")`.
    """

    ts: int
    """Wall clock, ms."""
    address: Address
    """Conversation that it was written in."""
    text: str
    """The message without its metadata line."""
    user: str = ""
    """Id of the writer, "" where the channel does not say it."""


@attrs.frozen
class ReplyEvent:
    """A reply that was posted."""

    ts: int
    address: Address
    """Conversation that it was posted to."""
    text: str
    """The whole reply."""


@attrs.frozen
class TaskStartEvent:
    """Work that was given to a task, or given back to one that had asked for something."""

    ts: int
    address: Address | None
    """Conversation that the work was asked for in, None if unknown."""
    task_id: str
    """Id from the result of the call."""
    description: str
    """Description, input or skill name, whichever the call has first."""


@attrs.frozen
class TaskReportEvent:
    """A notification of a task."""

    ts: int
    """Wall clock, ms, at which the notification was recorded."""
    address: Address | None
    """Conversation that the work was asked for in, None if unknown."""
    task_id: str
    """Id of the task, "" if the entry does not name it."""
    kind: str
    """"completed", "failed", "needs information" or "update"."""
    text: str


@attrs.frozen
class OtherEvent:
    """Anything else: a thought, the result of a tool, a note of the program."""

    ts: int
    kind: str
    """"thought", "note", the name of the tool, or that name with " failed"."""
    text: str


# One event for each entry; other modules distinguish them with `isinstance` or `match`.
TranscriptEvent = MessageEvent | ReplyEvent | TaskStartEvent | TaskReportEvent | OtherEvent


def read_events(entries: Iterable[Entry]) -> Iterator[tuple[Entry, TranscriptEvent]]:
    """Yield the events of a session in order, each with the entry that holds it. Empty thoughts are left out."""
    address: Address | None = None
    calls: dict[str, ToolCall] = {}
    for entry in entries:
        if entry.role == "user" and entry.item is not None:
            address = parse_metadata_line(entry.content)
            yield entry, _user_event(entry, address)
        elif entry.role == "assistant":
            calls = {call.id: call for call in entry.calls}
            if entry.content.strip():
                yield entry, _assistant_event(entry, address)
        elif entry.role == "tool":
            yield entry, _result_event(entry, calls.get(entry.call_id or ""), address)
        else:
            yield entry, OtherEvent(entry.ts, "note", entry.content)


def _user_event(entry: Entry, address: Address | None) -> TranscriptEvent:
    """Return the event of a queue item: a person's message, a task's notification, or a note of the program."""
    body = entry.content.partition("\n")[2]
    kind = entry.metadata.get("type")
    if address is None or kind == UNDELIVERED_REPLY:  # without an address: a message that could not be taken up
        return OtherEvent(entry.ts, "note", body or entry.content)
    if kind == TASK_NOTIFY:
        heading, _, text = body.partition("\n")
        found = _TASK_HEADING.fullmatch(heading)
        return TaskReportEvent(
            entry.ts, address, str(entry.metadata.get("taskId") or ""), found[1] if found else "update", text
        )
    user = entry.metadata.get("userId")
    return MessageEvent(entry.ts, address, body, user if isinstance(user, str) else "")


def _assistant_event(entry: Entry, address: Address | None) -> TranscriptEvent:
    """Return the event of a thought; with direct speech its text may be a reply."""
    if entry.metadata.get("spoken") is True and address is not None:  # direct speech: the text was the reply
        return ReplyEvent(entry.ts, address, entry.content)
    return OtherEvent(entry.ts, "thought", entry.content)


def _result_event(entry: Entry, call: ToolCall | None, address: Address | None) -> TranscriptEvent:
    """Return the event of a tool result. call: the call it belongs to. address: conversation that the agent was working for."""
    name = call.name if call is not None else "tool"
    arguments: Metadata = call.arguments if call is not None else {}
    if entry.failed:
        return OtherEvent(entry.ts, f"{name} failed", entry.content)
    if name == "reply":
        return ReplyEvent(entry.ts, _reply_address(entry, arguments, address), str(arguments.get("text", "")))
    task_id = _result_object(entry).get("taskId") if name in DELEGATING else None
    if isinstance(task_id, str) and task_id:
        description = arguments.get("description") or arguments.get("input") or arguments.get("skill") or ""
        return TaskStartEvent(entry.ts, address, task_id, str(description))
    return OtherEvent(entry.ts, name, entry.content)


def _reply_address(entry: Entry, arguments: Metadata, address: Address | None) -> Address:
    """Return the address of a reply: as the journal resolved it, else as the model gave it.

    The parts are escaped as in metadata lines, so that a reply and the message it answers have equal addresses.
    """
    result = _result_object(entry)
    kind = result.get("channelType") or arguments.get("channelType") or (address.type if address else "")
    channel_id = result.get("channelId") or arguments.get("channelId") or ""
    return Address(escape_field(str(kind)), escape_field(str(channel_id)))


def _result_object(entry: Entry) -> dict[str, Json]:
    """Return the result of a tool as a JSON object; {} if it is another value or no JSON."""
    try:
        return decode_object(entry.content)
    except ValueError:
        return {}


# ------------------------------------------------------------------ as text


@attrs.frozen
class Transcript:
    """Input of the model that summarises.

    Example: `write_transcript(entries, 20_000).parts` for a short session is one text, with a line for each event.
    """

    previous: str
    """Summary that an earlier compaction left, "" if there is none."""
    parts: tuple[str, ...]
    """Text of everything since, oldest first."""


def write_transcript(entries: Sequence[Entry], part_tokens: int) -> Transcript:
    """Return the transcript of these entries in at most MOST_PARTS parts of at most `part_tokens` tokens each.

    The first attempt has texts of their usual lengths. While that gives too many parts, all lengths are reduced in proportion, at
    least to half, so that a few rounds are enough. At a fiftieth of the usual lengths it stops, and the newest parts are kept.
    """
    events = [event for entry, event in read_events(entries) if not is_opening(entry) and not is_memory_index(entry)]
    share = 1.0
    while True:
        parts = _join_lines((_event_line(event, share) for event in events), part_tokens)
        if len(parts) <= MOST_PARTS or share < 0.02:
            return Transcript(previous_summary(entries), tuple(parts[-MOST_PARTS:]))
        share /= max(2.0, len(parts) / MOST_PARTS)


def previous_summary(entries: Sequence[Entry]) -> str:
    """Return the summary in the opening line of these entries, "" if there is none.

    Versions before this one carried promises over by code, as rows `[ts, type, channelId, text, tasks]`. They are added to
    the text, so that the summary takes them up.
    """
    opening = next((entry for entry in entries if is_opening(entry)), None)
    summary = opening.metadata.get("summary") if opening is not None else None
    if opening is None or not isinstance(summary, str):
        return ""
    carried = opening.metadata.get("carried")
    promises = carried.get("promises") if isinstance(carried, dict) else None
    rows = [row for row in promises if isinstance(row, list) and len(row) > 3] if isinstance(promises, list) else []
    return "\n".join([summary, *(f"- promised on {row[1]}:{row[2]}: {row[3]}" for row in rows)])


def format_minute(ts: int) -> str:
    """Format a time as transcript and summary have it: UTC, to the minute."""
    return format_time(ts, "%Y-%m-%d %H:%M")


def _join_lines(lines: Iterable[str], part_tokens: int) -> list[str]:
    """Return the lines as parts of at most `part_tokens` tokens. A longer line loses its middle, so no line is split."""
    parts: list[str] = []
    part: list[str] = []
    tokens = 0
    for line in lines:
        line = cut_middle(line, max(1, part_tokens))  # a token has at least one character, so this fits into one part
        size = estimate_tokens(line)
        if part and tokens + size > part_tokens:
            parts.append("\n".join(part))
            part, tokens = [], 0
        part.append(line)
        tokens += size
    if part:
        parts.append("\n".join(part))
    return parts


def _event_line(event: TranscriptEvent, share: float) -> str:
    """Return an event as one line of the transcript, which may have line breaks of its own.

    share: part of the usual length that texts may have, 1.0 or less. Each line begins with its time, so that the summarising model can
    say what came first. Thoughts and tool results stand in brackets, to set them off from what people could read.
    """
    match event:
        case MessageEvent():
            writer = f"{event.user} on {event.address}" if event.user else str(event.address)
            text, length = f"{writer} wrote: ", MESSAGE_LENGTH
        case ReplyEvent():
            text, length = f"I replied on {event.address}: ", MESSAGE_LENGTH
        case TaskStartEvent():
            return f"[{format_minute(event.ts)}] I gave work to task {event.task_id}: " + cut_middle(
                event.description, int(MESSAGE_LENGTH * share)
            )
        case TaskReportEvent():
            text, length = f"Task {event.task_id} ({event.kind}; asked for on {event.address}): ", RESULT_LENGTH
        case OtherEvent():
            length = THOUGHT_LENGTH if event.kind == "thought" else OTHER_LENGTH
            label = "I thought" if event.kind == "thought" else event.kind
            return f"[{format_minute(event.ts)}] ({label}: {cut_middle(event.text, int(length * share))})"
    return f"[{format_minute(event.ts)}] {text}{cut_middle(event.text, int(length * share))}"
