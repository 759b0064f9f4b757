"""sleep, get_env, set_env, current_time."""

import json

import attrs
import pytest
import trio

from pegasus.tools import ToolContext, current_time
from pegasus.tools.basic import basic_tools
from pegasus.tools.shell import MAX_VARIABLES, environment_tools
from tests.pegasus.tools.calling import run_tool

ENVIRON = {
    "PATH": "/bin",
    "LC_ALL": "C",
    "ANTHROPIC_API_KEY": "sk-1",
    "DATABASE_URL": "postgres://u:p@h",
    "HARMLESS": "x",
}
TOOLS = {tool.name: tool for tool in (*basic_tools(lambda: 0), *environment_tools(ENVIRON))}


async def call(name, context=None, /, **arguments):
    return await run_tool(TOOLS[name], arguments, 60, context or ToolContext())


async def answer(name, context=None, /, **arguments):
    return json.loads((await call(name, context, **arguments)).content)


async def test_sleep_sleeps(autojump_clock):
    begun = trio.current_time()
    assert await answer("sleep", duration=2.5) == {"slept": 2.5}
    assert trio.current_time() - begun == 2.5


async def test_a_sleep_longer_than_a_call_is_refused_at_once(autojump_clock):
    begun = trio.current_time()
    assert "longer than a call may take here (60 s)" in (await call("sleep", duration=3600)).content
    assert trio.current_time() == begun


@pytest.mark.parametrize("duration", [0, -1, "1"])
async def test_a_sleep_is_a_positive_number(duration):
    assert (await call("sleep", duration=duration)).failed


async def test_variables_that_commands_get_can_be_seen():
    assert await answer("get_env", key="PATH") == {"key": "PATH", "value": "/bin"}
    assert await answer("get_env", key="MISSING") == {"key": "MISSING", "value": None}


@pytest.mark.parametrize("key", ["ANTHROPIC_API_KEY", "DATABASE_URL", "HARMLESS"])
async def test_what_commands_do_not_get_cannot_be_seen_whatever_its_name_is(key):
    got = await answer("get_env", key=key)
    assert got["value"] is None
    assert "not handed on" in got["note"]


async def test_what_a_task_sets_its_later_calls_see():
    context = ToolContext(task_id="t", env={})
    assert await answer("set_env", context, key="PATH", value="/mine") == {
        "key": "PATH",
        "previous": "/bin",
        "current": "/mine",
    }
    later = attrs.evolve(context, key="another call")
    assert (await answer("get_env", later, key="PATH"))["value"] == "/mine"
    assert context.env == {"PATH": "/mine"}


async def test_what_a_task_sets_nobody_else_sees():
    await answer("set_env", ToolContext(env={}), key="PATH", value="/mine")
    assert (await answer("get_env", ToolContext(env={}), key="PATH"))["value"] == "/bin"
    assert ENVIRON["PATH"] == "/bin"


@pytest.mark.parametrize(
    ("key", "value"),
    [("", "x"), ("A=B", "x"), ("1A", "x"), ("A\0", "x"), ("é", "x"), ("A", "a\0b"), ("A", "x" * 40_000)],
)
async def test_what_cannot_be_a_variable_is_refused(key, value):
    context = ToolContext(env={})
    assert (await call("set_env", context, key=key, value=value)).failed
    assert context.env == {}


async def test_a_task_sets_so_many_variables_and_no_more():
    context = ToolContext(env={f"V{n}": "" for n in range(MAX_VARIABLES)})
    assert (await call("set_env", context, key="ONE_MORE", value="x")).failed
    assert not (await call("set_env", context, key="V0", value="x")).failed


# ------------------------------------------------------------------ current_time

NOON = 1_772_020_800_000  # 2026-02-25 12:00:00 UTC


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
