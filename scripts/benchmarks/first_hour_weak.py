"""Weak models: of all kinds of weak answers, how many lead to a sensible reply, and in how many model calls.

Time is virtual, so nothing is measured here but the outcome. The kinds are those of `pegasus.testing.weak_models`.
"""

from __future__ import annotations

from collections.abc import Iterator

import trio
from trio.testing import MockClock

from benchmarks.report import Result
from pegasus.testing.weak_models import MOST_CALLS, WEAK_MODELS, HeardReplies, ask_weak_model


def measure_weak_models() -> Iterator[Result]:
    """Ask each weak model the same question."""
    heard: dict[str, HeardReplies] = {
        name: trio.run(ask_weak_model, weak, clock=MockClock(autojump_threshold=0.05))
        for name, weak in WEAK_MODELS.items()
    }
    bad = [name for name, replies in heard.items() if not replies.is_sensible(WEAK_MODELS[name])]
    total, good = len(heard), len(heard) - len(bad)
    yield Result(
        "weak answers that lead to a sensible reply",
        good,
        total,
        "kinds",
        "",
        total / max(good, 1),
        1.0,
        detail={"bad": bad},
    )
    largest = max(replies.calls for replies in heard.values())
    detail = {name: replies.calls for name, replies in heard.items()}
    yield Result(
        "model calls until it, at most", largest, MOST_CALLS, "limit", "", largest / MOST_CALLS, 1.0, detail=detail
    )
