"""The report of a check: what was replayed, and what came out differently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from pegasus.formatting import cut_text, format_time, plural
from pegasus.messages import Json
from pegasus.wire import encode_json, to_wire

_SHOWN: Final = 20
"""Differences that are shown to people; `--json` has more."""
_LENGTH: Final = 300
"""Characters of each side of a difference."""


@attrs.frozen
class Difference:
    """Something that was one way, and is another way with the other version."""

    what: str
    """The thing: `reply to web:c1`, `task 1d3af0ebec7cb0d8`, `memory facts/user.md`."""
    before: Json = None
    """As it was recorded; None if it is new."""
    after: Json = None
    """As the other version does it; None if it is missing."""


@attrs.frozen
class CheckReport:
    """Outcome of a check."""

    replayed: int
    """Messages and runs that were replayed."""
    same: int
    """Things that came out as they were recorded: lines of conversations, replies, events of tasks, files, jobs."""
    different: Sequence[Difference] = ()
    """Differences, the first ones."""
    more: int = 0
    """Differences that are not listed."""
    since: int = 0
    """Time from which on it was replayed, ms since the epoch; 0 if there was nothing."""
    left_out: int = 0
    """Earlier messages of the wanted days: until then something was always being worked on."""


def report_json(report: CheckReport) -> dict[str, Json]:
    """Return the report as programs get it."""
    different: list[Json] = [
        {"what": each.what, "before": each.before, "after": each.after} for each in report.different
    ]
    return {**to_wire(attrs.evolve(report, different=())), "different": different}


def report_text(report: CheckReport) -> Iterator[str]:
    """Yield the lines of the report for people."""
    since = f" since {format_time(report.since, '%Y-%m-%d %H:%M')} UTC" if report.since else ""
    yield f"Replayed: {plural(report.replayed, 'message')}{since}"
    if report.left_out:
        earlier = plural(report.left_out, "earlier message")
        yield f"Not replayed: {earlier} of these days, until which something was always being worked on"
    yield f"The same: {report.same:,}"
    yield f"Different: {len(report.different) + report.more:,}"
    for each in report.different[:_SHOWN]:
        yield f"  {each.what}"
        yield f"    before: {_shown(each.before)}"
        yield f"    after:  {_shown(each.after)}"
    if (left := len(report.different) + report.more - _SHOWN) > 0:
        yield f"  and {left:,} more; --json shows the first {len(report.different):,}"


def _shown(value: Json) -> str:
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else encode_json(value)
    return cut_text(" ".join(text.split()), _LENGTH)
