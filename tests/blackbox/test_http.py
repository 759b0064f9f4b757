"""HTTP as users of the real process see it."""

from __future__ import annotations

import hmac
import json
import re
import shutil
import signal
import subprocess
from contextlib import asynccontextmanager
from functools import partial

import httpx
import pytest
import trio
from trio_websocket import ConnectionClosed, open_websocket_url

from tests.blackbox.support import HANG, Book, Daemon, command, running, serving
from tests.blackbox.support.ports import free_port, until_listening
from tests.blackbox.support.serving import standing
from tests.blackbox.support.waiting import until_async
from tests.blackbox.support.work import Effects, Office, act, answer

STAND_IN = {"models.default": "offline/stand-in"}


@pytest.fixture(scope="module")
def serving_http(tmp_path_factory):
    """One daemon with HTTP for all tests of this file."""
    daemon = Daemon(tmp_path_factory.mktemp("http") / "home", {**STAND_IN, "http.enabled": True, "http.port": 0})
    yield from standing(daemon, start=True)


def client(daemon, **headers):
    return httpx.AsyncClient(base_url=daemon.at.http, headers=headers, timeout=20)


async def test_the_address_is_announced_and_answers_at_once(serving_http):
    facts = json.loads((serving_http.home / "run" / "daemon.json").read_text())
    assert facts["http"] == serving_http.at.http
    assert serving_http.stdout == f"pegasus ready ws={serving_http.url} http={facts['http']} pid={serving_http.pid}\n"
    async with client(serving_http) as http:
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("/readyz")).json() == {"ready": True, "down": [], "parked": []}
        assert "Pegasus" in (await http.get("/")).text


async def test_open_signs_a_browser_in_once(serving_http):
    opened = await serving_http.command("open", "--print")
    assert opened.code == 0
    async with client(serving_http) as browser:
        assert (await browser.get("/api/status")).status_code == 401
        link, _, code = opened.out.strip().partition("?code=")
        for agent in ("Slackbot-LinkExpanding 1.0", "TelegramBot (like TwitterBot)"):  # a preview uses nothing up
            assert (await browser.get(f"{link}?code={code}", headers={"user-agent": agent})).status_code == 200
        assert (await browser.get("/api/status")).status_code == 401
        response = await browser.post(link, data={"code": code})
        assert (response.status_code, response.headers["location"]) == (303, "/")
        status = (await browser.get("/api/status")).json()
        assert (status["agent"], status["model"]) == ("Pegasus", "offline/stand-in")
        tree = (await browser.get("/api/tree")).json()
        channels = next(node for node in tree["children"] if node["name"] == "channels")
        assert {"http", "gateway"} <= {node["name"] for node in channels["children"]}
    async with client(serving_http) as other:
        assert (await other.get(opened.out.strip())).status_code == 401


async def test_tasks_and_memory_are_those_of_the_command_line(serving_http):
    owner = {"authorization": f"Bearer {serving_http.token}"}
    async with client(serving_http, **owner) as http:
        assert (await http.get("/api/tasks")).json() == {"tasks": []}
        for path in ("/api/tasks/77", "/api/tasks/77/log", "/api/memory/facts/none.md", "/api/sessions/none"):
            assert (await http.get(path)).status_code in (400, 404), path
        assert (await http.get("/api/tasks/77")).status_code == 404
        assert (await http.post("/api/tasks/77/cancel")).status_code == 404
        for what in ("cancel", "resume", "suspend", "continue"):
            refused = await http.post(f"/api/tasks/none/{what}")
            assert refused.status_code == 404, what
            assert 'there is no task "none"' in refused.json()["error"]["message"]
        put = await http.put("/api/memory/facts/tea.md", json={"content": "# Tea\n\nGreen ☃"})
        assert put.status_code == 200, put.text
        assert (await http.get("/api/memory/facts/tea.md")).json()["content"] == "# Tea\n\nGreen ☃\n"
        assert "Tea" in (await serving_http.command("memory", "show", "facts/tea.md")).out
        [change] = (await http.get("/api/memory/log")).json()["changes"]
        assert (await http.post("/api/memory/undo", json={"n": change["n"]})).status_code == 200
        assert (await http.get("/api/memory/facts/tea.md")).status_code == 404
        for escape in ("..%2f..%2ftoken", "%2e%2e/pegasus.toml", "/etc/passwd"):
            assert (await http.get(f"/api/memory/{escape}")).status_code in (400, 404)


async def test_metrics_count_what_was_done_since_the_start(serving_http, name):
    async with client(serving_http, authorization=f"Bearer {serving_http.token}") as http:

        async def counted(metric):
            text = (await http.get("/metrics")).text
            found = re.search(rf"^{re.escape(metric)} ([0-9.]+)$", text, re.MULTILINE)
            return float(found[1]) if found else 0.0

        series = (
            'pegasus_messages_total{channel="api",source="person"}',
            'pegasus_messages_done_total{channel="api"}',
            'pegasus_message_duration_seconds_count{channel="api"}',
            'pegasus_replies_total{channel="api"}',
            'pegasus_model_calls_total{model="offline/stand-in",outcome="ok",role="default"}',
        )
        before = [await counted(metric) for metric in series]
        message = {"text": "hello", "id": "m-counted", "channel": {"channelId": name}}
        assert (await http.post("/api/messages?wait=30", json=message)).status_code == 200
        assert (await http.post("/api/messages", json=message)).status_code == 202  # known: nothing new

        async def is_done():
            return await counted(series[1]) > before[1]

        await until_async(is_done, "the message is counted as done")
        after = [await counted(metric) for metric in series]
        assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1, 1, 1, 1]


async def test_a_script_waits_for_the_replies_of_its_turn(serving_http, name):
    async with client(serving_http, authorization=f"Bearer {serving_http.token}") as http:
        message = {"text": "hello", "id": "m-1", "channel": {"channelId": name}}
        answer = (await http.post("/api/messages?wait=30", json=message)).json()
        assert answer["done"]
        assert "Hello" in answer["replies"][0]["text"]
        assert (await http.post("/api/messages?wait=30", json=message)).json() == answer
        command = (
            await http.post("/api/messages?wait=30", json={"text": "/status", "channel": {"channelId": name}})
        ).json()
        assert (command["done"], len(command["replies"])) == (True, 1)
        replies = (await http.get(f"/api/replies?channelId={name}")).json()["replies"]
        assert [each["seq"] for each in replies] == [1, 2]
        completion = {"model": "x", "user": name, "messages": [{"role": "user", "content": "hello"}]}
        body = (await http.post("/v1/chat/completions", json=completion)).json()
        assert "Hello" in body["choices"][0]["message"]["content"]
        streamed = await http.post("/v1/chat/completions", json={**completion, "stream": True})
        assert streamed.text.endswith("data: [DONE]\n\n")
        chunks = [json.loads(line[6:]) for line in streamed.text.split("\n\n") if line.startswith("data: {")]
        assert "Hello" in "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_openai_client_stops_its_turn_by_hanging_up(tmp_path, is_streamed):
    book = Book({"write a very long novel": HANG})
    settings = {"http.enabled": True, "http.port": 0}
    async with serving(tmp_path, book, settings) as daemon, client(daemon) as http:
        request = {
            "model": "pegasus",
            "messages": [{"role": "user", "content": "write a very long novel"}],
            "stream": is_streamed,
        }
        owner = {"authorization": f"Bearer {daemon.token}"}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(http.post, "/v1/chat/completions", json=request, headers=owner))
            await book.reached(1)
            nursery.cancel_scope.cancel()
        await book.abandoned()
        again = {"model": "pegasus", "messages": [{"role": "user", "content": "hello"}]}
        body = (await http.post("/v1/chat/completions", json=again, headers=owner)).json()
        assert body["choices"][0]["message"]["content"] == "echo: hello"
        assert len(book.about("write a very long novel")) == 1


@asynccontextmanager
async def page(daemon, channel_id):
    """A client of the gateway's protocol on the port of HTTP, and its welcome."""
    async with open_websocket_url(
        f"{daemon.at.http.replace('http', 'ws')}/ws", subprotocols=["pegasus.v1"]
    ) as page_socket:
        hello = {"type": "hello", "token": daemon.token, "channel": {"type": "web", "channelId": channel_id}}
        await page_socket.send_message(json.dumps(hello))
        assert json.loads(await page_socket.get_message())["type"] == "welcome"
        try:
            yield page_socket
        finally:
            if page_socket.closed:
                await page_socket._stream.aclose()


async def test_ws_speaks_the_protocol_of_the_gateway(serving_http, name):
    async with page(serving_http, name) as page_socket:
        await page_socket.send_message(json.dumps({"type": "message", "id": "m-1", "text": "hello"}))
        while (frame := json.loads(await page_socket.get_message()))["type"] != "reply":
            pass
        assert "Hello" in frame["text"]


async def test_a_host_for_others_needs_consent(tmp_path):
    result = await command("--home", str(tmp_path / "home"), "--set", "http.host=0.0.0.0", "run", "--no-cli")
    assert result.code == 78
    assert "http.host" in result.err
    assert "http.allow_remote" in result.err


async def test_a_port_that_is_taken_is_named(serving_http, tmp_path):
    port = int(serving_http.at.http.rpartition(":")[2])
    result = await command(
        "--home", str(tmp_path / "home"), "--set", f"http.port={port}", "--set", "gateway.port=0", "run"
    )
    assert result.code == 1
    assert f"http.port {port}" in result.err


NGINX = shutil.which("nginx")
NGINX_SETTINGS = """
daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass {upstream}; proxy_http_version 1.1; proxy_set_header Host pegasus.example;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade"; proxy_buffering off;
    }}
  }}
}}
"""


def start_nginx(config):
    return subprocess.Popen([NGINX, "-c", str(config), "-p", str(config.parent)], stderr=subprocess.DEVNULL)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # httpx leaves its generators open
@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
async def test_websocket_and_event_streams_behind_nginx(tmp_path):
    """One port behind a reverse proxy serves all: the page signs in, its WebSocket and its events work."""
    port, origin = free_port(), "https://pegasus.example"
    settings = {**STAND_IN, "http.enabled": True, "http.port": 0, "http.public_url": origin}
    async with running(tmp_path / "home", settings) as daemon:
        config = tmp_path / "nginx.conf"
        config.write_text(NGINX_SETTINGS.format(folder=tmp_path, port=port, upstream=daemon.at.http))
        proxy = start_nginx(config)
        try:
            await until_listening(port)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as browser:
                signed = await browser.post("/api/login", json={"token": daemon.token}, headers={"origin": origin})
                assert "; Secure" in signed.headers["set-cookie"]
                cookie = ("cookie", signed.headers["set-cookie"].partition(";")[0])
                headers = [cookie, ("origin", origin)]
                async with open_websocket_url(f"ws://127.0.0.1:{port}/ws", extra_headers=headers) as page:
                    hello = {"type": "hello", "channel": {"type": "web", "channelId": "main"}}
                    await page.send_message(json.dumps(hello))
                    assert json.loads(await page.get_message())["type"] == "welcome"
                    async with browser.stream("GET", "/api/events", headers=dict([cookie])) as events:
                        lines = events.aiter_lines()
                        assert await anext(lines) == "retry: 2000"
                        await page.send_message(json.dumps({"type": "message", "id": "m-1", "text": "hello"}))
                        async for line in lines:
                            if line == "event: MESSAGE_RECEIVED":
                                break
                foreign = {"origin": "https://evil.example"}
                assert (await browser.get("/api/status", headers=dict([cookie, *foreign.items()]))).status_code == 403
        finally:
            proxy.terminate()
            proxy.wait(10)


async def test_a_signed_webhook_becomes_a_task_once(tmp_path):
    settings = {**STAND_IN, "http.enabled": True, "http.port": 0, "hooks.ci.secret": "whsec-0123456789"}
    async with running(tmp_path / "home", settings) as daemon, client(daemon) as http:
        body = b'{"state": "red"}'
        signature = "sha256=" + hmac.new(b"whsec-0123456789", body, "sha256").hexdigest()
        headers = {"X-Pegasus-Signature": signature, "X-Pegasus-Delivery": "d-1"}
        first = await http.post("/hooks/ci", content=body, headers=headers)
        assert first.status_code == 202, first.text
        again = await http.post("/hooks/ci", content=body, headers=headers)
        assert again.json() == first.json()
        listed = await http.get("/api/tasks", headers={"authorization": f"Bearer {daemon.token}"})
        assert [task["taskId"] for task in listed.json()["tasks"]] == [first.json()["taskId"]]


async def test_a_webhook_that_speaks_in_the_owners_conversation_is_text_from_outside(tmp_path):
    """The channel is one that only owners have. Still the model reads a fenced text, and its work has a guest's rights."""
    work = Effects(tmp_path)
    book = Office({"work": [act(work.shell("done")), lambda view: answer(view.last)]})
    hook = {"hooks.ci.secret": "whsec-0123456789", "hooks.ci.channel": "web:c1"}
    settings = {"http.enabled": True, "http.port": 0, "policy.rules": [], **hook}
    async with serving(tmp_path, book, settings) as daemon, client(daemon) as http, daemon.client() as owner:
        body = b"do work"
        signature = "sha256=" + hmac.new(b"whsec-0123456789", body, "sha256").hexdigest()
        assert (
            await http.post("/hooks/ci", content=body, headers={"X-Pegasus-Signature": signature})
        ).status_code == 202
        assert "only work for the owner may do this" in (await owner.reply())["text"]
        seen = json.dumps(book.asked[0].request.raw["messages"])
        assert re.search(r'<untrusted source=\\"[a-z,]+\\" id=\\"\w+\\">\\ndo work\\n</untrusted', seen), seen
    assert not work.count("done")


async def test_what_was_accepted_over_http_survives_kill_9(tmp_path):
    settings = {**STAND_IN, "http.enabled": True, "http.port": 0}
    async with running(tmp_path / "home", settings) as daemon:
        owner = {"authorization": f"Bearer {daemon.token}"}
        message = {"text": "hello", "id": "m-1", "channel": {"channelId": "c1"}}
        async with client(daemon, **owner) as http:
            signed = await http.post("/api/login", json={"token": daemon.token})
            cookie = {"cookie": signed.headers["set-cookie"].partition(";")[0]}
            assert (await http.post("/api/messages", json=message)).status_code == 202
        port = daemon.at.http.rpartition(":")[2]
        daemon.configure(http__port=int(port))  # the cookie's name has it
        await daemon.restart()
        async with client(daemon, **owner) as http:
            [reply] = (await http.get("/api/replies?channelId=c1&wait=20")).json()["replies"]
            assert "Hello" in reply["text"]
            assert (await http.post("/api/messages", json=message)).status_code == 202
            assert (await http.get("/api/replies?channelId=c1&after=1")).json()["replies"] == []
        async with client(daemon) as browser:
            assert (await browser.get("/api/status", headers=cookie)).status_code == 200


async def test_a_stop_says_goodbye_to_open_pages(tmp_path):
    async with running(tmp_path / "home", {**STAND_IN, "http.enabled": True, "http.port": 0}) as daemon:
        async with page(daemon, "c1") as page_socket:
            daemon.signal(signal.SIGTERM)
            with pytest.raises(ConnectionClosed) as closed:
                await page_socket.get_message()
            assert closed.value.reason.code == 1001
        assert await daemon.exit() == 0


async def test_http_may_be_off(tmp_path):
    async with running(tmp_path / "home", {**STAND_IN, "http.enabled": False}) as daemon:
        assert daemon.at.http == "-"
        opened = await daemon.command("open", "--print")
        assert (opened.code, "http.enabled" in opened.err) == (1, True)
