"""A scenario: what is supervised and what happens to it. Who plays one tells it in lines, which can be compared.

A line is a batch of steps, and what came of it: `boom a, stop b: boom a, stopping c, started a, ok; a up, b undefined`.
The steps of one batch are in the supervisor's queue before it takes the first; then it is left alone until all is quiet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random

import attrs

STRATEGIES = ("one_for_one", "one_for_all", "rest_for_one")
RESTARTS = ("permanent", "transient", "temporary")
AUTO_SHUTDOWNS = ("never", "any_significant", "all_significant")
REQUESTS = ("stop", "restart", "delete", "start")
NAMES = "abcd"
FIRST, LAST, OVER = "start_link", "stop_supervisor", "over"


@attrs.frozen
class ChildSpec:
    """failing: the attempts that fail. shutdown, slow: seconds it is given to end, and takes.

    nested: it is a supervisor with one permanent child and no restart to spare, so when that child ends, for whatever
    reason, the supervisor gives up. Events and steps of that name are those of the child below.
    """

    name: str
    restart: str = "permanent"
    significant: bool = False
    failing: tuple[int, ...] = ()
    shutdown: float = 5.0
    slow: float = 0.0
    nested: bool = False

    def __str__(self) -> str:
        fails = ["fails", *map(str, self.failing)] if self.failing else []
        kinds = ["significant"] * self.significant + ["nested"] * self.nested
        return " ".join([self.name, self.restart, *kinds, *fails])

    @classmethod
    def parse(cls, text: str) -> ChildSpec:
        words, _, fails = text.partition(" fails ")
        name, restart, *kinds = words.split()
        return cls(name, restart, "significant" in kinds, tuple(map(int, fails.split())), nested="nested" in kinds)


@attrs.frozen
class Step:
    """A request (REQUESTS), or else the reason with which the child ends by itself: "normal", "boom" …"""

    do: str
    name: str
    child: ChildSpec | None = None

    def __str__(self) -> str:
        return f"{self.do} {self.child or self.name}"

    @classmethod
    def parse(cls, text: str) -> Step:
        do, what = text.split(" ", 1)
        child = ChildSpec.parse(what) if do == "start" else None
        return cls(do, child.name if child else what, child)


Batch = tuple[Step, ...]


@attrs.frozen
class Scenario:
    strategy: str
    restarts: int
    auto_shutdown: str
    children: tuple[ChildSpec, ...]
    batches: tuple[Batch, ...] = ()

    def __str__(self) -> str:
        return f"{self.strategy} {self.restarts} {self.auto_shutdown}: {', '.join(map(str, self.children))}"


def line(batch: Batch | str, events: Iterable[str], results: Iterable[str], children: Iterable[str] | None) -> str:
    """children: None when the supervisor has ended; what was asked meanwhile got no answer then, or a late one."""
    steps = batch if isinstance(batch, str) else ", ".join(map(str, batch))
    outcomes = [*events, *(() if children is None else results)]
    return f"{steps}: {', '.join(outcomes)}; {OVER if children is None else ', '.join(children)}"


# ------------------------------------------------------------ as text


def dump(scenario: Scenario, lines: Sequence[str]) -> str:
    return "\n".join([f"== {scenario}", *lines, ""])


def load(text: str) -> Iterator[tuple[Scenario, list[str]]]:
    """The scenarios of a file and their lines; the steps are those of the lines."""
    for block in text.split("\n== ")[1:]:
        title, *lines = block.strip().splitlines()
        shape, _, children = title.partition(": ")
        strategy, restarts, auto_shutdown = shape.split()
        batches = [
            tuple(Step.parse(step) for step in steps.split(", "))
            for steps in (line.partition(":")[0] for line in lines)
            if steps not in (FIRST, LAST)
        ]
        specs = tuple(ChildSpec.parse(child) for child in children.split(", "))
        yield Scenario(strategy, int(restarts), auto_shutdown, specs, tuple(batches)), lines


# ------------------------------------------------------------ at random


def invent(random: Random) -> Scenario:
    """A scenario in which something happens: mostly crashes, some of them at once, some starts that fail."""
    auto_shutdown = random.choice(AUTO_SHUTDOWNS)
    first = NAMES[: random.randint(1, 4)]
    return Scenario(
        random.choice(STRATEGIES),
        random.randint(0, 6),
        auto_shutdown,
        tuple(_child(random, name, auto_shutdown, at_first=True) for name in first),
        tuple(_batch(random, first, auto_shutdown) for _ in range(random.randint(1, 5))),
    )


def _child(random: Random, name: str, auto_shutdown: str, *, at_first: bool = False) -> ChildSpec:
    restart = random.choice(RESTARTS)
    may_be_significant = auto_shutdown != "never" and restart != "permanent"
    earliest = 2 if at_first and random.random() < 0.97 else 1
    failing = random.sample(range(earliest, 6), random.choice([0, 1, 1, 2, 3]))
    significant = may_be_significant and random.random() < 0.6
    return ChildSpec(name, restart, significant, tuple(sorted(failing)), nested=random.random() < 0.25)


def _batch(random: Random, names: str, auto_shutdown: str) -> Batch:
    return tuple(_step(random, names, auto_shutdown) for _ in range(random.choice([1, 1, 2, 2, 3, 4])))


def _step(random: Random, names: str, auto_shutdown: str) -> Step:
    do = random.choice(["boom", "boom", "boom", "boom", "normal", "stop", "restart", "delete", "start"])
    name = random.choice(NAMES if do == "start" or random.random() < 0.1 else names)
    return Step(do, name, _child(random, name, auto_shutdown) if do == "start" else None)
