"""The MCP server of the real process, with the client of the official SDK."""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from functools import partial

import httpx2
import pytest
import trio
from mcp.shared.exceptions import MCPError
from mcp.types import ResourceUpdatedNotification

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import Book, Daemon, serving
from tests.blackbox.support.mcp_client import LEGACY, MODERN, mcp_client, stdio_client_of
from tests.blackbox.support.serving import standing
from tests.blackbox.support.waiting import POLL
from tests.blackbox.support.work import Office, Workplace, act, answer
from tests.blackbox.test_tokens import add

HTTP = {"http.enabled": True, "http.port": 0}
ALL = ["send_message", "list_tasks", "get_task", "cancel_task", "answer_task", "search_memory"]

pytestmark = [
    # The SDK's client leaves streams to the garbage collector.
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:resources"),
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    """One daemon for all tests that do not end it."""
    settings = {"models.default": "offline/stand-in", "http.public_url": "https://pegasus.example", **HTTP}
    yield from standing(Daemon(tmp_path_factory.mktemp("mcp") / "home", settings), start=True)


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    """A stage with background tasks."""
    place = Workplace(tmp_path_factory.mktemp("office"), HTTP)
    yield from standing(place.daemon, place, finish=place.finish)


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
async def test_a_message_is_answered_and_its_progress_told(office, mode, name):
    notes = []

    async def note(progress, total, message):
        notes.append(message)

    async with office.play(Book(), name) as daemon, mcp_client(daemon, mode=mode) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ALL
        assert all(tool.description and tool.output_schema and tool.annotations for tool in tools)
        sent = await client.call_tool("send_message", {"text": "hello ☎"}, progress_callback=note)
    assert [part.text for part in sent.content] == ["echo: hello ☎"]
    assert sent.structured_content["replies"] == [{"text": "echo: hello ☎", "files": []}]
    assert sent.structured_content["done"] is True
    assert notes[-1] == "echo: hello ☎"


async def test_whoever_has_no_token_is_told_where_to_get_one(daemon):
    url = f"{daemon.at.http}/mcp"
    async with httpx2.AsyncClient() as http:
        for headers in ({}, {"authorization": "Bearer wrong"}):
            refused = await http.post(url, json={}, headers=headers)
            way_in = refused.headers["www-authenticate"].partition('resource_metadata="')[2].rstrip('"')
            assert (refused.status_code, way_in) == (
                401,
                "https://pegasus.example/.well-known/oauth-protected-resource/mcp",
            )
        described = (await http.get(way_in.replace("https://pegasus.example", daemon.at.http))).json()
        assert described["resource"] == "https://pegasus.example/mcp"
        assert described["scopes_supported"] == ["message", "read", "control"]


@pytest.mark.parametrize(
    ("options", "tools", "forms"),
    [
        (("--scope", "message"), ALL[:5], ["task-log"]),
        (("--scope", "read"), ["list_tasks", "get_task", "search_memory"], ["memory", "task-log"]),
        (("--scope", "message,read,control"), ALL, ["memory", "task-log", "archive"]),
        (("--scope", "message,read,control", "--channel", "desk"), ALL[:5], ["task-log"]),
    ],
)
async def test_a_token_shows_what_its_scopes_and_its_conversation_reach(daemon, options, tools, forms, name):
    token = await add(daemon, name, *options)
    async with mcp_client(daemon, token) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == tools
        assert [form.name for form in (await client.list_resource_templates()).resource_templates] == forms


# ------------------------------------------------------------------ the promise


async def test_a_call_that_is_made_again_after_kill_9_is_answered_once(tmp_path):
    call = ("send_message", {"text": "hello", "idempotencyKey": "k1"})
    async with serving(tmp_path, book := Book(), HTTP) as daemon:
        book.hold()
        try:
            async with mcp_client(daemon) as client, trio.open_nursery() as nursery:
                nursery.start_soon(killed_when_it_thinks, daemon, book)
                await client.call_tool(*call)
        except* (MCPError, httpx2.HTTPError):
            assert not daemon.alive
        book.release()
        for _ in range(2):  # the answer is kept until its client goes on
            await daemon.restart()
            async with mcp_client(daemon) as client:
                for _ in range(2):
                    sent = await client.call_tool(*call)
                    assert [part.text for part in sent.content] == ["echo: hello"]
                thoughts = len(book.about("hello"))
                assert thoughts == 2, "the one that was killed, and one more"
        async with mcp_client(daemon) as client:
            sent = await client.call_tool("send_message", {"text": "next"})
            assert sent.structured_content["replies"][-1]["text"] == "echo: next"
        assert len(book.about("hello")) == thoughts


async def killed_when_it_thinks(daemon, book):
    await book.waiting()
    daemon.kill()


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
async def test_an_assistant_on_stdin_gets_its_answer_although_the_daemon_is_killed(tmp_path, mode):
    async with serving(tmp_path, book := Book(), HTTP) as daemon, stdio_client_of(daemon, mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ALL
        sent = await client.call_tool("send_message", {"text": "good morning"})
        assert [part.text for part in sent.content] == ["echo: good morning"]
        book.hold()
        async with trio.open_nursery() as nursery:

            async def restart():
                await killed_when_it_thinks(daemon, book)
                book.release()
                await daemon.start()

            nursery.start_soon(restart)
            sent = await client.call_tool("send_message", {"text": "hello"})
        assert [part.text for part in sent.content] == ["echo: hello"]
        assert [tool.name for tool in (await client.list_tools()).tools] == ALL
        assert len(book.about("hello")) == 2


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
async def test_a_call_that_its_client_cancels_stops_the_turn(office, mode, name):
    async with office.play(book := Book(), name) as daemon, mcp_client(daemon, mode=mode) as client:
        book.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "send_message", {"text": f"stop {name}", "conversation": name})
            await book.waiting()
            nursery.cancel_scope.cancel()
        await book.abandoned()
        book.release()
        sent = await client.call_tool("send_message", {"text": "again", "conversation": name})
        assert [part.text for part in sent.content] == ["echo: again"]


async def test_a_turn_that_somebody_stops_is_not_called_silence_by_choice(office, name):
    heard = []

    async def ask(client):
        sent = await client.call_tool("send_message", {"text": f"stop {name}", "conversation": name})
        heard.extend(part.text for part in sent.content)

    async with office.play(book := Book(), name) as daemon, mcp_client(daemon) as client, mcp_client(daemon) as other:
        book.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, client)
            await book.waiting()
            sent = await other.call_tool("send_message", {"text": "/stop", "conversation": name})
            assert sent.content[0].text.startswith("Stopped:")
            await book.abandoned()
        book.release()
    assert heard == ["[somebody has stopped the agent before it was done]"]


async def test_a_client_that_vanishes_and_can_ask_again_gets_its_answer(office, name):
    call = ("send_message", {"text": f"go {name}", "conversation": name, "idempotencyKey": "k1"})
    async with office.play(book := Book(), name) as daemon:
        book.hold()
        async with mcp_client(daemon) as client, trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, *call)
            await book.waiting()
            nursery.cancel_scope.cancel()
        book.release()
        async with mcp_client(daemon) as client:
            sent = await client.call_tool(*call)
        assert [part.text for part in sent.content] == [f"echo: go {name}"]
        assert len(book.about(f"go {name}")) == 1


async def test_a_call_that_waits_no_longer_leaves_the_agent_at_work(office, name):
    async with office.play(book := Book(), name) as daemon, mcp_client(daemon) as client:
        book.hold()
        sent = await client.call_tool(
            "send_message", {"text": f"slow {name}", "conversation": name, "idempotencyKey": "k1", "waitSeconds": 0}
        )
        assert sent.structured_content["done"] is False
        book.release()
        sent = await client.call_tool(
            "send_message", {"text": f"slow {name}", "conversation": name, "idempotencyKey": "k1"}
        )
        assert [part.text for part in sent.content] == [f"echo: slow {name}"]


async def test_a_long_call_is_a_task_for_a_client_that_takes_one_also_after_kill_9(tmp_path):
    async with serving(tmp_path, book := Book(), HTTP) as daemon:
        book.hold()
        created = await asked(daemon, "tools/call", name="send_message", arguments={"text": "hello", "waitSeconds": 0})
        assert (created["resultType"], created["status"]) == ("task", "working")
        id = created["taskId"]
        assert (await asked(daemon, "tasks/get", taskId=id))["status"] == "working"
        await daemon.restart()
        book.release()
        for _ in range(2):
            found = await ended(daemon, id)
            assert found["result"]["content"] == [{"type": "text", "text": "echo: hello"}]
            await daemon.restart()
        stranger = await add(daemon, "stranger")
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            assert (await asked(daemon, method, stranger, taskId=id))["message"] == "there is no such task"
            assert (await asked(daemon, method, extensions={}, taskId=id))["code"] == -32021
        assert (await asked(daemon, "tasks/cancel", taskId=id))["resultType"] == "complete"  # it has ended


async def ended(daemon, task_id):
    """The task, when it has ended."""
    while True:
        found = await asked(daemon, "tasks/get", taskId=task_id)
        if found["status"] != "working":
            return found
        await trio.sleep(POLL)


async def asked(daemon, method, token="", extensions=None, **params):
    """The result of a request, or its error, for a client with these extensions: tasks, if none are given."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {
            "extensions": {"io.modelcontextprotocol/tasks": {}} if extensions is None else extensions
        },
    }
    headers = {
        "authorization": f"Bearer {token or daemon.token}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
        "mcp-name": params.get("name") or params.get("taskId", ""),
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    async with httpx2.AsyncClient(timeout=30) as http:
        response = await http.post(f"{daemon.at.http}/mcp", json=body, headers=headers)
    answer = json.loads(response.text.strip().rpartition("data: ")[2])
    return answer.get("result") or answer["error"]


# ------------------------------------------------------------------ tasks and resources


async def test_a_task_is_seen_answered_and_followed_by_whoever_asked_for_it_and_by_nobody_else(office, name):
    asks = act(Call("ask_user", {"question": "Which colour?"}))
    book = Office({name: [asks, lambda view: answer(f"painted {view.last}")]})
    async with office.play(book, name) as daemon:
        own, other = await add(daemon, "own"), await add(daemon, "other")
        async with mcp_client(daemon, own, LEGACY, message_handler=(heard := Heard())) as client:
            await client.call_tool("send_message", {"text": f"do {name}"})
            task = await question_of(client)
            log = f"pegasus://tasks/{task['taskId']}/log"
            assert log in [resource.uri for resource in (await client.list_resources()).resources]
            async with mcp_client(daemon, other, LEGACY) as stranger:
                assert (await stranger.call_tool("list_tasks", {})).structured_content == {"tasks": []}
                for tool, more in (("get_task", {}), ("cancel_task", {}), ("answer_task", {"answer": "red"})):
                    refused = await stranger.call_tool(tool, {"taskId": task["taskId"], **more})
                    assert refused.is_error
                    assert "there is no task" in refused.content[0].text
                for ask in (stranger.read_resource, stranger.subscribe_resource):
                    with pytest.raises(MCPError, match="not found"):
                        await ask(log)
            await client.subscribe_resource(log)
            answered = await client.call_tool("answer_task", {"taskId": task["taskId"], "answer": "red"})
            assert answered.structured_content == {"taskId": task["taskId"], "status": "resumed"}
            await heard.until(log)
            async with mcp_client(daemon) as owner:
                await state_reached(owner, task["taskId"], "completed")
                shown = (await owner.call_tool("get_task", {"taskId": task["taskId"]})).structured_content
                assert "red" in shown["result"]
                gone = await owner.call_tool("cancel_task", {"taskId": task["taskId"]})
                assert gone.is_error  # it has ended
                events = json.loads((await owner.read_resource(log)).contents[0].text)["events"]
                assert "TASK_COMPLETED" in [event["type"] for event in events]


async def test_a_subscriber_hears_that_a_note_of_memory_has_changed(office, name):
    path = f"facts/{name.lower()[:40].rstrip('-_')}.md"
    async with office.play(Book(), name) as daemon, mcp_client(daemon) as client, daemon.client("control") as control:
        await control.call("memory.write", path=path, content="# Tea\n\n- green")
        uri = f"pegasus://memory/{path}"
        async with client.listen(resource_subscriptions=[uri, "pegasus://memory/nothing.md"]) as changes:
            assert changes.honored.resource_subscriptions == [uri]
            await control.call("memory.write", path=path, content="# Tea\n\n- black")
            async for change in changes:
                assert change.uri == uri
                break
        assert "black" in (await client.read_resource(uri)).contents[0].text
        found = (await client.call_tool("search_memory", {"query": "black tea"})).structured_content["results"]
        assert path in [hit.get("path") for hit in found]


class Heard:
    """Notifications of a client."""

    def __init__(self):
        self._uris = []
        self._changed = trio.Event()

    async def __call__(self, message):
        if isinstance(message, ResourceUpdatedNotification):
            self._uris.append(message.params.uri)
            self._changed.set()
            self._changed = trio.Event()

    async def until(self, uri):
        while uri not in self._uris:
            await self._changed.wait()


async def question_of(client):
    """The task of this client that asks something."""
    while True:
        tasks = (await client.call_tool("list_tasks", {})).structured_content["tasks"]
        if tasks and tasks[0].get("question"):
            return tasks[0]
        await trio.sleep(POLL)


async def state_reached(client, task_id, state):
    while True:
        if (await client.call_tool("get_task", {"taskId": task_id})).structured_content["state"] == state:
            return
        await trio.sleep(POLL)


# ------------------------------------------------------------------ the wire


async def test_a_plain_call_is_answered_by_one_object_and_takes_no_note_of_progress_away(office, name):
    async with office.play(book := Book(), name) as daemon, session_of(daemon) as post:
        answers = {}

        async def send(name, arguments, **meta):
            params = {"name": "send_message", "arguments": {"text": name, "conversation": name, **arguments}, **meta}
            answers[name] = await post({**CALL, "id": name, "params": params})

        book.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(send, "told", {}, _meta={"progressToken": 7}))
            nursery.start_soon(send, "plain", {})
            nursery.start_soon(send, "patient", {"waitSeconds": 60})
            await book.waiting()
            listed = await post({**CALL, "id": "list", "method": "tools/list", "params": {}})
            book.release()
    forms = {name: answer.headers["content-type"].partition(";")[0] for name, answer in answers.items()}
    assert forms == {"told": "text/event-stream", "plain": "application/json", "patient": "text/event-stream"}
    assert "notifications/progress" in answers["told"].text
    assert all(f"echo: {name}" in answer.text for name, answer in answers.items())
    assert [tool["name"] for tool in listed.json()["result"]["tools"]] == ALL


@asynccontextmanager
async def session_of(daemon):
    """A function that posts messages of one session."""
    headers = {"authorization": f"Bearer {daemon.token}", "accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        post = partial(http.post, f"{daemon.at.http}/mcp")
        opened = await post(json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE})
        http.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        await post(json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield lambda message: post(json=message)


# ------------------------------------------------------------------ bad input

INITIALIZE = {"protocolVersion": "1999-01-01", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_tasks"}}


@pytest.mark.parametrize(
    ("body", "headers", "statuses"),
    [
        (b"{", {}, {400}),
        (b"\xff\xfe\x00", {}, {400}),
        (b"[" * 100_000, {}, {400}),
        (json.dumps([CALL, CALL]).encode(), {}, {400}),
        (json.dumps(CALL).encode(), {}, {400}),  # no session
        (json.dumps(CALL).encode(), {"mcp-session-id": "a" * 32}, {404}),
        (json.dumps(CALL).encode(), {"mcp-protocol-version": "2999-01-01"}, {400}),
        (json.dumps(CALL).encode(), {"mcp-protocol-version": "2026-07-28"}, {400}),  # its body says nothing of that
        (json.dumps(CALL).encode(), {"accept": "text/plain"}, {406}),
        (json.dumps(CALL).encode(), {"content-type": "text/plain"}, {400, 415}),
        (b" " * (33 << 20), {}, {413}),
        (json.dumps({"jsonrpc": "2.0", "id": None, "method": 7, "extra": {}}).encode(), {}, {400}),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused_and_hurts_nobody(daemon, body, headers, statuses):
    fields = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {daemon.token}"}) as http:
        assert (await http.post(f"{daemon.at.http}/mcp", content=body, headers=fields)).status_code in statuses
        assert (await http.get(f"{daemon.at.http}/readyz")).json()["ready"]


async def test_a_session_belongs_to_its_token_and_their_number_is_bounded(daemon, name):
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
    accept = {"accept": "application/json, text/event-stream"}
    own, other = await add(daemon, f"one-{name[:20]}"), await add(daemon, f"two-{name[:20]}")
    async with httpx2.AsyncClient(headers=accept) as http:

        async def post(token, body, session=""):
            headers = {"authorization": f"Bearer {token}", **({"mcp-session-id": session} if session else {})}
            return await http.post(f"{daemon.at.http}/mcp", json=body, headers=headers)

        opened = [await post(own, body) for _ in range(51)]
        assert {answer.status_code for answer in opened[:50]} == {200}
        assert '"protocolVersion":"2025-11-25"' in opened[0].text  # whatever the client has said
        assert opened[50].status_code == 503
        session = opened[0].headers["mcp-session-id"]
        assert (await post(own, {**CALL, "method": "ping"}, session)).status_code == 200
        assert (await post(other, {**CALL, "method": "ping"}, session)).status_code == 404
        assert (await post(other, body)).status_code == 200
        assert (await daemon.command("token", "revoke", f"one-{name[:20]}")).code == 0
        assert (await post(own, {**CALL, "method": "ping"}, session)).status_code == 401


async def test_nothing_of_the_sdk_is_imported_before_the_first_request():
    code = "import sys, pegasus.app.daemon; print(*[name for name in sys.modules if name.split('.')[0] in ('mcp', 'mcp_types')])"
    ran = await trio.run_process([sys.executable, "-c", code], capture_stdout=True)
    assert ran.stdout.strip() == b""
