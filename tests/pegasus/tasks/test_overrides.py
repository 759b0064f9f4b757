"""A task may have another model and fewer tools than its type: shown, checked, kept over a restart and a resume."""

import json

import pytest
import trio

from pegasus.events import Emit, Event, EventType
from pegasus.tasks import Resume, TaskError
from pegasus.tasks.core.task_types import OVERRIDES, TaskType, apply_overrides, with_overrides
from pegasus.tasks.run.deps import TaskLimits
from pegasus.testing.scripted import Hang, ScriptedModel, call, say
from tests.pegasus.tasks.world import MemoryFolder, open_desk

TYPE = TaskType("general", "d", None, "", "Body")
LOOKER = TaskType("looker", "d", ("read_*", "grep_files"), "", "Body")


def names(request):
    return {tool.name for tool in request.tools}


async def test_only_the_tools_it_was_given_are_shown(autojump_clock):
    model = ScriptedModel(["done"])
    async with open_desk(model) as desk:
        await desk.run(tools=("echo",))
    assert names(model.requests[0]) == {"echo", "notify", "ask_user", "ask_permission"}


async def test_another_tool_is_refused_when_it_is_called_all_the_same(autojump_clock):
    model = ScriptedModel([say("", call("slow", "a", x=1), call("echo", "b", x=2)), "done"])
    async with open_desk(model) as desk:
        await desk.run(tools=("echo",))
        assert [made[2] for made in desk.calls] == [2]
    refused, done = model.requests[1].turns[-1].results
    assert (refused.is_error, done.is_error) == (True, False)
    assert "with the limits that this one has. There are: echo, notify, ask_user, ask_permission" in refused.content


async def test_a_tool_that_is_allowed_in_part_is_shown_and_refused_outside_of_it(autojump_clock):
    model = ScriptedModel([say("", call("echo", "a", x=1)), "done"])
    async with open_desk(model) as desk:
        await desk.run(tools=("echo(git *)",))
        assert desk.calls == []
    [refused] = model.requests[1].turns[-1].results
    assert refused.content == "Error: echo: this task may use it in part only: echo(git *)"
    assert names(model.requests[0]) == {"echo", "notify", "ask_user", "ask_permission"}


async def test_no_tools_leaves_words_to_its_submitter_alone(autojump_clock):
    model = ScriptedModel(["done"])
    async with open_desk(model) as desk:
        await desk.run(tools=())
    assert names(model.requests[0]) == {"notify", "ask_user", "ask_permission"}


def test_tools_can_only_become_fewer():
    narrowed = apply_overrides(LOOKER, with_overrides({}, "", ("read_file", "shell_exec", "grep_*")))
    assert [tool for tool in ("read_file", "grep_files", "shell_exec", "read_x") if narrowed.allows(tool)] == [
        "read_file",
        "grep_files",
    ]


@pytest.mark.parametrize("damaged", [7, [], {"tools": 7}, {"tools": ["a", 7]}, {"tools": "read_file"}])
def test_overrides_that_cannot_be_read_allow_no_tool(damaged):
    assert not apply_overrides(TYPE, {OVERRIDES: damaged}).allows("read_file")


def test_without_overrides_the_type_is_as_it_was():
    assert apply_overrides(TYPE, {"channel": {}}) is TYPE
    assert with_overrides({"a": 1}, "", None) == {"a": 1}


async def test_the_model_it_was_given_thinks(autojump_clock):
    asked = []

    def model_for(name):
        asked.append(name)
        return ScriptedModel(["done"])

    async with open_desk(None, model_for=model_for) as desk:
        assert (await desk.run(model="openai/gpt-6")).result == "done"
    assert set(asked) == {"openai/gpt-6"}


async def test_a_model_that_there_is_not_refuses_the_task(autojump_clock):
    def model_for(name):
        raise ValueError(f"there is no provider {name!r}")

    async with open_desk(None, model_for=model_for) as desk:
        with pytest.raises(TaskError, match="there is no provider 'nobody/x'"):
            await desk.submit(model="nobody/x")
        assert desk.shelf.logs == {}


async def test_they_stand_in_the_log_and_are_kept_over_a_restart(autojump_clock):
    shelf = MemoryFolder()
    with trio.move_on_after(5):
        async with open_desk(ScriptedModel([Hang()]), shelf=shelf) as desk:
            task_id = await desk.submit(tools=("echo",), model="default", metadata={"a": 1})
            await trio.sleep_forever()
    created = json.loads(shelf.logs[task_id].splitlines()[0])
    assert created["data"]["inputMetadata"] == {"a": 1, "overrides": {"model": "default", "tools": ["echo"]}}
    model = ScriptedModel(["done"])
    async with open_desk(model, shelf=shelf, limits=TaskLimits(recovery="resume")) as desk:
        await desk.outcome(task_id)
    assert names(model.requests[0]) == {"echo", "notify", "ask_user", "ask_permission"}


async def test_a_finished_task_that_is_resumed_still_has_them(autojump_clock):
    shelf, model = MemoryFolder(), ScriptedModel(["done", "done again"])
    async with open_desk(model, shelf=shelf) as desk:
        task_id = await desk.submit(tools=("echo",))
        await desk.outcome(task_id)
    async with open_desk(model, shelf=shelf) as desk:
        await desk.agent.ask(Resume, task_id, "once more")
        await desk.outcome(task_id)
    assert [names(request) for request in model.requests] == [{"echo", "notify", "ask_user", "ask_permission"}] * 2


async def test_an_event_from_outside_cannot_choose_them(autojump_clock):
    model = ScriptedModel(["done"])
    async with open_desk(model) as desk:
        given = {"text": "do it", "metadata": {"a": 1, OVERRIDES: {"model": "dear/model", "tools": []}}}
        await desk.bus.tell(Emit((Event(EventType.WEBHOOK_TRIGGERED, 0, "outside", payload=given),)))
        told = await desk.listener.next(1)
    assert told.metadata == {"a": 1}
    assert "slow" in names(model.requests[0])
