"""What a measure gives, as a table for people and as JSON for programs."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from typing import Any

import attrs

from benchmarks.samples import Spread, median, ratios, spread


@attrs.frozen
class Result:
    """One line of the table.

    measured and floor are in `unit`; ratio is what the limit is about (without a limit: for information).
    spread is that of the ratio, over rounds. floor_name says what the floor is made of. detail: numbers behind it, JSON only.
    """

    name: str
    measured: float
    floor: float
    floor_name: str
    unit: str
    ratio: float
    limit: float | None = None
    spread: Spread | None = None
    detail: dict[str, Any] = attrs.field(factory=dict)

    @property
    def verdict(self) -> str:
        """ "ok", "over", or "" where there is no limit."""
        if self.limit is None:
            return ""
        return "ok" if self.ratio <= self.limit else "over"


_SHOWN = ("name", "measured", "floor", "floor_name", "unit", "ratio", "limit")
_PER_SECOND = {"s": 1.0, "ms": 1e3, "µs": 1e6}


def compared(
    name: str,
    measured: Sequence[float],
    floor: Sequence[float],
    floor_name: str,
    limit: float | None,
    *,
    unit: str = "ms",
    detail: dict[str, Any] | None = None,
) -> Result:
    """A result from samples in seconds, one of each in every round. unit: s, ms or µs, for the table."""
    by_round, scale = ratios(measured, floor), _PER_SECOND[unit]
    about = (floor_name, unit, median(by_round), limit, spread(by_round), detail or {})
    return Result(name, median(measured) * scale, median(floor) * scale, *about)


_HEAD = ("measure", "measured", "floor", "", "ratio", "middle half", "limit", "")


def table(results: Sequence[Result]) -> str:
    rows = [_HEAD, *map(_row, results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return "\n".join(_line(row, widths) for row in rows)


def _row(result: Result) -> tuple[str, ...]:
    between = f"{result.spread.low:.2f} … {result.spread.high:.2f}" if result.spread else ""
    return (
        result.name,
        _quantity(result.measured, result.unit),
        _quantity(result.floor, result.unit),
        result.floor_name,
        f"{result.ratio:.2f}",
        between,
        "" if result.limit is None else f"{result.limit:g}",
        result.verdict,
    )


def _line(row: tuple[str, ...], widths: Sequence[int]) -> str:
    texts = {0, 3, 7}
    cells = [
        cell.ljust(width) if column in texts else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _quantity(value: float, unit: str) -> str:
    return f"{value:.3g} {unit}" if abs(value) < 100 else f"{value:.0f} {unit}"


def as_json(results: Sequence[Result], *, quick: bool, notes: Sequence[str]) -> str:
    document = {
        "quick": quick,
        "python": platform.python_version(),
        "notes": list(notes),
        "results": [attrs.asdict(result) | {"verdict": result.verdict or None} for result in results],
    }
    return json.dumps(document, indent=1, ensure_ascii=False)


def as_markdown(document: str) -> str:
    """Return the measures with a limit as a table for a page. document: what `as_json` has given; what was measured again counts."""
    found = [
        Result(**{name: value for name, value in each.items() if name in _SHOWN})
        for each in json.loads(document)["results"]
    ]
    rows = [_row(result) for result in {result.name: result for result in found if result.limit is not None}.values()]
    lines = [
        f"| {name} | {measured} | {floor} {of} | {ratio} | {limit} |"
        for name, measured, floor, of, ratio, _, limit, _ in rows
    ]
    return "\n".join(["| measure | measured | floor | ratio | limit |", "|---|---|---|---|---|", *lines])
