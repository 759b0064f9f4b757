"""From the form of other agents to that of Pegasus: texts, times, messages and jobs, as the homes of several agents have them.

Whatever looks like a key is masked on the way: an agent's notes and conversations hold keys more often than people think.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pegasus.conversation import Entry, clean_text, sanitize_for_prompt, user_content
from pegasus.importing.foreign_home import CannotRead, Findings, ForeignFolder, FoundNote
from pegasus.messages import ChannelInfo, Metadata
from pegasus.models import ToolCall
from pegasus.outside import OUTSIDE, Outside
from pegasus.redaction import Redactor
from pegasus.settings import SERVICE_SECTIONS

LONGEST_MESSAGE: Final = 1 << 20
"""Characters of a message; the rest is cut."""
LARGEST_PART: Final = 20_000
"""Bytes of a file of memory. A longer text becomes several."""
PERSONA: Final = ("SOUL.md", "AGENTS.md", "IDENTITY.md", "TOOLS.md", "HEARTBEAT.md")
"""Files about the character and manners of an agent, which are not its memory."""
KNOWN_CHANNELS: Final = ("cli", "web", "api", *SERVICE_SECTIONS)
"""Channel types that there are here."""
_FROM_FILE: Final[Metadata] = {OUTSIDE: [Outside.FILE.value]}

_redactor = Redactor()


def masked(text: str) -> str:
    """Return a text without characters that cannot be seen, and without whatever has the format of a key."""
    return _redactor.apply(sanitize_for_prompt(text))


def shown_name(value: object) -> str:
    """Return an id or a name of a foreign home for the report: one short line."""
    return " ".join(masked(str(value)).split())[:80]


def _split_text(text: str) -> list[str]:
    """Return a text in parts that a file of memory can hold, cut between paragraphs where there are any, else between lines."""
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
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), LARGEST_PART // 4):
            yield line[start : start + LARGEST_PART // 4]


def time_of(value: object) -> int | None:
    """Return a time in ms: of ISO 8601, of seconds or of milliseconds since the epoch; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        ms = value if abs(value) > 1e11 else value * 1000
        return int(ms) if 0 <= ms < 4e12 else None
    if isinstance(value, str):
        try:
            return int(datetime.fromisoformat(value.strip()).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            return None
    return None


def json_lines(text: str) -> Iterator[Mapping[str, Any] | None]:
    """Yield the object of each line; None for a line that is none."""
    for line in text.splitlines():
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
    """Return the text of a message's content, which is a text or a list of blocks, and the number of blocks that are no text."""
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
            given = json_object(given)
        if isinstance(name, str) and name:
            id = call.get("id")
            arguments = json_object(masked(json.dumps(given))) if isinstance(given, dict) else None
            found.append(ToolCall(id if isinstance(id, str) and id else f"c{number}", masked(name), arguments or {}))
    return tuple(found)


def entry_of(
    role: object, content: object, ts: int, channel: ChannelInfo, calls: object = None, call_id: object = None
) -> tuple[Entry | None, int]:
    """Return the entry of a message, None for one without a meaning here, and the number of its parts that are left out."""
    text, others = text_of(content)
    text = masked(text[:LONGEST_MESSAGE])
    match role:
        case "user" if text.strip():
            return Entry(ts, "user", user_content(text, channel), metadata=_FROM_FILE), others
        case "assistant" if text.strip() or calls:
            return Entry(ts, "assistant", clean_text(text), _calls_of(calls), metadata=_FROM_FILE), others
        case "tool" | "toolResult" if isinstance(call_id, str) and call_id:
            return Entry(ts, "tool", text, call_id=masked(call_id), metadata=_FROM_FILE), others
    return None, others + (role not in ("user", "assistant", "tool", "toolResult", "system"))


# ------------------------------------------------------------------ notes, the character, settings


def add_notes(found: Findings, folder: ForeignFolder, name: str, path: str) -> None:
    """Add a file of notes, if there is one. path: of the file of memory, without ".md"."""
    try:
        text = folder.text(name)
    except CannotRead as error:
        found.skip("memory", name, str(error))
        return
    if text is not None:
        add_note(found, name, path, text)


def add_note(found: Findings, origin: str, path: str, text: str) -> None:
    """Add a text as one file of memory, or as several if it is long. One that is empty is left out."""
    parts = _split_text(masked(text))
    if not parts:
        found.skip("memory", origin, "it is empty")
    for number, part in enumerate(parts, 1):
        suffix = f"-{number}" if number > 1 else ""
        found.notes.append(FoundNote(f"{origin}{f' ({number})' if number > 1 else ''}", f"{path}{suffix}.md", part))


def add_persona(found: Findings, folder: ForeignFolder, place: str) -> None:
    """Say that the files about its character are not imported. place: their folder, with a slash at the end, or ""."""
    for name in PERSONA:
        try:
            exists = folder.content(place + name) is not None
        except CannotRead:
            exists = True
        if exists:
            reason = "its character is not its memory; copy what you want into workspace/ yourself"
            found.skip("persona", place + name, reason)


def add_settings(found: Findings, folder: ForeignFolder, names: Collection[str]) -> None:
    """Say that settings and keys are not imported. They are not even read."""
    for name in sorted(set(names) & set(folder.names("", ""))):
        found.skip("setting", name, "keys and settings are never imported; set up here what you need")


# ------------------------------------------------------------------ jobs


def each_job(found: Findings, folder: ForeignFolder, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the jobs of a file `{"jobs": […]}` with a name for people each. What cannot be read is left out."""
    try:
        text = folder.text(name)
    except CannotRead as error:
        found.skip("job", name, str(error))
        return
    if text is None:
        return
    jobs = (json_object(text) or {}).get("jobs")
    if not isinstance(jobs, list):
        found.skip("job", name, 'it is no JSON object with a list "jobs"')
        return
    for number, job in enumerate(jobs, 1):
        if not (isinstance(job, dict) and isinstance(job.get("schedule"), dict)):
            found.skip("job", f"{name} ({number})", "it is no job with a schedule")
        elif job.get("id"):
            yield f"{name}: {shown_name(job['id'])}", job
        else:
            yield f"{name}: {number}", job


def prompt_of(found: Findings, origin: str, prompt: object) -> str:
    """Return what a job is to do; "" and a line of the report if it says nothing."""
    if isinstance(prompt, str) and prompt.strip():
        return prompt
    found.skip("job", origin, "it has no prompt")
    return ""


def cron_values(schedule: Any) -> tuple[Metadata | None, list[str]]:
    """Return a schedule `{"kind": "at" | "every" | "cron", …}` as `draft_job` takes it, and what of it cannot be kept.

    None if it makes no sense; the reason is in the list then.
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
                return {"at": _iso(ms)}, []
    return None, ["its schedule makes no sense"]


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def address_of(type: object, id: object) -> tuple[str, str]:
    """Return `<type>:<id>` of a chat and why a job cannot speak there; ("cli:main", reason) if it is not known."""
    if not (isinstance(type, str) and type and isinstance(id, str | int) and str(id)):
        return "cli:main", "it does not say in which chat it speaks"
    name = str(id).removeprefix("channel:").removeprefix("user:")
    if type not in KNOWN_CHANNELS:
        return f"{type}:{name}", f"there is no channel {type} here; a bridge could be one"
    return f"{type}:{name}", ""
