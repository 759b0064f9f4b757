"""One turn: how long it takes beside what it cannot do without, and what CPU it costs beside the minimal program.

Turn by turn: ours, the minimal program's, C, W, F, with a pause before each, as people make pauses; so all see the same
moment of the machine, and none has warmer caches than another. The history grows by three messages a turn, so what is
measured is centred on the length in its name.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from benchmarks.floors import Appender, Echo, appender, echo
from benchmarks.history import MESSAGES_PER_EXCHANGE, Exchange, conversation, encode, exchange
from benchmarks.processes import PYTHON, Running, environment, running
from benchmarks.provider import Caller, Provider, provider
from benchmarks.report import Result, compared
from benchmarks.samples import median, quantile, spread
from benchmarks.talk import Talker, talker
from benchmarks.wires import WIRES, Wire
from benchmarks.workplace import Workplace

MEDIAN_LIMIT, P99_LIMIT = 1.0, 4.0
"""Of a turn less C at up to 300 messages, against 3 W + 10 F. With more, C is many times that, and so is what it varies by."""
CPU_LIMITS = {"openai": 3.0, "anthropic": 3.2}
"""Of a turn's CPU at up to 300 messages, against that of the minimal program, which calls Anthropic without the official SDK."""
GROWTH_LIMIT = 1.1
"""Of a turn's CPU after 600 turns, against that after 40: a turn stays flat with history."""
PAUSE = 0.02  # seconds; together they are longer than what a turn leaves to be written later waits
WARM = 3  # turns before a round is measured


@attrs.frozen
class Plan:
    """rounds of turns at a history of `messages`; reset: begin each round anew (a short history would outgrow its name)."""

    messages: int
    rounds: int
    turns: int
    reset: bool = False

    @property
    def prepared(self) -> int:
        """Messages at the start, so that the middle of what is measured is at `messages`."""
        measured = self.turns if self.reset else self.turns * self.rounds
        return max(0, self.messages - MESSAGES_PER_EXCHANGE * (WARM + measured // 2))


@attrs.define
class Samples:
    """Seconds. One entry per turn, but CPU: one per round, for one turn of it."""

    turn: list[float] = attrs.field(factory=list)
    minimal: list[float] = attrs.field(factory=list)
    call: list[float] = attrs.field(factory=list)
    whole: list[float] = attrs.field(factory=list)
    echo: list[float] = attrs.field(factory=list)
    append: list[float] = attrs.field(factory=list)
    cpu: list[float] = attrs.field(factory=list)
    minimal_cpu: list[float] = attrs.field(factory=list)


def measure(place: Workplace) -> Iterator[Result]:
    plans = (
        Plan(20, place.rounds(34, 4), 6, reset=True),
        Plan(300, place.rounds(8, 2), place.rounds(10, 5)),
        Plan(2000, place.rounds(8, 2), place.rounds(10, 5)),
    )
    with provider(place.log) as server:
        for wire in WIRES.values():
            for plan in plans:
                samples = trio.run(_sample, place, server, wire, plan)
                cpu_limit = CPU_LIMITS[wire.name] if plan.messages <= 300 else None
                yield from _results(samples, f"{wire.name}, {plan.messages} messages", cpu_limit)
            early, late = trio.run(_sample_growth, place, server, wire)
            name = f"CPU of a turn after 600 turns, {wire.name}"
            yield compared(name, late.cpu, early.cpu, "after 40", GROWTH_LIMIT)


# ------------------------------------------------------------------ sampling


@attrs.frozen(eq=False)
class _Stage:
    """All that is alive while one plan is measured."""

    daemon: Running
    talker: Talker
    minimal: Running
    minimal_talker: Talker
    caller: Caller
    echo: Echo
    appender: Appender

    async def reset(self) -> None:
        await self.talker.turn("/new")
        await self.minimal_talker.reset()
        self.caller.reset(())

    async def block(self, questions: Sequence[Exchange], samples: Samples) -> None:
        """The same questions to everybody."""
        ours, theirs = self.daemon.cpu(), self.minimal.cpu()
        for pair in questions:
            await self._cycle(pair, samples)
        samples.cpu.append((self.daemon.cpu() - ours) / len(questions))
        samples.minimal_cpu.append((self.minimal.cpu() - theirs) / len(questions))

    async def _cycle(self, pair: Exchange, samples: Samples) -> None:
        await trio.sleep(PAUSE)
        samples.turn.append(await self.talker.turn(pair.question))
        await trio.sleep(PAUSE)
        samples.minimal.append(await self.minimal_talker.turn(pair.question))
        await trio.sleep(PAUSE)
        samples.call.append(await self.caller.call(pair))
        await trio.sleep(PAUSE)
        samples.whole.append(await self.caller.call(pair, stream=False))
        self.caller.add(pair)
        await trio.sleep(PAUSE)
        samples.echo.append(await self.echo.round_trip(pair.question))
        await trio.sleep(PAUSE)
        samples.append.append(self.appender.append(encode(pair.question)))


async def _sample(place: Workplace, server: Provider, wire: Wire, plan: Plan) -> Samples:
    samples = Samples()
    questions = map(exchange, itertools.count(100_000))
    async with _stage(place, server, wire, plan) as stage:
        for number in range(plan.rounds):
            if plan.reset:
                await stage.reset()
            if plan.reset or number == 0:
                await stage.block(list(itertools.islice(questions, WARM)), Samples())
            await stage.block(list(itertools.islice(questions, plan.turns)), samples)
    return samples


async def _sample_growth(place: Workplace, server: Provider, wire: Wire) -> tuple[Samples, Samples]:
    """Turns after about 40 and after about 600 turns, by two daemons in alternation, so that both see the same machine."""
    rounds, turns = place.rounds(8, 3), 5
    early, late = (Plan(MESSAGES_PER_EXCHANGE * after, rounds, turns) for after in (40, 600))
    samples = Samples(), Samples()
    questions = map(exchange, itertools.count(100_000))
    async with _stage(place, server, wire, early) as first, _stage(place, server, wire, late) as second:
        for number in range(rounds + 1):
            for stage, into in zip((first, second), samples, strict=True):
                count, kept = (turns, into) if number else (WARM, Samples())
                await stage.block(list(itertools.islice(questions, count)), kept)
    return samples


@asynccontextmanager
async def _stage(place: Workplace, server: Provider, wire: Wire, plan: Plan) -> AsyncIterator[_Stage]:
    history = conversation(plan.prepared)
    url = server.base_url(wire)
    home = place.home(history, provider=wire.name, base_url=url)
    caller = Caller(server, wire, history)
    args = [PYTHON, "-m", "benchmarks.minimal", wire.name, url, str(home / "minimal.jsonl"), str(plan.prepared)]
    scripts = environment(PYTHONPATH=str(place.scripts))
    with (
        place.daemon(home) as daemon,
        running(args, log=place.log, env=scripts) as minimal,
        appender(home) as floor,
    ):
        async with (
            talker(daemon.url) as ours,
            talker(minimal.line.split()[1], hello=False) as theirs,
            echo(place.log) as bare,
        ):
            yield _Stage(daemon.process, ours, minimal, theirs, caller, bare, floor)
        await caller.aclose()


# ------------------------------------------------------------------ results


def _results(samples: Samples, name: str, cpu_limit: float | None) -> Iterator[Result]:
    detail = {kind: _milliseconds(values) for kind, values in attrs.asdict(samples).items()}
    floor = 3 * median(samples.echo) + 10 * median(samples.append)
    for who, seconds, limits in (
        ("turn", samples.turn, (MEDIAN_LIMIT, P99_LIMIT) if cpu_limit else (None, None)),
        ("minimal", samples.minimal, (None, None)),
    ):
        times = _times_floor(samples, seconds)
        for what, summary, limit in zip(("median", "p99"), (_median, _p99), limits, strict=True):
            yield Result(
                f"{who} less C, {what}, {name}",
                (summary(seconds) - median(samples.call)) * 1e3,
                floor * 1e3,
                "3 W + 10 F",
                "ms",
                summary(times),
                limit,
                spread(times) if what == "median" else None,
                detail if (who, what) == ("turn", "median") else {},
            )
    yield compared(f"CPU of a turn, {name}", samples.cpu, samples.minimal_cpu, "minimal", cpu_limit)


def _times_floor(samples: Samples, seconds: Sequence[float]) -> list[float]:
    """Each turn less C over 3 W + 10 F, with C, W and F as they were in its round."""
    size = len(seconds) // len(samples.cpu)
    times: list[float] = []
    for start in range(0, len(seconds), size):
        call, echo, append = (
            median(values[start : start + size]) for values in (samples.call, samples.echo, samples.append)
        )
        times += [(turn - call) / (3 * echo + 10 * append) for turn in seconds[start : start + size]]
    return times


def _median(samples: Sequence[float]) -> float:
    return median(samples)


def _p99(samples: Sequence[float]) -> float:
    return quantile(samples, 0.99)


def _milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    return {"median_ms": median(seconds) * 1e3, "p99_ms": _p99(seconds) * 1e3}
