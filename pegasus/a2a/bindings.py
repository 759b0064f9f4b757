"""The two bindings: JSON-RPC at one address, and HTTP+JSON with an address for each operation. Both call the same operations.

Every request names the version of the protocol that it means. One that names none means 0.3, which is another protocol.

A stream is the task and then its updates, read from the log of the task by their numbers. It is never behind what is on disk, costs no
memory when its reader is slow, and goes on when a part of the agent is restarted meanwhile.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeAlias, TypeVar

import attrs
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from actors import ActorError
from pegasus.a2a.errors import (
    CONTENT_TYPE_NOT_SUPPORTED,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    VERSION_NOT_SUPPORTED,
    A2aError,
    bad_params,
)
from pegasus.a2a.forms import ConfigForm, ListForm, PushForm, SendForm, TaskForm, query_params, read_form
from pegasus.a2a.record import TaskRecord
from pegasus.a2a.service import A2aService, closes_stream
from pegasus.a2a.watch import LOOK
from pegasus.formatting import quote
from pegasus.messages import Json
from pegasus.retry import retry
from pegasus.storage import StorageError
from pegasus.web import ApiError, ApiRequest, EventStreamResponse, json_response
from pegasus.wire import decode_json, encode_json, kind

_VERSION: Final = re.compile(r"1\.0(\.\d+)?")
"""Versions that are spoken. The third number makes no difference."""
VERSION_HEADER: Final = "a2a-version"
VERSION_QUERY: Final = "A2A-Version"

T = TypeVar("T")

Wrap: TypeAlias = Callable[[Json], Json]
"""Makes a frame of a stream of an update."""
Handler: TypeAlias = Callable[[ApiRequest, Json], Awaitable[Json]]
"""Carries out an operation with these parameters. Raises A2aError, ApiError."""
Card: TypeAlias = Callable[[ApiRequest], Awaitable[dict[str, Json]]]
"""Returns the extended card for a client."""


class Bindings:
    """Handlers of both bindings."""

    def __init__(self, service: A2aService, card: Card) -> None:
        self._service = service
        self._plain: Mapping[str, Handler] = {
            "SendMessage": self._send,
            "GetTask": self._get,
            "ListTasks": _taking(ListForm, service.list),
            "CancelTask": self._cancel,
            "CreateTaskPushNotificationConfig": _taking(PushForm, service.put_target),
            "GetTaskPushNotificationConfig": _taking(ConfigForm, service.get_target),
            "ListTaskPushNotificationConfigs": _taking(ConfigForm, service.list_targets),
            "DeleteTaskPushNotificationConfig": _taking(ConfigForm, service.delete_target),
            "GetExtendedAgentCard": lambda request, _: card(request),
        }
        self._streams: Mapping[str, Callable[[ApiRequest, Json], Awaitable[TaskStream]]] = {
            "SendStreamingMessage": self._send_streaming,
            "SubscribeToTask": self._subscribe,
        }

    # ---------------------------------------------------------------- JSON-RPC

    async def rpc(self, request: ApiRequest) -> Response:
        """Answer a request of JSON-RPC."""
        id: Json = None
        try:
            _check_content_type(request)
            body = await request.body()
            try:
                call = decode_json(body)
            except (ValueError, RecursionError) as error:
                raise A2aError(PARSE_ERROR, f"found no JSON ({error})") from None
            if not isinstance(call, Mapping):
                raise A2aError(INVALID_REQUEST, f"found {kind(call)}, allowed: one request, an object")
            id = _id_of(call)
            method = call.get("method")
            if call.get("jsonrpc") != "2.0" or not isinstance(method, str):
                raise A2aError(INVALID_REQUEST, 'allowed: an object with "jsonrpc": "2.0", id, method and params')
            _check_version(request)
            params = call.get("params")
            if params is not None and not isinstance(params, Mapping):
                raise bad_params("params", f"found {kind(params)}, allowed: an object")
            if method in self._streams:
                stream = await self._streams[method](request, params)
                return UpdateResponse(self._service, stream, partial(_rpc_result, id))
            if method not in self._plain:
                raise A2aError(METHOD_NOT_FOUND, f"there is no method {quote(method, 80)}")
            return json_response(_rpc_result(id, await self._plain[method](request, params)))
        except ApiError as error:
            return json_response(_rpc_error(id, A2aError.of(error)))
        except A2aError as error:
            return json_response(_rpc_error(id, error))

    # ---------------------------------------------------------------- HTTP+JSON

    async def rest(self, request: ApiRequest, method: str) -> Response:
        """Answer a request of the other binding. method: the operation, as JSON-RPC calls it."""
        try:
            _check_version(request)
            _check_content_type(request)
            params = await self._rest_params(request, method)
            if method in self._streams:
                return UpdateResponse(
                    self._service, await self._streams[method](request, params), lambda update: update
                )
            answer = await self._plain[method](request, params)
            return json_response(answer if isinstance(answer, Mapping) else {})
        except ApiError as error:
            refusal = A2aError.of(error)
        except A2aError as error:
            refusal = error
        return json_response(refusal.as_status(), refusal.kind.status)

    async def _rest_params(self, request: ApiRequest, method: str) -> dict[str, Json]:
        """Return the parameters of a request, which are in its path, and in its body or its query."""
        has_body = request.http.method == "POST"
        query = {key: text for key, text in request.http.query_params.items() if key != VERSION_QUERY}
        params = await request.json_or_nothing() if has_body else query_params(query)
        # The path names the task; for targets it is `taskId`, and `id` is the target's.
        names = (
            {"id": "id"} if method in ("GetTask", "CancelTask", "SubscribeToTask") else {"id": "taskId", "config": "id"}
        )
        return {**params, **{names[key]: value for key, value in request.path.items() if key in names}}

    # ---------------------------------------------------------------- operations

    async def _send(self, request: ApiRequest, params: Json) -> Json:
        form = read_form(params, SendForm)
        waits = not form.configuration.return_immediately
        record = await self._service.send(request, form, waits=waits)
        if waits and not record.is_at_rest:
            # Cancelled (the client has hung up), the task goes on.
            record = await self._service.wait_for_rest(record.task_id)
        return {"task": record.json(form.configuration.history_length)}

    async def _send_streaming(self, request: ApiRequest, params: Json) -> TaskStream:
        form = read_form(params, SendForm)
        return TaskStream(await self._service.send(request, form), closes_stream, form.configuration.history_length)

    async def _subscribe(self, request: ApiRequest, params: Json) -> TaskStream:
        return TaskStream(
            await self._service.subscribe(request, read_form(params, TaskForm)), lambda record: record.is_over
        )

    async def _get(self, request: ApiRequest, params: Json) -> Json:
        form = read_form(params, TaskForm)
        return (await self._service.get(request, form)).json(form.history_length)

    async def _cancel(self, request: ApiRequest, params: Json) -> Json:
        return (await self._service.cancel(request, read_form(params, TaskForm))).json()


def _taking(form: type[T], carry_out: Callable[[ApiRequest, T], Awaitable[Json]]) -> Handler:
    """Return the handler of an operation that answers with what this function returns."""
    return lambda request, params: carry_out(request, read_form(params, form))


def _id_of(call: Mapping[str, Json]) -> Json:
    """Return the id of a request. Raises A2aError for one that is none, and for a request without one, which wants no answer."""
    id = call.get("id")
    is_number = isinstance(id, int | float) and not isinstance(id, bool) and math.isfinite(id)
    if id is not None and not (is_number or isinstance(id, str)):
        raise A2aError(INVALID_REQUEST, f"id: found {kind(id)}, allowed: a text or a number")
    return id


def _check_content_type(request: ApiRequest) -> None:
    found = request.http.headers.get("content-type", "").partition(";")[0].strip().lower()
    if found and found != "application/json" and not found.endswith("+json"):
        raise A2aError(CONTENT_TYPE_NOT_SUPPORTED, f"Content-Type: found {quote(found, 80)}, allowed: application/json")


def _check_version(request: ApiRequest) -> None:
    found = request.http.headers.get(VERSION_HEADER) or request.http.query_params.get(VERSION_QUERY) or "0.3"
    if not _VERSION.fullmatch(found.strip()):
        raise A2aError(VERSION_NOT_SUPPORTED, f"A2A-Version: found {quote(found, 40)}, allowed: 1.0", supported="1.0")


def _rpc_result(id: Json, result: Json) -> dict[str, Json]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def _rpc_error(id: Json, error: A2aError) -> dict[str, Json]:
    return {"jsonrpc": "2.0", "id": id, "error": error.as_rpc()}


# ------------------------------------------------------------------ streams


@attrs.frozen(eq=False, repr=False)
class TaskStream:
    """A task to be followed."""

    record: TaskRecord
    """The task as it is shown first."""
    closes: Callable[[TaskRecord], bool]
    """Tells whether the stream ends with this state."""
    history_length: int | None = None


class UpdateResponse(EventStreamResponse):
    """A stream of a task and its updates. Cancelled (the client has gone), the task goes on."""

    def __init__(self, service: A2aService, stream: TaskStream, wrap: Wrap) -> None:
        super().__init__()
        self._service = service
        self._stream = stream
        self._wrap = wrap

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the task, then its updates until it is over."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        record, closes = self._stream.record, self._stream.closes
        seen = len(record.updates)
        with self._service.watch.listen(record.task_id) as news:
            part = self._frame({"task": record.json(self._stream.history_length)})
            while True:
                await send({"type": "http.response.body", "body": part, "more_body": True})
                if closes(record):
                    break
                part = b": nothing new\n\n"
                if await news.wait(LOOK):
                    part = b""
                # Read in either case: not all that happens is heard, as where a part of the agent has crashed.
                found = await retry(partial(self._service.watch.read, record.task_id), (StorageError, ActorError))
                if found is None:  # its log was removed
                    break
                record = found
                part += b"".join(
                    map(self._frame, ({**update} for update in record.updates[seen:] if isinstance(update, Mapping)))
                )
                seen = len(record.updates)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _frame(self, update: Json) -> bytes:
        return f"data: {encode_json(self._wrap(update))}\n\n".encode("utf-8", "replace")
