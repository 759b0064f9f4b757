"""The supervisor against the retold OTP supervisor, with scripts that nobody has thought of."""

from __future__ import annotations

from typing import Any

import attrs
import trio
import trio.testing
from hypothesis import event, given, settings
from hypothesis import strategies as st

from actors import (
    ActorError,
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
from tests.actors.kit import settle
from tests.actors.otp_model import Ended, ModelChild, OtpModel

NAMES = "abcd"


@attrs.frozen
class Spec:
    name: str
    restart: Restart
    significant: bool
    failing: frozenset[int]


@attrs.frozen
class Script:
    strategy: Strategy
    intensity: int
    auto_shutdown: AutoShutdown
    first: tuple[Spec, ...]
    steps: tuple[tuple[str, Any], ...]


def specs(name: str, may_be_significant: bool) -> st.SearchStrategy[Spec]:
    failing = st.frozensets(st.integers(1, 5), max_size=2) | st.just(frozenset())
    return st.sampled_from(Restart).flatmap(
        lambda restart: st.builds(
            Spec,
            st.just(name),
            st.just(restart),
            st.booleans() if may_be_significant and restart is not Restart.PERMANENT else st.just(False),
            failing,
        )
    )


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    auto_shutdown = draw(st.sampled_from(AutoShutdown))
    significant = auto_shutdown is not AutoShutdown.NEVER
    names = st.sampled_from(NAMES)
    step = st.one_of(
        st.tuples(st.sampled_from(["boom", "boom", "normal", "stop", "restart", "delete"]), names),
        st.tuples(st.just("start"), names.flatmap(lambda name: specs(name, significant))),
    )
    return Script(
        draw(st.sampled_from(Strategy)),
        draw(st.integers(0, 6)),
        auto_shutdown,
        tuple(draw(specs(name, significant)) for name in NAMES[: draw(st.integers(1, 4))]),
        tuple(draw(st.lists(step, max_size=8))),
    )


# ------------------------------------------------------------ the model


def told_by_model(script: Script) -> list[str]:
    model = OtpModel(script.strategy.value, script.intensity, script.auto_shutdown.value)
    try:
        model.start_link([as_model(spec) for spec in script.first])
        for step, what in script.steps:
            model.trace.append(follow_model(model, step, what))
            model.trace.append(str(model.which_children()))
        model.stop()
    except Ended:
        return [line for line in model.trace if line]
    raise AssertionError


def as_model(spec: Spec) -> ModelChild:
    return ModelChild(spec.name, spec.restart.value, spec.significant, spec.failing)


def follow_model(model: OtpModel, step: str, what: Any) -> str:
    match step:
        case "boom" | "normal":
            model.exit(what, step)
            return ""
        case "start":
            return model.start_child(as_model(what))
        case "stop":
            return model.terminate_child(what)
        case "restart":
            return model.restart_child(what)
    return model.delete_child(what)


# ------------------------------------------------------------ ours


class Ours:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.trace: list[str] = []

    def child(self, spec: Spec) -> Child:
        return Child(spec.name, self.run, spec, restart=spec.restart, significant=spec.significant)

    async def run(self, inbox: Inbox[str], spec: Spec) -> None:
        if inbox.attempt in spec.failing:
            self.trace.append(f"start_failed {spec.name}")
            raise RuntimeError
        self.trace.append(f"started {spec.name}")
        async for reason in inbox:
            self.trace.append(f"{reason} {spec.name}")
            if reason == "boom":
                raise RuntimeError
            return
        self.trace.append(f"stopping {spec.name}")

    async def play(self) -> None:
        script = self.script
        try:
            async with open_supervisor(
                [self.child(spec) for spec in script.first],
                strategy=script.strategy,
                intensity=Intensity(script.intensity),
                auto_shutdown=script.auto_shutdown,
            ) as supervisor:
                for step, what in script.steps:
                    done = await self.follow(supervisor, step, what)
                    await settle()
                    up = {"up": "up", "down": "undefined"}
                    children = [(info.name, up[info.state]) for info in supervisor.children()]
                    self.trace += [done, str(children)]
        except GaveUp:
            event("gave up")

    async def follow(self, supervisor: Supervisor, step: str, what: Any) -> str:
        try:
            match step:
                case "boom" | "normal":
                    await supervisor.ref(what).tell(step)
                    return ""
                case "start":
                    await supervisor.start_child(self.child(what))
                case "stop":
                    await supervisor.stop_child(what)
                case "restart":
                    await supervisor.restart_child(what)
                case "delete":
                    await supervisor.delete_child(what)
        except ActorError:
            return "error"
        return "ok"


@settings(max_examples=150, deadline=None)
@given(scripts())
def test_any_script_leaves_the_trace_that_otp_leaves(script: Script) -> None:
    ours = Ours(script)
    trio.run(ours.play, clock=trio.testing.MockClock(autojump_threshold=0))
    assert [line for line in ours.trace if line] == told_by_model(script)
