"""JSON-RPC with an editor that lies, floods, cancels, repeats and vanishes."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import trio

from pegasus.acp.link import Answered, EditorGone, EditorLink, RpcError


class Agent:
    """A handler with three methods: `add`, `wait` (until it is cancelled) and `ask` (something of the editor)."""

    def __init__(self):
        self.link = None
        self.begun = []
        self.cancelled = 0

    def begin(self, method, params):
        self.begun.append(method)
        if method == "refuse":
            raise RpcError(-32602, "no")
        return getattr(self, method)(params)

    async def add(self, params):
        return Answered(params["a"] + params["b"], self.after)

    async def after(self):
        await self.link.notify("after", {})

    async def wait(self, params):
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled += 1

    async def ask(self, params):
        try:
            return {"said": await self.link.request("question", {})}
        except EditorGone:
            self.begun.append("gone")
            raise


class Editor:
    """The other end, in memory."""

    def __init__(self):
        self.agent = Agent()
        self.send, lines = trio.open_memory_channel(100)
        self.heard, self.out = trio.open_memory_channel(100)
        self.agent.link = self.link = EditorLink(lines, self.write)
        self.is_gone = False

    async def write(self, line):
        if self.is_gone:
            raise BrokenPipeError
        await self.heard.send(json.loads(line))

    async def says(self, **message):
        await self.send.send(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def hears(self):
        message = await self.out.receive()
        assert message.pop("jsonrpc") == "2.0"
        return message


@asynccontextmanager
async def open_editor():
    editor = Editor()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(editor.link.run, editor.agent)
        yield editor
        nursery.cancel_scope.cancel()


async def test_what_follows_an_answer_comes_behind_it():
    async with open_editor() as editor:
        await editor.says(id=1, method="add", params={"a": 1, "b": 2})
        assert await editor.hears() == {"id": 1, "result": 3}
        assert await editor.hears() == {"method": "after", "params": {}}


async def test_what_is_no_request_gets_an_error_and_nothing_ends():
    async with open_editor() as editor:
        for line, code in (
            (b"{", -32700),
            (b"\xff", -32700),
            (None, -32700),
            (b"[1]", -32600),
            (b"[" * 5000, -32700),
            (b'{"id": true, "method": "add"}', -32600),
            (b'{"id": 1, "method": 7}', -32600),
        ):
            await editor.send.send(line)
            answer = await editor.hears()
            assert (answer["id"], answer["error"]["code"]) == (None, code), line
        await editor.says(id="x", method="refuse")
        assert await editor.hears() == {"id": "x", "error": {"code": -32602, "message": "no"}}
        await editor.says(id=2, method="add", params={"a": 1})  # a defect in the work
        assert (await editor.hears())["error"]["code"] == -32603
        await editor.says(id=99, result="nobody has asked")
        for unlike_an_id in ({}, [1], None, 1.5):
            await editor.says(method="$/cancel_request", params={"requestId": unlike_an_id})
        await editor.says(method="add", params=[1])  # a notification is never answered
        await editor.says(id=3, method="add", params={"a": 1, "b": 1, "unknown": None})
        assert (await editor.hears()) == {"id": 3, "result": 2}


async def test_a_request_is_cancelled_by_its_id_and_an_id_is_used_once_at_a_time():
    async with open_editor() as editor:
        await editor.says(id=1, method="wait")
        await editor.says(id=1, method="add", params={"a": 1, "b": 2})
        assert (await editor.hears())["error"]["code"] == -32600
        await editor.says(method="$/cancel_request", params={"requestId": 1})
        assert await editor.hears() == {"id": 1, "error": {"code": -32800, "message": "cancelled"}}
        await editor.says(method="$/cancel_request", params={"requestId": 1})  # it is done
        assert editor.agent.cancelled == 1


async def test_more_requests_than_may_run_are_refused():
    async with open_editor() as editor:
        for number in range(65):
            await editor.says(id=number, method="wait")
        answer = await editor.hears()
        assert (answer["id"], answer["error"]["code"]) == (64, -32600)


async def test_an_answer_of_the_editor_and_its_refusal_reach_who_has_asked(autojump_clock):
    async with open_editor() as editor:
        for reply, expected in (({"result": 5}, {"result": {"said": 5}}), ({"error": {"code": 7}}, None)):
            await editor.says(id=1, method="ask")
            question = await editor.hears()
            assert question["method"] == "question"
            await editor.says(id=question["id"], **reply)
            answer = await editor.hears()
            assert answer == {"id": 1, **(expected or {"error": {"code": 7, "message": "no reason given"}})}
        await editor.says(id=2, method="ask")
        question = await editor.hears()
        await editor.says(method="$/cancel_request", params={"requestId": 2})
        told = [await editor.hears() for _ in range(2)]
        assert {"method": "$/cancel_request", "params": {"requestId": question["id"]}} in told


async def test_an_editor_that_is_gone_ends_what_it_has_asked_for():
    for vanish in ("eof", "broken pipe"):
        async with open_editor() as editor:
            await editor.says(id=1, method="wait")
            await trio.testing.wait_all_tasks_blocked()
            if vanish == "eof":
                await editor.send.aclose()
            else:
                editor.is_gone = True
                await editor.says(id=2, method="refuse")
            await trio.testing.wait_all_tasks_blocked()
            assert editor.agent.cancelled == 1
