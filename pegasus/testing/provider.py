"""Model provider on loopback that speaks both wire formats, is as strict as the real services, and fails on demand.

In a test: `async with open_provider(script) as server:` and `server.url` as base_url of an anthropic provider,
`server.openai_url` of an openai one. As a process of its own, without latency, for benchmarks:
`python -m pegasus.testing.provider --script echo`; its first line is its url.

Tests of a model client against recorded answers find only the mistakes that someone thought of. This server
checks each request as the services do (`parse`), so a client that builds an invalid request fails
here as it would with a real key. It also misbehaves as real connections do: it closes in the middle of an
answer, resets, goes silent, answers with web pages, and takes as long as the test wants.

It speaks HTTP/1.1 through `h11`, with one task for each connection and keep-alive. The request line and body
are unlimited, because the only clients are tests. Leaving `open_provider` cancels everything, so an answer that
hangs never outlives its test.
"""

from __future__ import annotations

import argparse
import json
import secrets
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import h11
import trio

from pegasus.messages import Json
from pegasus.testing.provider_answer import SCRIPTS, ProviderAnswer, Script, dump, echo, error_body, refuse
from pegasus.testing.provider_anthropic import whole_message
from pegasus.testing.provider_audio import SPEECH, TRANSCRIPTIONS, AudioCall, read_audio
from pegasus.testing.provider_dialects import PLAIN, Dialect
from pegasus.testing.provider_formats import events, parse
from pegasus.testing.provider_ollama import OllamaHost, answer_lines, whole_answer
from pegasus.testing.provider_openai import completion
from pegasus.testing.provider_request import Invalid, ProviderRequest, require
from pegasus.testing.provider_responses import whole_response

AsyncScript = Callable[[ProviderRequest], Awaitable[ProviderAnswer]]
"""Script that may wait, for answers that a test releases later. It is cancelled if the client hangs up."""

_COUNT = "/count_tokens"
"""End of the path that counts the tokens of a request instead of answering it."""
_PATHS = (
    "/v1/messages",
    f"/v1/messages{_COUNT}",
    "/v1/chat/completions",
    "/chat/completions",
    "/v1/responses",
    "/responses",
)
"""Paths of the APIs. OpenAI's are accepted without `/v1` too, since base URLs are given with and without it."""
_OLLAMA_PATHS = ("/api/chat", "/api/show")
"""Paths of Ollama's own API that take a body; served if the server has an `OllamaHost`."""
_READ = 1 << 18
"""Bytes to read from a connection at a time; bodies have megabytes."""


class ProviderServer:
    """State of a provider, for tests to look at and to change while it runs.

    api_key: if given, the only key that is accepted. keep: requests to remember. ollama: models of an Ollama, whose own API is served
    then.

    The counters and lists only grow. A test that waits for something uses `until` instead of sleeping:

        async with open_provider(lambda request: hang()) as server:
            nursery.start_soon(client.generate, request)
            await server.until(lambda server: server.count == 1)   # the request has arrived
    """

    def __init__(
        self,
        script: Script | AsyncScript,
        *,
        api_key: str = "",
        keep: int = 1000,
        ollama: OllamaHost | None = None,
        dialect: Dialect = PLAIN,
    ) -> None:
        self.dialect = dialect
        """Service that it stands for, in Chat Completions."""
        self.script = script
        """Function that answers requests; may be replaced at any time."""
        self.ollama = ollama
        """Models of an Ollama; None for a server that does not speak its API."""
        self.pages: dict[str, Json] = {}
        """Answers to GET by path, as llama.cpp and others describe themselves. With one of them, other paths do not exist."""
        self.audio: Callable[[AudioCall], ProviderAnswer | Awaitable[ProviderAnswer]] | None = None
        """Function that answers requests of speech; None for a provider without these endpoints."""
        self.audio_calls: list[AudioCall] = []
        """Valid requests of speech."""
        self.tokens: Callable[[ProviderRequest], int] | None = None
        """Function that answers `count_tokens`; None for a provider without this endpoint."""
        self.on_send: Callable[[bytes], None] | None = None
        """Called with each event of a stream just before it is sent, where events are sent one by one."""
        self.counted = 0
        """Requests for a count of tokens."""
        self.requests: deque[ProviderRequest] = deque(maxlen=keep)
        """The last valid requests."""
        self.invalid: list[str] = []
        """Messages of the refusals of invalid requests."""
        self.count = 0
        """All requests."""
        self.answered = 0
        """Answers that were sent to their end."""
        self.hung_up = 0
        """Connections that a client closed while an answer was due."""
        self.connections = 0
        """Connections on which a model was called. Questions about the server itself are not counted."""
        self.url = ""
        """Base URL for a provider of type anthropic."""
        self._api_key = api_key
        self._token = secrets.token_hex(5)
        self._ids = 0
        self._changed = trio.Event()

    @property
    def openai_url(self) -> str:
        """Base URL for a provider of type openai."""
        return f"{self.url}/v1"

    async def until(self, condition: Callable[[ProviderServer], bool]) -> None:
        """Wait until a condition holds. It is checked again whenever anything happens.

        There is no deadline; the test puts its own around the call.
        """
        while not condition(self):
            await self._changed.wait()

    def new_id(self) -> str:
        """Return the rest of a tool call's id, unique over all servers."""
        self._ids += 1
        return f"{self._token}{self._ids:06x}"

    def notify(self) -> None:
        """Let `until` check its condition again."""
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def read(
        self, path: str, headers: dict[str, str], body: bytes, query: str = ""
    ) -> ProviderRequest | ProviderAnswer:
        """Return the parsed request, or the refusal of an invalid one.

        headers: names in lower case. Invalid requests are kept in `invalid` by their message, so that a test
        can assert at its end that there were none, even if the client hid the error by a retry.
        """
        self.count += 1
        refusal = self._refusal(path, headers)
        if refusal is not None:
            return refusal
        try:
            if path.endswith(_COUNT):
                return self._count(path, headers, body, query)
            if path == "/api/show" and self.ollama is not None:
                self.count -= 1
                return self.ollama.show(body)
            if path.endswith("/chat/completions") and (refusal := self.dialect.refusal(json.loads(body))) is not None:
                return refusal
            request = attrs.evolve(parse(path, headers, body, self.count, self.dialect), query=query)
            if request.format == "ollama" and self.ollama is not None:
                refusal = self.ollama.refusal(request.raw)
                if refusal is not None:
                    return refusal
        except Invalid as error:
            self.invalid.append(str(error))
            return refuse(400, str(error))
        self.requests.append(request)
        return request

    def read_audio(self, path: str, headers: dict[str, str], body: bytes) -> AudioCall | ProviderAnswer:
        """Return a request of speech, or the refusal of an invalid one."""
        self.count += 1
        call = read_audio(path, headers, body, self._api_key)
        if not isinstance(call, AudioCall):
            self.invalid.append(call.message)
            return call
        self.audio_calls.append(call)
        return call

    def _count(self, path: str, headers: dict[str, str], body: bytes, query: str) -> ProviderAnswer:
        """Answer a request for the number of tokens: the body of a call without the parameters of the answer.

        A count has no `max_tokens` and must not have it, but the checks of a call require it; so it is added
        before they run.
        """
        self.count, self.counted = self.count - 1, self.counted + 1
        if self.tokens is None:
            return refuse(404, f"no such path: {path}")
        raw = json.loads(body)
        require(not {"max_tokens", "stream"} & set(raw), "max_tokens, stream: Extra inputs are not permitted")
        whole = json.dumps({**raw, "max_tokens": 1}).encode()
        found = self.tokens(attrs.evolve(parse(path.removesuffix(_COUNT), headers, whole), query=query))
        return ProviderAnswer(body=json.dumps({"input_tokens": found}).encode(), content_type="application/json")

    def _refusal(self, path: str, headers: dict[str, str]) -> ProviderAnswer | None:
        """Return the refusal of a wrong path or key, None for a request that may be read.

        The order of the checks is that of the services: path, key, version.
        """
        if path in _OLLAMA_PATHS and self.ollama is not None:
            return None  # it has no keys
        own = self.dialect.root
        paths = _PATHS if self.dialect is PLAIN else (f"{own}/chat/completions", f"{own}/responses")
        if path not in paths:
            return refuse(404, f"no such path: {path}")
        if not self.dialect.key_headers:
            return None
        given = {
            headers.get("x-api-key", ""),
            headers.get("api-key", ""),
            headers.get("authorization", "").removeprefix("Bearer "),
        } - {""}
        if not given or (self._api_key and given != {self._api_key}):
            return refuse(401, "invalid x-api-key")
        if path.endswith("/messages") and "anthropic-version" not in headers:
            return refuse(400, "anthropic-version: header is required")
        return None


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
        """Serve one request; return whether the connection can take another."""
        head = await self._event()
        if not isinstance(head, h11.Request):
            return False
        body = bytearray()
        while isinstance(data := await self._event(), h11.Data):
            body += data.data
        path, _, query = head.target.decode().partition("?")
        headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        if head.method == b"GET":
            await self._get(path)
        else:
            await self._answer(path, headers, bytes(body), query)
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _get(self, path: str) -> None:
        """Answer GET with a description of the server, or with the counters, for a provider that is a process of its own."""
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
            said = answered if isinstance(answered, ProviderAnswer) else await self._await_script(answered)
            await self._send(said, "openai", None)
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
        if answer.reset:
            # Closing a socket with a linger time of zero sends RST instead of FIN.
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._stream.socket.close()
            raise _Reset
        if answer.body is not None:
            await self._send_whole(answer.status, answer.content_type, answer.body)
        elif answer.status != 200 or request is None:
            refusal = error_body(form, answer.status, answer.message, server.count)
            await self._send_whole(answer.status, "application/json", refusal, answer.retry_after)
        elif request.format == "ollama" and server.ollama is not None:
            await self._send_ollama(answer, server.ollama, request)
        elif answer.stream:
            await self._stream_raw(answer.stream)
        elif request.stream:
            # A service that refuses the question for usage sends it unasked.
            usage = bool((request.raw.get("stream_options") or {}).get("include_usage")) or bool(server.dialect.refused)
            await self._stream_out(answer, events(answer, form, server.new_id, usage=usage, dialect=server.dialect))
        else:
            wholes = {"anthropic": whole_message, "responses": whole_response}
            whole = wholes.get(form, completion)
            await self._send_whole(200, "application/json", whole(answer, server.new_id))

    async def _send_ollama(self, answer: ProviderAnswer, host: OllamaHost, request: ProviderRequest) -> None:
        """Send an answer in Ollama's format, after the model was loaded if it must be."""
        await trio.sleep(host.load(request.raw))
        make = answer_lines(answer, self._server.new_id, host.read_tokens(request.raw), request.model)
        if request.stream:
            await self._stream_out(answer, make, kind="application/x-ndjson")
        else:
            await self._send_whole(200, "application/json", whole_answer(make))

    async def _stream_raw(self, parts: tuple[bytes | float, ...]) -> None:
        """Send the parts of a stream, with the pauses between them."""
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
    """Return the script with each answer delayed by so many seconds."""

    async def answer(request: ProviderRequest) -> ProviderAnswer:
        await trio.sleep(seconds)
        return script(request)

    return answer


async def _main(script: Script | AsyncScript, port: int) -> None:
    """Print the URL and serve for ever. Whoever started the process reads that line to know that the port is open."""
    async with open_provider(script, port=port, keep=1) as server:
        print(server.url, flush=True)  # noqa: T201
        await trio.sleep_forever()


def main() -> None:
    """Serve until killed.

    An interrupt ends it silently, since the process that started it ends it that way.
    """
    parser = argparse.ArgumentParser(prog="python -m pegasus.testing.provider", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 = any free port")
    parser.add_argument("--script", choices=sorted(SCRIPTS), default="echo")
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS", help="that each answer takes")
    options = parser.parse_args()
    script = SCRIPTS[options.script]
    try:
        trio.run(_main, late(script, options.latency) if options.latency else script, options.port)
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
