"""`examine_bridge`: a bridge is disturbed at each step of a delivery, and what arrived says which class it has.

For each step and each fault a message (or a reply) is sent on its way, the bridge is disturbed when it reaches the step, and is
started again if it was killed. A second one follows, whose arrival shows that the bridge works again. What happened to the first is
counted at the end of all, since it may arrive late, or a second time. Lost is what never came, repeated what came more than once.

No step waits for a time to pass; PATIENCE only bounds what never comes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

import attrs
import trio

from pegasus.formatting import first_cause
from pegasus.messages import ChannelInfo
from pegasus.testing.bridges.gateway import TOKEN, BridgeGateway
from pegasus.testing.bridges.service import BridgeService
from pegasus.testing.bridges.steps import INWARD, OF_SERVICE, OUTWARD, Fault, Step, StepPoints
from pegasus.testing.bridges.verdict import DeliveryClass, class_of

PATIENCE: Final = 20.0
"""Seconds for whatever a bridge that works does in a few."""
NOT_REACHED: Final = 6.0
"""Seconds after which a step counts as one that this bridge does not have, such as an acknowledgement to the service."""
MOST_ENDS: Final = 8
"""Times that the bridge may end by itself in one run. It is started again, as a service manager would do."""
LOG_LINES: Final = 15
LONG_WORDS: Final = 500
"""Words of the long reply, each of which is told from the others: some 4,500 characters."""


class BridgeStuck(Exception):
    """The bridge does not do what every bridge must. str() says what, with the end of its output."""


@attrs.frozen
class Trial:
    """One disturbance, and how often its message arrived."""

    step: Step
    fault: Fault
    arrivals: int | None
    """None: the bridge never came to this step."""

    def __str__(self) -> str:
        words = {None: "step not reached", 0: "LOST", 1: "once", 2: "twice"}
        return f"{self.fault.value} {self.step.value}: {words.get(self.arrivals, f'{self.arrivals} times')}"


@attrs.frozen
class Examination:
    """Everything that was found out about a bridge."""

    inward: tuple[Trial, ...]
    outward: tuple[Trial, ...]
    others: tuple[int, ...]
    """Arrivals of what was sent beside the trials."""
    declared: DeliveryClass | None
    """None: the bridge declares nothing."""
    complaints: tuple[str, ...]
    """Faults that are no matter of delivery: frames that the gateway refuses, a long reply that is not whole."""

    @property
    def delivery(self) -> DeliveryClass:
        """The class that was proved, of both directions together."""
        trials = [trial.arrivals for trial in (*self.inward, *self.outward) if trial.arrivals is not None]
        return class_of([*trials, *self.others])

    @property
    def is_passed(self) -> bool:
        """True if the bridge keeps what it declares, and the protocol."""
        kept = self.declared is None or self.delivery.keeps(self.declared)
        return kept and self.delivery is not DeliveryClass.NONE and not self.complaints


async def examine_bridge(
    command: Sequence[str],
    service: BridgeService,
    report: Callable[[str], None] = lambda line: None,
    steps: Collection[Step] = tuple(Step),
) -> Examination:
    """Run a bridge through the trials of these steps. report: called with a line for each trial.

    Raises BridgeStuck if it does not even carry messages, or does not come back after a disturbance.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="bridge-") as folder:
            return await _examine(command, service, report, steps, Path(folder))
    except ExceptionGroup as group:  # of the nurseries around the suite
        stuck, rest = group.split(BridgeStuck)
        if stuck is None or rest is not None:
            raise
        raise first_cause(stuck) from None


async def _examine(
    command: Sequence[str],
    service: BridgeService,
    report: Callable[[str], None],
    steps: Collection[Step],
    folder: Path,
) -> Examination:
    (folder / "state").mkdir()
    bridge = _BridgeProcess(command, folder / "log")
    points = StepPoints(bridge.kill)
    gateway = BridgeGateway(service.channel_type, points)
    async with gateway.open(), service.open(folder / "state", points) as environment:
        state = str(folder / "state" / "bridge.json")
        own = {"PEGASUS_URL": gateway.url, "PEGASUS_TOKEN": TOKEN, "BRIDGE_STATE": state}
        async with bridge.running({**environment, **own}):
            return await _Suite(bridge, points, gateway, service, report, steps).run()


@attrs.define(eq=False)
class _BridgeProcess:
    """The bridge, which is started again whenever it ends."""

    _command: Sequence[str]
    _log: Path
    _process: trio.Process | None = None
    _is_killed: bool = False
    _ends: int = 0

    @asynccontextmanager
    async def running(self, environment: Mapping[str, str]) -> AsyncIterator[None]:
        """Keep the bridge running for as long as the block lasts. Raises BridgeStuck in the block if it cannot be."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep, {**os.environ, **environment})
                yield
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await self.kill()

    async def _keep(self, environment: Mapping[str, str]) -> None:
        with self._log.open("ab") as log:
            while True:
                self._is_killed = False
                try:
                    # A group of its own, so that SIGKILL reaches what it has started, too.
                    self._process = await trio.lowlevel.open_process(
                        list(self._command),
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                except OSError as error:
                    raise BridgeStuck(f"the bridge cannot be started: {error}") from None
                code = await self._process.wait()
                if not self._is_killed:
                    self._ends += 1
                    if self._ends > MOST_ENDS:
                        raise BridgeStuck(self.describe(f"it ended {self._ends} times, last with exit code {code}"))

    async def kill(self) -> None:
        """Kill the bridge and what it has started; return when it is gone."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        self._is_killed = True
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    def describe(self, problem: str) -> str:
        """Return a problem with the end of the bridge's output."""
        lines = self._log.read_text(errors="replace").splitlines()[-LOG_LINES:] if self._log.exists() else []
        return "\n".join([problem, *(f"    {line}" for line in lines)])


@attrs.define(eq=False)
class _Suite:
    """One run."""

    _bridge: _BridgeProcess
    _points: StepPoints
    _gateway: BridgeGateway
    _service: BridgeService
    _report: Callable[[str], None]
    _steps: Collection[Step]
    _count: int = 0
    _absent: set[Step] = attrs.field(factory=set)
    """Steps that the bridge did not come to."""
    _others: list[tuple[str, Callable[[str], int]]] = attrs.field(factory=list)
    """Marks of what was sent beside the trials, each with the way to count it."""

    async def run(self) -> Examination:
        """Make all trials."""
        self._report("starting the bridge")
        await self._write()
        channel = self._gateway.accepted[-1].channel
        await self._say(channel)
        inward = [(trial, await self._try_inward(*trial)) for trial in self._trials(INWARD)]
        await self._swap_answers()
        outward = [(trial, await self._try_outward(channel, *trial)) for trial in self._trials(OUTWARD)]
        await self._say_much(channel)
        # What is still on its way, or would come again, comes before what a new start brings.
        await self._bridge.kill()
        await self._write()
        await self._say(channel)
        await self._service.settle()
        examination = Examination(
            tuple(self._trial(trial, mark, self.heard) for trial, mark in inward),
            tuple(self._trial(trial, mark, self.shown) for trial, mark in outward),
            tuple(count(mark) for mark, count in self._others),
            self._declared(),
            tuple(self._gateway.complaints),
        )
        for trial in (*examination.inward, *examination.outward):
            self._report(str(trial))
        return examination

    def _trials(self, steps: Iterable[Step]) -> list[tuple[Step, Fault]]:
        """Return the faults of each step. The kill comes last: a bridge that starts anew has no pause that has grown."""
        hidden = OF_SERVICE - self._service.steps
        here = [step for step in steps if step in self._steps and step not in hidden]
        refusable = {Step.RECEIVED, Step.SENDING}
        return [
            (step, fault)
            for step in here
            for fault in ([Fault.REFUSE] if step in refusable else []) + [Fault.CUT, Fault.KILL]
        ]

    def _trial(self, trial: tuple[Step, Fault], mark: str | None, count: Callable[[str], int]) -> Trial:
        return Trial(*trial, None if mark is None else count(mark))

    def _declared(self) -> DeliveryClass | None:
        """Return the class that the bridge declares in its hello."""
        text = self._gateway.declared
        if not text:
            return None
        try:
            return DeliveryClass(text)
        except ValueError:
            allowed = ", ".join(delivery.value for delivery in DeliveryClass)
            self._gateway.complain(f"hello.delivery: found {text}, allowed: {allowed}")
            return None

    # ---------------------------------------------------------------- trials

    async def _try_inward(self, step: Step, fault: Fault) -> str | None:
        """Disturb the bridge while a message is on its way; return its mark, None if the step is never reached."""
        mark = self._mark("in")
        self._points.arm(step, fault)
        await self._service.write(f"hello {mark} grüße")
        is_met = await self._is_met(step)
        await self._write()
        return mark if is_met else None

    async def _try_outward(self, channel: ChannelInfo, step: Step, fault: Fault) -> str | None:
        """Disturb the bridge while a reply is on its way; return its mark, None if the step is never reached."""
        mark = self._mark("out")
        self._points.arm(step, fault)
        self._gateway.say(f"hello {mark} grüße", channel)
        is_met = await self._is_met(step)
        await self._say(channel)
        return mark if is_met else None

    async def _swap_answers(self) -> None:
        """Answer two messages in the other order, where the bridge does not wait for each answer."""
        self._gateway.are_answers_swapped = True
        mark = self._mark("in")
        await self._service.write(f"hello {mark}")
        self._others.append((mark, self.heard))
        await self._write()
        self._gateway.are_answers_swapped = False

    async def _say_much(self, channel: ChannelInfo) -> None:
        """Let the agent say more than a service takes as one message. Everything must arrive, in its order."""
        words = [self._mark("long") for _ in range(LONG_WORDS)]
        before = len(self._service.seen())
        self._gateway.say("\n\n".join(" ".join(words[i : i + 20]) for i in range(0, LONG_WORDS, 20)), channel)
        with self._patience("a long reply was not acknowledged"):
            await self._gateway.until(lambda: self._gateway.is_acknowledged(words[0]))
        await self._service.settle()
        texts = self._service.seen()[before:]
        if re.findall(r"\blong\d+\b", " ".join(texts)) != words:
            self._gateway.complain("a long reply did not arrive whole and in order; it is to be cut between words")
        limit = self._service.most_characters
        if limit and any(len(text) > limit for text in texts):
            self._gateway.complain(f"found a message of more than {limit} characters, which is the service's limit")

    async def _is_met(self, step: Step) -> bool:
        """Wait for the disturbance; return False if the bridge does not come to this step, without a second wait for it."""
        if step not in self._absent:
            with trio.move_on_after(NOT_REACHED):
                await self._points.met()
                return True
        self._absent.add(step)
        self._points.disarm()
        return False

    async def _write(self) -> None:
        """Let a person write, and wait until the agent has it. Raises BridgeStuck."""
        mark = self._mark("in")
        self._others.append((mark, self.heard))
        await self._service.write(f"hello {mark}")
        with self._patience("a message of the service did not reach the agent"):
            await self._gateway.until(lambda: self.heard(mark) > 0)

    async def _say(self, channel: ChannelInfo) -> None:
        """Let the agent reply, and wait until the bridge has acknowledged it. Raises BridgeStuck."""
        mark = self._mark("out")
        self._others.append((mark, self.shown))
        self._gateway.say(f"hello {mark}", channel)
        with self._patience("a reply was not acknowledged"):
            await self._gateway.until(lambda: self._gateway.is_acknowledged(mark))

    @contextmanager
    def _patience(self, problem: str) -> Iterator[None]:
        with trio.move_on_after(PATIENCE) as scope:
            yield
        if scope.cancelled_caught:
            raise BridgeStuck(self._bridge.describe(f"{problem} within {PATIENCE:.0f} s; output of the bridge:"))

    # ---------------------------------------------------------------- counting

    def _mark(self, way: str) -> str:
        self._count += 1
        return f"{way}{self._count:03}"

    def heard(self, mark: str) -> int:
        """Return how many messages the agent has of this mark."""
        return _count(mark, (message.text for message in self._gateway.accepted))

    def shown(self, mark: str) -> int:
        """Return how many messages of this mark people see at the service."""
        return _count(mark, self._service.seen())


def _count(mark: str, texts: Iterable[str]) -> int:
    return sum(bool(re.search(rf"\b{mark}\b", text)) for text in texts)
