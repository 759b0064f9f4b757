"""What a judge is, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import attrs
from benchmarks.workplace import Workplace

FAILURE_LINES: Final = 40
"""Lines of one failed row that are shown."""


class NotHereError(Exception):
    """A judge cannot be had on this machine. str() says why, in words that fit behind "not to be had: "."""


@attrs.frozen
class Verdict:
    """One row of the table.

    about: what was judged, such as "server"; passed, failed, skipped: cases; details: the failed ones, or what was skipped and why,
    in lines for the person who runs it.
    """

    about: str
    passed: int
    failed: int = 0
    skipped: int = 0
    details: str = ""


@attrs.frozen
class Judge:
    """A judge.

    name: for the command line; protocol: heading of its rows; program: what judges, with its version; run: judges, and yields rows.

    run raises NotHereError where the judge cannot be had. Whatever else it raises is a failure of the judge, and ends the run with 1.
    """

    name: str
    protocol: str
    program: str
    run: Callable[[Workplace], Iterator[Verdict]]
