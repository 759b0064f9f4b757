import json

import pytest
import trio

from pegasus.models.base import ToolSpec
from pegasus.tools import Tool, ToolError, current_time, run_tool
from pegasus.tools.base import check_arguments

NOON = 1_772_020_800_000  # 2026-02-25 12:00:00 UTC
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "kind": {"type": "string", "enum": ["a", "b"]}, "xs": {"type": "array"}},
    "required": ["n"],
}


def tool(run):
    return Tool(ToolSpec("probe", "", SCHEMA), run)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "n is required"),
        ({"n": None}, "n is required"),
        ({"n": "1"}, "n must be of type integer, found str"),
        ({"n": True}, "n must be of type integer"),
        ({"n": 1, "kind": "c"}, "kind must be one of a, b"),
        ({"n": 1, "other": 2}, "other is not a parameter"),
        ({"n": 1, "xs": {}}, "xs must be of type array"),
    ],
)
def test_wrong_arguments_are_explained(arguments, problem):
    assert problem in check_arguments(SCHEMA, arguments)


def test_right_arguments_pass():
    assert check_arguments(SCHEMA, {"n": 1, "kind": "a", "xs": []}) is None


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


async def test_current_time_in_a_zone():
    outcome = await run_tool(current_time(lambda: NOON), {"timezone": "Asia/Shanghai"}, 1)
    assert json.loads(outcome.content) == {
        "timestamp": NOON,
        "iso": "2026-02-25T20:00:00+08:00",
        "timezone": "Asia/Shanghai",
        "formatted": "Wednesday, 25 February 2026, 20:00:00",
    }


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", "/etc/localtime", "a\x00b"])
async def test_an_unknown_zone_gives_utc_and_says_so(zone):
    result = json.loads((await run_tool(current_time(lambda: NOON), {"timezone": zone}, 1)).content)
    assert result["timezone"] == "UTC"
    assert result["iso"].endswith("+00:00")
    assert "unknown time zone" in result["note"]


async def test_current_time_without_a_zone_is_the_machines():
    result = json.loads((await run_tool(current_time(lambda: NOON), {}, 1)).content)
    assert result["timestamp"] == NOON
