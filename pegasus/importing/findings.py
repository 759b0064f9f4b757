"""Values between reading a foreign home and bringing it in: notes, sessions, jobs, and what is left out."""

from __future__ import annotations

from typing import Literal

import attrs

from pegasus.conversation import Entry
from pegasus.messages import Metadata


class NotAHome(ValueError):
    """A folder that is no home of this kind. str() says what was found, and what one has."""


@attrs.frozen
class FoundNote:
    """A text that the other agent remembers: `FoundNote("workspace/MEMORY.md", "facts/openclaw-memory.md", "- Likes tea")`."""

    origin: str
    """Where it was found, for people, and its name in the record of imports."""
    path: str
    """File of memory that it becomes."""
    text: str


@attrs.frozen
class FoundSession:
    """A conversation: `FoundSession("sessions/telegram_42.jsonl", "telegram", "42", entries)`."""

    origin: str
    type: str
    """Channel type; "" if it is not known."""
    channel_id: str
    entries: tuple[Entry, ...]
    left_out: int = 0
    """Messages or parts that an archive cannot hold, such as pictures, or lines that cannot be read."""


@attrs.frozen
class FoundJob:
    """A scheduled job, with the values that `draft_job` takes.

    Example: `FoundJob("cron/jobs.json: daily", {"schedule": {"every": 900}, "prompt": "Is it up?", "channel": "cli:main"})`.
    """

    origin: str
    values: Metadata
    paused: tuple[str, ...] = ()
    """Reasons why it is made paused: what of its meaning cannot be kept, or that it was paused before."""


@attrs.frozen
class LeftOut:
    """Something that is not imported: `LeftOut("setting", "openclaw.json", "keys and settings stay where they are")`."""

    kind: str
    origin: str
    reason: str


@attrs.define
class Findings:
    """Everything that a foreign home has: `Findings("openclaw")`."""

    source: str
    """Name of its kind."""
    notes: list[FoundNote] = attrs.field(factory=list)
    sessions: list[FoundSession] = attrs.field(factory=list)
    jobs: list[FoundJob] = attrs.field(factory=list)
    left_out: list[LeftOut] = attrs.field(factory=list)

    def skip(self, kind: str, origin: str, reason: str) -> None:
        """Note something that is not imported."""
        self.left_out.append(LeftOut(kind, origin, reason))


@attrs.frozen
class ImportLine:
    """A line of the report: `ImportLine("imported", "memory", "workspace/MEMORY.md", "facts/openclaw-memory.md")`."""

    outcome: Literal["imported", "paused", "there", "left out"]
    """"there": it was imported before."""
    kind: str
    """"memory", "session", "job", "persona", "setting" or "file"."""
    origin: str
    target: str = ""
    """What it has become; "" if nothing."""
    reason: str = ""
