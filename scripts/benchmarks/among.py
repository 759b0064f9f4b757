"""The doors for other programs beside the gateway: MCP, A2A, ACP and OpenAI's responses, each less the model's time.

Turn by turn: each door's, then the gateway's, then C, the model's call by a bare client. Each door has a conversation of its own, so
that all histories have the same length; over A2A each message is a task instead, which thinks once, too. Clients are bare, by h11 and
wsproto on a socket: what an SDK of a client, or a client for all of HTTP, takes is not ours.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import h11
import trio

from benchmarks.history import exchange
from benchmarks.processes import PYTHON, BenchError, environment
from benchmarks.provider import Caller, Provider, provider
from benchmarks.report import Result, compared
from benchmarks.talk import PATIENCE, talker
from benchmarks.wires import WIRES
from benchmarks.workplace import TOKEN, Daemon, Workplace

LIMIT = 1.5
"""Of a turn less C, against the same through the gateway."""
WARM = 5  # turns of each door before a round counts
MCP_VERSION = "2025-11-25"
HEADERS = {"authorization": f"Bearer {TOKEN}", "accept": "application/json, text/event-stream"}

Ask = Callable[[str], Awaitable[None]]
"""Sends a text, and returns when its turn has ended. Raises BenchError for a wrong answer."""


def measure(place: Workplace) -> Iterator[Result]:
    with provider(place.log) as server:
        yield from trio.run(_measure, place, server)


async def _measure(place: Workplace, server: Provider) -> list[Result]:
    wire = WIRES["openai"]
    home = place.home(provider=wire.name, base_url=server.base_url(wire))
    seconds: dict[str, list[float]] = {}
    with place.daemon(home) as daemon:
        async with AsyncExitStack() as stack:
            caller = Caller(server, wire, ())
            stack.push_async_callback(caller.aclose)
            doors = await _open_doors(stack, daemon, home)
            for number in range(WARM + place.rounds(60, 10)):
                text = f"message {number} of the doors."
                took = {name: await _timed(ask, text) for name, ask in doors.items()}
                pair = exchange(number)
                call = await caller.call(pair)
                caller.add(pair)
                for name, whole in took.items() if number >= WARM else ():
                    seconds.setdefault(name, []).append(max(0.0, whole - call))
    gateway = seconds.pop("gateway")
    return [compared(f"a turn through {name}", times, gateway, "gateway", LIMIT) for name, times in seconds.items()]


async def _timed(ask: Ask, text: str) -> float:
    await trio.sleep(0.02)
    began = time.perf_counter()
    with trio.fail_after(PATIENCE):
        await ask(text)
    return time.perf_counter() - began


async def _open_doors(stack: AsyncExitStack, daemon: Daemon, home: Path) -> dict[str, Ask]:
    project = home.with_name("project")
    project.mkdir()
    http = await stack.enter_async_context(_connection(daemon.http))
    socket = await stack.enter_async_context(talker(daemon.url, channel_id="bench"))
    editor = await stack.enter_async_context(_editor(home, project))

    async def ask_gateway(text: str) -> None:
        await socket.turn(text)

    return {
        "gateway": ask_gateway,
        "/v1/responses": partial(_ask_responses, http),
        "MCP": partial(_ask_mcp, http, await _open_session(http)),
        "A2A": partial(_ask_a2a, http),
        "ACP": editor,
    }


def _check(answer: str, text: str) -> None:
    if text not in answer:
        raise BenchError(f"not the answer to {text!r}: {answer[:300]}")


async def _ask_responses(http: _Connection, text: str) -> None:
    body = {"model": "pegasus", "input": text, "user": "bench"}
    _check((await http.post("/v1/responses", body)).text, text)


async def _open_session(http: _Connection) -> dict[str, str]:
    """Return the headers of an MCP session."""
    client = {"protocolVersion": MCP_VERSION, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    opened = await http.post("/mcp", _rpc("initialize", client))
    headers = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": MCP_VERSION}
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    await http.post("/mcp", note, headers)
    return headers


async def _ask_mcp(http: _Connection, session: dict[str, str], text: str) -> None:
    call = {"name": "send_message", "arguments": {"text": text}}
    _check((await http.post("/mcp", _rpc("tools/call", call), session)).text, text)


async def _ask_a2a(http: _Connection, text: str) -> None:
    message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
    call = _rpc("SendMessage", {"message": message})
    _check((await http.post("/a2a", call, {"a2a-version": "1.0"})).text, "TASK_STATE_COMPLETED")


def _rpc(method: str, params: dict[str, Any], id: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


@attrs.frozen
class _Answer:
    """headers: by name in small letters."""

    headers: dict[str, str]
    text: str


class _Connection:
    """A connection for one request after the other."""

    def __init__(self, stream: trio.abc.Stream, host: str) -> None:
        self._stream = stream
        self._host = host
        self._parser = h11.Connection(h11.CLIENT)

    async def post(self, path: str, body: Any, headers: Mapping[str, str] = MappingProxyType({})) -> _Answer:
        content = json.dumps(body).encode()
        own = {"host": self._host, "content-type": "application/json", "content-length": str(len(content))}
        request = h11.Request(method="POST", target=path, headers=[*{**HEADERS, **own, **headers}.items()])
        events = (request, h11.Data(data=content), h11.EndOfMessage())
        await self._stream.send_all(b"".join(self._parser.send(event) or b"" for event in events))
        found, text = dict[str, str](), b""
        while not isinstance(event := self._parser.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                self._parser.receive_data(bytes(await self._stream.receive_some(1 << 16)))
            elif isinstance(event, h11.Response):
                found = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                text += event.data
            else:
                raise BenchError(f"{path}: {event}")
        self._parser.start_next_cycle()
        return _Answer(found, text.decode())


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[_Connection]:
    host = url.removeprefix("http://")
    name, _, port = host.rpartition(":")
    async with await trio.open_tcp_stream(name, int(port)) as stream:
        yield _Connection(stream, host)


@asynccontextmanager
async def _editor(home: Path, project: Path) -> AsyncIterator[Ask]:
    """Run `pegasus acp` as an editor does, and open a session."""
    args = [PYTHON, "-m", "pegasus", "--home", str(home), "acp"]
    start = partial(trio.run_process, args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment())
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(partial(start, check=False))
        lines = _Lines(process)
        await lines.request("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        opened, _ = await lines.request("session/new", {"cwd": str(project), "mcpServers": []})

        async def ask(text: str) -> None:
            prompt = {"sessionId": opened["sessionId"], "prompt": [{"type": "text", "text": text}]}
            _check((await lines.request("session/prompt", prompt))[1], text)

        yield ask
        process.terminate()
        nursery.cancel_scope.cancel()


class _Lines:
    """JSON-RPC in lines over the pipes of a process."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._buffer = b""
        self._id = 0

    async def request(self, method: str, params: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Return the result, and everything that came before it."""
        self._id += 1
        await self._stdin.send_all(json.dumps(_rpc(method, params, self._id)).encode() + b"\n")
        before = ""
        while True:
            while b"\n" not in self._buffer:
                more = await self._stdout.receive_some(1 << 16)
                if not more:
                    raise BenchError(f"`pegasus acp` ended at {method}")
                self._buffer += more
            line, _, self._buffer = self._buffer.partition(b"\n")
            message = json.loads(line)
            if message.get("id") == self._id and "method" not in message:
                if "result" not in message:
                    raise BenchError(f"{method}: {message}")
                return message["result"], before
            before += line.decode()
