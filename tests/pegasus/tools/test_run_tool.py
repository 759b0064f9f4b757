"""One call of a tool: its deadline, its failures, its result."""

import json

import pytest
import trio

from pegasus.models import ToolSpec
from pegasus.tools import Tool, ToolError, parameters
from tests.pegasus.tools.calling import run_tool

SCHEMA = parameters({"n": {"type": "integer"}, "opt": {"type": "string"}}, "n")


def tool(run):
    return Tool(ToolSpec("probe", "", SCHEMA), run)


async def test_a_tool_that_hangs_is_ended_at_its_deadline(autojump_clock):
    ended = []

    async def hang(arguments, context):
        try:
            await trio.sleep_forever()
        finally:
            ended.append(trio.current_time())

    began = trio.current_time()
    outcome = await run_tool(tool(hang), {"n": 1}, timeout=60)
    assert outcome.failed
    assert "longer than 60 s" in outcome.content
    assert ended == [began + 60]


async def test_a_tool_that_raises_gives_an_error_result():
    async def boom(arguments, context):
        raise RuntimeError("broken inside")

    async def refuse(arguments, context):
        raise ToolError("no such file: x")

    assert (await run_tool(tool(boom), {"n": 1}, 1)).content == "Error: probe failed: RuntimeError: broken inside"
    assert (await run_tool(tool(refuse), {"n": 1}, 1)).content == "Error: no such file: x"


async def test_a_tool_is_not_run_with_wrong_arguments():
    async def never(arguments, context):
        raise AssertionError

    assert (await run_tool(tool(never), {}, 1)).content == "Error: n is required"


async def test_a_null_argument_does_not_reach_the_tool():
    async def echo(arguments, context):
        return dict(arguments)

    assert (await run_tool(tool(echo), {"n": 1, "opt": None}, 1)).content == '{"n":1}'
    assert (await run_tool(tool(echo), {"n": None}, 1)).content == "Error: n is required"


async def test_the_cause_inside_a_nursery_is_what_is_told():
    async def refuse():
        raise ToolError("no such host")

    async def run(arguments, context):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refuse)

    assert (await run_tool(tool(run), {"n": 1}, 1)).content == "Error: no such host"


async def test_a_timeout_of_the_tools_own_is_not_the_deadline_of_the_call(autojump_clock):
    async def run(arguments, context):
        with trio.fail_after(1):
            await trio.sleep_forever()

    assert "something in it took too long" in (await run_tool(tool(run), {"n": 1}, 60)).content


async def test_cancelled_while_something_else_breaks_only_the_cancellation_goes_on():
    """A crash in a child task at the moment of the stop must not become an exception of the caller."""

    async def break_when_cancelled():
        try:
            await trio.sleep_forever()
        finally:
            raise RuntimeError("late")

    async def run(arguments, context):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(break_when_cancelled)
            await trio.sleep_forever()

    with trio.CancelScope() as scope:
        scope.cancel()
        await run_tool(tool(run), {"n": 1}, 60)
    assert scope.cancelled_caught


@pytest.mark.parametrize("result", [float("nan"), object()])
async def test_a_result_that_is_no_json_is_a_failure(result):
    async def run(arguments, context):
        return result

    outcome = await run_tool(tool(run), {"n": 1}, 1)
    assert outcome.failed
    assert outcome.content.startswith("Error: probe failed")


async def test_a_name_that_is_no_unicode_keeps_its_bytes_in_the_result():
    async def run(arguments, context):
        return "a\udcff"

    content = (await run_tool(tool(run), {"n": 1}, 1)).content
    content.encode()
    assert json.loads(content) == "a\udcff"
