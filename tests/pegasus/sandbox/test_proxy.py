"""The proxy of walled-in commands: what it lets through, and that nothing else does."""

import json
import os
import socket
import ssl
from contextlib import asynccontextmanager, suppress

import attrs
import pytest
import trio

from pegasus.sandbox import DialError, ProcessError, open_process, run_process
from pegasus.sandbox.proxy import MAX_CONNECTIONS, MAX_HEAD, ProxyOrder, serve_proxy
from pegasus.tools.web.addresses import AddressGuard, guarded_dial
from tests.pegasus.sandbox.processes import PYTHON, QUICK, Bell, guards


@asynccontextmanager
async def web_server(name="page"):
    """An HTTP server on loopback that answers with its name, and yields its port and the requests that it got."""
    heard = []

    async def answer(stream):
        async with stream:
            heard.append(bytes(await stream.receive_some(65536)))
            body = name.encode()
            await stream.send_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
            )

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, answer, [listener])
        yield listener.socket.getsockname()[1], heard
        nursery.cancel_scope.cancel()


# ------------------------------------------------------------------ the protocol


class Client:
    def __init__(self, port, order):
        self.port = port
        self.authorization = f"Proxy-Authorization: {order.authorization}\r\n".encode()

    async def __call__(self, head, *, authorized=True):
        """What the proxy sends back for a request."""
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            first, _, rest = head.partition(b"\r\n")
            await stream.send_all(first + b"\r\n" + (self.authorization if authorized else b"") + rest)
            with trio.fail_after(5):
                return b"".join([part async for part in stream])


@pytest.fixture
async def proxy(nursery):
    """Starts a proxy that connects with this function; returns a client of it."""

    async def start(dial, *, is_limited=False):
        daemon, guard = socket.socketpair()
        with socket.create_server(("127.0.0.1", 0)) as listener, guard:
            socket.send_fds(guard, [b"proxy"], [listener.fileno()])
            port = listener.getsockname()[1]
        order = ProxyOrder(is_limited=is_limited)

        async def serve(task_status):
            with daemon:
                async with serve_proxy(daemon, order, dial):
                    task_status.started()
                    await trio.sleep_forever()

        await nursery.start(serve)
        return Client(port, order)

    return start


async def to_loopback(host, port):
    if host == "refused.example":
        raise DialError("it is a private network")
    return await trio.open_tcp_stream("127.0.0.1", port)


async def test_a_request_is_passed_on_without_what_is_about_the_proxy(proxy):
    async with web_server() as (port, heard):
        client = await proxy(to_loopback)
        answer = await client(
            b"GET http://site.example:%d/a?b=c HTTP/1.1\r\nHost: site.example\r\nProxy-Connection: keep-alive\r\n\r\n"
            % port
        )
    assert answer.endswith(b"\r\n\r\npage")
    assert heard == [b"GET /a?b=c HTTP/1.1\r\nHost: site.example:%d\r\nConnection: close\r\n\r\n" % port]


async def test_the_host_of_a_request_is_that_of_its_address(proxy):
    """Another one could name a site behind the same server that was not decided about."""
    async with web_server() as (port, heard):
        client = await proxy(to_loopback)
        for line in (b"Host: other.example", b"hOST : other.example", b" Host: other.example"):
            await client(b"GET http://user:x@site.example:%d/ HTTP/1.1\r\n%s\r\n\r\n" % (port, line))
        assert b" 400 " in await client(
            b"GET http://site.example:%d/ HTTP/1.1\r\nX: y\nHost: other.example\r\n\r\n" % port
        )
    assert heard == [b"GET / HTTP/1.1\r\nHost: site.example:%d\r\nConnection: close\r\n\r\n" % port] * 3


async def test_connect_joins_both_sides(proxy):
    async with web_server() as (port, heard):
        client = await proxy(to_loopback)
        answer = await client(b"CONNECT site.example:%d HTTP/1.1\r\n\r\nanything" % port)
    assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK")
    assert heard == [b"anything"]


def greeting(name):
    """What a client of TLS sends first."""
    sent = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def in_records(hello, size):
    """The same greeting, spread over records of so many bytes."""
    body = hello[5:]
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(hello[:3] + len(part).to_bytes(2) + part for part in parts)


OTHER = [
    greeting("other.example"),
    in_records(greeting("other.example"), 20),
    b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
    b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n",
    b"\r\nGET / HTTP/1.1\r\nhOST :other.example:80\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: site.example\r\nHost: other.example\r\n\r\n",
    b"GET / HTTP/1.1\nHost: other.example\n\n\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]
"""Beginnings of connections that are meant for another host than the tunnel to site.example."""


@pytest.mark.parametrize("first", OTHER)
async def test_where_hosts_are_listed_a_tunnel_leads_to_no_other_site_of_the_server(proxy, first):
    async with web_server() as (port, heard):
        client = await proxy(to_loopback, is_limited=True)
        answer = await client(b"CONNECT site.example:%d HTTP/1.1\r\n\r\n" % port + first)
        assert b"page" not in answer
        assert answer.count(b"\r\n\r\n") > 1 or answer.endswith(b"\x15\x03\x01\x00\x02\x02\x70")
    assert b"".join(heard) == b""


@pytest.mark.parametrize(
    "first",
    [
        greeting("site.example"),
        greeting("SITE.example"),
        in_records(greeting("site.example"), 7),
        greeting("127.0.0.1"),  # such a greeting names no host
        b"GET / HTTP/1.1\r\nHost: Site.Example:8080\r\n\r\n",
        b"SSH-2.0-client\r\n",
    ],
)
async def test_where_hosts_are_listed_a_tunnel_to_one_of_them_leads_there(proxy, first):
    async with web_server() as (port, heard):
        client = await proxy(to_loopback, is_limited=True)
        assert (await client(b"CONNECT site.example:%d HTTP/1.1\r\n\r\n" % port + first)).endswith(b"page")
    assert heard == [first]


async def test_where_hosts_are_listed_nothing_follows_a_plain_request_but_its_body(proxy):
    other = b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n"
    async with web_server() as (port, heard):
        client = await proxy(to_loopback, is_limited=True)
        start = b"POST http://site.example:%d/ HTTP/1.1\r\n" % port
        await client(start + b"Content-Length: 4\r\n\r\nbody" + other)
        await client(start + b"\r\n" + other)
        assert b" 400 " in await client(start + b"Content-Length: 4\r\nContent-Length: 40\r\n\r\nbody" + other)
        assert b" 400 " in await client(start + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + other)
    assert b"other.example" not in b"".join(heard)


async def test_a_wrong_password_reaches_nothing(proxy):
    async with web_server() as (port, heard):
        client = await proxy(to_loopback)
        assert b" 407 " in await client(b"CONNECT site.example:%d HTTP/1.1\r\n\r\n" % port, authorized=False)
        client.authorization = b"Proxy-Authorization: Basic Y29tbWFuZDp4\r\n"
        assert b" 407 " in await client(b"CONNECT site.example:%d HTTP/1.1\r\n\r\n" % port)
    assert heard == []


async def test_a_password_that_is_no_ascii_ends_nothing_but_its_connection(proxy):
    """The command chooses what it sends, and must not be able to end the task that serves its proxy."""
    async with web_server() as (port, _):
        client = await proxy(to_loopback)
        request = b"GET http://site.example:%d/ HTTP/1.1\r\nProxy-Authorization: Basic \xe9\r\n\r\n" % port
        assert b" 407 " in await client(request, authorized=False)
        assert b" 200 " in await client(b"GET http://site.example:%d/ HTTP/1.1\r\n\r\n" % port)


async def test_many_connections_wait_outside(proxy):
    """They cost the daemon no descriptors, and those before them go on."""
    client = await proxy(to_loopback)
    before = len(os.listdir("/proc/self/fd"))
    async with web_server() as (port, _), trio.open_nursery() as nursery:
        silent = [await trio.open_tcp_stream("127.0.0.1", client.port) for _ in range(MAX_CONNECTIONS + 20)]
        await trio.sleep(0.05)  # real connections of this process take real time
        assert len(os.listdir("/proc/self/fd")) - before - len(silent) <= MAX_CONNECTIONS + 3
        for stream in silent:
            await stream.aclose()
        assert (await client(b"CONNECT site.example:%d HTTP/1.1\r\n\r\nx" % port)).endswith(b"page")
        nursery.cancel_scope.cancel()


async def test_a_refused_host_is_told_why(proxy):
    client = await proxy(to_loopback)
    answer = await client(b"CONNECT refused.example:443 HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 Forbidden")
    assert b"it is a private network" in answer


@pytest.mark.parametrize(
    "head",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET https://a.example/ HTTP/1.1\r\n\r\n",
        b"GET ftp://a.example/ HTTP/1.1\r\n\r\n",
        b"CONNECT a.example HTTP/1.1\r\n\r\n",
        b"CONNECT a.example:99999999 HTTP/1.1\r\n\r\n",
        b"CONNECT [::1 HTTP/1.1\r\n\r\n",
        b"GET http://:80/ HTTP/1.1\r\n\r\n",
        b"\x00\xff\xfe x HTTP/1.1\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nX: " + b"x" * (MAX_HEAD + 10),
    ],
)
async def test_what_makes_no_sense_is_refused(proxy, head):
    client = await proxy(to_loopback)
    assert (await client(head)).startswith(b"HTTP/1.1 400 Bad Request")


async def test_the_dialer_refuses_what_the_web_tools_refuse():
    dial = guarded_dial(AddressGuard())
    for host in ("127.0.0.1", "localhost", "169.254.169.254", "::1", "2130706433", "10.0.0.1"):
        with pytest.raises(DialError, match=r"is refused: .*sandbox\.allowed_hosts|write an IPv4"):
            await dial(host, 80)
    async with web_server() as (port, _), await guarded_dial(AddressGuard(["127.0.0.1"]))("127.0.0.1", port) as stream:
        assert isinstance(stream, trio.SocketStream)
    with pytest.raises(DialError, match="cannot be reached"):
        await guarded_dial(AddressGuard(["127.0.0.1"]))("127.0.0.1", 1)


# ------------------------------------------------------------------ within walls


@pytest.fixture
def sandbox(each_kind):
    return attrs.evolve(each_kind, network="all", dial=to_loopback)


FETCH = """
import sys, urllib.request as r
try: print(r.urlopen(sys.argv[1], timeout=5).read().decode())
except OSError as e: print('E', e)
"""


async def test_a_program_that_uses_the_proxy_has_a_network(run):
    async with web_server() as (port, _):
        found = await run([PYTHON, "-c", FETCH, f"http://site.example:{port}/"])
        assert found.stdout == "page\n", found
        found = await run([PYTHON, "-c", FETCH, f"http://refused.example:{port}/"])
        assert found.stdout == "E HTTP Error 403: Forbidden\n"


async def test_a_program_that_does_not_use_it_has_none(run):
    around = "import os; [os.environ.pop(n) for n in list(os.environ) if 'proxy' in n.lower()]\n" + FETCH
    async with web_server() as (port, heard):
        found = await run([PYTHON, "-c", around, f"http://127.0.0.1:{port}/"])
        assert found.stdout.startswith("E ")
    assert heard == []


SAME_PORT = """
import os, socket
port = int(os.environ["HTTP_PROXY"].rpartition(":")[2])
open("port", "w").write(str(port))
open("up").close()
for address in ("127.0.0.1", "127.0.0.2"):
    try: print("reached", socket.create_connection((address, port), 2) and address)
    except OSError: print("refused", address)
"""


async def test_nothing_else_is_reached_at_the_port_of_the_proxy(run, home):
    """Landlock's rules are about ports and not about addresses; a server anywhere may listen at the same one."""
    workspace = home / "workspace"
    port = Bell(workspace / "port")
    os.mkfifo(workspace / "up")

    async def serve():
        number = int(await port.wait())
        with socket.create_server(("127.0.0.2", number)), os.fdopen(os.open(workspace / "up", os.O_RDWR), "wb"):
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        found = await run([PYTHON, "-c", SAME_PORT])
        nursery.cancel_scope.cancel()
    assert found.stdout.splitlines() == ["reached 127.0.0.1", "refused 127.0.0.2"], found


async def test_an_own_server_is_reached_without_it(run):
    server = f"import http.server, threading, urllib.request as r, sys\n{SERVER}"
    assert (await run([PYTHON, "-c", server])).stdout == "200\n"


SERVER = """
s = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=s.serve_forever, daemon=True).start()
print(r.urlopen(f"http://localhost:{s.server_port}/").status)
"""


async def test_without_a_dialer_or_with_old_landlock_there_is_no_proxy(run, sandbox):
    tell = [PYTHON, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    assert "HTTP_PROXY" in json.loads((await run(tell)).stdout)
    assert "HTTP_PROXY" not in json.loads((await run(tell, sandbox=attrs.evolve(sandbox, dial=None))).stdout)
    assert "HTTP_PROXY" not in json.loads((await run(tell, sandbox=attrs.evolve(sandbox, network="none"))).stdout)
    assert not attrs.evolve(sandbox, bubblewrap=(), landlock=3).has_network


async def test_errors_of_the_caller_leave_as_they_are(home, sandbox):
    with pytest.raises(ZeroDivisionError):
        async with open_process("sleep 100", cwd=home, env={}, limits=QUICK, sandbox=sandbox):
            1 / 0  # noqa: B018
    with pytest.raises(ProcessError, match="cannot run nothing-like-this"):
        await run_process(["nothing-like-this"], cwd=home / "workspace", env={}, sandbox=sandbox)


async def test_a_cancel_ends_the_command_and_its_connections(home, sandbox):
    with trio.move_on_after(1.0) as scope:
        await run_process("sleep 100", cwd=home / "workspace", env={}, limits=QUICK, sandbox=sandbox, terminal=True)
    assert scope.cancelled_caught
    assert guards() == []


async def test_no_descriptor_is_left(home, run):
    await run("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await run("true")
    assert len(os.listdir("/proc/self/fd")) == before
