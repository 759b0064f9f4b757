"""MCP: a tool call beside one of the bare SDK, and what ten servers, three dead and two flapping, cost everybody else.

The call goes the whole way that a model's call goes: the check of arguments, deadline, connection, result, redaction. The floor is the
SDK's own client with its own transport and the same server, call by call in alternation.

Turns and idle CPU are those of two daemons, one without servers, in alternation. The attempts to connect of the first 20 seconds,
which follow one another closely, are over then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import trio
from mcp import ClientSession, StdioServerParameters, stdio_client

from benchmarks.history import conversation
from benchmarks.processes import PYTHON
from benchmarks.provider import Provider, provider
from benchmarks.report import Result, compared
from benchmarks.talk import talker
from benchmarks.wires import WIRES
from benchmarks.workplace import Workplace
from pegasus.mcp import McpServers, files_context
from pegasus.settings import McpServerSettings
from pegasus.tools import ToolExecutor

CALL_LIMIT, TURN_LIMIT = 1.4, 1.1
CPU_LIMIT = (
    0.5  # per cent of a core beyond that of a daemon without servers: an attempt to start a dead one each minute
)
SETTLED = (
    20.0  # seconds: attempts begin at 0, 1, 3, 7, 15, 31 and 63 s, and then each minute, each with a jitter of a fifth
)
WATCHED = (
    60,
    30,
)  # seconds, and those of a quick run: either has an attempt of each of the five, so more than later ones
SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, result = message["method"], None
    if method == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "bench", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}
    answer = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


def measure(place: Workplace) -> Iterator[Result]:
    script = place.folder / "mcp_server.py"
    script.write_text(SERVER)
    ours, bare = trio.run(_calls, place.folder, script, place.rounds(300, 30))
    yield compared("MCP tool call over stdio", ours, bare, "bare SDK", CALL_LIMIT)
    with provider(place.log) as server:
        turns, alone, cpu, idle = trio.run(_beside, place, server, script)
    yield compared("turn beside ten MCP servers, three dead, two flapping", turns, alone, "no servers", TURN_LIMIT)
    beyond = max(0.0, cpu - idle)
    detail = {"with": cpu, "without": idle}
    yield Result(
        "idle CPU of these servers", beyond, CPU_LIMIT, "limit", "% of a core", beyond / CPU_LIMIT, 1.0, None, detail
    )


async def _calls(folder: Path, script: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of calls, by round: ours, and those of the bare SDK."""
    up = trio.Event()
    servers = McpServers(
        {"bench": McpServerSettings(command=PYTHON, args=("-S", str(script)))}, files_context(folder), folder
    )
    servers.servers[0].on_up = up.set
    executor = ToolExecutor([], source=servers)
    ours: list[float] = []
    bare: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(servers.servers[0].run)
        await up.wait()
        tool = executor.get("bench__echo")
        assert tool is not None
        parameters = StdioServerParameters(command=PYTHON, args=["-S", str(script)])
        async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
            await session.initialize()
            await session.list_tools()
            for number in range(rounds + 10):
                begun = time.perf_counter()
                outcome = await executor.run(tool, {"text": f"call {number}"})
                middle = time.perf_counter()
                await session.call_tool("echo", {"text": f"call {number}"})
                end = time.perf_counter()
                assert not outcome.failed, outcome
                if number >= 10:
                    ours.append(middle - begun)
                    bare.append(end - middle)
        nursery.cancel_scope.cancel()
    return ours, bare


async def _beside(place: Workplace, server: Provider, script: Path) -> tuple[list[float], list[float], float, float]:
    """Seconds of turns with and without servers, and per cent of a core while idle with and without them."""
    wire = WIRES["openai"]
    homes = [place.home(conversation(20), provider=wire.name, base_url=server.base_url(wire)) for _ in range(2)]
    settings = homes[0] / "pegasus.toml"
    settings.write_text(settings.read_text() + _ten_servers(script))
    turns: tuple[list[float], list[float]] = ([], [])
    async with AsyncExitStack() as stack:
        daemons = [stack.enter_context(place.daemon(home)) for home in homes]
        talkers = [await stack.enter_async_context(talker(daemon.url)) for daemon in daemons]
        for client in talkers:
            await client.turn("warm")
        await trio.sleep(SETTLED)
        for number in range(place.rounds(100, 10)):
            for client, seconds in zip(talkers, turns, strict=True):
                seconds.append(await client.turn(f"message {number}."))
        watched = place.rounds(*WATCHED)
        before = [daemon.process.cpu() for daemon in daemons]
        await trio.sleep(watched)
        shares = [(daemon.process.cpu() - used) / watched * 100 for daemon, used in zip(daemons, before, strict=True)]
    return turns[0], turns[1], shares[0], shares[1]


def _ten_servers(script: Path) -> str:
    flapping = script.with_name("flapping.py")
    flapping.write_text("import threading, os\nthreading.Timer(0.5, os._exit, (1,)).start()\n" + script.read_text())
    programs = [str(script)] * 5 + ["/no/such/file.py"] * 3 + [str(flapping)] * 2
    return "".join(
        f'[mcp.servers.s{number}]\ncommand = "{PYTHON}"\nargs = ["-S", "{program}"]\nsandbox = false\n'
        for number, program in enumerate(programs)
    )
