"""Playing scenarios on `actors`, in virtual time."""

from __future__ import annotations

from typing import Any

import attrs
import trio
import trio.testing

from actors import (
    ActorError,
    AutoShutdown,
    Child,
    GaveUp,
    Inbox,
    Intensity,
    Ref,
    Restart,
    Strategy,
    Supervisor,
    open_supervisor,
    supervisor,
)
from tests.actors.kit import settle
from tests.actors.otp.scenario import FIRST, LAST, REQUESTS, Batch, ChildSpec, Scenario, Step, line

BELOW = "below"
"""Name of the child of a nested supervisor."""
STATES = {"up": "up", "down": "undefined"}


def play(scenario: Scenario) -> list[str]:
    """What happened, as the lines of tests/actors/otp/scenario.py."""
    return Player(scenario).run()


@attrs.define(eq=False)
class Attempts:
    """How often a child was started; a nested one begins again at 1 with each start of its supervisor."""

    spec: ChildSpec
    count: int = 0


class Player:
    """events: what has happened, raw. error: why the supervisor gave up."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.events: list[str] = []
        self.lines: list[str] = []
        self.error: GaveUp | None = None

    def run(self) -> list[str]:
        trio.run(self.play, clock=trio.testing.MockClock(autojump_threshold=0))
        return self.lines

    async def play(self) -> None:
        mark, batch = 0, FIRST
        try:
            async with self.open() as supervisor:
                self.tell(batch, mark, (), supervisor)
                for batch in self.scenario.batches:
                    mark = len(self.events)
                    self.tell(batch, mark, await self.follow(supervisor, batch), supervisor)
                mark, batch = len(self.events), LAST
        except GaveUp as error:
            self.error = error
        self.lines.append(line(batch, self.events[mark:], (), None))

    def open(self) -> Any:
        s = self.scenario
        return open_supervisor(
            [self.child(spec) for spec in s.children],
            strategy=Strategy(s.strategy),
            intensity=Intensity(s.restarts),
            auto_shutdown=AutoShutdown(s.auto_shutdown),
        )

    def tell(self, batch: Batch | str, mark: int, results: tuple[str, ...], supervisor: Supervisor) -> None:
        children = [f"{info.name} {STATES[info.state]}" for info in supervisor.children()]
        self.lines.append(line(batch, self.events[mark:], results, children))

    # ------------------------------------------------------------ children

    def child(self, spec: ChildSpec) -> Child:
        options = {"restart": Restart(spec.restart), "significant": spec.significant}
        if not spec.nested:
            return Child(spec.name, self.live, Attempts(spec), shutdown=spec.shutdown, **options)
        below = Child(BELOW, self.live, Attempts(spec), shutdown=spec.shutdown)
        return Child(spec.name, supervisor([below], intensity=Intensity(0)), **options)

    async def live(self, inbox: Inbox[str], attempts: Attempts) -> None:
        spec = attempts.spec
        attempts.count += 1
        if attempts.count in spec.failing:
            self.events.append(f"start_failed {spec.name}")
            raise RuntimeError("nope")
        self.events.append(f"started {spec.name}")
        async for reason in inbox:
            self.events.append(f"{reason} {spec.name}")
            if reason == "normal":
                return
            raise RuntimeError(reason)
        await trio.sleep(spec.slow)
        self.events.append(f"stopping {spec.name}")

    # ------------------------------------------------------------ steps

    async def follow(self, supervisor: Supervisor, batch: Batch) -> tuple[str, ...]:
        """Do all of it while the supervisor waits for a start, so that it finds it in its queue in this order."""
        hold = trio.Event()
        results: dict[int, str] = {}
        async with trio.open_nursery() as nursery:
            if len(batch) > 1:
                nursery.start_soon(self.occupy, supervisor, hold)
                await settle()
            for number, step in enumerate(batch):
                if step.do in REQUESTS:
                    nursery.start_soon(self.request, supervisor, step, results, number)
                elif (ref := self.find(supervisor, step.name)) is not None:
                    ref.tell_nowait(step.do)
                await settle()
            hold.set()
            await settle()
        return tuple(results[number] for number in sorted(results))

    def find(self, supervisor: Supervisor, name: str) -> Ref[str] | None:
        refs: list[Ref[str]] = [supervisor.ref(f"{name}/{BELOW}"), supervisor.ref(name)]
        return next((ref for ref in refs if ref.alive), None)

    async def occupy(self, supervisor: Supervisor, hold: trio.Event) -> None:
        async def wait(inbox: Inbox[Any]) -> None:
            await hold.wait()
            raise RuntimeError("not meant to start")

        try:
            await supervisor.start_child(Child("hold", wait, restart=Restart.TEMPORARY))
        except ActorError:
            return

    async def request(self, supervisor: Supervisor, step: Step, results: dict[int, str], number: int) -> None:
        try:
            match step.do:
                case "start":
                    await supervisor.start_child(self.child(step.child))
                case "stop":
                    await supervisor.stop_child(step.name)
                case "restart":
                    await supervisor.restart_child(step.name)
                case "delete":
                    await supervisor.delete_child(step.name)
        except ActorError:
            results[number] = "error"
        else:
            results[number] = "ok"
