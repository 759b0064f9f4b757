"""Requests that a proxy in front of the agent could read in another way: each is refused, and nothing behind it is served."""

from __future__ import annotations

import re

import pytest
import trio

from tests.blackbox.support import Daemon
from tests.blackbox.support.serving import standing
from tests.pegasus.test_http_framing import REFUSED

SETTINGS = {"models.default": "offline/stand-in", "http.enabled": True, "http.port": 0}
SOCKET = (
    b"Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
HANDSHAKES = {
    "bare LF": b"GET / HTTP/1.1\n" + SOCKET.replace(b"\r\n", b"\n") + b"\n",
    "one bare LF": b"GET / HTTP/1.1\r\n" + SOCKET + b"X: y\nZ: w\r\n\r\n",
    "a folded line": b"GET / HTTP/1.1\r\n" + SOCKET + b"X: a\r\n b\r\n\r\n",
    "length and chunks": b"GET / HTTP/1.1\r\n"
    + SOCKET
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a body": b"GET / HTTP/1.1\r\n" + SOCKET + b"Content-Length: 4\r\n\r\nabcd",
    "chunks": b"GET / HTTP/1.1\r\n" + SOCKET + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    yield from standing(Daemon(tmp_path_factory.mktemp("framing") / "home", SETTINGS), start=True)


async def answers(port, data):
    """Everything that comes until the server closes."""
    received = b""
    with trio.fail_after(20):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(data)
            try:
                async for part in stream:
                    received += part
            except trio.BrokenResourceError:  # a reset ends a connection, too
                pass
    return received


def statuses(received):
    """The status of each response."""
    return re.findall(rb"HTTP/1\.1 (\d{3})", received)


def with_rights(daemon, path="/api/status"):
    """A request that is answered with 200 wherever it is served."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {daemon.token}\r\n".encode()


@pytest.mark.parametrize("request_bytes", REFUSED.values(), ids=REFUSED)
async def test_nothing_behind_a_request_with_two_possible_ends_is_served(daemon, request_bytes):
    request_bytes = request_bytes.replace(b"Host: x", b"Host: localhost").replace(b"POST / ", b"POST /api/login ")
    hidden = with_rights(daemon) + b"Connection: close\r\n\r\n"
    port = int(daemon.at.http.rpartition(":")[2])
    assert (await answers(port, hidden)).startswith(b"HTTP/1.1 200")
    received = await answers(port, request_bytes + hidden)
    assert received.startswith(b"HTTP/1.1 400"), received
    assert statuses(received) == [b"400"]


@pytest.mark.parametrize("path", [b"/", b"/ws"])
@pytest.mark.parametrize("handshake", HANDSHAKES.values(), ids=HANDSHAKES)
async def test_a_handshake_with_two_possible_ends_becomes_no_websocket(daemon, handshake, path):
    """On the gateway's port (`/`) and on that of HTTP (`/ws`). What stands behind it would otherwise be read as frames."""
    port = daemon.port if path == b"/" else int(daemon.at.http.rpartition(":")[2])
    good = b"GET " + path + b" HTTP/1.1\r\n" + SOCKET + b"\r\n\x88\x80abcd"
    assert (await answers(port, good)).startswith(b"HTTP/1.1 101")
    frame = b"\x88\x80abcd\r\n\r\n"  # the line ends are for a server that takes it for a request
    received = await answers(port, handshake.replace(b"GET / ", b"GET " + path + b" ") + frame)
    assert received.startswith(b"HTTP/1.1 4"), received
    assert b"101" not in statuses(received)


@pytest.mark.parametrize("upgrade", ["h2c", "h2c, websocket", "HTTP/2.0"])
async def test_no_upgrade_leads_out_of_http_1(daemon, upgrade):
    extra = f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
    port = int(daemon.at.http.rpartition(":")[2])
    prior = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    received = await answers(port, with_rights(daemon, "/healthz") + extra.encode() + prior)
    first, *others = statuses(received)
    assert (first, {status[:1] for status in others}) == (b"200", {b"4"})  # the preface of HTTP/2 is no request
