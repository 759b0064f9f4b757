"""Webhooks of chat services: the request goes to the receiver of its channel, which verifies and answers it.

The body is read within the bounds of all bodies. Everything else is the receiver's: the signature, the path behind the channel's
type, and the message, which is on disk when it answers.
"""

from __future__ import annotations

from starlette.responses import Response

from pegasus.channels import WebhookRequest
from pegasus.web.errors import ApiError
from pegasus.web.operations import Operation
from pegasus.web.requests import ApiRequest, failures_as_errors


async def receive_webhook(request: ApiRequest) -> Response:
    """Hand a request to the receiver of a channel, and return its answer."""
    receiver = request.services.receivers.get(request.path["type"])
    if receiver is None:
        raise ApiError(404, "not_found", "this channel is not configured")
    headers: dict[str, str] = {}
    for name, value in request.http.headers.items():
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    scope = request.http.scope
    path, query = scope["raw_path"].decode("ascii"), scope["query_string"].decode("ascii")
    url = f"http://{headers.get('host', '')}{path}" + (f"?{query}" if query else "")
    with failures_as_errors():
        answer = await receiver.receive(WebhookRequest(request.http.method, path, headers, await request.body(), url))
    if answer.status >= 400 and answer.content_type != "application/json":
        codes = {401: "unauthorized", 404: "not_found", 503: "unavailable"}
        reason = answer.body.decode("utf-8", "replace") or "the channel refuses this request"
        raise ApiError(answer.status, codes.get(answer.status, "bad_request"), reason)
    return Response(answer.body, answer.status, dict(answer.headers), answer.content_type)


def webhook_operations() -> tuple[Operation, ...]:
    """Return the operations of this file."""
    path = "/channels/{type}/{rest:path}"
    return (
        Operation("POST", path, receive_webhook, "A webhook of a chat service, signed by it", None),
        Operation("GET", path, receive_webhook, "A file that a chat service fetches", None, allows_head=True),
    )
