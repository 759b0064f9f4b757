"""The heartbeat: now and then the agent looks at HEARTBEAT.md, and speaks only if there is something to say.

`workspace/HEARTBEAT.md` holds what its owner wants to be looked after, in Markdown. Headings, comments and blank lines are nothing, so
that a file of headings costs no model call.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import attrs

from pegasus.access import ROLE, Role
from pegasus.messages import APART, INTERNAL_ID_PREFIX, ChannelInfo, InboundMessage, Json
from pegasus.outside import OUTSIDE

HEARTBEAT: Final = "heartbeat"
"""`metadata.type` of the heartbeat's message."""
SCHEDULED: Final = "scheduled"
"""`metadata.type` of a job's message, in the queue and in the session."""
PLACED: Final = "placed"
"""Key of the metadata of a run: True if text from outside may have chosen where the job speaks. Stored, so it must not change."""
QUIET_FAILURE: Final = "quietFailure"
"""Key in the metadata of a job's task: its failure is not reported, since that of the run before was."""
_COMMENT = re.compile(r"<!--.*?(-->|\Z)", re.DOTALL)
"""An HTML comment; one that is not closed reaches to the end of the file."""


async def _nothing() -> str:
    """Return "": there is no file."""
    return ""


@attrs.frozen(eq=False, repr=False)
class Heartbeat:
    """The heartbeat of the settings."""

    seconds: float = 0.0
    """Time between two looks; 0: there is none."""
    active_hours: str = ""
    """Local time in which it looks, as "08:00-22:00"; may go over midnight; "" = always."""
    read: Callable[[], Awaitable[str]] = _nothing
    """Returns the text of HEARTBEAT.md as its owner has written or accepted it, "" if there is none."""


def parse_active_hours(text: str) -> tuple[int, int]:
    """Return the minutes of the day from and until which the heartbeat looks.

    >>> parse_active_hours("08:00-22:30")
    (480, 1350)
    """
    if not text:
        return 0, 24 * 60
    begin, end = ((int(hour) * 60 + int(minute)) for hour, minute in (part.split(":") for part in text.split("-")))
    return begin, end


def is_active(active_hours: str, moment: datetime) -> bool:
    """Return whether a local time is within the active hours."""
    begin, end = parse_active_hours(active_hours)
    minute = moment.hour * 60 + moment.minute
    # Hours that end before they begin, such as "22:00-06:00", go over midnight. The same begin and end fit no minute of the day.
    return begin <= minute < end if begin <= end else minute >= begin or minute < end


def things_to_do(text: str) -> str:
    """Return the text of HEARTBEAT.md if it asks for anything, else ""."""
    lines = [line.strip() for line in _COMMENT.sub("", text).splitlines()]
    return text.strip() if any(line and not line.startswith("#") for line in lines) else ""


def heartbeat_item(text: str, channel: ChannelInfo, now: int) -> InboundMessage:
    """Return the queue item of a heartbeat. text: what HEARTBEAT.md asks for. channel: the owner's."""
    # It is about the owner's affairs: never a part of a conversation in which guests are heard.
    metadata: dict[str, Json] = {"type": HEARTBEAT, ROLE: Role.OWNER, APART: False, OUTSIDE: []}
    return InboundMessage(text, channel, f"{INTERNAL_ID_PREFIX}heartbeat/{now}", metadata)
