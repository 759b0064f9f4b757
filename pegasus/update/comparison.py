"""Comparison of two records: that of the home, and that of its replay.

Compared is what people and the agent itself go on with: items, conversations, replies, tasks, memory, approvals, jobs. Left out is
what differs from one run to the next without a meaning: times, durations, counts of tokens, fences, numbers of lines, and the second
in the name of an archive. Times of jobs may be off by SLACK, since a job is made some milliseconds after the answer that asks for it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any, Final, TypeAlias

import attrs

from pegasus.messages import Json
from pegasus.update.record import Line, Record, facts_of, last_time, message_id, new_entries, time_of
from pegasus.update.recorded_answers import identity_of, own_lines
from pegasus.update.report import Difference

SLACK: Final = 2_000
"""Difference of two times of a job that means nothing, ms."""
TAIL: Final = 1_000
"""Last moments of a record, ms."""
JOINED: Final = "joined"
"""Reason of the end of an answer that stands for a message which was answered together with the next one."""
_REFLECTED: Final = 15_000
"""Time at the end of a record in which a task may have been reflected on, or not yet; ms."""
MOST: Final = 200
"""Differences that are listed."""
_LONGEST: Final = 2_000
"""Characters of a value that are shown."""
_ARCHIVE_NAME: Final = re.compile(r"\d{4}-\d{2}-\d{2}-\d{6}(?:-\d+)?(?=\.jsonl)")
_VARIES: Final = (
    re.compile(r'(?<="seq":)\d+'),
    re.compile(r"\b1[5-9]\d{11}\b"),
    re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:\+\d\d:\d\d)?"),
    re.compile(r'(?<="(?:durationMs)":)\d+'),
    re.compile(r"(?<=\W)\d+(?:\.\d+)? ?(?:ms|s|min|h)\b"),
)
"""Parts of results and answers of the program itself that come from the clock."""
_COMMAND_ANSWER: Final = re.compile(r"\d[\d.,:]*")
_OF_THE_MOMENT: Final = re.compile(
    r"\s*[^\n]* still waiting [^\n]*|\s*(?:Model|Node): [^\n]*|\n- reflection on task [^\n]*"
)
"""Parts of these that depend on how fast the machine was, on models that were there, and on the node; a replay is none."""
_ABOUT_MODELS: Final = ("/usage", "/cost", "/model", "/speech", "/context")
"""Commands whose answers are about models, which are not asked here."""
_NOTES_ID: Final = re.compile(r"<!-- [0-9a-f]{12} -->")
_TIMES: Final = 10**12
"""A larger number is a time."""
_NO_FACTS: Final = frozenset({"item", "fence", "usage", "closes", "stop", "seconds", "notesId", "id"})
"""Metadata that varies."""


Timed: TypeAlias = tuple[int, Any]
"""A thing with its time, ms."""


@attrs.define(eq=False)
class Comparison:
    """Collects what is the same, and what is not.

    Example: `compared = compare(before, after); compared.same, compared.different`.
    """

    same: int = 0
    different: list[Difference] = attrs.field(factory=list)
    count: int = 0
    """Differences, also those that are not listed."""

    def add(self, what: str, before: Any, after: Any) -> None:
        """Compare a thing. None: it is not there."""
        if before == after:
            self.same += before is not None
            return
        self.count += 1
        if len(self.different) < MOST:
            self.different.append(Difference(what, _shown(before), _shown(after)))

    def take(self, other: Comparison, prefix: str) -> None:
        """Add the differences of another comparison."""
        self.count += other.count
        room = MOST - len(self.different)
        self.different += [Difference(prefix + each.what, each.before, each.after) for each in other.different[:room]]

    def sequences(self, what: str, old: Sequence[Timed], new: Sequence[Timed], end: float = math.inf) -> None:
        """Compare two lists; what is missing or new in the middle of one is found.

        end: time at which the record ends. What one of them has beyond the other in the last moments is no difference: the process was
        stopped then, or was at work when the home was copied.
        """
        old, new = _without_tail(old, len(new), end), _without_tail(new, len(old), end)
        before, after = [value for _, value in old], [value for _, value in new]
        if before == after:
            self.same += len(before)
            return
        a, b = [_key(value) for value in before], [_key(value) for value in after]
        for kind, i, j, k, m in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
            if kind == "equal":
                self.same += j - i
                continue
            for n in range(max(j - i, m - k)):
                was = before[i + n] if i + n < j else None
                becomes = after[k + n] if k + n < m else None
                self.add(what, was, becomes)

    def mappings(self, what: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Compare two mappings key by key."""
        for key in dict.fromkeys((*before, *after)):
            self.add(f"{what} {key}", before.get(key), after.get(key))


def compare(before: Record, after: Record, end: float) -> Comparison:
    """Compare what was recorded with what its replay has recorded. end: time at which the record ends, ms."""
    found = Comparison()
    mask, last = _Mask([before, after]), last_time(before)
    found.sequences("message", _items(before, before, mask), _items(after, before, mask), end)
    for path in dict.fromkeys((*before.sessions, *after.sessions)):
        found.sequences(f"conversation {path}", _entries(before, path, mask), _entries(after, path, mask), end)
        found.sequences(f"summary of {path}", _summaries(before, path, mask), _summaries(after, path, mask), end)
    _compare_kept(found, before, after)
    old, new = _replies(before, mask), _replies(after, mask)
    for address in dict.fromkeys((*old, *new)):
        a, b = old.get(address, []), new.get(address, [])
        # The oldest replies of the outbox are gone when it was written anew.
        b = b[len(b) - len(a) :] if not before.has_all_replies and len(b) > len(a) else b
        found.sequences(f"reply to {address}", a, b, end)
    for task_id in dict.fromkeys((*before.tasks, *after.tasks)):
        old_events, new_events = (
            [
                (time_of(event), _event(event, mask))
                for event in record.tasks.get(task_id, [])
                if event.get("event") != "REFLECTION_COMPLETE" or time_of(event) < last - _REFLECTED
            ]
            for record in (before, after)
        )
        found.sequences(f"task {task_id}", old_events, new_events, end)
    found.mappings("memory", before.memory, after.memory)
    notes = [{name: _NOTES_ID.sub("", text) for name, text in record.notes.items()} for record in (before, after)]
    found.mappings("notes", *notes)
    found.sequences("change of memory", _changes(before, mask), _changes(after, mask), end)
    found.mappings("approval", _approvals(before, mask), _approvals(after, mask))
    _compare_jobs(found, before, after)
    return found


class _Mask:
    """Replaces what varies in texts: fences and names of archives everywhere, times in what the program says itself."""

    def __init__(self, records: Iterable[Record]) -> None:
        fences = set[str]()
        for record in records:
            for entry in (
                *record.entries,
                *(e for events in record.tasks.values() for ev in events for e in new_entries(ev)),
            ):
                fence = facts_of(entry).get("fence")
                if isinstance(fence, str) and len(fence) >= 6:
                    fences.add(fence)
        self._fences = re.compile("|".join(map(re.escape, sorted(fences)))) if fences else None

    def text(self, text: Any, *, is_own: bool = False) -> Any:
        """Return a text without what varies. is_own: the program has written it."""
        if not isinstance(text, str):
            return text
        if self._fences is not None:
            text = self._fences.sub("FENCE", text)
        text = _ARCHIVE_NAME.sub("ARCHIVE", text)
        if is_own:
            for pattern in _VARIES:
                text = pattern.sub("#", text)
        return text

    def value(self, value: Any, *, is_own: bool = False) -> Any:
        """Return a JSON value whose texts are masked."""
        if isinstance(value, str):
            return self.text(value, is_own=is_own)
        if isinstance(value, dict):
            return {key: self.value(item, is_own=is_own) for key, item in value.items()}
        if is_own and isinstance(value, int) and value > _TIMES:
            return 0
        if isinstance(value, list):
            return [self.value(item, is_own=is_own) for item in value]
        return value


def _items(record: Record, before: Record, mask: _Mask) -> list[Timed]:
    """Return the items in their order, and whether those are done that were done before."""
    done = {message_id(line) for line in before.messages if line["n"] in before.done}
    found = []
    for line in record.messages:
        message, id = line["message"], message_id(line)
        form = {
            "id": re.sub(r"(schedule/[^/]+)/\d+", r"\1", id),
            "text": mask.text(message.get("text"), is_own="\x1f" in id),
            "lane": line.get("lane", "main"),
            "rank": line.get("rank", 0),
            "metadata": mask.value(message.get("metadata") or {}),
            "done": id not in done or line["n"] in record.done,
        }
        found.append((time_of(line, "at"), form))
    return found


def _entries(record: Record, path: str, mask: _Mask) -> list[Timed]:
    """Return the lines of a conversation, from its oldest archive on, each once though a compaction has kept it in two files."""
    lines = own_lines(record.sessions.get(path, []))
    lines = [line for line in lines if facts_of(line).get("stopReason") != JOINED and not _is_summary(line)]
    return [(time_of(line), _entry(line, mask)) for line in lines]


def _is_summary(line: Line) -> bool:
    """Return whether a line is the summary that a compaction has left. Where it stands depends on when it was ready."""
    return facts_of(line).get("type") in ("compact", "consolidated")


def _summaries(record: Record, path: str, mask: _Mask) -> list[Timed]:
    lines = own_lines(record.sessions.get(path, []))
    return [(time_of(line), _entry(line, mask)) for line in lines if _is_summary(line)]


def _kept(record: Record, path: str) -> list[int]:
    """Return how much each new file of a conversation has kept of the one before: the last so many lines, or -1 for other ones."""
    found = []
    parts = record.sessions.get(path, [])
    for before, part in pairwise(parts):
        known = [identity_of(line) for line in before.lines]
        kept = [id for id in map(identity_of, part.lines) if id in set(known)]
        found.append(len(kept) if not kept or known[-len(kept) :] == kept else -1)
    return found


def _compare_kept(found: Comparison, before: Record, after: Record) -> None:
    """Compare what compactions have kept. The cut may lie elsewhere, since a summary may have been begun some messages before."""
    for path in before.sessions:
        for number, (old, new) in enumerate(zip(_kept(before, path), _kept(after, path), strict=False)):
            is_alike = new >= 0 and (new >= old // 3 or old < 3) and (old >= new // 3 or new < 3)
            found.add(f"lines of {path} that compaction {number + 1} has kept", old, old if is_alike else new)


def _entry(entry: Line, mask: _Mask) -> Line:
    is_own = entry.get("role") in ("tool", "system")
    form: Line = {"role": entry.get("role"), "content": mask.text(entry.get("content", ""), is_own=is_own)}
    if calls := entry.get("toolCalls"):
        form["calls"] = mask.value(calls)
    if call_id := entry.get("toolCallId"):
        form["call"] = call_id
    facts = {key: mask.value(value, is_own=True) for key, value in facts_of(entry).items() if key not in _NO_FACTS}
    if isinstance(notes := facts.get("consolidation"), dict):
        facts["consolidation"] = {key: notes.get(key) for key in ("text", "wanted", "messages")}
    elif notes is not None:
        facts["consolidation"] = "written"
    if facts:
        form["metadata"] = facts
    return form


def _replies(record: Record, mask: _Mask) -> dict[str, list[Timed]]:
    found: dict[str, list[Timed]] = {}
    for line in record.replies:
        message = line["message"]
        channel = message.get("channel") or {}
        is_command = str(line.get("key", "")).endswith("/command")
        text = mask.text(message.get("text", ""), is_own=is_command)
        facts = {key: value for key, value in (message.get("metadata") or {}).items() if key != "usage"}
        if is_command:
            is_about_models = str(facts.get("question", "")).startswith(_ABOUT_MODELS)
            text = "…" if is_about_models else _COMMAND_ANSWER.sub("#", _OF_THE_MOMENT.sub("", text))
        form = {
            "text": text,
            "thread": channel.get("replyTo"),
            "files": [file.get("name") for file in message.get("files") or []],
            "metadata": mask.value(facts, is_own=True),
        }
        found.setdefault(f"{channel.get('type')}:{channel.get('channelId')}", []).append((time_of(line, "at"), form))
    return found


def _event(event: Line, mask: _Mask) -> Line:
    data = event.get("data") if isinstance(event.get("data"), dict) else {}
    form = {key: value for key, value in (data or {}).items() if key not in ("durationMs", "newMessages")}
    messages = [_entry(entry, mask) for entry in new_entries(event)]
    return {"event": event.get("event"), **mask.value(form), **({"messages": messages} if messages else {})}


def _changes(record: Record, mask: _Mask) -> list[Timed]:
    void = {line["void"] for line in record.changes if "void" in line}
    named = ("kind", "task", "channel", "why", "source")
    found = []
    for line in record.changes:
        if "n" not in line or line["n"] in void:
            continue
        by = {key: value for key, value in (line.get("by") or {}).items() if key in named}
        form = {"path": line.get("path"), "how": line.get("how"), "by": by, "text": mask.text(line.get("text"))}
        found.append((time_of(line), form))
    return found


def _approvals(record: Record, mask: _Mask) -> dict[str, Any]:
    found: dict[str, Line] = {}
    for line in record.approvals:
        kept = ("tool", "arguments", "state", "scope", "by", "who", "revoked", "allowed", "hash")
        step = {key: line[key] for key in kept if key in line}
        found[str(line.get("id"))] = {**found.get(str(line.get("id")), {}), **mask.value(step)}
    return found


def _compare_jobs(found: Comparison, before: Record, after: Record) -> None:
    old = {str(job.get("id")): job for job in before.jobs}
    new = {str(job.get("id")): job for job in after.jobs}
    for job_id in dict.fromkeys((*old, *new)):
        a, b = old.get(job_id), new.get(job_id)
        found.add(f"job {job_id}", a, a if a is not None and b is not None and _is_same_job(a, b) else b)


def _is_same_job(a: Line, b: Line) -> bool:
    for key in {*a, *b} - {"last", "judged"}:
        if key == "next" and _is_near(a.get(key), b.get(key)):
            continue
        if key == "schedule" and _is_same_schedule(a.get(key), b.get(key)):
            continue
        if a.get(key) != b.get(key):
            return False
    return True


def _is_same_schedule(a: Any, b: Any) -> bool:
    if not isinstance(a, dict) or not isinstance(b, dict):
        return bool(a == b)

    def moment(value: Any) -> Any:
        try:
            return int(datetime.fromisoformat(str(value)).timestamp() * 1000)
        except ValueError:
            return value

    rest = [{key: value for key, value in each.items() if key != "at"} for each in (a, b)]
    return rest[0] == rest[1] and _is_near(moment(a.get("at")), moment(b.get("at")))


def _is_near(a: Any, b: Any) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return abs(a - b) <= SLACK
    return bool(a == b)


def _without_tail(things: Sequence[Timed], length: int, end: float) -> Sequence[Timed]:
    """Return a list without what it has beyond a length in the last moments before the end."""
    kept = len(things)
    while kept > length and things[kept - 1][0] > end - TAIL:
        kept -= 1
    return things[:kept]


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True)


def _shown(value: Any) -> Json:
    """Return a value for the report, without the middle of long texts."""
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[: _LONGEST // 2]} … {value[-_LONGEST // 2 :]}"
    if isinstance(value, dict):
        return {str(key): _shown(item) for key, item in value.items()}
    return [_shown(item) for item in value[:50]] if isinstance(value, list) else value
