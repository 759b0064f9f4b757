"""The way of walled-in commands to the network: an HTTP proxy of their own, which decides about each connection.

A command within walls has no network. If the settings allow one, its guard opens a listening socket where the command can
reach it (on the loopback of its network namespace, or on the one port that Landlock lets it connect to) and passes it to the
daemon. The daemon accepts connections there, and makes each onward connection itself, with a function that checks addresses
(`Dial`). So a command reaches what the web tools may reach and nothing else, whatever it does with names and addresses.

The proxy speaks what programs expect of one: `CONNECT host:port` for encrypted connections, and requests with a whole
`http://` address. It wants a password, which is in the variables that the command gets, because the loopback of Landlock is
everybody's.

It runs as long as its command, in the task that runs that. A program that does not use HTTP_PROXY has no network.
"""

from __future__ import annotations

import array
import re
import secrets
import socket
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import attrs
import trio

from pegasus.sandbox.tunnel_names import MOST_BYTES, named_host

Dial: TypeAlias = Callable[[str, int], Awaitable[trio.abc.Stream]]
"""Connects to a host and port. Raises DialError if that is not allowed or not possible."""

MAX_HEAD: Final = 64 * 1024
"""Bytes of the beginning of a request, up to its empty line."""
MAX_CONNECTIONS: Final = 32
"""Connections of one command at the same time; more wait. Each costs the daemon two descriptors."""
HEAD_SECONDS: Final = 30.0
"""Seconds that a client has for the beginning of a request."""
_PIECE: Final = 64 * 1024
"""Bytes that are read at once, of the beginning of a request."""
_PAUSE: Final = 0.1
"""Seconds until it is tried again to accept a connection after that has failed."""
_USER: Final = "command"
"""Name that goes with the password. It says nothing."""
_NOT_PASSED_ON: Final = ("proxy-authorization", "proxy-connection", "connection", "keep-alive", "host")
"""Headers that are about the connection to the proxy, and the host, which is that of the address (RFC 9112, section 3.2.2): another
one could name a site behind the same server that was not decided about."""
_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
"""Variables by which programs find a proxy."""
_UNRECOGNIZED_NAME: Final = b"\x15\x03\x01\x00\x02\x02\x70"
"""Alert of TLS for a name that is not served (RFC 6066, section 3)."""
_OTHER_HOST: Final = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nX-Refused: the request names another host than the tunnel\r\n"
    b"Connection: close\r\n\r\n"
)
"""The same for a request of HTTP."""
_OWN_HOSTS: Final = "localhost,127.0.0.1,::1"
"""Hosts that a command reaches without the proxy: itself."""


class DialError(Exception):
    """A connection that is refused or failed. The text is for the program that wanted it, and for the model.

    Example::

        async def dial(host: str, port: int) -> trio.abc.Stream:
            raise DialError(f"{host} is not allowed")   # the program gets status 403 with this text
    """


class _BadRequest(Exception):
    """A request that makes no sense."""


@attrs.frozen(eq=False, repr=False)
class ProxyOrder:
    """The proxy of one command, as its guard has to know it. Each command has a password of its own.

    Example::

        order = ProxyOrder()
        order.as_dict()["HTTP_PROXY"]   # "http://command:<password>@127.0.0.1:{port}"; the guard fills in the port
    """

    secret: str = attrs.field(factory=lambda: secrets.token_urlsafe(16), repr=False)
    """Password of the proxy."""
    is_limited: bool = False
    """Only some hosts are reached, so a connection must be meant for the one that was decided about."""

    def as_dict(self) -> dict[str, str]:
        """Return the order for the guard: variables of the command, in which `{port}` stands for the port that it has opened."""
        url = f"http://{_USER}:{self.secret}@127.0.0.1:{{port}}"
        own = {"NO_PROXY": _OWN_HOSTS, "no_proxy": _OWN_HOSTS, "NODE_USE_ENV_PROXY": "1"}
        return dict.fromkeys(_VARIABLES, url) | own

    @property
    def authorization(self) -> str:
        """Return the value of the header that a client has to send."""
        return "Basic " + b64encode(f"{_USER}:{self.secret}".encode()).decode()


@asynccontextmanager
async def serve_proxy(conduit: socket.socket, order: ProxyOrder, dial: Dial) -> AsyncIterator[None]:
    """Serve the proxy of one command while the block runs. conduit: the socket over which its guard has sent the listening one.

    Leaving the block ends all its connections. An exception of the block leaves as it is.

    The guard sends the socket before the command runs, so the command finds its proxy from its first moment on.
    """
    listener = await _receive_listener(conduit)
    try:
        async with listener, trio.open_nursery() as nursery:
            nursery.start_soon(_accept_all, listener, order, dial)
            yield
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


async def _accept_all(listener: trio.SocketListener, order: ProxyOrder, dial: Dial) -> None:
    """Serve connections, MAX_CONNECTIONS at the same time. Others wait in the kernel, where they cost the daemon no descriptor."""
    room = trio.Semaphore(MAX_CONNECTIONS)

    async def serve(stream: trio.SocketStream) -> None:
        """Serve one connection. A fault of either side ends only this one."""
        try:
            async with stream:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await _Exchange(stream, order, dial).run()
        finally:
            room.release()

    async with trio.open_nursery() as nursery:
        while True:
            # Before accepting: what waits in the kernel costs the daemon nothing.
            await room.acquire()
            try:
                nursery.start_soon(serve, await listener.accept())
            except OSError:  # there is no descriptor left for it
                room.release()
                await trio.sleep(_PAUSE)


async def _receive_listener(conduit: socket.socket) -> trio.SocketListener:
    """Return the listening socket that a guard has sent. Raises OSError if it has sent none."""
    stream = trio.socket.from_stdlib_socket(conduit)
    descriptors = array.array("i")
    _, ancillary, _, _ = await stream.recvmsg(16, socket.CMSG_LEN(descriptors.itemsize))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            # Only the first descriptor is taken; there was room for no other.
            descriptors.frombytes(data[: descriptors.itemsize])
    if not descriptors:
        raise OSError("the guard of the command has opened no proxy")
    return trio.SocketListener(trio.socket.from_stdlib_socket(socket.socket(fileno=descriptors[0])))


class _Exchange:
    """One connection to the proxy: one request, and what follows it in both directions.

    Nothing behind the beginning is understood or changed. So everything passes that has one connection: TLS,
    WebSockets, answers without end.
    """

    def __init__(self, client: trio.SocketStream, order: ProxyOrder, dial: Dial) -> None:
        self._client = client
        self._order = order
        self._dial = dial

    async def run(self) -> None:
        """Answer the request. Returns when both sides have ended."""
        try:
            with trio.fail_after(HEAD_SECONDS):
                head, rest = await self._read_head()
            method, target, headers = _parse_head(head)
            # In constant time, so that the password cannot be guessed letter by letter.
            given = headers.get("proxy-authorization", "").encode()
            if not secrets.compare_digest(given, self._order.authorization.encode()):
                await self._refuse(
                    407, "Proxy Authentication Required", "the password of the proxy is missing or wrong"
                )
                return
            host, port, first = _destination(method, target, head)
            length = _length_of_body(head) if first and self._order.is_limited else None
            upstream = await self._dial(host, port)
        # A refusal is an answer, so the program can report it. A connection that is only closed would look like an
        # outage.
        except (_BadRequest, trio.TooSlowError) as error:
            await self._refuse(400, "Bad Request", str(error) or "the request is incomplete")
        except DialError as error:
            await self._refuse(403, "Forbidden", str(error))
        else:
            async with upstream:
                # A plain request goes on to the server. After CONNECT the client waits for a yes before it begins with
                # TLS.
                if first:
                    await upstream.send_all(first)
                    await self._join(upstream, partial(self._pass_body, rest, length))
                else:
                    await self._client.send_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    await self._join(upstream, partial(self._pass_tunnel, rest, host))

    async def _read_head(self) -> tuple[bytes, bytes]:
        """Return the request up to its empty line, and what came behind it."""
        data = bytearray()
        while (end := data.find(b"\r\n\r\n")) < 0:
            if len(data) > MAX_HEAD:
                raise _BadRequest(f"the beginning of the request is longer than {MAX_HEAD} bytes")
            part = await self._client.receive_some(_PIECE)
            if not part:
                raise _BadRequest("the request is incomplete")
            data += part
        return bytes(data[: end + 2]), bytes(data[end + 4 :])

    async def _join(self, upstream: trio.abc.Stream, send: Callable[[trio.abc.Stream], Awaitable[bool]]) -> None:
        """Pass on what both sides send, until both have ended. send: passes on what the client sends; False ends both."""

        async def to_server() -> None:
            if not await send(upstream):
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            # The client may end its sending first and wait for the answer, so only the end of the answer ends both.
            nursery.start_soon(to_server)
            await _pass_on(upstream, self._client)
            nursery.cancel_scope.cancel()  # a client that goes on sending after the answer has ended talks to nobody

    async def _pass_body(self, rest: bytes, length: int | None, upstream: trio.abc.Stream) -> bool:
        """Send the server what follows a plain request: its body, and where only some hosts are reached nothing behind that.

        rest: what was read of it already. length: bytes of the body, None if they are not known. Another request could be meant for
        another site of the same server.
        """
        if not self._order.is_limited or length is None:
            return await _pass_on(self._client, upstream, rest)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while True:
                part, length = rest[:length], length - len(rest[:length])
                if part:
                    await upstream.send_all(part)
                if not length:
                    return True
                if not (rest := await self._client.receive_some(_PIECE)):
                    break
        return True

    async def _pass_tunnel(self, rest: bytes, host: str, upstream: trio.abc.Stream) -> bool:
        """Send the server what comes through a tunnel. Where only some hosts are reached, the client must mean this one in it, too."""
        if self._order.is_limited:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while (named := named_host(rest)) is None:
                    part = await self._client.receive_some(_PIECE) if len(rest) < MOST_BYTES else b""
                    if not part:
                        return False
                    rest += part
                if named not in ("", host.lower().rstrip(".")):
                    await self._client.send_all(_UNRECOGNIZED_NAME if rest.startswith(b"\x16") else _OTHER_HOST)
                    return False
        return await _pass_on(self._client, upstream, rest)

    async def _refuse(self, status: int, reason: str, text: str) -> None:
        """Answer that there is no connection, and why."""
        body = text.encode() + b"\n"
        challenge = "Proxy-Authenticate: Basic realm=pegasus\r\n" if status == 407 else ""
        head = (
            f"HTTP/1.1 {status} {reason}\r\n{challenge}Content-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        await self._client.send_all(head.encode() + body)


async def _pass_on(source: trio.abc.ReceiveStream, target: trio.abc.Stream, first: bytes = b"") -> bool:
    """Send all that comes from one stream to the other, and then its end. first: what was read of it already. Return True."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        if first:
            await target.send_all(first)
        async for data in source:
            await target.send_all(data)
        if isinstance(target, trio.abc.HalfCloseableStream):
            await target.send_eof()
    return True


def _length_of_body(head: bytes) -> int | None:
    """Return the bytes of the body of a request, None if its head does not say. Raises _BadRequest if it says it in several ways."""
    names = [line.partition(b":")[0].strip().lower() for line in head.split(b"\r\n")[1:]]
    lengths, is_chunked = names.count(b"content-length"), b"transfer-encoding" in names
    if lengths + is_chunked > 1:
        raise _BadRequest("the length of the body is given in several ways")
    if is_chunked:
        return None
    found = re.search(rb"\r\n[ \t]*content-length[ \t]*:[ \t]*(\d{1,18})[ \t]*(?=\r\n|\Z)", head, re.IGNORECASE)
    if lengths and found is None:
        raise _BadRequest("the length of the body is no number")
    return int(found[1]) if found else 0


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Return method, target and headers of a request. Raises _BadRequest.

    Of repeated headers the last one counts. The only one that is looked at is that of the password.
    """
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if any(end in line for line in (first, *lines) for end in "\r\n"):
        raise _BadRequest("a line ends otherwise than with CR LF")  # a server might find another header in it
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _BadRequest("the first line is no request of HTTP/1.1")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return words[0], words[1], headers


def _destination(method: str, target: str, head: bytes) -> tuple[str, int, bytes]:
    """Return host and port to connect to, and what to send there first: nothing after CONNECT, else the rewritten request."""
    try:
        if method == "CONNECT":
            parts = urlsplit(f"//{target}")
            port = parts.port
        else:
            parts = urlsplit(target)
            # An http:// address may leave the port out. CONNECT names it always.
            port = parts.port or 80
    except ValueError:
        raise _BadRequest(f"{target!r} is no address") from None
    if not parts.hostname or port is None or (method != "CONNECT" and parts.scheme != "http"):
        raise _BadRequest(f"found {target[:200]!r}; allowed: CONNECT host:port, or an http:// address")
    if method == "CONNECT":
        return parts.hostname, port, b""
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    _, *lines = head.split(b"\r\n")
    kept = [
        line
        for line in lines
        if line and line.partition(b":")[0].strip().lower().decode("latin-1") not in _NOT_PASSED_ON
    ]
    # One request for each connection: another one on it could be meant for another host.
    first = f"{method} {path} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}".encode("latin-1")
    return parts.hostname, port, b"\r\n".join([first, *kept, b"Connection: close", b"", b""])
