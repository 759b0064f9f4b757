"""Parts that the homes of several agents have in common: files of notes, the character, settings, and jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pegasus.importing.findings import Findings, FoundNote
from pegasus.importing.reading import CannotRead, ForeignFolder
from pegasus.importing.texts import json_object, masked, shown_name, split_text, time_of
from pegasus.messages import Metadata
from pegasus.settings import SERVICE_SECTIONS

PERSONA: Final = ("SOUL.md", "AGENTS.md", "IDENTITY.md", "TOOLS.md", "HEARTBEAT.md")
"""Files about the character and manners of an agent, which are not its memory."""


def known_channels() -> Collection[str]:
    """Return the channel types that there are here."""
    return ("cli", "web", "api", *SERVICE_SECTIONS)


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
    parts = split_text(masked(text))
    if not parts:
        found.skip("memory", origin, "it is empty")
    for number, part in enumerate(parts, 1):
        suffix = f"-{number}" if number > 1 else ""
        found.notes.append(FoundNote(f"{origin}{f' ({number})' if number > 1 else ''}", f"{path}{suffix}.md", part))


def add_persona(found: Findings, folder: ForeignFolder, place: str) -> None:
    """Say that the files about its character are not imported. place: their folder, with a slash at the end, or ""."""
    for name in PERSONA:
        try:
            there = folder.content(place + name) is not None
        except CannotRead:
            there = True
        if there:
            reason = "its character is not its memory; copy what you want into workspace/ yourself"
            found.skip("persona", place + name, reason)


def add_settings(found: Findings, folder: ForeignFolder, names: Collection[str]) -> None:
    """Say that settings and keys are not imported. They are not even read."""
    for name in sorted(set(names) & set(folder.names("", ""))):
        found.skip("setting", name, "keys and settings are never imported; set up here what you need")


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
