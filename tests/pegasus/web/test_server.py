"""The server on bad days: slow and huge requests, clients that go or do not read, too many of them, crashes, stops."""

import json
import re
from contextlib import nullcontext

import pytest
import trio

from pegasus.settings import LiveValue
from pegasus.web import connection
from pegasus.web.config import HttpConfig
from tests.pegasus.web.world import HANDSHAKE, TOKEN, ask, exchange, read_all, world

HEAD = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"


async def test_errors_have_one_form():
    async with world() as there, there.owner() as client:
        for method, path, status, code in (
            ("GET", "/nothing", 404, "not_found"),
            ("GET", "/api/status/", 404, "not_found"),
            ("DELETE", "/api/status", 405, "method_not_allowed"),
            ("GET", "/mcp", 404, "not_found"),
            ("GET", "/a2a", 404, "not_found"),
            ("GET", "/%00%ff", 404, "not_found"),
            ("GET", "/ws", 426, "upgrade_required"),
        ):
            response = await client.request(method, path)
            assert (response.status_code, response.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/models", "Not Found; the base URL of clients of OpenAI's API ends with /v1"),
        ("/api/tags", "Not Found; the base URL of clients of OpenAI's API ends with /v1"),
        (
            "/v1/images/edits",
            "Not Found; there are /v1/models, /v1/chat/completions, /v1/responses, /v1/embeddings and /v1/audio/…",
        ),
        ("/nothing", "Not Found"),
    ],
)
async def test_a_client_with_another_base_url_is_told_which_one_is_meant(path, hint):
    async with world() as there, there.owner() as client:
        answer = (await client.get(path)).json()["error"]["message"]
    assert answer.endswith(f"{path}: {hint}")


async def test_every_response_forbids_what_a_page_does_not_need():
    async with world() as there, there.client() as client:
        for path in ("/", "/api/status", "/nothing", "/healthz"):
            headers = (await client.get(path)).headers
            policy = headers["content-security-policy"]
            for directive in ("default-src 'none'", "frame-ancestors 'none'", "form-action", "base-uri", "object-src"):
                assert directive in policy
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert "server" not in headers


async def test_readiness_follows_the_permanent_parts():
    health = {"ready": False, "down": ["journal"], "parked": []}
    async with world(health=lambda: health) as there, there.client() as client:
        assert (await client.get("/readyz")).status_code == 503
        health.update(ready=True, parked=["telegram"])
        response = await client.get("/readyz")
        assert (response.status_code, response.json()["parked"]) == (200, ["telegram"])


@pytest.mark.parametrize("method", ["refuse", "lack", "fail"])
async def test_a_method_that_fails_is_no_failure_of_the_server(method):
    from tests.pegasus.web.world import METHODS

    async with world(methods={"status": METHODS[method]}) as there, there.owner() as client:
        response = await client.get("/api/status")
        assert (response.status_code, response.json()["error"]["code"]) == {
            "refuse": (400, "bad_request"),
            "lack": (404, "not_found"),
            "fail": (500, "internal"),
        }[method]
        assert "secret detail" not in response.text


# ------------------------------------------------------------------ static files


async def test_files_of_the_page_are_known_by_their_content():
    async with world() as there, there.client() as client:
        first = await client.get("/")
        assert first.headers["content-type"] == "text/html; charset=utf-8"
        again = await client.get("/", headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert (await client.head("/")).content == b""
        script = await client.get("/static/js/main.js")
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        assert script.headers["content-encoding"] == "gzip"


@pytest.mark.parametrize(
    "path",
    [
        "../config.py",
        "..%2fconfig.py",
        "%2e%2e/config.py",
        "/etc/passwd",
        "..\\config.py",
        "%00index.html",
        "",
        ".",
        "a/../index.html",
    ],
)
async def test_no_path_leads_out_of_the_static_files(path):
    async with world() as there:
        status, body = await exchange(
            there, f"GET /static/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        assert status in (404, 400)
        assert b"import" not in body


# ------------------------------------------------------------------ bodies and heads


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"nul", b"\xff\xfe", b'{"token":"\\ud800"}', b"[" * 100_000, b'{"token":1e999}', b"9" * 5000],
)
async def test_a_body_that_is_no_json_object_is_400(body):
    async with world() as there, there.client() as client:
        assert (await client.post("/api/login", content=body)).status_code in (400, 401)


async def test_a_body_that_is_too_large_is_413_whether_it_says_so_or_not():
    async def pieces():
        for _ in range(20):
            yield b" " * 1000

    async with world(max_body_bytes=10_000) as there, there.client() as client:
        for content in (b" " * 20_000, pieces()):
            response = await client.post("/api/login", content=content)
            assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


async def test_a_stranger_may_not_send_as_much_as_a_client():
    async with world() as there, there.client() as stranger, there.owner() as owner:
        content = b" " * (5 << 20)
        assert (await stranger.post("/api/login", content=content)).status_code == 413
        assert (await owner.post("/api/messages", content=content)).status_code == 400


async def test_a_body_that_never_comes_is_408():
    async with world(pause_time=0.05) as there:
        status, body = await exchange(there, f"POST /api/login HTTP/1.1\r\n{HEAD}Content-Length: 10\r\n\r\n{{")
        assert (status, json.loads(body)["error"]["code"]) == (408, "too_slow")


async def test_a_head_that_never_ends_is_cut():
    async with world(head_time=0.1) as there, there.raw() as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: local")
        assert await read_all(stream) == b""


async def test_a_head_that_is_too_large_is_431():
    async with world() as there:
        status, _ = await exchange(there, f"GET / HTTP/1.1\r\nHost: localhost\r\nX: {'x' * 200_000}\r\n\r\n")
        assert status == 431


@pytest.mark.parametrize(
    "request_text",
    [
        "nonsense\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        f"POST /api/login HTTP/1.1\r\n{HEAD}Content-Length: 1\r\nContent-Length: 2\r\n\r\n{{",
        f"POST /api/login HTTP/1.1\r\n{HEAD}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        f"GET / HTTP/1.1\r\n{HEAD}X : y\r\n\r\n",
        f"GET / HTTP/1.1\r\n{HEAD}X: a\r\n b: c\r\nContent-Length: -1\r\n\r\n",
    ],
)
async def test_requests_that_two_servers_could_read_in_two_ways_are_refused(request_text):
    async with world() as there:
        status, body = await exchange(there, request_text)
        assert status in (400, 501)
        assert json.loads(body)["error"]["code"] == "bad_request"


async def test_a_request_with_two_possible_ends_is_400_and_the_last_of_its_connection():
    """What is hidden behind it would be answered with 200, which the same bytes on a connection of their own show."""
    async with world() as there:
        hidden = f"GET /api/status HTTP/1.1\r\n{HEAD}\r\n"
        status, _ = await exchange(there, hidden)
        assert status == 200
        both = f"POST /api/login HTTP/1.1\r\n{HEAD}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        async with there.raw() as stream:
            await stream.send_all((both + hidden).encode())
            answer = await read_all(stream)
        assert re.findall(rb"HTTP/1\.1 (\d{3})", answer) == [b"400"]


async def test_an_offer_to_speak_http_2_is_ignored():
    async with world() as there:
        upgrade = "Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
        status, body = await exchange(there, f"GET /healthz HTTP/1.1\r\nHost: localhost\r\n{upgrade}\r\n")
        assert (status, json.loads(body)) == (200, {"status": "ok"})
        status, _ = await exchange(there, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert status >= 400


async def test_a_websocket_handshake_for_another_path_is_a_plain_request():
    async with world() as there, there.raw() as stream:
        await stream.send_all(f"{HANDSHAKE}Host: localhost\r\n\r\n".replace("/ws", "/healthz").encode())
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")


async def test_several_requests_go_over_one_connection():
    async with world() as there, there.raw() as stream:
        one = f"GET /api/status HTTP/1.1\r\n{HEAD}\r\n"
        last = f"GET /healthz HTTP/1.1\r\n{HEAD}Connection: close\r\n\r\n"
        await stream.send_all((one + one + last).encode())
        assert (await read_all(stream)).count(b"HTTP/1.1 200") == 3


# ------------------------------------------------------------------ many clients, stops and crashes


async def test_silent_connections_keep_nobody_out():
    async with world(max_connections=5) as there, trio.open_nursery() as nursery:
        for _ in range(12):
            nursery.start_soon(hold, there)
        async with there.client() as client:
            with trio.fail_after(20):
                for _ in range(3):
                    assert (await client.get("/healthz")).status_code == 200
        nursery.cancel_scope.cancel()


async def hold(there):
    async with there.raw() as stream:
        await stream.receive_some()


async def test_the_work_for_a_client_that_has_gone_ends():
    has_begun, has_ended = trio.Event(), trio.Event()

    async def slow(caller, params):
        has_begun.set()
        try:
            await trio.sleep_forever()
        finally:
            has_ended.set()

    async with world(methods={"status": slow}) as there:
        async with there.raw() as stream:
            await stream.send_all(f"GET /api/status HTTP/1.1\r\n{HEAD}\r\n".encode())
            await has_begun.wait()
        with trio.fail_after(20):
            await has_ended.wait()


async def is_cut(stream):
    """Whether the other side has closed the connection; reads nothing."""
    try:
        await stream.send_all(b"x")
    except trio.BrokenResourceError:
        return True
    return False


async def test_a_client_that_does_not_read_is_cut():
    async def huge(caller, params):
        return {"text": "x" * 30_000_000}

    async with world(methods={"status": huge}, write_time=0.1) as there, there.raw() as stream:
        await stream.send_all(f"GET /api/status HTTP/1.1\r\n{HEAD}\r\n".encode())
        with trio.fail_after(20):
            while not await is_cut(stream):  # noqa: ASYNC110  nothing tells when the kernel's buffers are full
                await trio.sleep(0.02)


async def test_a_stop_waits_for_requests_under_way_and_not_for_idle_clients():
    async def slow(caller, params):
        has_begun.set()
        await may_end.wait()
        return {"done": True}

    has_begun, may_end = trio.Event(), trio.Event()
    async with world(methods={"status": slow}) as there, there.raw() as idle, there.owner() as client:
        await idle.send_all(b"GET /hea")

        async def stop():
            await has_begun.wait()
            async with trio.open_nursery() as stopping:
                stopping.start_soon(there.supervisor.stop_child, "http")
                assert await read_all(idle) == b""
                may_end.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop)
            assert (await client.get("/api/status")).json() == {"done": True}


async def test_a_restart_of_the_http_server_leaves_the_gateway_alone():
    async with world() as there, there.socket() as socket:
        await ask(socket, type="hello", token=TOKEN, channel={"type": "web", "channelId": "c1"})
        await there.supervisor.stop_child("http")
        await there.supervisor.restart_child("http")
        async with there.client() as client:
            assert (await client.get("/healthz")).status_code == 200
        assert there.supervisor.ref("gateway").alive
        gateway = next(info for info in there.supervisor.tree().children if info.name == "gateway")
        assert gateway.restarts == 0


async def test_a_short_body_that_nobody_reads_does_not_end_the_connection():
    async with world() as there:
        request = "POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
        last = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        async with there.raw() as stream:
            await stream.send_all((request + last).encode())
            answer = await read_all(stream)
        assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"404", b"200"]


async def test_a_short_body_that_comes_behind_its_refusal_does_not_end_the_connection():
    async with world() as there, there.raw() as stream:
        await stream.send_all(b"POST /api/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")
        answer = b""
        while b"no token" not in answer:
            answer += await stream.receive_some()
        await stream.send_all(b"hello" + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer += await read_all(stream)
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"401", b"200"]


async def test_a_body_is_asked_for_only_when_it_is_read():
    async with world() as there:
        head = "Host: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        async with there.raw() as stream:
            await stream.send_all(f"POST /nothing HTTP/1.1\r\n{head}".encode())
            assert re.findall(rb"HTTP/1.1 (\d+)", await read_all(stream)) == [b"404"]


async def test_an_answer_whose_length_is_known_is_one_write(monkeypatch):
    writes = []
    send_all = trio.SocketStream.send_all

    async def count(stream: trio.SocketStream, data: bytes) -> None:
        if bytes(data).startswith(b"HTTP/1.1"):
            writes.append(bytes(data))
        await send_all(stream, data)

    monkeypatch.setattr(trio.SocketStream, "send_all", count)
    async with world() as there:
        await exchange(there, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    [answer] = writes
    assert answer.endswith(b"}")


async def test_a_connection_ends_well_while_work_that_outlives_its_request_is_in_the_middle_of_a_write(monkeypatch):
    monkeypatch.setattr(connection, "failures_logged", lambda log: nullcontext())
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    client = await trio.open_tcp_stream(*listener.socket.getsockname())
    config = LiveValue(HttpConfig())

    async def answer(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        outside.start_soon(send, {"type": "http.response.body", "body": b"x" * 10_000_000})
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery, trio.open_nursery() as outside, listener, client:
        one = connection.HttpConnection(answer, config, trio.Event(), await listener.accept(), None, None, print)
        nursery.start_soon(one.run)
        await client.send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await client.receive_some(1)
        await client.send_eof()
        while await client.receive_some():
            pass
