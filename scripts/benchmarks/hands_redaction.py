"""Redaction: the time that the search for secrets takes in 100 kB, of prose, of a picture, and of text made to be slow.

The floor of each is one pass of one compiled pattern: the words of the prose.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterator
from heapq import nlargest
from pathlib import Path
from random import Random

from benchmarks.report import Result, compared
from benchmarks.workplace import Workplace
from pegasus.redaction import FORMATS, Redactor

SIZE = 100_000
LIMIT = 5.0  # usual texts
HOSTILE_LIMIT = 14.0
CANDIDATES = 20
"""Texts that are measured again to find the slowest: a single time says too little."""
WORDS = re.compile(r"\w+")
FILLERS = ("", " ", "a", "A1", ".", "-", "_", "\\n", "[1m", ":", '="', "/", "@", "12345678:", " " + "A" * 200)


def measure(place: Workplace) -> Iterator[Result]:
    random, rounds = Random(1), place.rounds(20, 3)
    redactor = Redactor(base64.b64encode(random.randbytes(24)).decode() for _ in range(25))
    prose = _fill(Path("docs/tools.md").read_text())
    picture = base64.b64encode(random.randbytes(SIZE)).decode()[:SIZE]
    hostile = (
        _fill(hint + filler)
        for form in FORMATS
        for hint in (*form.hints, *map(str.upper, form.hints))
        for filler in FILLERS
    )
    candidates = nlargest(CANDIDATES, hostile, key=lambda text: _seconds(redactor.apply, text))
    slowest = max(candidates, key=lambda text: min(_seconds(redactor.apply, text) for _ in range(3)))
    for name, text, limit in (
        ("secrets looked for in 100 kB of prose", prose, LIMIT),
        ("secrets looked for in 100 kB of a picture", picture, LIMIT),
        (f"the same in the slowest of many: {slowest[:20]!r}…", slowest, HOSTILE_LIMIT),
    ):
        samples = [(_seconds(redactor.apply, text), _seconds(WORDS.findall, prose)) for _ in range(rounds)]
        searches, floors = zip(*samples, strict=True)
        detail = {"worst_ms": max(searches) * 1e3}
        yield compared(name, searches, floors, "words of prose", limit, detail=detail)


def _fill(text: str) -> str:
    """Repeat a text up to 100 kB."""
    return (text * (SIZE // len(text) + 1))[:SIZE]


def _seconds(search: Callable[[str], object], text: str) -> float:
    begun = time.perf_counter()
    search(text)
    return time.perf_counter() - begun
