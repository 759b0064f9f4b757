"""`EditorLink`: JSON-RPC 2.0 with an editor, one message a line, requests in both directions.

Messages are begun in the order in which they come: `begin` of the handler runs before the next line is read, and what it returns is
awaited in a task of its own. So a cancellation finds the prompt that it is about, and a long prompt holds nothing up.

One task writes, in the order of the calls. While MOST_QUEUED messages wait for an editor that does not read, whoever has something
to say waits as well.

When the editor is gone (its end of a pipe is closed) `run` returns, and requests that wait for its answer raise `EditorGone`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import attrs
import trio

from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.wire import decode_json, describe, encode_json

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
CANCELLED: Final = -32800
NOT_FOUND: Final = -32002
"""Codes of errors: those of JSON-RPC, and two of the Agent Client Protocol."""

MOST_QUEUED: Final = 256
"""Messages that wait for an editor that does not read."""
MOST_REQUESTS: Final = 64
"""Requests of the editor that are under way at the same time."""
CANCEL_REQUEST: Final = "$/cancel_request"

_log = get_logger("acp")

RequestId: TypeAlias = int | str | None


class RpcError(Exception):
    """An error that the other side is told, or has told. str() is a sentence for a person."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class EditorGone(Exception):
    """The editor has closed the connection before its answer."""


@attrs.frozen(eq=False)
class Answered:
    """The result of a request, and what follows it once it is queued."""

    result: Json
    then: Callable[[], Awaitable[None]]


class Handler(Protocol):
    """Carries out what the editor asks."""

    def begin(self, method: str, params: Mapping[str, Any]) -> Awaitable[Json | Answered]:
        """Note that a request or notification has come; what is returned carries it out. Both may raise RpcError."""


class EditorLink:
    """The connection with one editor."""

    def __init__(self, lines: AsyncIterator[bytes | None], write: Callable[[bytes], Awaitable[None]]) -> None:
        """lines: what the editor sends, without line ends; None for a line that is too long. write: raises OSError if it is gone."""
        self._lines = lines
        self._write = write
        self._out, self._queue = trio.open_memory_channel[bytes](MOST_QUEUED)
        self._count = 0
        """Requests to the editor so far; ids are made from it."""
        self._waiting: dict[RequestId, trio.MemorySendChannel[Any]] = {}
        """Requests that the editor has not answered."""
        self._running: dict[RequestId, trio.CancelScope] = {}
        """Requests of the editor that are under way."""
        self._is_gone = False

    async def run(self, handler: Handler) -> None:
        """Serve the editor until it is gone. What it has asked for is cancelled then."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write_all, nursery.cancel_scope)
            async for line in self._lines:
                await self._take(line, handler, nursery)
            nursery.cancel_scope.cancel()
        self._is_gone = True
        for answers in self._waiting.values():
            answers.close()

    async def request(self, method: str, params: Mapping[str, Json]) -> Json:
        """Return the editor's answer. Raises RpcError, EditorGone. Cancelled, the editor is told so."""
        if self._is_gone:
            raise EditorGone
        self._count += 1
        id = self._count
        answers, answer = trio.open_memory_channel[Any](1)
        self._waiting[id] = answers
        try:
            await self._send({"id": id, "method": method, "params": params})
            outcome: Json | RpcError = await answer.receive()
        except trio.EndOfChannel:
            raise EditorGone from None
        except trio.Cancelled:
            with suppress(trio.WouldBlock, trio.BrokenResourceError):
                self._out.send_nowait(_line({"method": CANCEL_REQUEST, "params": {"requestId": id}}))
            raise
        finally:
            del self._waiting[id]
        if isinstance(outcome, RpcError):
            raise outcome
        return outcome

    async def notify(self, method: str, params: Mapping[str, Json]) -> None:
        """Tell the editor something. Raises EditorGone."""
        await self._send({"method": method, "params": params})

    async def _send(self, message: Mapping[str, Json]) -> None:
        try:
            await self._out.send(_line(message))
        except trio.BrokenResourceError:
            raise EditorGone from None

    async def _write_all(self, scope: trio.CancelScope) -> None:
        """Write what is queued; an editor that is gone ends everything."""
        with self._queue:
            async for line in self._queue:
                try:
                    await self._write(line)
                except OSError:
                    scope.cancel()
                    return

    async def _take(self, line: bytes | None, handler: Handler, nursery: trio.Nursery) -> None:
        """Begin what a line asks for, or hand on an answer."""
        try:
            message = _read(line)
        except RpcError as error:
            await self._fail(None, error)
            return
        id, method = message.get("id"), message.get("method")
        if method is None:
            self._hand_on(message)
        elif method == CANCEL_REQUEST:
            wanted = _object(message).get("requestId")
            if isinstance(wanted, int | str) and (scope := self._running.get(wanted)) is not None:
                scope.cancel()
        elif "id" in message and (id in self._running or len(self._running) >= MOST_REQUESTS):
            why = "this id is in use" if id in self._running else f"{MOST_REQUESTS} requests are under way"
            await self._fail(id, RpcError(INVALID_REQUEST, f"{why}; wait for an answer"))
        else:
            scope = trio.CancelScope()
            if "id" in message:
                self._running[id] = scope
            try:
                work = handler.begin(method, _object(message))
            except Exception as error:  # answered as if the work had raised it
                work = _raise(error)
            nursery.start_soon(partial(self._carry_out, work, id, scope, answers="id" in message))

    def _hand_on(self, message: Mapping[str, Any]) -> None:
        """Give the editor's answer to the request that waits for it; it may come too late, or twice."""
        answers = self._waiting.get(message.get("id"))
        if answers is None:
            return
        outcome = message.get("result")
        if (error := message.get("error")) is not None:
            said = error if isinstance(error, Mapping) else {}
            code = said.get("code")
            outcome = RpcError(
                code if isinstance(code, int) else INTERNAL_ERROR, str(said.get("message") or "no reason given")
            )
        with suppress(trio.WouldBlock):
            answers.send_nowait(outcome)

    async def _carry_out(
        self, work: Awaitable[Json | Answered], id: RequestId, scope: trio.CancelScope, *, answers: bool
    ) -> None:
        """Do what was asked, and answer. A mistake in the work ends this request and nothing else."""
        then: Callable[[], Awaitable[None]] | None = None
        try:
            reply: Mapping[str, Json] = {"error": {"code": CANCELLED, "message": "cancelled"}}
            with scope:
                reply, then = await _outcome(work)
            if answers:
                self._running.pop(id, None)
                await self._send({"id": id, **reply})
            if then is not None:
                await then()
        except EditorGone:
            pass
        finally:
            if answers:
                self._running.pop(id, None)

    async def _fail(self, id: RequestId, error: RpcError) -> None:
        with suppress(EditorGone):
            await self._send({"id": id, "error": {"code": error.code, "message": str(error)}})


async def _outcome(work: Awaitable[Json | Answered]) -> tuple[Mapping[str, Json], Callable[[], Awaitable[None]] | None]:
    """Return what goes into the answer beside the id, and what follows it."""
    try:
        result = await work
    except RpcError as error:
        return {"error": {"code": error.code, "message": str(error)}}, None
    except EditorGone:
        raise
    except Exception as error:
        _log.exception("a request of the editor failed", error=error)
        return {"error": {"code": INTERNAL_ERROR, "message": f"this failed: {error}; stderr has the details"}}, None
    return ({"result": result.result}, result.then) if isinstance(result, Answered) else ({"result": result}, None)


async def _raise(error: Exception) -> Json:
    raise error


def _read(line: bytes | None) -> Mapping[str, Any]:
    """Return the message that a line holds. Raises RpcError."""
    if line is None:
        raise RpcError(PARSE_ERROR, "found a line that is too long")
    try:
        message = decode_json(line)
    except ValueError as error:
        raise RpcError(PARSE_ERROR, f"found no JSON ({error}), allowed: one JSON-RPC object a line") from None
    if not isinstance(message, Mapping):
        raise RpcError(INVALID_REQUEST, f"found {describe(message)}, allowed: one JSON-RPC object a line")
    id, method = message.get("id"), message.get("method")
    if not isinstance(id, int | str | None) or isinstance(id, bool):
        raise RpcError(INVALID_REQUEST, f"id: found {describe(id)}, allowed: a number or a string")
    if not isinstance(method, str | None):
        raise RpcError(INVALID_REQUEST, f"method: found {describe(method)}, allowed: a string")
    return message


def _object(message: Mapping[str, Any]) -> Mapping[str, Any]:
    params = message.get("params")
    return params if isinstance(params, Mapping) else {}


def _line(message: Mapping[str, Json]) -> bytes:
    return encode_json({"jsonrpc": "2.0", **message}).encode() + b"\n"
