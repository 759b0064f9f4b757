"""A web server on loopback whose answers are what the test says, byte for byte."""

import subprocess
from contextlib import asynccontextmanager, suppress

import attrs
import h11
import trio

from pegasus.tools.web.addresses import AddressGuard


@attrs.define
class Seen:
    """A request as it arrived."""

    method: str
    target: str
    headers: dict
    body: bytes
    local: str


class Web:
    """answers: path → bytes of a whole response, or an async function of (stream, request)."""

    def __init__(self, port):
        self.port = port
        self.answers = {}
        self.seen = []

    def url(self, path="/", host="127.0.0.1", scheme="http"):
        return f"{scheme}://{host}:{self.port}{path}"

    def guard(self, **names):
        """A guard that lets loopback pass; names resolve to 127.0.0.1 unless the test says otherwise."""

        async def resolve(name, port):
            self.resolved.append(name)
            return names.get(name, ["127.0.0.1"])

        self.resolved = []
        return AddressGuard(["127.0.0.1"], resolve)

    async def handle(self, stream):
        connection = h11.Connection(h11.SERVER)
        request, body = None, b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some(65536))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return
        headers = {name.decode(): value.decode() for name, value in request.headers}
        socket = getattr(stream, "socket", None) or stream.transport_stream.socket
        seen = Seen(request.method.decode(), request.target.decode(), headers, bytes(body), socket.getsockname()[0])
        self.seen.append(seen)
        answer = self.answers.get(seen.target.partition("?")[0], answer_of(b"no such page", status="404 Not Found"))
        try:
            if callable(answer):
                await answer(stream, seen)
            else:
                await stream.send_all(answer)
        except trio.BrokenResourceError:
            pass


def answer_of(body=b"", status="200 OK", **headers):
    """A response. headers: `content_type="…"`."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def redirect(location, status="302 Found", **headers):
    return answer_of(b"", status, Location=location, **headers)


@asynccontextmanager
async def open_web(tls=None):
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        web = Web(listener.socket.getsockname()[1])

        async def serve(stream):
            async with stream:
                stream = trio.SSLStream(stream, tls, server_side=True) if tls else stream
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
                    await web.handle(stream)

        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield web
        nursery.cancel_scope.cancel()


def certificate(folder, *names):
    """A certificate of its own for these names and its key, as files."""
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=test", "-newkey", "ec"]
    command += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-addext", f"subjectAltName={','.join(names)}"]
    command += ["-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"
