"""The other end: agents that answer well, and those that do not."""

import base64
import json
from contextlib import asynccontextmanager, suppress
from functools import partial

import h11
import pytest
import trio

from pegasus.a2a.client import RemoteAgent, find_agent
from pegasus.retry import Pauses
from pegasus.settings import RemoteAgentSettings
from pegasus.tools import ToolContext, ToolError


class OtherAgent:
    """A server on loopback. `card` and `answers` (by method, the last stays) are what it says; `calls` is what it was asked."""

    def __init__(self):
        self.url = ""
        self.calls, self.headers = [], []
        self.answers = {}
        self.changes = {}
        self.card = None

    @property
    def interface(self):
        return {"url": f"{self.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", **self.changes}

    def answer(self, path, body):
        if path.endswith("agent-card.json"):
            return (
                self.card if self.card is not None else json.dumps({"supportedInterfaces": [self.interface]}).encode()
            )
        if path == "/rpc":
            call = json.loads(body)
            method, params = call["method"], call["params"]
        else:
            method = "CancelTask" if path.endswith(":cancel") else "SendMessage" if body else "GetTask"
            params = json.loads(body) if body else {"id": path.rpartition("/")[2]}
        self.calls.append((method, params))
        found = self.answers.get(method, [{}])
        result = found.pop(0) if len(found) > 1 else found[0]
        if isinstance(result, bytes):
            return result
        return json.dumps(result if path != "/rpc" or "error" in result else {"result": result}).encode()

    async def serve(self, stream):
        async with stream:
            connection, head, body = h11.Connection(h11.SERVER), None, b""
            while not isinstance(event := connection.next_event(), h11.EndOfMessage | h11.ConnectionClosed):
                if event is h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some(65536))
                elif isinstance(event, h11.Request):
                    head = event
                else:
                    body += bytes(event.data)
            if head is None:
                return
            self.headers.append(dict(head.headers))
            content = self.answer(head.target.decode(), body)
            fields = [("content-length", str(len(content))), ("connection", "close")]
            with suppress(trio.BrokenResourceError):  # whoever has asked has read enough
                await stream.send_all(connection.send(h11.Response(status_code=200, headers=fields)) + content)


@asynccontextmanager
async def other_agent():
    there = OtherAgent()
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        there.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.start_soon(trio.serve_listeners, there.serve, [listener])
        yield there
        nursery.cancel_scope.cancel()


def remote(there, **more):
    return RemoteAgent("helper", RemoteAgentSettings(url=there.url, token="t-1", **more), ())


def task(state, **more):
    return {"id": "t/1", "status": {"state": f"TASK_STATE_{state}", **more.pop("status", {})}, **more}


@pytest.fixture
def context(tmp_path):
    return ToolContext(key="t/call-1", workspace=tmp_path, allowed_paths=(tmp_path,))


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_the_answer_comes_with_its_files(context, tmp_path, binding):
    parts = [
        {"text": "here it is"},
        {"data": {"n": 1}},
        {"raw": base64.b64encode(b"otter").decode(), "filename": "../../.ssh/../otter.txt"},
        {"url": "https://files.example/b.pdf", "filename": "b.pdf"},
        {"raw": "%%%", "filename": "bad"},
        7,
    ]
    async with other_agent() as there:
        there.changes = {"protocolBinding": binding}
        there.answers = {
            "SendMessage": [{"task": task("SUBMITTED")}],
            "GetTask": [task("WORKING"), task("COMPLETED", artifacts=[{"artifactId": "a", "parts": parts}])],
        }
        answer = await remote(there).delegate("find otters", "", context)
        assert (answer["state"], answer["text"]) == ("completed", 'here it is\n\n{"n":1}')
        saved, link, bad = answer["files"]
        assert (tmp_path / saved["path"]).read_bytes() == b"otter"
        assert (tmp_path / saved["path"]).parent == tmp_path / "agents/helper"
        assert link["url"] == "https://files.example/b.pdf"
        assert "problem" in bad
        assert {headers[b"authorization"] for headers in there.headers} == {b"Bearer t-1"}
        assert {headers[b"a2a-version"] for headers in there.headers} == {b"1.0"}


async def test_a_question_is_handed_on_and_can_be_answered(context):
    asks = {"message": {"parts": [{"text": "Which otter?"}]}}
    async with other_agent() as there:
        there.answers = {
            "SendMessage": [{"task": task("INPUT_REQUIRED", status=asks)}, {"message": {"parts": [{"text": "ok"}]}}]
        }
        asked = await remote(there).delegate("find otters", "", context)
        assert (asked["state"], asked["says"], asked["task"]) == ("input-required", "Which otter?", "t/1")
        assert (await remote(there).delegate("the small one", "t/1", context))["text"] == "ok"
        assert there.calls[-1][1]["message"]["taskId"] == "t/1"


async def test_the_others_task_is_cancelled_when_ours_is_stopped(context):
    async with other_agent() as there:
        there.answers = {"SendMessage": [{"task": task("WORKING")}], "GetTask": [task("WORKING")]}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(remote(there).delegate, "work", "", context))
            while not there.calls:
                await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        assert there.calls[-1] == ("CancelTask", {"id": "t/1"})


@pytest.mark.parametrize(
    ("card", "says"),
    [
        (b'{"supportedInterfaces": [' + b" " * (10 << 20) + b"]}", "has more than 262,144 bytes"),
        (b"<html>", "is no JSON object"),
        (b"[" * 100_000, "is no JSON object"),
        (b"{}", "found no interfaces"),
        (
            b'{"supportedInterfaces": [7, {"url": "x", "protocolBinding": "GRPC", "protocolVersion": "1.0"}]}',
            "GRPC 1.0",
        ),
        (b'{"supportedInterfaces": [{"url": "x", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}]}', "0.3"),
        (
            b'{"supportedInterfaces": [{"url": "http://127.0.0.1:1/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]}',
            "another host",
        ),
        (
            b'{"supportedInterfaces": [{"url": "http://[", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]}',
            "another host",
        ),
    ],
)
async def test_a_card_that_cannot_be_used_is_refused(context, card, says):
    async with other_agent() as there:
        there.card = card
        with pytest.raises(ToolError, match=says):
            await remote(there).delegate("work", "", context)
        assert there.calls == []


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"no json", "is no JSON object"),
        (b"[]", "is no JSON object"),
        ({"error": {"code": -32001, "message": "x" * 5000}}, "refuses: x"),
        ({}, "neither a task nor a message"),
        (b'{"result": "' + b"x" * (17 << 20) + b'"}', "has more than 16,777,216 bytes"),
    ],
)
async def test_an_answer_that_makes_no_sense_is_an_error(context, answer, says):
    async with other_agent() as there:
        there.answers = {"SendMessage": [answer]}
        with pytest.raises(ToolError, match=says) as error:
            await remote(there).delegate("work", "", context)
        assert len(str(error.value)) < 1000


async def test_only_a_host_that_the_owner_has_named_may_be_private(context):
    agent = RemoteAgent("far", RemoteAgentSettings(url="http://agent.invalid/"), ())
    with pytest.raises(ToolError, match="was not found"):
        await agent.delegate("work", "", context)
    with pytest.raises(ToolError, match="is refused"):
        await agent._guard.addresses("127.0.0.1", 80)


def test_an_agent_is_found_by_its_name_or_its_address_and_no_other_way():
    agents = {"helper": RemoteAgentSettings(url="https://a.example/")}
    for wanted in ("helper", "https://a.example", "https://a.example/"):
        assert find_agent(agents, wanted)[0] == "helper"
    for wanted in ("", "https://a.example/x", "https://b.example", "Helper"):
        with pytest.raises(ToolError, match="allowed: helper"):
            find_agent(agents, wanted)


async def test_an_agent_that_is_restarted_once_in_a_long_task_is_waited_for(context, monkeypatch):
    monkeypatch.setattr("pegasus.a2a.client.Pauses", lambda first, limit: Pauses(0.0, 0.0))
    async with other_agent() as there:
        polls = [task("WORKING")] * 40 + [b"503"] + [task("WORKING"), task("COMPLETED")]
        there.answers = {"SendMessage": [{"task": task("SUBMITTED")}], "GetTask": polls}
        answer = await remote(there).delegate("find otters", "", context)
        assert answer["state"] == "completed"
