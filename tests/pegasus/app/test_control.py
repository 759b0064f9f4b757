"""The control plane's `status`, whatever state the task system is in."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import trio

from actors import Child, Intensity, Restart, open_supervisor, supervisor
from pegasus.app import ControlPlane, TaskMethods
from pegasus.gateway import Caller
from pegasus.main_agent import AgentStatus


async def main_agent(inbox):
    async for question in inbox:
        question.reply.send(AgentStatus("m", 0, 0, None, 0.0))


async def journal(inbox):
    async for question in inbox:
        question.reply.send(3)


async def slow(inbox):
    async for _ in inbox:
        await trio.sleep(60)


async def dying(inbox):
    async for _ in inbox:
        raise RuntimeError("at the worst moment")


async def idle(inbox):
    async for question in inbox:
        question.reply.send(())


async def no_usage():
    return {}


@asynccontextmanager
async def controlled(tasks):
    agent = Child("agent", tasks, restart=Restart.TEMPORARY)
    children = [Child("tasks", supervisor([agent])), Child("main", main_agent), Child("journal", journal)]
    async with open_supervisor(children, intensity=Intensity(1, 60.0)) as root:
        yield ControlPlane(
            root=root,
            journal=root.ref("journal"),
            main_agent=root.ref("main"),
            agent_name="Ada",
            started_at=0,
            clock=lambda: 1000,
            models=SimpleNamespace(usage_report=no_usage, breakers=dict),
            tasks=TaskMethods(root.ref("tasks/agent")),
            memory=None,
            persona=None,
        )


@pytest.mark.parametrize(
    ("tasks", "said"), [(idle, {"working": 0, "waiting": 0, "suspended": 0}), (dying, None), (slow, None)]
)
async def test_status_is_answered_however_the_tasks_are(autojump_clock, tasks, said):
    async with controlled(tasks) as control:
        status = await control.status(Caller("cli", "main"), {})
    assert status["tasks"] == said
    assert status["waiting"] == 3
