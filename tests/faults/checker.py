"""Promises to clients, checked from what clients saw and what is stored; nothing else is known here.

A message has a text `<kind> <id>`, and its kind says which replies are due (`due_replies`), so no plan of the run is needed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from tests.blackbox.support import open_calls

Frame = Mapping[str, Any]


@attrs.define
class Conversation:
    """Record of what the clients of one conversation said and heard.

    said: texts by id, in the order in which they were first sent. heard: replies by seq. jobs: names of scheduled jobs that speak here
    and were due. odd: what was wrong at the moment at which it was seen.
    """

    address: str
    said: dict[str, str] = attrs.field(factory=dict)
    accepted: set[str] = attrs.field(factory=set)
    heard: dict[int, Frame] = attrs.field(factory=dict)
    jobs: list[str] = attrs.field(factory=list)
    odd: list[str] = attrs.field(factory=list)

    @property
    def last(self) -> int:
        """The number up to which every reply was heard."""
        return next(n for n in itertools.count() if n + 1 not in self.heard)

    @property
    def is_complete(self) -> bool:
        """Whether everything that was said and due is accepted and answered."""
        due = [text for said in self.said.values() for text in due_replies(said)] + [
            f"job {name}" for name in self.jobs
        ]
        return self.accepted == set(self.said) and len(self.heard) >= len(due)


@attrs.frozen
class StoredItem:
    """An item of the inbox."""

    n: int
    id: str
    is_done: bool


@attrs.frozen
class Stored:
    """What an engine holds, by address: items and session lines in their order, replies as (seq, key, text).

    numbers: of the session's lines, where the engine numbers them. tasks: the events of each task's log in their order, by its id.
    """

    items: Mapping[str, Sequence[StoredItem]]
    replies: Mapping[str, Sequence[tuple[int, str, str]]]
    lines: Mapping[str, Sequence[Mapping[str, Any]]]
    numbers: Mapping[str, Sequence[int]] = attrs.field(factory=dict)
    tasks: Mapping[str, Mapping[str, Sequence[str]]] = attrs.field(factory=dict)


def due_replies(text: str) -> tuple[str, ...]:
    """Return the replies that a message must get: one; two of one thought; or the result of a task."""
    kind, _, id = text.partition(" ")
    match kind:
        case "twice":
            return f"first: {text}", f"second: {text}"
        case "do":
            return (f"completed: did {id}",)
        case _:
            return (f"echo: {text}",)


def find_anomalies(conversations: Iterable[Conversation], stored: Stored) -> list[str]:
    """Return each broken promise as a sentence that begins with the address; none if all were kept."""
    found = []
    for each in conversations:
        broken = [*each.odd, *_replies(each), *_answers(each)]
        broken += [*_items(each, stored), *_session(each, stored), *_outbox(each, stored), *_tasks(each, stored)]
        found += [f"{each.address}: {what}" for what in broken]
    return found


def _replies(seen: Conversation) -> Iterator[str]:
    """Sequences of a client have no gap."""
    missing = sorted(set(range(1, max(seen.heard, default=0) + 1)) - set(seen.heard))
    if missing:
        yield f"replies {missing} were never heard, {max(seen.heard)} was"


def _answers(seen: Conversation) -> Iterator[str]:
    """Every accepted message and every due job is answered once, and nothing else is said."""
    heard = Counter(str(frame["text"]) for frame in seen.heard.values())
    due = Counter(text for id in seen.accepted for text in due_replies(seen.said[id]))
    due.update(f"job {name}" for name in seen.jobs)
    possible = Counter(text for said in seen.said.values() for text in due_replies(said)) + due
    for text in due | heard:
        if heard[text] < due[text]:
            yield f"{text!r} was heard {heard[text]} times, and was due {due[text]} times"
        elif heard[text] > min(possible[text], 1):
            yield f"{text!r} was heard {heard[text]} times"
    order = [str(frame["text"]) for _, frame in sorted(seen.heard.items())]
    for said in seen.said.values():
        parts = [order.index(text) for text in due_replies(said) if text in order]
        if parts != sorted(parts):
            yield f"the replies to {said!r} came in another order"


def _items(seen: Conversation, stored: Stored) -> Iterator[str]:
    """An accepted message is in the inbox, once, and done."""
    items = [item for item in stored.items.get(seen.address, ()) if item.id in seen.said]
    counts = Counter(item.id for item in items)
    yield from (f"{id} was accepted and is not in the inbox" for id in sorted(seen.accepted - set(counts)))
    yield from (f"{id} is in the inbox {count} times" for id, count in counts.items() if count > 1)
    yield from (f"item {item.n} ({item.id}) is not done" for item in items if not item.is_done)


def _session(seen: Conversation, stored: Stored) -> Iterator[str]:
    """Each message is taken up once and in order, each thought is there once, each call has one result."""
    lines = stored.lines.get(seen.address, ())
    numbers = stored.numbers.get(seen.address)
    if numbers is not None and list(numbers) != list(range(1, len(numbers) + 1)):
        yield f"the lines of the session have the numbers {_gaps(numbers)}"
    taken = [
        line["metadata"]["item"] for line in lines if line["role"] == "user" and "item" in line.get("metadata", {})
    ]
    yield from (f"item {n} was taken up {count} times" for n, count in Counter(taken).items() if count > 1)
    people = [item.n for item in stored.items.get(seen.address, ()) if item.id in seen.said]
    turns = [n for n in taken if n in set(people)]
    if turns != sorted(turns):
        yield f"turns are in the order {turns}"
    yield from (f"item {n} has no turn" for n in people if n not in set(turns))
    calls = Counter(call["id"] for line in lines for call in line.get("toolCalls", ()))
    yield from (f"the thought with call {id} is there {count} times" for id, count in calls.items() if count > 1)
    yield from (f"call {id} is not followed by its one result" for id in open_calls(map(dict, lines)))
    yield from _thoughts(lines)


def _thoughts(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Within a turn no reply is decided and queued twice, since the second thought would have seen the first."""
    queued = {line["toolCallId"] for line in lines if line["role"] == "tool" and '"queued":true' in line["content"]}
    turn: Counter[str] = Counter()
    for line in lines:
        if line["role"] == "user":
            turn.clear()
        for text in [call["arguments"]["text"] for call in line.get("toolCalls", ()) if call["id"] in queued]:
            turn[text] += 1
            if turn[text] == 2:
                yield f"the reply {text!r} was thought twice"


def _outbox(seen: Conversation, stored: Stored) -> Iterator[str]:
    """Replies in the outbox are numbered without a gap, each key is there once, and clients heard what is there."""
    replies = stored.replies.get(seen.address, ())
    numbers = [seq for seq, _, _ in replies]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"replies in the outbox have the numbers {_gaps(numbers)}"
    yield from (
        f"key {key} is in the outbox {n} times" for key, n in Counter(key for _, key, _ in replies).items() if n > 1
    )
    for seq, _, text in replies:
        if seq in seen.heard and seen.heard[seq]["text"] != text:
            yield f"reply {seq} is {text!r}, and was heard as {seen.heard[seq]['text']!r}"
    if len(replies) != len(seen.heard):
        yield f"{len(replies)} replies are in the outbox, {len(seen.heard)} were heard"


def _tasks(seen: Conversation, stored: Stored) -> Iterator[str]:
    """One node at a time works on a task: it begins once, its one call has one result, and it ends once."""
    for id, events in stored.tasks.get(seen.address, {}).items():
        for what in ("TASK_CREATED", "TOOL_CALL_", "TASK_COMPLETED"):
            if (count := sum(event.startswith(what) for event in events)) > 1:
                yield f"task {id} has {count} events {what} in {events}"


def _gaps(numbers: Sequence[int]) -> str:
    """Show where a sequence of numbers breaks."""
    breaks = [f"{a}, {b}" for a, b in zip((0, *numbers), numbers, strict=False) if b != a + 1]
    return f"… {' … '.join(breaks[:5])} …"
