"""`McpRelay`: the MCP server of the daemon, on stdin and stdout, for programs that start their servers themselves.

It passes messages on and understands no more of them than that needs. Each message of the client becomes a request to /mcp, whose
answer is written back. In the protocol of before 2026-07-28 there is a session, which the relay opens again if the daemon was started
anew: it repeats the client's handshake and subscriptions, and the client notices nothing. From then on each request stands for itself.

A call that the daemon did not answer, because it was killed, is made again when the daemon is back. `send_message` gets an idempotency
key by its header, so that the message is answered once all the same. `answer_task` is not made again, since the task may have the
answer; the client is told so.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from secrets import token_hex
from typing import Final, TypeAlias

import httpx2
import trio

from pegasus.client import ClientError, read_lines, write_line
from pegasus.messages import Json
from pegasus.retry import Pauses
from pegasus.wire import decode_json, encode_json

FindServer: TypeAlias = Callable[[], Awaitable[tuple[str, str]]]
"""Returns address and token of /mcp; starts a daemon where none runs. Raises ClientError."""

AT_ONCE: Final = 100
"""Requests that are under way; the next one is read when one has ended."""
TRIES: Final = 6
"""Times that a request is made whose answer did not come. The pauses between them grow."""
TRY_AGAIN: Final = 1.0
"""Seconds before the stream of notifications is opened again."""
GOODBYE: Final = 2.0
"""Seconds for telling the daemon that the client has gone."""
_NOT_TWICE: Final = ("answer_task",)
"""Tools whose calls are not made again."""
_META: Final = "io.modelcontextprotocol/protocolVersion"
_PARSE_ERROR, _INVALID_REQUEST, _INTERNAL_ERROR = -32700, -32600, -32603


class McpRelay:
    """A client on stdin and stdout."""

    def __init__(self, find: FindServer, *, stdin: int = 0, stdout: int = 1) -> None:
        self._find = find
        self._stdin, self._stdout = stdin, stdout
        self._writing = trio.Lock()
        self._opening = trio.Lock()
        self._places = trio.Semaphore(AT_ONCE)
        self._session = ""
        """Id of the session, "" without one."""
        self._handshake: dict[str, Json] = {}
        """The client's `initialize`."""
        self._version = ""
        """Protocol that the session speaks."""
        self._followed: dict[str, None] = {}
        """Resources that the client has subscribed to."""
        self._requests: dict[str, trio.CancelScope] = {}
        """Requests under way that are ended by hanging up, by id."""

    async def run(self) -> None:
        """Serve the client until it closes its end. Raises OSError if it does not read any more."""
        async with httpx2.AsyncClient(timeout=httpx2.Timeout(None, connect=10.0)) as self._http:
            async with trio.open_nursery() as self._nursery:
                async for line in read_lines(self._stdin):
                    await self._take(line)
                self._nursery.cancel_scope.cancel()
            with trio.move_on_after(GOODBYE):
                await self._leave()

    async def _take(self, line: bytes | None) -> None:
        try:
            message = decode_json(line) if line is not None else None
        except (ValueError, RecursionError):
            await self._fail(None, _PARSE_ERROR, "found no JSON")
            return
        if not isinstance(message, dict):
            await self._fail(None, _INVALID_REQUEST, "found no message of JSON-RPC, or one that is too long")
            return
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        ended = self._requests.get(_hashable(params.get("requestId")))
        if message.get("method") == "notifications/cancelled" and ended is not None:
            ended.cancel()
            return
        if message.get("method") in ("initialize", "notifications/initialized"):
            await self._pass_on(message, params)  # what comes behind it needs it
        else:
            await self._places.acquire()
            self._nursery.start_soon(self._pass_on_behind, message, params)

    async def _pass_on_behind(self, message: dict[str, Json], params: dict[str, Json]) -> None:
        try:
            await self._pass_on(message, params)
        finally:
            self._places.release()

    async def _pass_on(self, message: dict[str, Json], params: dict[str, Json]) -> None:
        """Have a message answered, and note what of it is needed to open the session again."""
        method, id = message.get("method"), message.get("id")
        meta = params.get("_meta")
        modern = str(meta.get(_META, "")) if isinstance(meta, dict) else ""
        headers = {"idempotency-key": f"stdio-{token_hex(12)}"}
        if modern:
            name = params.get("name") or params.get("uri") or params.get("taskId") or ""
            headers |= {
                "mcp-protocol-version": modern,
                "mcp-method": _field(str(method)),
                "mcp-name": _field(str(name)),
            }
            if not name:
                del headers["mcp-name"]
        with trio.CancelScope() as scope:
            if modern and id is not None:
                self._requests[_hashable(id)] = scope
            try:
                await self._deliver(message, headers, needs_session=not modern)
            finally:
                self._requests.pop(_hashable(id), None)
        uri = params.get("uri")
        if method == "resources/subscribe" and isinstance(uri, str):
            self._followed[uri] = None
        elif method == "resources/unsubscribe":
            self._followed.pop(str(uri), None)

    async def _deliver(self, message: dict[str, Json], headers: dict[str, str], *, needs_session: bool) -> None:
        """Send a message until its answer is written. One whose answer does not come is sent again, unless it may not be."""
        id, reason = message.get("id"), "the agent does not run"
        pauses = Pauses()
        for n in range(TRIES):
            if n:
                await trio.sleep(pauses.next())
            try:
                if needs_session and message.get("method") == "initialize":
                    self._handshake = message
                    await self._open(message, self._write_message)
                    return
                session = self._session
                async with self._send(message, headers, session if needs_session else "") as response:
                    if needs_session and _has_lost(response, session):
                        await self._open_again(session)
                        continue
                    is_answered = id is None
                    async for answer in _answers(response, id):
                        await self._write_message(answer)
                        is_answered = is_answered or (isinstance(answer, dict) and answer.get("id") == id)
                if is_answered:
                    return
                reason = "the agent was stopped before it answered"
            except (httpx2.TransportError, httpx2.StreamError):
                reason = "the agent was stopped before it answered"
            except ClientError as error:
                reason = str(error)
                break
            params = message.get("params")
            if isinstance(params, dict) and message.get("method") == "tools/call" and params.get("name") in _NOT_TWICE:
                reason += "; the call may have had its effect"
                break
        if id is not None:
            await self._fail(id, _INTERNAL_ERROR, reason)

    @asynccontextmanager
    async def _send(
        self, message: Json, headers: Mapping[str, str], session: str = "", method: str = "POST"
    ) -> AsyncIterator[httpx2.Response]:
        """Yield the response to a message. Raises ClientError, httpx2.TransportError."""
        url, token = await self._find()
        fields = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream", **headers}
        if session:
            fields |= {"mcp-session-id": session, "mcp-protocol-version": self._version}
        content = None
        if method == "POST":
            fields["content-type"] = "application/json"
            content = encode_json(message).encode("utf-8", "replace")
        async with self._http.stream(method, url, headers=fields, content=content) as response:
            yield response

    # ---------------------------------------------------------------- the session

    async def _open(self, handshake: dict[str, Json], take: Callable[[Json], Awaitable[None]]) -> None:
        """Open a session with the client's handshake. take: is given the answer. Raises as `_send`."""
        async with self._send(handshake, {}) as response:
            async for answer in _answers(response, handshake.get("id")):
                result = answer.get("result") if isinstance(answer, dict) else None
                if isinstance(result, dict):
                    self._session = response.headers.get("mcp-session-id", "")
                    self._version = str(result.get("protocolVersion", ""))
                await take(answer)
        if self._session:
            self._nursery.start_soon(self._listen, self._session)

    async def _open_again(self, lost: str) -> None:
        """Open a session in place of one that the daemon does not know. Several requests may find that at the same time."""
        async with self._opening:
            if self._session != lost:
                return
            self._session = ""
            await self._open(self._handshake, _drop)
            messages: list[dict[str, Json]] = [{"method": "notifications/initialized"}]
            for n, uri in enumerate(self._followed):
                messages.append({"method": "resources/subscribe", "id": f"again-{n}", "params": {"uri": uri}})
            for message in messages:
                async with self._send({"jsonrpc": "2.0", **message}, {}, self._session) as response:
                    await response.aread()

    async def _listen(self, session: str) -> None:
        """Pass on what the daemon says beside the answers, until the session has ended."""
        while self._session == session:
            try:
                async with self._send(None, {}, session, "GET") as response:
                    if _has_lost(response, session):
                        await self._open_again(session)
                        return
                    async for answer in _answers(response, None):
                        await self._write_message(answer)
            except (httpx2.TransportError, httpx2.StreamError, ClientError):
                pass
            await trio.sleep(TRY_AGAIN)

    async def _leave(self) -> None:
        """Tell the daemon that the client has gone, if it can be told."""
        if self._session:
            with suppress(httpx2.TransportError, ClientError):
                async with self._send(None, {}, self._session, "DELETE"):
                    pass

    # ---------------------------------------------------------------- writing

    async def _fail(self, id: Json, code: int, text: str) -> None:
        await self._write_message({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})

    async def _write_message(self, message: Json) -> None:
        async with self._writing:
            await write_line(self._stdout, encode_json(message).encode("utf-8", "replace") + b"\n")


async def _answers(response: httpx2.Response, id: Json) -> AsyncIterator[Json]:
    """Yield the messages of a response. A refusal of the server that is no message becomes one."""
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        async for line in response.aiter_lines():
            if line.startswith("data:") and (data := line[5:].strip()):
                yield decode_json(data)
        return
    content = await response.aread()
    if response.status_code == 202 or (response.status_code >= 400 and id is None):
        return
    try:
        answer = decode_json(content)
    except ValueError:
        answer = None
    if isinstance(answer, dict) and "jsonrpc" in answer:
        yield answer
        return
    error = answer.get("error") if isinstance(answer, dict) else None
    text = error.get("message") if isinstance(error, dict) else f"the agent answered with status {response.status_code}"
    yield {"jsonrpc": "2.0", "id": id, "error": {"code": _INTERNAL_ERROR, "message": text}}


def _has_lost(response: httpx2.Response, session: str) -> bool:
    """Return whether the daemon does not know the session of a request, since it was started anew."""
    return bool(session) and response.status_code == 404


async def _drop(message: Json) -> None:
    """Leave out a message that the client has had already."""


def _hashable(id: Json) -> str:
    """Return an id of a request as a key. 1 and "1" are different ids."""
    return encode_json(id)


def _field(value: str) -> str:
    """Return a value as it may stand in a header field: in base64 unless it is plain ASCII."""
    if value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="
