"""Serving: the HTTP side of the provider, with all ways in which an answer can fail.

It speaks HTTP/1.1 through `h11`, with one task for each connection and keep-alive. The request line and body are unlimited, because
the only clients are tests. Leaving `open_provider` cancels everything, so an answer that hangs never outlives its test.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import h11
import trio

from pegasus.testing.provider.answers import ProviderAnswer, Script, dump, echo, error_body, refuse
from pegasus.testing.provider.anthropic import whole_message
from pegasus.testing.provider.audio import SPEECH, TRANSCRIPTIONS, AudioCall
from pegasus.testing.provider.chat import completion
from pegasus.testing.provider.dialects import PLAIN, Dialect
from pegasus.testing.provider.formats import events
from pegasus.testing.provider.ollama import OllamaHost, answer_lines, whole_answer
from pegasus.testing.provider.requests import ProviderRequest
from pegasus.testing.provider.responses import whole_response
from pegasus.testing.provider.server import AsyncScript, ProviderServer

_READ = 1 << 18
"""Bytes to read from a connection at a time; bodies have megabytes."""


class _Reset(Exception):
    """The connection was reset, as the answer wanted."""


class _Connection:
    """Connection of a client, which sends requests one after another.

    Pipelining is not supported: a client sends a request after it has read the answer before.
    """

    def __init__(self, server: ProviderServer, stream: trio.SocketStream) -> None:
        self._server = server
        self._stream = stream
        self._http = h11.Connection(h11.SERVER)
        self._is_counted = False
        """True once a call was made on it."""

    async def serve(self) -> None:
        """Serve requests until the client closes the connection, hangs up or is reset.

        Hanging up while an answer is due is what a cancelled model call does; it is counted, so that tests can
        assert that cancelling really ended the call.
        """
        async with self._stream:
            try:
                while await self._serve_request():
                    self._http.start_next_cycle()
            except _Reset:
                return
            except (trio.BrokenResourceError, h11.RemoteProtocolError):
                self._server.hung_up += 1
                self._server.notify()

    async def _event(self) -> Any:
        """Return the next HTTP event of the client, after reading as much as it takes."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._stream.receive_some(_READ))
        return event

    async def _serve_request(self) -> bool:
        """Serve one request; return whether the connection can take another.

        The body is read to its end before it is looked at, as by most services.
        """
        head = await self._event()
        if not isinstance(head, h11.Request):
            return False
        body = bytearray()
        while isinstance(data := await self._event(), h11.Data):
            body += data.data
        path, _, query = head.target.decode().partition("?")
        headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        # No key is asked for: what is asked this way is about the server.
        if head.method == b"GET":
            await self._get(path)
        else:
            await self._answer(path, headers, bytes(body), query)
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _get(self, path: str) -> None:
        """Answer GET with a description of the server, or with the counters, for a provider that is a process of its own.

        With `pages` the server stands for another one, whose other paths do not exist.
        """
        server = self._server
        if server.pages or server.ollama is not None:
            page = server.pages.get(path) if server.ollama is None else server.ollama.get(path)
            found = dump({"error": "not found"}) if page is None else dump(page)
            await self._send_whole(404 if page is None else 200, "application/json", found)
            return
        stats = {"requests": server.count, "answered": server.answered, "invalid": server.invalid}
        await self._send_whole(200, "application/json", json.dumps(stats).encode())

    async def _answer(self, path: str, headers: dict[str, str], body: bytes, query: str) -> None:
        """Read a request and send the script's answer."""
        server = self._server
        # Tests assert by this number that a client keeps its connection between calls.
        if path != "/api/show" and not self._is_counted:
            self._is_counted = True
            server.connections += 1
        is_audio = server.audio is not None and path in (TRANSCRIPTIONS, SPEECH)
        request = server.read_audio(path, headers, body) if is_audio else server.read(path, headers, body, query)
        server.notify()
        if isinstance(request, ProviderAnswer):
            await self._send(request, "anthropic" if path.endswith("/messages") else "openai", None)
        elif isinstance(request, AudioCall):
            answered = server.audio(request) if server.audio is not None else refuse(404)
            audio_answer = answered if isinstance(answered, ProviderAnswer) else await self._await_script(answered)
            await self._send(audio_answer, "openai", None)
        else:
            answer = server.script(request)
            if not isinstance(answer, ProviderAnswer):
                answer = await self._await_script(answer)
            await self._send(answer, request.format, request)
        server.answered += 1
        server.notify()

    async def _await_script(self, script: Awaitable[ProviderAnswer]) -> ProviderAnswer:
        """Return the answer of an async script. If the client hangs up before, the script is cancelled.

        A second task reads from the connection meanwhile: it notices that the client has gone, which the script
        cannot. Raises BrokenResourceError in that case.
        """
        answers: list[ProviderAnswer] = []

        async def watch() -> None:
            """Read until the client says something, or hangs up; then the script is cancelled."""
            data = await self._stream.receive_some(_READ)
            self._http.receive_data(data)
            if not data:
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            answers.append(await script)
            nursery.cancel_scope.cancel()
        if not answers:
            raise trio.BrokenResourceError("the client hung up")
        return answers[0]

    async def _send(self, answer: ProviderAnswer, form: str, request: ProviderRequest | None) -> None:
        """Send an answer or a fault.

        form: the API's format, which a request that could not be read has too. request: None if there is no
        valid one.
        """
        server = self._server
        # The order of the faults is documented at `ProviderAnswer`.
        if answer.reset:
            # Closing a socket with a linger time of zero sends RST instead of FIN.
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._stream.socket.close()
            raise _Reset
        if answer.body is not None:
            await self._send_whole(answer.status, answer.content_type, answer.body)
        elif answer.stream:
            await self._stream_raw(answer.stream)
        elif answer.status != 200 or request is None:
            refusal = error_body(form, answer.status, answer.message, server.count)
            await self._send_whole(answer.status, "application/json", refusal, answer.retry_after)
        elif request.format == "ollama" and server.ollama is not None:
            await self._send_ollama(answer, server.ollama, request)
        elif request.stream:
            # A service that refuses the question for usage sends it unasked.
            usage = bool((request.raw.get("stream_options") or {}).get("include_usage")) or bool(server.dialect.refused)
            await self._stream_out(answer, events(answer, form, server.new_id, usage=usage, dialect=server.dialect))
        else:
            wholes = {"anthropic": whole_message, "responses": whole_response}
            whole = wholes.get(form, completion)
            await self._send_whole(200, "application/json", whole(answer, server.new_id))

    async def _send_ollama(self, answer: ProviderAnswer, host: OllamaHost, request: ProviderRequest) -> None:
        """Send an answer in Ollama's format, after the model was loaded if it must be.

        The load takes time of Trio's clock before the first byte, as it does at a real server.
        """
        await trio.sleep(host.load(request.raw))
        make = answer_lines(answer, self._server.new_id, host.read_tokens(request.raw), request.model)
        if request.stream:
            await self._stream_out(answer, make, kind="application/x-ndjson")
        else:
            await self._send_whole(200, "application/json", whole_answer(make))

    async def _stream_raw(self, parts: tuple[bytes | float, ...]) -> None:
        """Send the parts of a stream, with the pauses between them.

        For streams that no answer describes: half an event, an event in two pieces, text that is none.
        """
        http = self._http
        await self._stream.send_all(http.send(_head(200, [("content-type", "text/event-stream")])) or b"")
        for part in parts:
            if isinstance(part, bytes):
                await self._stream.send_all(http.send(h11.Data(part)) or b"")
            else:
                await trio.sleep(part)
        await self._stream.send_all(http.send(h11.EndOfMessage()) or b"")

    async def _stream_out(self, answer: ProviderAnswer, parts: list[bytes], kind: str = "text/event-stream") -> None:
        """Send the events of an answer; all at once if nothing is to happen in between.

        Sending them as one piece costs one system call for an answer, which matters to benchmarks. `hang_after`
        waits for the client to hang up; `cut_after` returns without an end of the message, after which the
        connection cannot be reused.
        """
        http = self._http
        head = http.send(_head(200, [("content-type", kind), ("cache-control", "no-cache")])) or b""
        last = answer.cut_after if answer.cut_after is not None else answer.hang_after
        if last is None and not answer.pause:
            data = http.send(h11.Data(b"".join(parts))) or b""
            await self._stream.send_all(head + data + (http.send(h11.EndOfMessage()) or b""))
            return
        await self._stream.send_all(head)
        for number, part in enumerate(parts[: last if answer.go_on is None else None]):
            if answer.go_on is not None and number == last:
                await answer.go_on.wait()
            await trio.sleep(answer.pause)
            if self._server.on_send is not None:
                self._server.on_send(part)
            await self._stream.send_all(http.send(h11.Data(part)) or b"")
        if answer.hang_after is not None and answer.go_on is None:
            # Nothing comes: the client waits for an answer, and this ends when it hangs up.
            await self._stream.receive_some(1)
            raise trio.BrokenResourceError("the client hung up")
        if answer.cut_after is None:
            await self._stream.send_all(http.send(h11.EndOfMessage()) or b"")

    async def _send_whole(self, status: int, kind: str, body: bytes, retry_after: float | None = None) -> None:
        """Send an answer that is not a stream. retry_after: seconds for the header of that name."""
        headers = [("content-type", kind), ("content-length", str(len(body)))]
        if retry_after is not None:
            headers.append(("retry-after", f"{retry_after:g}"))
        head = self._http.send(_head(status, headers)) or b""
        data = self._http.send(h11.Data(body)) or b""
        await self._stream.send_all(head + data + (self._http.send(h11.EndOfMessage()) or b""))


def _head(status: int, headers: list[tuple[str, str]]) -> h11.Response:
    """Return the head of an answer."""
    return h11.Response(status_code=status, headers=headers)


@asynccontextmanager
async def open_provider(
    script: Script | AsyncScript = echo,
    *,
    port: int = 0,
    api_key: str = "",
    keep: int = 1000,
    ollama: OllamaHost | None = None,
    dialect: Dialect = PLAIN,
) -> AsyncIterator[ProviderServer]:
    """Run a provider on 127.0.0.1 for as long as the block lasts. port 0: any free one. Others as in `ProviderServer`.

    For example:

        async with open_provider(echo, api_key="secret") as server:
            provider = {"type": "anthropic", "base_url": server.url, "api_key": "secret"}
    """
    server = ProviderServer(script, api_key=api_key, keep=keep, ollama=ollama, dialect=dialect)

    async def handle(stream: trio.SocketStream) -> None:
        """Serve one connection."""
        # Without this, small events wait for the acknowledgement of the one before (40 ms), which tests would
        # measure.
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await _Connection(server, stream).serve()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
        server.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.start_soon(trio.serve_listeners, handle, listeners)
        try:
            yield server
        finally:
            nursery.cancel_scope.cancel()


def late(script: Script, seconds: float) -> AsyncScript:
    """Return the script with each answer delayed by so many seconds.

    Example: `open_provider(late(echo, 2.0))`, under a clock of virtual time.
    """

    async def answer(request: ProviderRequest) -> ProviderAnswer:
        """Wait, then answer as the script does. Cancelled if the client hangs up before."""
        await trio.sleep(seconds)
        return script(request)

    return answer
