"""The supervisor against Erlang/OTP's: the same script must leave the same trace.

`traces.txt` was recorded from OTP 25. A trace is script and expectation in one: the crashes and `stop_supervisor` in it
are done, in order; everything else in it must then happen, in order. What a title does not say is in SCENARIOS.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from actors import (
    AutoShutdown,
    Child,
    GaveUp,
    Inbox,
    Intensity,
    Restart,
    Strategy,
    Supervisor,
    open_supervisor,
)

ALL, ONE, REST = Strategy.ONE_FOR_ALL, Strategy.ONE_FOR_ONE, Strategy.REST_FOR_ONE


@attrs.frozen
class Scenario:
    """starts_failing: by child, the attempts that fail. together: all crashes happen before anybody hears of one."""

    strategy: Strategy = ONE
    restarts: int = 1
    auto_shutdown: AutoShutdown = AutoShutdown.NEVER
    restart: Mapping[str, Restart] = attrs.field(factory=dict)
    significant: str = ""
    shutdown: Mapping[str, float] = attrs.field(factory=dict)
    slow: Mapping[str, float] = attrs.field(factory=dict)
    starts_failing: Mapping[str, range] = attrs.field(factory=dict)
    together: bool = False
    gives_up: bool = False


TRANSIENT_B = {"b": Restart.TRANSIENT}
SCENARIOS = {
    "one_for_one: b crashes": Scenario(),
    "one_for_all: b crashes": Scenario(ALL),
    "rest_for_one: b crashes": Scenario(REST),
    "one_for_all with a temporary sibling c: b crashes": Scenario(ALL, restart={"c": Restart.TEMPORARY}),
    "one_for_all, transient b exits normally": Scenario(ALL, restart=TRANSIENT_B),
    "one_for_all after that: a crashes (does normal-exited transient b come back?)": Scenario(ALL, restart=TRANSIENT_B),
    "permanent child exits normally": Scenario(),
    "intensity 2/5s: 3 crashes": Scenario(restarts=2, gives_up=True),
    "one_for_all intensity 1: two children crash in the same instant (credits used?)": Scenario(ALL, together=True),
    "restart start fails for ever, intensity 3": Scenario(restarts=3, starts_failing={"b": range(2, 9)}, gives_up=True),
    # The second attempt costs a second credit: the script that was recorded had more than one.
    "one_for_all: b crashes and c's restart fails once": Scenario(ALL, restarts=3, starts_failing={"c": range(2, 3)}),
    "first start: c cannot start": Scenario(starts_failing={"c": range(1, 2)}, gives_up=True),
    "shutdown: b slow (200ms) with timeout 50ms; c brutal_kill": Scenario(
        shutdown={"b": 0.05, "c": 0.0}, slow={"b": 0.2}
    ),
    "any_significant": Scenario(auto_shutdown=AutoShutdown.ANY_SIGNIFICANT, restart=TRANSIENT_B, significant="b"),
    "any_significant, significant transient crashes abnormally": Scenario(
        auto_shutdown=AutoShutdown.ANY_SIGNIFICANT, restart=TRANSIENT_B, significant="b"
    ),
    "significant under never": Scenario(restart=TRANSIENT_B, significant="b"),
}


def recorded() -> Iterator[tuple[str, list[str]]]:
    text = (Path(__file__).parent / "traces.txt").read_text()
    for block in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        title, _, body = block.partition("\n")
        terms = re.sub(r"\n {4,}", "", re.sub(r"\n$", "", body.replace("\n   ", "\n"), flags=re.MULTILINE))
        yield title, [line.strip() for line in terms.splitlines() if line.strip()]


class World:
    """Three children that write down what happens to them, as those of the recorded script did."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.trace: list[str] = []

    def children(self) -> list[Child]:
        s = self.scenario
        return [
            Child(
                name,
                self.run,
                name,
                restart=s.restart.get(name, Restart.PERMANENT),
                shutdown=s.shutdown.get(name, 5.0),
                significant=name == s.significant,
            )
            for name in "abc"
        ]

    async def run(self, inbox: Inbox[str], name: str) -> None:
        if inbox.attempt in self.scenario.starts_failing.get(name, ()):
            self.trace.append(f"{{start_failed,{name}}}")
            raise RuntimeError("nope")
        self.trace.append(f"{{started,{name}}}")
        async for why in inbox:
            self.trace.append(f"{{crash,{name},{why}}}")
            if why == "normal":
                return
            raise RuntimeError(why)
        await trio.sleep(self.scenario.slow.get(name, 0))
        self.trace.append(f"{{stopping,{name},shutdown}}")

    async def play(self, script: list[str]) -> None:
        with contextlib.ExitStack() as stack:
            raised = stack.enter_context(pytest.raises(GaveUp)) if self.scenario.gives_up else None
            async with open_supervisor(
                self.children(),
                strategy=self.scenario.strategy,
                intensity=Intensity(self.scenario.restarts),
                auto_shutdown=self.scenario.auto_shutdown,
            ) as supervisor:
                await self.follow(script, supervisor)
                await supervisor.wait_stopped()
        reason = "shutdown"
        if raised is not None and (failed := re.search(r"'(.)' did not start", str(raised.value))):
            reason = f"{{shutdown,{{failed_to_start_child,{failed[1]},{raised.value.__cause__}}}}}"
            self.trace.append(f"{{start_link,{{error,{reason}}}}}")
        self.trace.append(f"{{supervisor_exit,{reason}}}")

    async def follow(self, script: list[str], supervisor: Supervisor) -> None:
        for line in script:
            if crash := re.fullmatch(r"\{crash,(\w),(\w+)\}", line):
                supervisor.ref(crash[1]).tell_nowait(crash[2])
                if not self.scenario.together:
                    await trio.testing.wait_all_tasks_blocked()
            elif line.startswith("{children,"):
                await trio.testing.wait_all_tasks_blocked()
                found = [f"{{{c.name},{'up' if c.state == 'up' else 'undefined'}}}" for c in supervisor.children()]
                self.trace.append(f"{{children,[{','.join(reversed(found))}]}}")
            elif line == "stop_supervisor":
                self.trace.append(line)
                await supervisor.stop()


@pytest.mark.parametrize(("title", "trace"), list(recorded()), ids=[title for title, _ in recorded()])
async def test_same_trace_as_otp(title: str, trace: list[str]) -> None:
    world = World(SCENARIOS[title])
    if title == "significant under never":
        with pytest.raises(ValueError, match="significant means nothing under auto_shutdown=NEVER"):
            await world.play(trace)
        return
    await world.play(trace)
    if world.scenario.together:  # who is first in one instant is nobody's promise
        world.trace[3:5], trace[3:5] = sorted(world.trace[3:5]), sorted(trace[3:5])
    assert world.trace == trace


def test_every_recorded_scenario_is_played() -> None:
    assert [title for title, _ in recorded()] == list(SCENARIOS)
