"""From the form of other agents to that of Pegasus: texts, times, messages and jobs, as the homes of several agents have them.

Whatever looks like a key is masked on the way: an agent's notes and conversations hold keys more often than
people think.

**Nothing is trusted.** A foreign home may be damaged, of another version, or made by somebody who wants the
agent to read it. So every value is looked at before it is used, and nothing here raises for what a file holds.
A part that makes no sense is left out, and the report names it with the reason (`Findings.skip`).

**What is kept of a message** is its text, its calls with their results, its time and its channel. Pictures and
other parts that are no text are counted and left out. The entries are marked as words from
a file, since nobody here has seen them being said.

**Jobs** are turned into the values that `draft_job` takes, which is also what the agent's own tool gives it. So
an imported job obeys the same rules as one that was made here. A job whose meaning cannot be kept whole is
imported as paused, with the reasons.

The functions are shared by `openclaw`, `nanobot` and `hermes`, some of whose forms are the same.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from pegasus.conversation import Entry, clean_text, sanitize_for_prompt, user_content
from pegasus.importing.foreign_home import (
    LARGEST_SESSION,
    LARGEST_TEXT,
    CannotRead,
    Findings,
    ForeignFolder,
    FoundJob,
    FoundSession,
    ImportedNote,
)
from pegasus.messages import ChannelInfo, Metadata
from pegasus.models import ToolCall
from pegasus.outside import OUTSIDE, Untrusted
from pegasus.redaction import Redactor
from pegasus.settings import SERVICE_SECTIONS

LONGEST_MESSAGE: Final = 1 << 20
"""Characters of a message; the rest is cut."""
LARGEST_PART: Final = 20_000
"""Bytes of a file of memory. A longer text becomes several."""
PERSONA: Final = ("SOUL.md", "AGENTS.md", "IDENTITY.md", "TOOLS.md", "HEARTBEAT.md")
"""Files about the character and manners of an agent, which are not its memory."""
SETTINGS_STAY: Final = "keys and settings are never imported; set up here what you need"
"""Reason why a file of settings is left out."""
KNOWN_CHANNELS: Final = ("cli", "web", "api", *SERVICE_SECTIONS)
"""Channel types that there are here."""
_FROM_FILE: Final[Metadata] = {OUTSIDE: [Untrusted.FILE.value]}
"""Metadata of each entry: its text comes from a file, whoever has said it."""

_redactor = Redactor()


def masked(text: str) -> str:
    """Return a text without characters that cannot be seen, and without whatever has the format of a key.

    Both are done for everything that is written or shown: characters that cannot be seen could hide
    instructions from the person who reads the report.
    """
    return _redactor.apply(sanitize_for_prompt(text))


def shown_name(value: object) -> str:
    """Return an id or a name of a foreign home for the report: one short line."""
    return " ".join(masked(str(value)).split())[:80]


def _split_text(text: str) -> list[str]:
    """Return a text in parts that a file of memory can hold, cut between paragraphs where there are any, else between lines.

    A part is as long as LARGEST_PART allows, but a heading begins a new one when less than a quarter of the
    room is left: so a section mostly stays in one file.
    """
    parts: list[str] = []
    room = LARGEST_PART
    for line in _short_lines(text.strip()):
        size = len(line.encode())
        if parts and room - size >= 0 and not (line.startswith("#") and room < LARGEST_PART // 4):
            parts[-1] += line
            room -= size
        else:
            parts.append(line)
            room = LARGEST_PART - size
    return [part.strip() for part in parts if part.strip()]


def _short_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, those that are too long in pieces.

    Without a bound a single line could be longer than a file of memory may be.
    """
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), LARGEST_PART // 4):
            yield line[start : start + LARGEST_PART // 4]


def time_of(value: object) -> int | None:
    """Return a time in ms: of ISO 8601, of seconds or of milliseconds since the epoch; None for anything else."""
    # True and False are numbers in Python.
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        # As seconds 1e11 is the year 5138, as milliseconds it is 1973: no agent is that old.
        ms = value if abs(value) > 1e11 else value * 1000
        return int(ms) if 0 <= ms < 4e12 else None
    if isinstance(value, str):
        try:
            return int(datetime.fromisoformat(value.strip()).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            return None
    return None


def json_lines(text: str) -> Iterator[Mapping[str, Any] | None]:
    """Yield the object of each line; None for a line that is none.

    Blank lines are passed over. What is damaged yields None instead of ending the file: a program that was
    killed leaves half a line.
    """
    # Not at whatever Unicode takes for the end of a line: JSON allows U+2028 within a text.
    for line in text.split("\n"):
        if line.strip():
            yield json_object(line)


def json_object(text: str) -> Mapping[str, Any] | None:
    """Return a JSON object; None for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def text_of(content: object) -> tuple[str, int]:
    """Return the text of a message's content, which is a text or a list of blocks, and the number of blocks that are no text.

    Reasoning and calls are no text and are not counted: they are kept apart, or not at all, in every format.
    """
    if isinstance(content, str):
        return content, 0
    if not isinstance(content, list):
        return "", int(content is not None)
    texts, others = [], 0
    for block in content:
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif not (isinstance(block, dict) and block.get("type") in ("thinking", "toolCall", "tool_use")):
            others += 1
    return "\n".join(texts), others


def _calls_of(calls: object) -> tuple[ToolCall, ...]:
    """Return tool calls as other agents keep them: as a list of `{id, name, arguments}`, or of `{id, function: {…}}`."""
    found = []
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        if not isinstance(call, dict):
            continue
        of: Any = call["function"] if isinstance(call.get("function"), dict) else call
        name, given = of.get("name"), of.get("arguments", of.get("input"))
        if isinstance(given, str):
            # Many programs keep arguments as the text in which the model has written them.
            given = json_object(given)
        if isinstance(name, str) and name:
            id = call.get("id")
            # Masked as a text and read again. If the mask has broken the JSON, the call stays without
            # arguments.
            arguments = json_object(masked(json.dumps(given))) if isinstance(given, dict) else None
            found.append(ToolCall(id if isinstance(id, str) and id else f"c{number}", masked(name), arguments or {}))
    return tuple(found)


def entry_of(
    role: object, content: object, ts: int, channel: ChannelInfo, calls: object = None, call_id: object = None
) -> tuple[Entry | None, int]:
    """Return the entry of a message, None for one without a meaning here, and the number of its parts that are left out."""
    text, others = text_of(content)
    # Cut before it is masked, since masking takes time in proportion to the text.
    text = masked(text[:LONGEST_MESSAGE])
    match role:
        case "user" if text.strip():
            return Entry(ts, "user", user_content(text, channel), metadata=_FROM_FILE), others
        case "assistant" if text.strip() or calls:
            return Entry(ts, "assistant", clean_text(text), _calls_of(calls), metadata=_FROM_FILE), others
        case "tool" | "toolResult" if isinstance(call_id, str) and call_id:
            return Entry(ts, "tool", text, call_id=masked(call_id), metadata=_FROM_FILE), others
    # A system message has no meaning here: its agent had another prompt. It is left out without being counted.
    return None, others + (role not in ("user", "assistant", "tool", "toolResult", "system"))


SaidPart: TypeAlias = tuple[object, object, object, object, object]
"""Role, content, time, calls, and the id of the call that is answered, of a message of another agent."""


def session_of(
    found: Findings, origin: str, type: str, channel_id: str, messages: Iterable[SaidPart | None]
) -> FoundSession:
    """Return a session of these messages; None among them is one that is damaged.

    The order is that of the messages, also where a time is missing. Each entry needs a channel, also where nobody knows its own.
    """
    channel, entries, left_out = ChannelInfo(type or "import", channel_id or found.source), [], 0
    for message in messages:
        if message is None:
            left_out += 1
            continue
        role, content, ts, calls, call_id = message
        entry, others = entry_of(role, content, time_of(ts) or 0, channel, calls, call_id)
        left_out += others
        if entry is not None:
            entries.append(entry)
    return FoundSession(origin, type, channel_id, tuple(entries), left_out)


# ------------------------------------------------------------------ notes, the character, settings


def read_text(found: Findings, folder: ForeignFolder, name: str, kind: str, limit: int = LARGEST_TEXT) -> str | None:
    """Return the text of a file. None if there is none, or if it cannot be read, which the report says. kind: of what is in it."""
    try:
        return folder.text(name, limit)
    except CannotRead as error:
        found.skip(kind, name, str(error))
        return None


def add_notes(found: Findings, folder: ForeignFolder, name: str, path: str) -> None:
    """Add a file of notes, if there is one. path: of the file of memory, without ".md"."""
    if (text := read_text(found, folder, name, "memory")) is not None:
        add_note(found, name, path, text)


def add_note(found: Findings, origin: str, path: str, text: str) -> None:
    """Add a text as one file of memory, or as several if it is long. One that is empty is left out."""
    parts = _split_text(masked(text))
    if not parts:
        found.skip("memory", origin, "it is empty")
    for number, part in enumerate(parts, 1):
        suffix = f"-{number}" if number > 1 else ""
        # Further parts have a number in their origin, since the record of imports knows each part by it.
        found.notes.append(ImportedNote(f"{origin}{f' ({number})' if number > 1 else ''}", f"{path}{suffix}.md", part))


def add_persona(found: Findings, folder: ForeignFolder, place: str) -> None:
    """Say that the files about its character are not imported. place: their folder, with a slash at the end, or "".

    They are left out on purpose: an agent's character is made of its prompt, its tools and its owner, and would
    contradict the one that is here.
    """
    for name in PERSONA:
        try:
            exists = folder.content(place + name) is not None
        except CannotRead:
            exists = True
        if exists:
            reason = "its character is not its memory; copy what you want into workspace/ yourself"
            found.skip("persona", place + name, reason)


def add_missing_workspace(found: Findings, folder: ForeignFolder) -> None:
    """Say that a home has no workspace: its settings, which are not read, can put it anywhere."""
    if not any(path.startswith("workspace") for path in folder.folders("")):
        found.skip("memory", "workspace/", "it is not in this home; copy it there as workspace/ to import what it has")


def add_settings(found: Findings, folder: ForeignFolder, names: Collection[str]) -> None:
    """Say that settings and keys are not imported. They are not even read."""
    for name in sorted(set(names) & set(folder.names("", ""))):
        found.skip("setting", name, SETTINGS_STAY)


# ------------------------------------------------------------------ sessions


def each_session(
    found: Findings, folder: ForeignFolder, place: str, pattern: str = "*.jsonl"
) -> Iterator[tuple[str, str]]:
    """Yield name and text of the sessions in a folder of JSON lines. pattern: of their names. What cannot be read is left out."""
    try:
        names = folder.names(place, "")
    except CannotRead as error:
        found.skip("session", place, str(error))
        return
    for name in fnmatch.filter(names, f"{place}/{pattern}"):
        if (text := read_text(found, folder, name, "session", LARGEST_SESSION)) is not None:
            yield name, text


# ------------------------------------------------------------------ jobs


def each_job(found: Findings, folder: ForeignFolder, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the jobs of a file `{"jobs": […]}` with a name for people each. What cannot be read is left out.

    The id is shown to people and is part of the record of imports, so a job is found again although its place
    in the file has changed.
    """
    text = read_text(found, folder, name, "job")
    if text is None:
        return
    jobs = (json_object(text) or {}).get("jobs")
    if not isinstance(jobs, list):
        found.skip("job", name, 'it is no JSON object with a list "jobs"')
        return
    if not jobs:
        found.skip("job", name, "there is no job in it")
    for number, job in enumerate(jobs, 1):
        if not (isinstance(job, dict) and isinstance(job.get("schedule"), dict)):
            found.skip("job", f"{name} ({number})", "it is no job with a schedule")
        elif job.get("id"):
            yield f"{name}: {shown_name(job['id'])}", job
        else:
            yield f"{name}: {number}", job


def add_job(
    found: Findings,
    origin: str,
    job: Mapping[str, Any],
    prompt: object,
    schedule: Metadata | None,
    address: tuple[str, str],
    paused: Collection[str],
    *,
    kind: str = "message",
    is_enabled: bool,
) -> None:
    """Add a job, or the reason why it is left out.

    schedule: as `draft_job` takes it, None if it makes no sense. address: as `address_of` returns it. paused: what of the job's
    meaning cannot be kept. is_enabled: its owner has not paused it.
    """
    if not (isinstance(prompt, str) and prompt.strip()):
        found.skip("job", origin, "it has no prompt")
    elif schedule is None:
        found.skip("job", origin, "its schedule makes no sense")
    else:
        place, reason = address
        values: Metadata = {
            "schedule": schedule,
            "prompt": prompt,
            "channel": place,
            "kind": kind,
            "name": str(job.get("name") or ""),
        }
        reasons = (reason, *paused, "" if is_enabled else "it was paused")
        found.jobs.append(FoundJob(origin, values, tuple(filter(None, reasons))))


def cron_values(schedule: Any) -> tuple[Metadata | None, list[str]]:
    """Return a schedule `{"kind": "at" | "every" | "cron", …}` as `draft_job` takes it, None if it makes no sense, and what is lost.

    Several spellings of a field are accepted, since the agents have renamed theirs over time.
    """
    match schedule.get("kind"):
        case "cron" if isinstance(schedule.get("expr"), str):
            stagger = ["it was spread over some time"] if schedule.get("staggerMs") else []
            zone = schedule.get("tz")
            return {"cron": schedule["expr"], **({"tz": zone} if isinstance(zone, str) and zone else {})}, stagger
        case "every" if isinstance(ms := schedule.get("everyMs", schedule.get("every_ms")), int | float) and ms > 0:
            anchored = ["its times were counted from a fixed moment"] if schedule.get("anchorMs") else []
            return {"every": ms / 1000}, anchored
        case "at":
            given = schedule.get("at") or schedule.get("atMs") or schedule.get("at_ms")
            if isinstance(given, str):
                return {"at": given}, []
            if (ms := time_of(given)) is not None:
                return {"at": datetime.fromtimestamp(ms / 1000, UTC).isoformat()}, []
    return None, []


def address_of(type: object, id: object) -> tuple[str, str]:
    """Return `<type>:<id>` of a chat and why a job cannot speak there; ("cli:main", reason) if it is not known."""
    if not (isinstance(type, str) and type and isinstance(id, str | int) and str(id)):
        return "cli:main", "it does not say in which chat it speaks"
    # Some agents say in the id whether it is a person or a room.
    name = str(id).removeprefix("channel:").removeprefix("user:")
    if type not in KNOWN_CHANNELS:
        return f"{type}:{name}", f"there is no channel {type} here; a bridge could be one"
    return f"{type}:{name}", ""
