"""Requests that a service makes to us: the agreement between the HTTP server and the adapters.

The HTTP server (`pegasus.web`) reads the body within its limit and hands the request to the receiver of the channel, which is the
service's adapter. The receiver checks the signature and returns only when the message is on disk, so that its answer is the
acknowledgement. It never raises for anything that a stranger may send.

    POST /channels/telegram/{secret}      receiver of "telegram"
    POST /channels/slack/events           receiver of "slack"
    POST /channels/sms/twilio             receiver of "sms"

Without a receiver for the type, the server answers 404.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import attrs


@attrs.frozen(eq=False, repr=False)
class WebhookRequest:
    """A request as it came. It has no repr, since path, headers and body hold secrets and people's words.

    Example: `WebhookRequest("POST", "/channels/sms/twilio", {"x-twilio-signature": "…"}, b"From=%2B1…", url)`.
    """

    method: str
    """In upper case."""
    path: str
    """Path without the query, as it was sent (not decoded)."""
    headers: Mapping[str, str]
    """Names in lower case; the values of a repeated one are joined with commas."""
    body: bytes
    """The whole body, within the limit of the server."""
    url: str = ""
    """The whole address as it was requested, with scheme, host and query. Twilio signs it."""


@attrs.frozen
class WebhookAnswer:
    """The answer to a request: `WebhookAnswer(200)`, `WebhookAnswer(401, b"wrong signature")`."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = attrs.field(factory=dict)
    """Further headers."""


class WebhookReceiver(Protocol):
    """Takes the requests of one service."""

    async def receive(self, request: WebhookRequest) -> WebhookAnswer:
        """Return the answer to a request.

        2xx: the message is on disk, or will never be taken. 401: the secret or the signature is wrong. 404: this is not the path of
        the service. 400: a body that makes no sense. 503: the message cannot be kept at the moment; the service sends it again.
        Cancelled, the message may or may not be on disk.
        """
