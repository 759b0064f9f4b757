"""A search over 10,000 episodes, beside reading all of them.

The floor is the least that a reader can do: open, read and decode every file, in one thread, the files being in the system's
cache. A search asks for two words that some episodes have; its index is made already, as it is but for the first search. For
information: the search that looks at the folder again (once a second at most), and making the index.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import trio

from benchmarks.report import Result, compared
from benchmarks.samples import median
from benchmarks.workplace import Workplace
from pegasus.memory.search import Searcher
from pegasus.storage import FolderFiles

EPISODES = 10_000
LIMIT = 1 / 12
_FULL = 23_000
"""Bytes of a file; by tools it may have 24,000."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def measure(place: Workplace) -> Iterator[Result]:
    rng = Random(7)
    words = ["".join(rng.choices(_LETTERS, k=rng.randint(3, 9))) for _ in range(8_000)]
    memory = place.folder / "search" / "memory"
    files = _write_episodes(memory / "episodes", rng, words)
    searcher = Searcher(memory, FolderFiles(memory), place.folder / "search" / "index.sqlite", budget=120.0)
    queries = [f"{rng.choice(words[100:])} {rng.choice(words[100:])}" for _ in range(20)]
    times = trio.run(_measure, searcher, files, queries, place.rounds(31, 5))
    searcher.close()
    detail = {"files": len(files), "bytes": sum(path.stat().st_size for path in files), "index made in s": times.built}
    name, floor_name = f"search over {EPISODES:,} episodes", "reading them all"
    yield compared(name, times.search, times.floor, floor_name, LIMIT, detail=detail)
    yield compared(f"{name}, with a look", times.look, times.floor, floor_name, None)


class _Times:
    """Seconds, by round. search, look: of one search, as the median of a round's."""

    def __init__(self, built: float) -> None:
        self.built = round(built, 2)
        self.floor: list[float] = []
        self.search: list[float] = []
        self.look: list[float] = []


async def _measure(searcher: Searcher, files: list[Path], queries: list[str], rounds: int) -> _Times:
    times = _Times(await _timed(lambda: searcher.search("harbour")))
    for _ in range(rounds):
        times.floor.append(await _timed(lambda: trio.to_thread.run_sync(_read_all, files)))
        times.search.append(median([await _timed(partial(searcher.search, query)) for query in queries]))
        searcher.changed()
        times.look.append(await _timed(lambda: searcher.search(queries[0])))
    return times


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


def _read_all(files: list[Path]) -> int:
    return sum(len(path.read_bytes().decode()) for path in files)


def _write_episodes(folder: Path, rng: Random, words: list[str]) -> list[Path]:
    """As many files as it takes, none larger than memory allows. Words are as unequally common as in a language."""
    folder.mkdir(parents=True)
    files: list[Path] = []
    page = ""
    for n in range(EPISODES):
        page += _episode(n, rng, words)
        if len(page) > _FULL - 700 or n == EPISODES - 1:
            files.append(folder / f"{len(files):04}.md")
            files[-1].write_text(f"# Episodes\n\n> Summary: what happened\n\n{page}", "utf-8")
            page = ""
    return files


def _episode(n: int, rng: Random, words: list[str]) -> str:
    def some(count: int) -> str:
        return " ".join(words[min(len(words) - 1, int(rng.paretovariate(0.7)))] for _ in range(count))

    lines = [f"## {some(5)}", f"- Summary: {some(10)}", f"- Date: 2026-02-{n % 28 + 1:02}", f"- Details: {some(45)}"]
    return "\n".join([*lines, f"- Lesson: {some(12)}", "", ""])
