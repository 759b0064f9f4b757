"""A task of ten tool steps with a model that answers at once, less its model calls: what each step costs.

Round by round: one task, then its model calls again by a bare httpx client (C, with the bodies that a task of this kind
sends), then as many bare appends (F). A task thinks eleven times: ten steps and the answer. The model calls are timed
in the task; less C, without a limit, is what is left if a bare client's time is taken off instead, so the SDK's is not.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator, Sequence
from statistics import mean

import attrs
import httpx
import trio

from benchmarks.floors import Appender, appender
from benchmarks.processes import BenchError
from benchmarks.provider import Provider, provider
from benchmarks.report import Result, compared
from benchmarks.samples import median
from benchmarks.tasks_system import STEPS, TaskSystem, Timed, remote, settings, task_system
from benchmarks.wires import HEADERS, WIRES, Wire
from benchmarks.workplace import Workplace
from pegasus.testing.provider import open_provider
from pegasus.testing.provider.answers import steps

LIMIT = 1.0
PAUSE = 0.02  # seconds
WARM = 3  # tasks
LINE = b'{"ts":1767225600000,"event":"TOOL_CALL_COMPLETED","data":{"content":"' + b"x" * 300 + b'"}}\n'


@attrs.define
class Samples:
    """Seconds, one entry per round. thoughts: a task's model calls; calls: the same by a bare client; append: one."""

    task: list[float] = attrs.field(factory=list)
    thoughts: list[float] = attrs.field(factory=list)
    calls: list[float] = attrs.field(factory=list)
    append: list[float] = attrs.field(factory=list)
    cpu: list[float] = attrs.field(factory=list)
    calls_cpu: list[float] = attrs.field(factory=list)

    @property
    def call(self) -> list[float]:
        """One of a task's model calls."""
        return [seconds / (STEPS + 1) for seconds in self.calls]

    def step(self, less: Sequence[float]) -> list[float]:
        """A step, without what all model calls of the task took."""
        return [(task - calls) / STEPS for task, calls in zip(self.task, less, strict=True)]

    @property
    def floor(self) -> list[float]:
        """6 F + 1 C."""
        return [6 * append + call for append, call in zip(self.append, self.call, strict=True)]


def measure(place: Workplace) -> Iterator[Result]:
    with provider(place.log, script="steps") as server:
        for wire in WIRES.values():
            samples = trio.run(_sample, place, server, wire)
            detail = {f"{name}_ms": median(values) * 1e3 for name, values in attrs.asdict(samples).items()}
            for what, less, limit in (("its call", samples.thoughts, LIMIT), ("C", samples.calls, None)):
                step = samples.step(less)
                name, more = f"a step of a task, less {what}, {wire.name}", detail if limit else {}
                yield compared(name, step, samples.floor, "6 F + 1 C", limit, detail=more)


async def _sample(place: Workplace, server: Provider, wire: Wire) -> Samples:
    samples = Samples()
    bodies = await _bodies(place, wire)
    models = remote(server, wire)
    model = Timed(models.client())
    data = place.folder / f"steps-{wire.name}"
    data.mkdir()
    with appender(data) as floor:
        async with httpx.AsyncClient(timeout=60) as client, task_system(data, lambda role: model, settings()) as system:
            for _ in range(WARM):
                await system.run()
                await _calls(client, server, wire, bodies)
            gc.freeze()  # as the daemon does when all is imported
            for _ in range(place.rounds(41, 7)):
                await _round(system, model, samples, client, server, wire, bodies, floor)
            await system.rest()
    await models.aclose()
    return samples


async def _round(
    system: TaskSystem,
    model: Timed,
    samples: Samples,
    client: httpx.AsyncClient,
    server: Provider,
    wire: Wire,
    bodies: Sequence[bytes],
    floor: Appender,
) -> None:
    await system.rest()
    await trio.sleep(PAUSE)
    cpu = time.process_time()
    thought = model.seconds
    samples.task.append(await system.run())
    samples.thoughts.append(model.seconds - thought)
    samples.cpu.append(time.process_time() - cpu)
    await system.rest()
    await trio.sleep(PAUSE)
    cpu = time.process_time()
    samples.calls.append(await _calls(client, server, wire, bodies))
    samples.calls_cpu.append(time.process_time() - cpu)
    await trio.sleep(PAUSE)
    samples.append.append(mean(floor.append(LINE) for _ in range(len(bodies))))


async def _calls(client: httpx.AsyncClient, server: Provider, wire: Wire, bodies: Sequence[bytes]) -> float:
    """Seconds for all of them, one after the other."""
    url = server.base_url(wire) + wire.path
    began = time.perf_counter()
    for body in bodies:
        async with client.stream("POST", url, content=body, headers=HEADERS) as response:
            await response.aread()
        if response.status_code != 200:
            raise BenchError(f"the provider server answered {response.status_code}: {response.text[:300]}")
    return time.perf_counter() - began


async def _bodies(place: Workplace, wire: Wire) -> list[bytes]:
    """What a task of this kind asks its model, call by call."""
    data = place.folder / f"bodies-{wire.name}"
    data.mkdir()
    async with open_provider(steps) as server:
        models = remote(Provider(server.url), wire)
        async with task_system(data, models.client, settings()) as system:
            await system.run()
            thoughts = [request.raw for request in server.requests if "step" in request.tools]
        await models.aclose()
    if len(thoughts) != STEPS + 1:
        raise BenchError(f"a task of {STEPS} steps made {len(thoughts)} model calls")
    return [json.dumps(raw, ensure_ascii=False, separators=(",", ":")).encode() for raw in thoughts]
