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
from typing import Final, Literal

import attrs

from pegasus.conversation import Entry, cut_middle, estimate_tokens, parse_metadata_line
from pegasus.formatting import format_time
from pegasus.main_agent.compaction.planning import is_memory_index, is_opening
from pegasus.main_agent.queue_items import DISCARDED, TASK_NOTIFICATION
from pegasus.messages import Address, Json, Metadata
from pegasus.models import ToolCall
from pegasus.outside import Untrusted, fenced, parse_fence
from pegasus.schedule import HEARTBEAT, SCHEDULED
from pegasus.storage import UNDELIVERED_REPLY
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

NOWHERE: Final = Address("", "")
"""Address of an event whose conversation is not known."""

# The headings that `queue_items` writes. Their form must stay readable here, because session files hold them.
_TASK_HEADING: Final = re.compile(r"\[Task \S+ (completed|failed|stopped|needs information|update)\]")


# ------------------------------------------------------------------ events


@attrs.frozen(eq=False, repr=False)
class TranscriptEvent:
    """Something that happened in a session, read from one entry."""

    kind: Literal["message", "reply", "task start", "task report", "thought", "other"]
    """A person's message; a reply that was posted; work that was given to a task, or given back to one that had asked for something; a
    notification of a task; a thought; anything else, such as the result of a tool or a note of the program."""
    ts: int
    """Wall clock, ms."""
    text: str
    """The message without its metadata line, the reply, the description of the task's work, …"""
    address: Address = NOWHERE
    """Conversation that it was written in, posted to, or that the work was asked for in; NOWHERE if unknown."""
    label: str = ""
    """message: id of the writer, "" where the channel does not say it. task report: "completed", "failed", "stopped",
    "needs information" or "update". other: "note", the name of the tool, or that name with " failed"."""
    task_id: str = ""
    """Id of the task, "" if the entry does not name it."""
    outside: tuple[Untrusted, ...] = ()
    """Labels of the text, if it comes from outside."""
    fence: str = ""
    """Id of the fence that the text stands in."""
    fenced_from: int = 0
    """Characters of the text before the fence: an owner's own words, before what they have attached."""


def transcript_events(entries: Iterable[Entry]) -> Iterator[tuple[Entry, TranscriptEvent]]:
    """Yield the events of a session in order, each with the entry that holds it. Empty thoughts are left out."""
    address = NOWHERE
    calls: dict[str, ToolCall] = {}
    for entry in entries:
        if entry.role == "user" and entry.item is not None:
            address = parse_metadata_line(entry.content) or NOWHERE
            yield entry, _with_fence(_user_event(entry, address), entry)
        elif entry.role == "assistant":
            calls = {call.id: call for call in entry.calls}
            if entry.metadata.get("spoken") is True and address != NOWHERE:  # direct speech: the text was the reply
                yield entry, TranscriptEvent("reply", entry.ts, entry.content, address)
            elif entry.content.strip():
                yield entry, TranscriptEvent("thought", entry.ts, entry.content)
        elif entry.role == "tool":
            yield entry, _with_fence(_result_event(entry, calls.get(entry.call_id or ""), address), entry)
        else:
            yield entry, TranscriptEvent("other", entry.ts, entry.content, label="note")


def _with_fence(event: TranscriptEvent, entry: Entry) -> TranscriptEvent:
    fence, start = parse_fence(entry.metadata, len(entry.content))
    if not fence:
        return event
    left_out = len(entry.content) - len(event.text)  # the metadata line and the heading
    own = max(0, start - left_out)
    return attrs.evolve(event, outside=entry.outside, fence=fence, fenced_from=own)


def _user_event(entry: Entry, address: Address) -> TranscriptEvent:
    """Return the event of a queue item: a person's message, a task's notification, or a note of the program."""
    body = entry.content.partition("\n")[2]
    kind, user = entry.metadata.get("type"), entry.metadata.get("userId")
    if address == NOWHERE or kind in (
        UNDELIVERED_REPLY,
        DISCARDED,
    ):  # without an address: a message that could not be taken up
        return TranscriptEvent("other", entry.ts, body or entry.content, label="note")
    if kind == TASK_NOTIFICATION:
        heading, _, text = body.partition("\n")
        found = _TASK_HEADING.fullmatch(heading)
        task_id = str(entry.metadata.get("taskId") or "")
        return TranscriptEvent("task report", entry.ts, text, address, found[1] if found else "update", task_id)
    if kind in (SCHEDULED, HEARTBEAT):
        return TranscriptEvent("other", entry.ts, body, address, "scheduled")
    return TranscriptEvent("message", entry.ts, body, address, user if isinstance(user, str) else "")


def _result_event(entry: Entry, call: ToolCall | None, address: Address) -> TranscriptEvent:
    """Return the event of a tool result. call: the call it belongs to. address: conversation that the agent was working for."""
    name = call.name if call is not None else "tool"
    arguments: Metadata = call.arguments if call is not None else {}
    if entry.failed:
        return TranscriptEvent("other", entry.ts, entry.content, label=f"{name} failed")
    if name == "reply":
        replied = _reply_address(entry, arguments, address)
        return TranscriptEvent("reply", entry.ts, str(arguments.get("text", "")), replied)
    task_id = _result_object(entry).get("taskId") if name in DELEGATING else None
    if isinstance(task_id, str) and task_id:
        description = arguments.get("description") or arguments.get("input") or arguments.get("skill") or ""
        return TranscriptEvent("task start", entry.ts, str(description), address, task_id=task_id)
    return TranscriptEvent("other", entry.ts, entry.content, label=name)


def _reply_address(entry: Entry, arguments: Metadata, address: Address) -> Address:
    """Return the address of a reply: as the journal resolved it, else as the model gave it.

    The parts are escaped as in metadata lines, so that a reply and the message it answers have equal addresses.
    """
    result = _result_object(entry)
    kind = result.get("channelType") or arguments.get("channelType") or address.type
    channel_id = result.get("channelId") or arguments.get("channelId") or ""
    return Address(str(kind), str(channel_id)).escaped


def _result_object(entry: Entry) -> dict[str, Json]:
    """Return the result of a tool as a JSON object; {} if it is another value or no JSON."""
    try:
        return decode_object(entry.content)
    except ValueError:
        return {}


# ------------------------------------------------------------------ as text


@attrs.frozen(eq=False, repr=False)
class Transcript:
    """Input of the model that summarises.

    Example: `write_transcript(entries, 20_000).parts` for a short session is one text, with a line for each event.
    """

    previous: str
    """Summary that an earlier compaction left, "" if there is none."""
    parts: tuple[str, ...]
    """Text of everything since, oldest first."""


def write_transcript(entries: Sequence[Entry], part_tokens: int, most_parts: int = MOST_PARTS) -> Transcript:
    """Return the transcript of these entries in at most `most_parts` parts of at most `part_tokens` tokens each.

    The first attempt has texts of their usual lengths. While that gives too many parts, all lengths are reduced in proportion, at
    least to half, so that a few rounds are enough. At a fiftieth of the usual lengths it stops, and the newest parts are kept.
    """
    events = [
        event for entry, event in transcript_events(entries) if not is_opening(entry) and not is_memory_index(entry)
    ]
    share = 1.0
    while True:
        parts = _join_lines((_event_line(event, share) for event in events), part_tokens)
        if len(parts) <= most_parts or share < 0.02:
            return Transcript(previous_summary(entries), tuple(parts[-most_parts:]))
        share /= max(2.0, len(parts) / most_parts)


def previous_summary(entries: Sequence[Entry]) -> str:
    """Return the summary in the opening line of these entries, "" if there is none."""
    opening = next((entry for entry in entries if is_opening(entry)), None)
    summary = opening.metadata.get("summary") if opening is not None else None
    return summary if isinstance(summary, str) else ""


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
    length, opening, end = MESSAGE_LENGTH, "", ""
    match event.kind:
        case "message":
            opening = f"{event.label} on {event.address} wrote: " if event.label else f"{event.address} wrote: "
        case "reply":
            opening = f"I replied on {event.address}: "
        case "task start":
            opening = f"I gave work to task {event.task_id}: "
        case "task report":
            opening = f"Task {event.task_id} ({event.label}; asked for on {event.address}): "
            length = RESULT_LENGTH
        case "thought":
            opening, length, end = "(I thought: ", THOUGHT_LENGTH, ")"
        case "other":
            opening, length, end = f"({event.label}: ", OTHER_LENGTH, ")"
    length = int(length * share)
    text = cut_middle(event.text, length)
    if event.fence:
        own = cut_middle(event.text[: event.fenced_from], length)
        text = own + fenced(cut_middle(event.text[event.fenced_from :], length), event.outside, event.fence)
    return f"[{format_minute(event.ts)}] {opening}{text}{end}"
