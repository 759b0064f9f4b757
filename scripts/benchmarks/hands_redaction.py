"""Redaction: the time that the search for secrets takes in 100 kB, of prose, of a picture, and of text made to be slow.

The floor is the limit that is promised, so a ratio above 1 breaks the promise.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from benchmarks.report import Result
from benchmarks.samples import median
from benchmarks.workplace import Workplace
from pegasus.redaction import FORMATS, Redactor

SIZE = 100_000
LIMIT = 0.010  # usual texts
HOSTILE_LIMIT = 0.030
FILLERS = ("", " ", "a", "A1", ".", "-", "_", "\\n", "[1m", ":", '="', "/", "@", "12345678:", " " + "A" * 200)


def measure(place: Workplace) -> Iterator[Result]:
    random, rounds = Random(1), place.rounds(20, 3)
    redactor = Redactor(base64.b64encode(random.randbytes(24)).decode() for _ in range(25))
    prose = Path("docs/tools.md").read_text()
    for name, text in (("prose", prose), ("a picture", base64.b64encode(random.randbytes(SIZE)).decode())):
        seconds = [_seconds(redactor, _fill(text)) for _ in range(rounds)]
        yield _result(f"secrets looked for in 100 kB of {name}", seconds, LIMIT)
    hostile = (
        _fill(hint + filler)
        for form in FORMATS
        for hint in (*form.hints, *map(str.upper, form.hints))
        for filler in FILLERS
    )
    slowest = max(hostile, key=lambda text: _seconds(redactor, text))
    seconds = [_seconds(redactor, slowest) for _ in range(rounds)]
    yield _result(f"the same in the slowest of many: {slowest[:20]!r}…", seconds, HOSTILE_LIMIT)


def _fill(text: str) -> str:
    """Repeat a text up to 100 kB."""
    return (text * (SIZE // len(text) + 1))[:SIZE]


def _seconds(redactor: Redactor, text: str) -> float:
    begun = time.perf_counter()
    redactor.apply(text)
    return time.perf_counter() - begun


def _result(name: str, seconds: list[float], limit: float) -> Result:
    typical = median(seconds)
    return Result(
        name, typical * 1e3, limit * 1e3, "limit", "ms", typical / limit, 1.0, None, {"worst_ms": max(seconds) * 1e3}
    )
