"""A session of 5,000 messages is compacted while somebody talks: how much longer than another their slowest turn takes.

The summary takes ten times as long as a thought. The conversation grows from just below where a summary is prepared to beyond
where the session is compacted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import trio

from benchmarks.history import conversation, encode, session_lines
from benchmarks.main_agent_voice import Voice, home_for, voice_of
from benchmarks.processes import BenchError
from benchmarks.report import Result, compared
from benchmarks.samples import median
from benchmarks.talk import talker
from benchmarks.wires import WIRES
from benchmarks.workplace import Workplace

MESSAGES = 5000
THOUGHT, SUMMARY = 0.5, 5.0
"""Seconds that the provider takes."""
WINDOW = 480_000
MOST = 80
"""Turns until the session must have been compacted."""
AFTER = 5
LIMIT = 1.0
_LONG = "the lamp was lit again " * 170 + "this morning"
_FIRST = 1_000_000
"""Number of the first queue item in the prepared session: far from those of the run."""


def measure(place: Workplace) -> Iterator[Result]:
    slowest: list[float] = []
    usual: list[float] = []
    summaries = 0
    for _ in range(place.rounds(3, 1)):
        turns, voice = trio.run(_round, place)
        usual.append(median(turns))
        slowest.append(max(turns) - median(turns))
        summaries += voice.summaries
    name = f"compaction of {MESSAGES:,} messages: the slowest turn beyond the usual"
    yield compared(name, slowest, usual, "a turn", LIMIT, detail={"summaries": summaries})


async def _round(place: Workplace) -> tuple[list[float], Voice]:
    """Seconds of each turn, from well before the compaction until after it."""
    voice = Voice(THOUGHT, SUMMARY)
    async with voice_of(voice) as server:
        home = home_for(place, server, WIRES["openai"], WINDOW)
        _prepare(home)
        with place.daemon(home) as daemon:
            async with talker(daemon.url, channel_id="other") as other:
                await other.turn("hello")
                turns: list[float] = []
                left = AFTER
                while left:
                    turns.append(await other.turn(f"{len(turns)}: {_LONG}"))
                    left -= voice.cache.fresh > 1
                    if len(turns) > MOST:
                        raise BenchError(f"the session was not compacted in {MOST} turns")
    if not voice.summaries or len(turns) <= AFTER + 3:
        raise BenchError(f"it was compacted after {len(turns)} turns with {voice.summaries} summaries")
    return turns, voice


def _prepare(home: Path) -> None:
    """A session in which each user line belongs to a queue item, as it would."""
    lines: list[bytes] = []
    for n, line in enumerate(session_lines(conversation(MESSAGES))):
        mark = b',"metadata":' + encode({"item": _FIRST + n, "messageId": f"m-{n}"}) + b"}\n"
        lines.append(line.removesuffix(b"}\n") + mark if b'"role":"user"' in line else line)
    (home / "data" / "main" / "current.jsonl").write_bytes(b"".join(lines))
