"""Servers whose settings change while calls are under way."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest
import trio

from pegasus.mcp import McpServers
from pegasus.mcp.calls import ServerCalls
from pegasus.mcp.server import DRAIN, McpServer
from pegasus.settings import LiveSettings, McpServerSettings, Settings
from pegasus.settings.tool_sections import McpSettings
from pegasus.tools import ResultWithImages, ToolContext, ToolError


def settings(**servers: McpServerSettings) -> Settings:
    return Settings(mcp=McpSettings(servers=servers))


LAB = McpServerSettings(command="lab")


@attrs.define
class Renewals:
    """The children that a reload has renewed."""

    names: list[str] = attrs.field(factory=list)
    waits: list[object] = attrs.field(factory=list)

    def renew(self, name, may_stop):
        self.names.append(name)
        self.waits.append(may_stop)


async def followed(before: Settings, after: Settings):
    in_force, renewals = LiveSettings(before), Renewals()
    servers = McpServers(before.mcp.servers)
    servers.follow(in_force, renewals.renew)
    there = {server.name: server for server in servers.servers}
    await in_force.replace(after)
    return servers, renewals, there


async def test_a_server_that_has_not_changed_is_not_touched():
    servers, renewals, there = await followed(
        settings(lab=LAB), settings(lab=LAB, new=McpServerSettings(command="new"))
    )
    assert renewals.names == ["mcp:new"]
    assert servers.servers[0] is there["lab"]


async def test_a_server_that_is_gone_or_switched_off_is_stopped_and_has_no_tools():
    off = attrs.evolve(LAB, enabled=False)
    servers, renewals, _ = await followed(settings(lab=LAB, two=LAB), settings(two=off))
    assert sorted(renewals.names) == ["mcp:lab", "mcp:two"]
    assert servers.children() == []
    assert [state.state for state in servers.states()] == ["off"]


async def test_other_kinds_of_tools_need_no_new_connection():
    servers, renewals, there = await followed(settings(lab=LAB), settings(lab=attrs.evolve(LAB, reads=("get_*",))))
    assert renewals.names == []
    assert servers.servers[0] is there["lab"]
    assert servers.servers[0].settings.reads == ("get_*",)


async def test_other_walls_renew_the_servers_within_them_and_no_others():
    free, remote = attrs.evolve(LAB, sandbox=False), McpServerSettings(url="https://x.example")
    before = settings(walled=LAB, free=free, remote=remote)
    after = attrs.evolve(before, sandbox=attrs.evolve(before.sandbox, network="all"))
    _, renewals, _ = await followed(before, after)
    assert renewals.names == ["mcp:walled"]


async def test_a_call_under_way_ends_before_its_server_is_stopped_and_a_new_one_is_refused(autojump_clock):
    server = McpServer("lab", LAB, ToolContext(), Path())
    calls: ServerCalls = server._calls
    ended = []

    async def work(report):
        await trio.sleep(5)
        ended.append(trio.current_time())
        return ResultWithImages("done", ())

    async with trio.open_nursery() as nursery:

        async def make():
            await calls.make("lab__slow", ToolContext(), lambda: (nursery, work))

        nursery.start_soon(make)
        await trio.sleep(1)
        begun = trio.current_time()
        await server.retire()
        assert ended
        assert trio.current_time() - begun == pytest.approx(4, abs=0.1)
        with pytest.raises(ToolError, match="connected anew"):
            await server.call(SimpleNamespace(spec=SimpleNamespace(name="lab__slow")), {}, ToolContext())


async def test_a_call_that_never_ends_holds_up_its_server_for_a_bounded_time(autojump_clock):
    server = McpServer("lab", LAB, ToolContext(), Path())
    async with trio.open_nursery() as nursery:

        async def work(report):
            await trio.sleep_forever()

        async def make():
            await server._calls.make("lab__wait", ToolContext(), lambda: (nursery, work))

        nursery.start_soon(make)
        await trio.sleep(1)
        begun = trio.current_time()
        await server.retire()
        assert trio.current_time() - begun == pytest.approx(DRAIN, abs=0.1)
        nursery.cancel_scope.cancel()
