"""Recorded answers of models and tools, found by their place in the logs, with the time at which they came.

An answer of the Main Agent belongs to the message that it was thought about, an answer in a task to the task; each request takes the
next one of its place. A result belongs to its call. So it does not matter what a request says: another prompt is no difference, but
another number of requests is.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, Final

import attrs

from pegasus.update.beginning import ENDS, made_in_order
from pegasus.update.record import (
    Line,
    Record,
    SessionPart,
    calls_of,
    facts_of,
    is_internal,
    message_id,
    new_entries,
    time_of,
)

APOLOGY: Final = "apology"
STOPPED: Final = "stopped"
_PROGRAM: Final = frozenset({APOLOGY, "limit", "cut"})
"""Kinds of entries of the assistant that no model has written."""
_CLOSE: Final = 60
"""Time within which nobody can say whether a message came before or after something, ms."""
_SHOWN: Final = 20
"""New texts that are looked for in a request."""
_SAME_RUN: Final = 500
"""Difference of the times of a run that means nothing, ms: its job was made some milliseconds later."""
_PATIENCE: Final = 2_000
"""Time within which an item and an answer may have passed each other, ms."""


@attrs.define(eq=False)
class RecordedAnswer:
    """An answer of a model."""

    at: float
    """Time at which it came, ms."""
    entry: Line
    """Text, calls and metadata of the thought; {} for a failure."""
    shown: tuple[str, ...] = ()
    """Texts that were new to the model: messages, and results of its calls."""
    error: str = attrs.field(default="", kw_only=True)
    """Text for whoever waited, if the model could not be asked."""


@attrs.define(eq=False)
class AnswersOfPlace:
    """The answers of one place: a message, or a task."""

    answers: deque[RecordedAnswer] = attrs.field(factory=deque)
    cut: str = ""
    """Beginning of the answer that people have seen before they ended it."""
    hangs: bool = False
    """Nothing came any more: somebody has ended the work, or the record ends before."""


def shown_part(line: Line) -> str:
    """Return the beginning of what a line tells a model: behind the metadata line, and behind what is not fenced."""
    text, start = str(line.get("content", "")), facts_of(line).get("fencedFrom")
    if isinstance(start, int):
        text = text[start:]
    elif line.get("role") == "user":
        text = text.partition("\n")[2]
    return text.strip()[:200].strip()


def own_lines(parts: Iterable[SessionPart]) -> list[Line]:
    """Return the lines of a conversation once each: what a compaction has kept stands in two files. Openings are among them."""
    found: list[Line] = []
    before: set[str] = set()
    for part in parts:
        keys = [identity_of(line) for line in part.lines]
        found += [line for line, key in zip(part.lines, keys, strict=True) if key not in before]
        before = set(keys)
    return found


def identity_of(line: Line) -> str:
    """Return what tells a line of a conversation from all others, also where a compaction has shortened it."""
    ids = [call.get("id") for call in calls_of(line)] or str(line.get("content", ""))[:40]
    return f"{time_of(line)} {line.get('role')} {line.get('toolCallId')} {facts_of(line).get('item')} {ids}"


class RecordedAnswers:
    """Everything that models and tools have answered since a time.

    Example: `answers.of_item(message_id(line)).answers.popleft().entry["content"]`.
    """

    def __init__(self, record: Record, since: int) -> None:
        self.record = record
        self.since = since
        self.ids: dict[int, str] = {line["n"]: message_id(line) for line in record.messages}
        """Ids of messages by number."""
        self._numbers = {id: number for number, id in self.ids.items()}
        self.items: defaultdict[str, AnswersOfPlace] = defaultdict(AnswersOfPlace)
        """Answers by message."""
        self.tasks: defaultdict[str, AnswersOfPlace] = defaultdict(AnswersOfPlace)
        """Answers by task."""
        self.reflections: dict[str, RecordedAnswer] = {}
        """Last answer of the reflection on a task."""
        self.results: dict[tuple[str, str], Line] = {}
        """Results by message or task, and call."""
        self.session_of: dict[str, str] = {}
        """Path of the conversation by message."""
        self.summaries: defaultdict[str, deque[RecordedAnswer]] = defaultdict(deque)
        """Openings of compacted sessions, by path."""
        self.compactions: dict[str, list[int]] = {}
        """By path, numbers of the thoughts of the conversation before which it was compacted by itself."""
        self.thoughts: defaultdict[str, int] = defaultdict(int)
        """Thoughts that were asked for, by path."""
        self.joined: set[str] = set()
        """Messages that were answered together with the next one."""
        self.times: dict[int, float] = {}
        """Times of items by number, ms: in their order, to a part of a millisecond."""
        self._joins: list[tuple[RecordedAnswer, int]] = []
        """Answers, and items that had joined the turn by the next thought."""
        self._sizes: defaultdict[str, list[int]] = defaultdict(list)
        """Tokens of the request of each thought, by path."""
        self._looks: dict[int, tuple[int, ...]] = {}
        """By item, the times at which the turn before it looked for messages that could join, ms."""
        for path, parts in record.sessions.items():
            self._read_session(path, parts)
        for task_id, events in record.tasks.items():
            self._read_task(task_id, events)
        self._put_in_order()

    def _read_session(self, path: str, parts: list[SessionPart]) -> None:
        current, count, compactions = "", 0, list[int]()
        apologies = self._apologies()
        item, thought = 0, None
        accepted = {line["n"]: time_of(line, "at") for line in self.record.messages}
        looks: list[int] = []  # times at which it was looked whether another message had come
        shown: list[str] = []
        for line in own_lines(parts):
            facts, at = facts_of(line), time_of(line)
            if line["role"] == "user" and isinstance(facts.get("item"), int):
                number = facts["item"]
                if self.record.done.get(item, 0) >= at and at:
                    # A message that waited already when the turn began cannot be missed; one that came just then can.
                    waited = bool(looks) and accepted.get(number, at) < looks[0] - _CLOSE
                    self.joined |= set() if waited else {current}
                    if thought is not None:
                        self._joins.append((thought, number))
                elif looks:
                    self._looks[number] = tuple(looks)
                item, current, thought, looks = number, self.ids.get(number, ""), None, [at]
                self.session_of[current] = path
            elif line["role"] == "tool":
                looks.append(at)
            if line["role"] in ("user", "tool") and facts.get("type") != "memory_index":
                shown.append(shown_part(line))
            if at < self.since:
                continue
            place = self.items[current]
            kind = facts.get("type")
            if line["role"] == "assistant" and kind not in _PROGRAM:
                self._sizes[path].append(int((facts.get("usage") or {}).get("promptTokens") or 0))
                thought = RecordedAnswer(at, line, shown=tuple(shown[-_SHOWN:]))
                place.answers.append(thought)
                shown = []
                count += 1
            elif kind == APOLOGY and current in apologies and not _declined(place):
                self._sizes[path].append(0)
                place.answers.append(RecordedAnswer(at, {}, error=apologies[current]))
                count += 1
            elif kind == STOPPED:
                place.hangs = True
            elif kind == "cut":
                place.cut = str(line.get("content", ""))
            elif kind == "new":
                shown = []
            elif kind == "compact":
                shown = []
                self.summaries[path].append(RecordedAnswer(at, line))
                if "closes" not in facts and "consolidation" not in facts:
                    compactions.append(count)
            if line["role"] == "tool":
                self.results[current, str(line.get("toolCallId"))] = line
        self.compactions[path] = compactions

    def _apologies(self) -> dict[str, str]:
        """Return the texts of failures of the model, by message."""
        found = {}
        for line in self.record.replies:
            _, _, rest = str(line.get("key", "")).partition("/")
            number, _, kind = rest.rpartition("/")
            number = number.rpartition("/")[2]
            if kind == APOLOGY and number.isdigit():
                found[self.ids.get(int(number), "")] = str(line["message"].get("text", ""))
        return {key: text for key, text in found.items() if text.startswith("The model did not answer")}

    def _read_task(self, task_id: str, events: list[Line]) -> None:
        place = self.tasks[task_id]
        is_over = False
        shown: list[str] = []
        for event in events:
            at, data = time_of(event), event.get("data") or {}
            for entry in new_entries(event):
                if entry.get("role") == "tool":
                    shown.append(shown_part(entry))
                    self.results[task_id, str(entry.get("toolCallId"))] = entry
            is_over = is_over or event["event"] in ENDS
            if at < self.since:
                continue
            if event["event"] in ("REASON_DONE", "NEED_MORE_INFO"):
                place.answers.append(
                    RecordedAnswer(at, _thought(data, new_entries(event)), shown=tuple(shown[-_SHOWN:]))
                )
                shown = []
            elif event["event"] == "TASK_FAILED" and data.get("reason") != STOPPED:
                place.answers.append(RecordedAnswer(at, {}, error=str(data.get("error"))))
            elif event["event"] == "REFLECTION_COMPLETE":
                self.reflections[task_id] = RecordedAnswer(at, {"content": data.get("assessment", "")})
            elif event["event"] == "TASK_FAILED":
                place.hangs = True
        place.hangs = place.hangs or not is_over

    def _put_in_order(self) -> None:
        """Find the times of items, and let answers come when the items that they led to, or that had joined by then, were there.

        Both may have happened within a millisecond, so clocks do not tell which was first, but the numbers of items and the
        conversations do.
        """
        latest: float = 0.0
        for line in self.record.messages:
            number, at = line["n"], time_of(line, "at")
            if at < self.since:
                continue
            # It did not join a turn that was looking for messages right then, so it came a moment later.
            look = next((look for look in self._looks.get(number, ()) if look - _CLOSE <= at <= look), 0)
            moved: float = look + 0.5 if look else at
            latest = self.times[number] = max(moved + item_offset(number), latest + 1e-5)
        for answer, number in self._joins:
            if answer.at < self.times.get(number, 0) < answer.at + _PATIENCE:
                answer.at = self.times[number] + 0.2
        for line in self.record.messages:
            facts = line["message"].get("metadata") or {}
            task_id, kind = str(facts.get("taskId", "")), facts.get("notification")
            if not is_internal(line) or not task_id or line["n"] not in self.times:
                continue
            told_at = self.times[line["n"]]
            answers = [answer for answer in self.tasks[task_id].answers if answer.at <= told_at]
            if answers and (kind == "stopped" or bool(answers[-1].error) is not (kind == "failed")):
                continue
            if answers and answers[-1].at > told_at - _PATIENCE:
                answers[-1].at = told_at - 5e-6

    def is_near_limit(self, path: str, thoughts: int, limit: float) -> bool:
        """Return whether a conversation had come near its limit by its last thought before a number of them."""
        sizes = self._sizes.get(path, [])[:thoughts]
        return bool(sizes) and sizes[-1] >= limit

    def recorded_id(self, id: str) -> str:
        """Return the id that an item of the replay has in the record: runs of a job are named by a time, which may be near only."""
        head, _, due = id.rpartition("/")
        if "schedule/" not in head or not due.isdigit() or id in self._numbers:
            return id
        near = [known for known in self._numbers if known.startswith(f"{head}/") and known.rpartition("/")[2].isdigit()]
        found = min(near, key=lambda known: abs(int(known.rpartition("/")[2]) - int(due)), default=id)
        return found if abs(int(found.rpartition("/")[2]) - int(due)) <= _SAME_RUN else id

    def is_unfinished(self, id: str) -> bool:
        """Return whether an item was not done, so that an answer may be missing."""
        return self._numbers.get(id) not in self.record.done


def item_offset(n: int) -> float:
    """Return the part of a millisecond by which items of one millisecond follow one another."""
    return (n % 10_000) * 1e-5


def _declined(place: AnswersOfPlace) -> bool:
    return bool(place.answers) and facts_of(place.answers[-1].entry).get("stopReason") == "refusal"


def _thought(data: Line, entries: list[Line]) -> Line:
    """Return the answer behind an event as an entry."""
    reasoning = data.get("reasoning") or {}
    turn = next((entry for entry in entries if entry.get("role") == "assistant"), {})
    calls = calls_of({"toolCalls": reasoning.get("toolCalls")})
    return {"content": reasoning.get("response", ""), "toolCalls": calls, "metadata": facts_of(turn)}


class RecordedIds(Random):
    """Ids as they were made: of jobs, approvals and grants, told apart by their lengths."""

    def __init__(self, record: Record, since: int) -> None:
        super().__init__(0)
        self._ids: defaultdict[int, deque[str]] = defaultdict(deque)
        for id in _made_ids(record, since):
            self._ids[len(id)].append(id)

    def choices(self, population: Any, weights: Any = None, *, cum_weights: Any = None, k: int = 1) -> list[Any]:
        """Return the characters of the next id of this length, if there is one."""
        if self._ids[k]:
            return list(self._ids[k].popleft())
        return super().choices(population, weights, cum_weights=cum_weights, k=k)


def _made_ids(record: Record, since: int) -> Iterator[str]:
    """Yield the ids that were made since a time, in the order of their making, without their first letters."""
    seen = set[str]()
    for id in made_in_order(record, since):
        if id not in seen:
            seen.add(id)
            yield id.partition("-")[2]
