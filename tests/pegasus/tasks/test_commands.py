"""Background commands and the life of their task: real processes below the real task system."""

import json
import os

import pytest
import trio

from pegasus.conversation import Entry
from pegasus.models import ToolCall
from pegasus.sandbox import CommandLimits
from pegasus.tasks import Cancel, GetContext, Resume, TaskState
from pegasus.tasks.core.fsm import all_commands, lost_commands, lost_commands_message
from pegasus.testing.scripted import Hang, ScriptedModel, call, say
from pegasus.tools import ToolContext
from pegasus.tools.background import background_tools
from tests.pegasus.sandbox.processes import alive, guards
from tests.pegasus.tasks.world import open_desk

TOOLS = background_tools(CommandLimits(grace=0.2))
HOSTILE = "trap '' TERM; echo up; while :; do sleep 100; done"


@pytest.fixture
def mark(request):
    text = f"TASK_MARK={request.node.name}-{os.getpid()}"
    yield text
    assert alive(text) == {}
    assert guards() == []


@pytest.fixture
def start(mark):
    """A call that starts a command in the background."""
    name, _, value = mark.partition("=")
    return lambda id, command, **more: call("command_start", id, command=command, env={name: value}, wait=20, **more)


@pytest.fixture
def open_place(tmp_path):
    """Open a task system whose commands run in the folder of the test."""
    folder = tmp_path.resolve()
    context = ToolContext(workspace=folder, allowed_paths=(folder,))
    return lambda model, **more: open_desk(model, tools=TOOLS, context=context, **more)


def scripted(*steps):
    """A model that answers so, and an event that tells of its last answer."""
    left, last = list(steps), trio.Event()

    def answer(request):
        if len(left) == 1:
            last.set()
        return left.pop(0)

    return ScriptedModel(answer), last


async def test_a_command_outlives_the_model_call_and_ends_before_the_result_is_told(open_place, start, mark):
    model = ScriptedModel(
        [
            say("", start("a", f'echo up; while read line; do echo "got $line"; done; {HOSTILE}')),
            say("", call("command_input", "b", commandId="c1", text="hello\n", wait=20)),
            "Done.",
        ]
    )
    async with open_place(model) as desk:
        task = await desk.run()
        assert alive(mark) == {}
        assert (task.state, task.commands) == (TaskState.COMPLETED, ())
        context = await desk.agent.ask(GetContext, task.task_id)
        model_saw = [json.loads(entry.content) for entry in context.messages if entry.role == "tool"]
    assert [result["running"] for result in model_saw] == [True, True]
    assert model_saw[1]["output"] == "got hello\n"


async def test_the_view_names_the_commands_that_run(open_place, start):
    model, last = scripted(
        say("", start("a", "echo ready; sleep 100")), say("", call("command_stop", "b", commandId="c1")), Hang()
    )
    views = []
    async with open_place(model, observe=lambda view, _: views.append(view)) as desk:
        task_id = await desk.submit()
        with trio.fail_after(20):
            await last.wait()
        await desk.agent.ask(Cancel, task_id, "the owner")
    named = [view.commands for view in views]
    assert ("c1 echo ready; sleep 100",) in named
    assert named[-1] == ()


@pytest.mark.parametrize("command", ["echo up; sleep 100", HOSTILE])
async def test_a_stop_is_answered_when_nothing_runs(open_place, start, mark, command):
    """During a model call, which no process belongs to."""
    model, last = scripted(say("", start("a", command)), Hang())
    async with open_place(model) as desk:
        task_id = await desk.submit()
        with trio.fail_after(20):
            await last.wait()
        assert len(alive(mark)) > 0
        await desk.agent.ask(Cancel, task_id, "the owner")
        assert alive(mark) == {}
        assert (await desk.outcome(task_id)).state is TaskState.FAILED


async def test_a_failure_ends_them(open_place, start, mark):
    model = ScriptedModel([say("", start("a", HOSTILE)), RuntimeError("a defect")])
    async with open_place(model) as desk:
        assert (await desk.run()).state is TaskState.FAILED
        assert alive(mark) == {}


async def test_a_stop_of_the_whole_ends_them(open_place, start, mark, monkeypatch):
    monkeypatch.setattr("pegasus.tasks.agent.scheduler.DRAIN", 0.1)
    model, last = scripted(say("", start("a", HOSTILE)), Hang())
    async with open_place(model) as desk:
        await desk.submit()
        with trio.fail_after(20):
            await last.wait()
        assert len(alive(mark)) > 0
    assert alive(mark) == {}


async def test_a_question_ends_them_and_the_task_is_told_once_when_it_goes_on(open_place, start, mark):
    model = ScriptedModel(
        [
            say("", start("a", HOSTILE), call("command_start", "b", command="true", wait=20)),
            say("", call("ask_user", "c", question="Which port?")),
            say("", call("command_output", "d", commandId="c1")),
            "Done.",
        ]
    )
    async with open_place(model) as desk:
        task_id = await desk.submit()
        await desk.listener.next(1)
        assert alive(mark) == {}
        await desk.agent.ask(Resume, task_id, "8000")
        await desk.outcome(task_id)
        context = await desk.agent.ask(GetContext, task_id)
    told = [entry.content for entry in context.messages if "have ended" in entry.content]
    assert told == [lost_commands_message({"c1": HOSTILE}, 0).content]
    assert [entry.content for entry in context.messages if "does not run any more" in entry.content]


# ------------------------------------------------------------------ what a conversation tells


def conversation(*results):
    """Entries of a task that has called command_start and others, with these results."""
    entries = []
    for number, (name, result) in enumerate(results):
        entries += [
            Entry(0, "assistant", "", (ToolCall(f"x{number}", name, {}),)),
            Entry(0, "tool", result if isinstance(result, str) else json.dumps(result), call_id=f"x{number}"),
        ]
    return entries


def started(name, line, running=True):
    return ("command_start", {"commandId": name, "command": line, "running": running})


def test_commands_that_were_running_are_lost():
    entries = conversation(
        started("c1", "a"), started("c2", "b", False), ("command_stop", {"commandId": "c1", "running": False})
    )
    assert lost_commands(entries) == {}
    assert all_commands(entries) == {"c1": "a", "c2": "b"}
    entries += conversation(started("c3", "c"))
    assert lost_commands(entries) == {"c3": "c"}
    assert lost_commands([*entries, lost_commands_message({"c3": "c"}, 0)]) == {}


def test_results_that_tell_of_no_command_are_skipped():
    strange = [("command_start", "Error: no"), ("command_start", "[cut"), ("shell_exec", started("c1", "x")[1])]
    assert lost_commands(conversation(*strange)) == {}
