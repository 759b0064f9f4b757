"""1,000 turns with a daemon: what a provider could take from its cache, byte by byte, of the prompts that it is really sent.

Prompts that begin a session (the first one, and the first behind a compaction) are not counted: there is nothing to take.
"""

from __future__ import annotations

from collections.abc import Iterator

import trio

from benchmarks.history import exchange
from benchmarks.main_agent_voice import Voice, home_for, voice_of
from benchmarks.processes import BenchError
from benchmarks.report import Result
from benchmarks.talk import talker
from benchmarks.wires import WIRES, Wire
from benchmarks.workplace import Workplace

TURNS = 1000
WINDOW = 100_000
"""Tokens: small enough for compactions on the way."""
LIMIT = 0.05
"""Part of the prompts that may be new: more than 95 % come from the cache."""


def measure(place: Workplace) -> Iterator[Result]:
    for wire in WIRES.values():
        turns = place.rounds(TURNS, 100)
        voice = trio.run(_converse, place, wire, turns)
        new = 1 - voice.cache.share
        yield Result(
            f"part of prompts that is new, {wire.name}, {turns:,} turns",
            new * 100,
            LIMIT * 100,
            "of 100 %",
            "%",
            new / LIMIT,
            1.0,
            None,
            {"cached": voice.cache.share, "sessions": voice.cache.fresh, "summaries": voice.summaries},
        )


async def _converse(place: Workplace, wire: Wire, turns: int) -> Voice:
    voice = Voice()
    async with voice_of(voice) as server:
        home = home_for(place, server, wire, WINDOW)
        with place.daemon(home) as daemon:
            async with talker(daemon.url) as ours:
                for n in range(1, turns + 1):
                    await ours.turn(exchange(n).question)
        if server.invalid:
            raise BenchError(f"{wire.name} refused {len(server.invalid)} requests, first: {server.invalid[0]}")
    if len(voice.heads) != 1:
        raise BenchError(f"{wire.name} was sent {len(voice.heads)} different prompts and tools")
    return voice
