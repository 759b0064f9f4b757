import json
import math

import attrs
import pytest
import trio

from pegasus.conversation import Entry
from pegasus.identity import BUILT_IN as PERSONA
from pegasus.models.base import AssistantTurn, ModelResponse, ToolCall, ToolSpec, Usage, UserTurn
from pegasus.settings import LiveValue
from pegasus.tasks.core.fsm import ActionResult, TaskContext, TaskFSM
from pegasus.tasks.core.task_events import ReasonDone
from pegasus.tasks.core.task_states import TaskState
from pegasus.tasks.core.task_types import BUILT_IN_TYPES, load_task_types
from pegasus.tasks.log.format import create_event, parse_task_line
from pegasus.tasks.run.stages import make_plan
from pegasus.tasks.run.task import should_reflect
from pegasus.tasks.run.thinker import Reflector, Thinker
from pegasus.testing.scripted import After, ScriptedModel, call, say
from pegasus.tools import ToolOutcome
from tests.pegasus.tasks.lives import task_lines

EXPLORE = load_task_types(BUILT_IN_TYPES)[0].get("explore")
READ = ToolSpec("read_file", "Read.", {"type": "object", "properties": {}})


def context(*entries, **fields):
    return TaskContext("t1", input_text="find it", messages=[Entry(1, "user", "find it"), *entries], **fields)


async def think(model, *entries, memory="", tools=(READ,)):
    return await Thinker(LiveValue(PERSONA), lambda: 7).think(context(*entries), model, EXPLORE, tools, memory)


async def test_a_direct_answer_leaves_its_message_to_the_step():
    thought = await think(ScriptedModel(["It is in the attic."]))
    assert (thought.reasoning.response, thought.reasoning.approach) == ("It is in the attic.", "direct")
    assert (thought.entries, thought.question) == ((), "")


async def test_calls_are_one_assistant_message_with_ids_that_are_new_in_the_task():
    before = (
        Entry(2, "assistant", "", (ToolCall("c1", "read_file", {}),)),
        Entry(3, "tool", "text", call_id="c1"),
    )
    thought = await think(ScriptedModel([say("two", call("read_file", "c1"), call("read_file", "c1"))]), *before)
    [turn] = thought.entries
    assert [made.id for made in turn.calls] == ["c1-2", "c1-3"] == [made.id for made in thought.reasoning.tool_calls]


async def test_a_thought_holds_nothing_that_a_log_could_not():
    """A provider's parser may let NaN pass, tuples, and any depth. The task of a replay must be the task that lived."""
    deep = []
    for _ in range(100):
        deep = [deep]
    broken = ToolCall("c2", "read_file", {}, "the arguments are not valid JSON")
    answer = say("", ToolCall("c1", "read_file", {"x": (math.nan, 1, deep)}), broken)
    thought = await think(ScriptedModel([attrs.evolve(answer, thinking=({"budget": math.inf},), thinking_of="x")]))
    plan = make_plan(thought.reasoning, "find it")
    live = TaskFSM("t1", TaskState.REASONING, context())
    again = TaskFSM("t1", TaskState.REASONING, context())
    made = create_event(ReasonDone(thought.reasoning, plan, thought.entries), "t1", "task", 7)
    live.transition(made)
    again.transition(parse_task_line(json.loads(task_lines(made))))
    assert again.context == live.context
    assert live.context.messages[-1].calls[0].arguments["x"][:2] == [None, 1]
    assert [step.call.error for step in live.context.plan.steps] == [None, "the arguments are not valid JSON"]


async def test_the_memory_index_stands_behind_the_input_and_stays_in_the_messages():
    model = ScriptedModel(["done"])
    thought = await think(model, memory="# Memory\nfacts/user.md (12B): likes tea")
    [turn] = model.requests[0].turns
    assert turn.text == "find it\n\n# Memory\nfacts/user.md (12B): likes tea"
    assert [entry.role for entry in thought.entries] == ["user"]


async def test_the_prompt_is_identity_safety_and_the_body_and_the_same_for_every_call():
    model = ScriptedModel(["a"])
    await think(model)
    prompt = model.requests[0].system
    assert (
        prompt.index(PERSONA.name)
        < prompt.index("## Safety")
        < prompt.index("read-only" if "read-only" in prompt else "change nothing")
    )
    assert "INNER MONOLOGUE" not in prompt
    thinker = Thinker(LiveValue(PERSONA), lambda: 0)
    assert thinker.prompt(EXPLORE) is thinker.prompt(EXPLORE)


async def test_one_thinker_serves_tasks_at_once_and_mixes_nothing_up(autojump_clock):
    """Each thought is the same as if its task had a thinker of its own."""

    def script(request):
        about = request.turns[0].text.split()[0]
        return After({"slow": 30, "middle": 20, "quick": 10}[about], say(about, call("read_file", "c1", path=about)))

    async def thought_of(thinker, name):
        used = (Entry(2, "assistant", "", (ToolCall("c1", "read_file", {}),)), Entry(3, "tool", "", call_id="c1"))
        entries = (Entry(1, "user", name), *(used if name == "middle" else ()))
        about = TaskContext(name, input_text=name, messages=entries)
        return await thinker.think(about, ScriptedModel(script), EXPLORE, (READ,), f"memory of {name}")

    names, shared, found = ("slow", "middle", "quick"), Thinker(LiveValue(PERSONA), lambda: 7), {}

    async def one(name):
        found[name] = await thought_of(shared, name)

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(one, name)
    assert list(found) == ["quick", "middle", "slow"]
    assert found == {name: await thought_of(Thinker(LiveValue(PERSONA), lambda: 7), name) for name in names}
    assert len({repr(thought) for thought in found.values()}) == 3


async def test_a_question_suspends_and_other_calls_of_the_turn_are_not_made():
    thought = await think(
        ScriptedModel([say("hm", call("read_file", "a"), call("ask_user", "b", question=" Which one? "))])
    )
    assert thought.question == "Which one?"
    assert thought.reasoning.needs_clarification
    assert thought.entries == ()


async def test_a_question_without_words_is_an_ordinary_call_that_will_fail():
    thought = await think(ScriptedModel([say("", call("ask_user", "b"))]))
    assert thought.question == ""
    assert thought.entries[0].calls[0].name == "ask_user"


async def test_a_call_that_was_never_carried_out_still_makes_a_valid_request():
    model = ScriptedModel(["done"])
    await think(model, Entry(2, "assistant", "", (ToolCall("c1", "read_file", {}),)), Entry(3, "user", "go on"))
    user, assistant, last = model.requests[0].turns
    assert isinstance(user, UserTurn)
    assert isinstance(assistant, AssistantTurn)
    assert [result.call_id for result in last.results] == ["c1"]
    assert last.text == "go on"


async def test_thinking_blocks_are_kept_for_the_next_call():
    response = ModelResponse("", (ToolCall("c", "read_file", {}),), Usage(), "tool_calls", ({"t": 1},), "anthropic")
    thought = await think(ScriptedModel([response]))
    assert thought.entries[0].metadata == {"thinking": [{"t": 1}], "thinkingOf": "anthropic"}


# ------------------------------------------------------------------ looking back


def done(n):
    return ActionResult(n, "tool_call", "read_file", "x", True, 0, 1)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"iteration": 1, "final_result": {"response": "ok"}}, False),
        ({"iteration": 1, "actions_done": (done(0),), "final_result": {"response": None}}, False),
        ({"iteration": 2, "final_result": {"response": "ok"}}, True),
        ({"iteration": 1, "actions_done": (done(0), done(1))}, True),
        ({"iteration": 1, "final_result": {"response": "x" * 200}}, True),
    ],
)
def test_trivial_tasks_are_not_reflected_on(fields, expected):
    assert should_reflect(context(**fields)) is expected


async def reflect(model, of=None, window=100_000):
    calls = []

    async def run(made):
        calls.append(made.name)
        return ToolOutcome("{}", failed=False)

    reflector = Reflector(LiveValue(PERSONA))
    found = await reflector.reflect(of or context(), "FACTS", (READ,), model, window, run)
    return found, calls


async def test_reflection_calls_memory_tools_until_it_has_nothing_more_to_do():
    model = ScriptedModel([say("", call("memory_append", "a"), call("memory_write", "b")), "Kept the address."])
    found, calls = await reflect(model)
    assert (found.assessment, found.tool_calls_count, calls) == (
        "Kept the address.",
        2,
        ["memory_append", "memory_write"],
    )
    assert [result.call_id for result in model.requests[1].turns[-1].results] == ["a", "b"]


async def test_reflection_ends_after_five_rounds():
    model = ScriptedModel(lambda request: say("", call("memory_read", "a")))
    found, calls = await reflect(model)
    assert (len(model.requests), len(calls)) == (5, 5)
    assert "5 rounds" in found.assessment


async def test_a_long_story_loses_its_oldest_part():
    model = ScriptedModel(["nothing"])
    entries = [Entry(0, "assistant", f"part {n} " + "x" * 1000) for n in range(20)]
    await reflect(model, context(*entries), window=2_000)
    text = model.requests[0].turns[0].text
    assert "part 19" in text
    assert "part 1 " not in text
    assert "left out" in text
