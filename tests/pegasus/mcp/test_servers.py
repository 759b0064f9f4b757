"""The table of all servers' tools: what is shown to a model, and the search."""

from __future__ import annotations

from types import MappingProxyType

from pegasus.mcp.servers import HITS, MOST_SHOWN, McpServers
from pegasus.models import ToolSpec
from pegasus.settings import McpServerSettings
from pegasus.tools import Tool, ToolContext, ToolExecutor, parameters


def made(name, description="Does something."):
    async def run(arguments, context):
        return name

    return Tool(ToolSpec(name, description, parameters({"text": {"type": "string"}})), run, "mcp")


def servers(**tools):
    """Servers with these tools."""
    found = McpServers({name: McpServerSettings(command="c") for name in tools}, ToolContext())
    for server in found.servers:
        server.tools = tuple(tools[server.name])
    found._refresh()
    return found


def shown(source, caller="", allows=lambda name: True, window=128_000):
    return [tool.name for tool in source.offered(caller, allows, window)]


def test_few_tools_are_all_shown():
    source = servers(a=[made("a__x"), made("a__y")], b=[made("b__z")])
    assert sorted(shown(source)) == ["a__x", "a__y", "b__z"]


def test_of_many_tools_small_servers_are_shown_and_the_search():
    source = servers(big=[made(f"big__{n}") for n in range(1000)], small=[made("small__x")])
    names = shown(source)
    assert names[0] == "small__x"
    assert names[-1] == "find_tools"
    assert len(names) <= MOST_SHOWN + 1
    assert source.get("big__999") is not None, "each can be called by name"


def test_a_small_window_has_room_for_few():
    source = servers(a=[made(f"a__{n}", "x" * 500) for n in range(30)])
    assert len(shown(source, window=8_000)) < 10
    assert "find_tools" in shown(source, window=8_000)
    assert len(shown(source, window=200_000)) == 30


async def test_what_the_search_finds_is_shown_to_that_caller_from_then_on():
    tools = [made(f"big__{n}", "Mixes colours." if n == 777 else "Does something.") for n in range(1000)]
    source = servers(big=tools)
    executor = ToolExecutor([], source=source)
    before = executor.source.version
    outcome = await executor.run(source.get("find_tools"), {"query": "mix colours"}, ToolContext(task_id="t-1"))
    assert "big__777" in outcome.content
    assert executor.source.version != before
    assert "big__777" in shown(source, "t-1")
    assert "big__777" not in shown(source, "t-2")


async def test_a_search_finds_a_few():
    source = servers(big=[made(f"big__{n}") for n in range(1000)])
    for n in range(10):
        await source._search({"query": f"something {n}"}, ToolContext(task_id="t"))
    found = await source._search({"query": "something"}, ToolContext(task_id="t"))
    assert len(found["tools"]) == HITS
    assert len(shown(source, "t")) <= MOST_SHOWN + 1


def test_a_caller_is_shown_what_it_may_use():
    source = servers(a=[made("a__x"), made("a__y")])
    assert shown(source, allows=lambda name: name == "a__y") == ["a__y"]
    executor = ToolExecutor([], source=source, allows=lambda name: name == "a__y")
    assert executor.get("a__x") is None
    assert [tool.name for tool in executor.offered()] == ["a__y"]


def test_a_tool_of_the_program_wins_over_one_of_its_name():
    own = made("a__x")
    executor = ToolExecutor([own], source=servers(a=[made("a__x")]))
    assert executor.get("a__x") is own
    assert executor.offered() == (own,)


def test_without_servers_nothing_is_there():
    source = McpServers(MappingProxyType({}))
    assert (source.offered("", lambda name: True, 0), source.get("find_tools"), source.children()) == ((), None, [])
