"""The forms of the routes, for `/openapi.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from pegasus.a2a.forms import PushForm, SendForm
from pegasus.messages import Json, Metadata
from pegasus.web import Form

_STREAM: Final = "text/event-stream"


@attrs.frozen
class RpcCall:
    """A request of JSON-RPC."""

    jsonrpc: str
    """Always "2.0"."""
    method: str
    id: Json = None
    params: Metadata = attrs.field(factory=dict)


@attrs.frozen
class RpcFailure:
    """An error of JSON-RPC."""

    code: int
    message: str
    data: tuple[Metadata, ...] = ()


@attrs.frozen
class RpcAnswer:
    """An answer of JSON-RPC, with a result or an error."""

    jsonrpc: str
    id: Json = None
    result: Metadata = attrs.field(factory=dict)
    error: RpcFailure | None = None


@attrs.frozen
class StatusJson:
    """A google.rpc.Status. An error that comes before the protocol is spoken has a word as its code, and no status."""

    code: int | str
    message: str
    status: str = ""
    details: tuple[Metadata, ...] = ()


@attrs.frozen
class FailureAnswer:
    """An error of HTTP+JSON."""

    error: StatusJson


@attrs.frozen
class TaskAnswer:
    """The answer to a message."""

    task: Metadata


@attrs.frozen
class KeysAnswer:
    """A JSON Web Key Set."""

    keys: tuple[Metadata, ...]


_VERSION: Final[Mapping[str, Any]] = {"A2A-Version": str}
_HISTORY: Final[Mapping[str, Any]] = {**_VERSION, "historyLength": int}
_LIST: Final[Mapping[str, Any]] = {
    **_HISTORY,
    "contextId": str,
    "status": str,
    "pageSize": int,
    "pageToken": str,
    "statusTimestampAfter": str,
    "includeArtifacts": bool,
}


def _rest(**fields: Any) -> Form:
    return Form(**{"query": _VERSION, "answer": Metadata, **fields, "error": FailureAnswer, "errors": (404, 415, 429)})


_FORMS: Final[Mapping[str, Form]] = {
    "card": Form(answer=Metadata, others={304: None}, errors=(503,)),
    "keys": Form(answer=KeysAnswer, errors=(503,)),
    "rpc": Form(answer=RpcAnswer, media=(_STREAM,), body=RpcCall, query=_VERSION),
    "SendMessage": _rest(answer=TaskAnswer, body=SendForm),
    "SendStreamingMessage": _rest(answer=None, media=(_STREAM,), body=SendForm),
    "GetTask": _rest(query=_HISTORY),
    "ListTasks": _rest(query=_LIST),
    "SubscribeToTask": _rest(answer=None, media=(_STREAM,)),
    "CreateTaskPushNotificationConfig": _rest(body=PushForm),
}
_OTHER: Final = _rest()


def form_of(operation: str) -> Form:
    """Return the form of an operation of the protocol, or of "card", "keys" and "rpc"."""
    return _FORMS.get(operation, _OTHER)
