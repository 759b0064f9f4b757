"""The control plane's `status`, whatever state the task system is in."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import trio

from actors import Child, Intensity, Restart, open_supervisor, supervisor
from pegasus.app.control_plane import StatusMethods, TaskMethods
from pegasus.app.control_plane.status import was_changed
from pegasus.gateway import Caller
from pegasus.main_agent import AgentStatus, MainAgents
from pegasus.settings import LiveValue
from pegasus.tasks import LatestTasks, TaskState, TaskView


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


async def no_grants():
    return 0


async def no_notices():
    return ()


@asynccontextmanager
async def controlled(tasks, settle=trio.lowlevel.checkpoint):
    agent = Child("agent", tasks, restart=Restart.TEMPORARY)
    children = [Child("tasks", supervisor([agent])), Child("main", main_agent), Child("journal", journal)]
    async with open_supervisor(children, intensity=Intensity(1, 60.0)) as root:
        yield StatusMethods(
            root=root,
            journal=root.ref("journal"),
            main_agent=MainAgents((root.ref("main"),)),
            started_at=0,
            clock=lambda: 1000,
            models=SimpleNamespace(usage_report=no_usage, breakers=dict, settle=settle),
            tasks=root.ref("tasks/agent"),
            persona=LiveValue(SimpleNamespace(name="Ada")),
            approvals=SimpleNamespace(open_notices=no_notices, count_grants=no_grants),
        )


async def test_tasks_of_the_last_day_are_listed_after_a_restart():
    """Memory has the unfinished ones then; the others come from their logs."""
    now = 100 * 3600 * 1000
    old, late, working = (
        TaskView(name, TaskState.COMPLETED, name, "do it", "general", "main", 1, at, at)
        for name, at in (("old", now - 25 * 3600 * 1000), ("late", now - 3600 * 1000), ("working", 0))
    )

    async def restarted(inbox):
        async for question in inbox:
            latest = isinstance(question, LatestTasks)
            tasks = [task for task in (old, late) if task.updated_at >= question.since] if latest else [working]
            question.reply.send(tuple(tasks))

    async with open_supervisor([Child("agent", restarted)]) as root:
        methods = TaskMethods(root.ref("agent"), lambda: now)
        answer = await methods.list(Caller("cli", "main"), {})
        assert [task["taskId"] for task in answer["tasks"]] == ["working", "late"]
        answer = await methods.list(Caller("cli", "main"), {"date": "2026-01-01"})
        assert [task["taskId"] for task in answer["tasks"]] == ["working"]


@pytest.mark.parametrize(
    ("tasks", "said"), [(idle, {"working": 0, "waiting": 0, "suspended": 0}), (dying, None), (slow, None)]
)
async def test_status_is_answered_however_the_tasks_are(autojump_clock, tasks, said):
    async with controlled(tasks) as control:
        status = await control.status(Caller("cli", "main"), {})
    assert status["tasks"] == said
    assert status["waiting"] == 3
    assert status["codeChanged"], "each file is newer than this start"


@pytest.mark.parametrize(("written", "is_changed"), [(1_000, False), (1_001, True), (None, False)])
def test_code_that_was_written_after_the_start_is_another_one(tmp_path, written, is_changed):
    (tmp_path / "inner").mkdir()
    for name in ("inner/loaded.py", "notes.txt"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, ns=(0, (written or 1) * 1_000_000 if name.endswith("py") else 10**18))
    if written is None:
        (tmp_path / "inner/loaded.py").unlink()
    (tmp_path / ".#lock.py").symlink_to("nowhere")
    os.utime(tmp_path / ".#lock.py", ns=(0, 0), follow_symlinks=False)
    assert was_changed([tmp_path], 1_000) is is_changed


async def test_status_waits_for_the_search_for_a_local_model_but_not_for_long(autojump_clock):
    async with controlled(idle, trio.sleep_forever) as control:
        start = trio.current_time()
        assert (await control.status(Caller("cli", "main"), {}))["waiting"] == 3
        assert trio.current_time() - start == 1.0
