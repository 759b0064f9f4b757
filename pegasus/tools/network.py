"""Tools that speak HTTP: `http_get`, `http_post`, `http_request`."""

from __future__ import annotations

import json
from typing import Any, Final

from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.tools.addresses import AddressGuard
from pegasus.tools.base import Effect, Tool, ToolContext, ToolError, parameters
from pegasus.tools.bodies import body_fields
from pegasus.tools.fetch import fetch

_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_CHANGING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_LONGEST_HEADER: Final = 1000  # characters
_HEADERS_ROOM: Final = 3000  # characters of a result that are left for what is not the body

_URL: Final[Json] = {"type": "string", "description": "http:// or https:// address"}
_HEADERS: Final[Json] = {"type": "object", "description": "Request headers", "additionalProperties": {"type": "string"}}
_BODY: Final[Json] = {
    "type": ["string", "object", "array"],
    "description": "Text as it is to be sent, or an object or array, which is sent as JSON",
}
_ABOUT: Final = (
    "Returns url, status, statusText, headers and body; redirects are followed. Only public addresses are reached. "
    "Long bodies are cut."
)

_GET: Final = ToolSpec(
    "http_get", f"Fetch a web address by GET. {_ABOUT}", parameters({"url": _URL, "headers": _HEADERS}, "url")
)
_POST: Final = ToolSpec(
    "http_post",
    f"Send a body to a web address by POST. {_ABOUT}",
    parameters({"url": _URL, "body": _BODY, "headers": _HEADERS}, "url"),
)
_REQUEST: Final = ToolSpec(
    "http_request",
    f"Send any HTTP request. {_ABOUT}",
    parameters(
        {"method": {"type": "string", "enum": list(_METHODS)}, "url": _URL, "body": _BODY, "headers": _HEADERS},
        "method",
        "url",
    ),
)
_MORE: Final = "Ask for a part of it, if the server offers that."


def network_tools(guard: AddressGuard) -> tuple[Tool, ...]:
    """`http_get`, `http_post` and `http_request`. guard: which addresses they reach."""

    async def http_get(arguments: Metadata, context: ToolContext) -> Json:
        return await _send("GET", arguments, context, guard)

    async def http_post(arguments: Metadata, context: ToolContext) -> Json:
        return await _send("POST", arguments, context, guard)

    async def http_request(arguments: Metadata, context: ToolContext) -> Json:
        return await _send(str(arguments["method"]), arguments, context, guard)

    return (
        Tool(_GET, http_get, "network", Effect.PURE, more=_MORE),
        Tool(_POST, http_post, "network", Effect.ONCE, more=_MORE),
        Tool(_REQUEST, http_request, "network", Effect.ONCE, more=_MORE),
    )


async def _send(method: str, arguments: Metadata, context: ToolContext, guard: AddressGuard) -> Json:
    given: Any = arguments.get("headers") or {}
    headers = {name.lower(): value for name, value in given.items()}
    body = _body(arguments.get("body"), headers)
    if method in _CHANGING and context.key:
        headers.setdefault("idempotency-key", context.key)  # a server that knows it does the same thing once
    answer = await fetch(method, str(arguments["url"]), headers, body, guard)
    fields: Any = body_fields(answer, max(context.max_result - _HEADERS_ROOM, context.max_result // 2))
    return {
        "url": answer.url,
        "status": answer.status,
        "statusText": answer.reason,
        "headers": {name: value[:_LONGEST_HEADER] for name, value in answer.headers.items()},
        **fields,
    }


def _body(body: Json, headers: dict[str, str]) -> bytes | None:
    """The bytes to send; what is no text becomes JSON, and says so unless the headers say something else."""
    if body is None:
        return None
    if not isinstance(body, str):
        headers.setdefault("content-type", "application/json")
        body = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    elif "content-type" not in headers:
        headers["content-type"] = "application/json" if _is_json(body) else "text/plain; charset=utf-8"
    try:
        return body.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"the body holds characters that are no text: {error}") from error


def _is_json(text: str) -> bool:
    """Models hand over JSON as text more often than as an object."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
