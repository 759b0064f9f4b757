"""Requests of the Events API: the signature, what a body delivers, and an answer in time.

    read_webhook(request, secret, now)    # Delivery("events_api", {…}), or the answer to something else

**Acknowledging late.** Slack wants an answer to a webhook within 3 seconds, and tries again after a failure: at once, after a minute,
after five (https://docs.slack.dev/apis/events-api#errors). So a request is answered with 503 when its message is not on disk in time,
but its work goes on (`_WebhookDelivery`). When Slack comes again, `SlackIncoming` knows the message, and the answer is 200. The place
in the order of the conversation is taken when the request arrives, before any task is started.

**Signatures.** Slack signs `v0:<timestamp>:<body>` with the app's signing secret. A request that is older than five minutes is
refused, as somebody may have recorded it; within them, what comes twice is told apart by the ids in it.

Source: https://docs.slack.dev/authentication/verifying-requests-from-slack
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final
from urllib.parse import parse_qs

from pegasus.channels.service_contract import WebhookAnswer, WebhookRequest
from pegasus.channels.slack.socket_mode import Delivery
from pegasus.wire import decode_object

ANSWER_TIME: Final = 2.5
"""Seconds until a webhook is answered, so that Slack has the answer within its 3. Then it is asked to come again."""
REPLAY_WINDOW: Final = 300.0
"""Seconds that the clocks may differ."""


def read_webhook(request: WebhookRequest, secret: str, now: float) -> Delivery | WebhookAnswer:
    """Return what a request delivers, or the answer to one that delivers nothing.

    secret: the app's signing secret. now: wall clock, seconds. 401: the signature is missing, wrong or old. 400: a body that makes no
    sense. 200: Slack has asked whether this is the right address. Raises nothing, whatever a stranger sends.
    """
    if request.method != "POST":
        return WebhookAnswer(405, b"POST only")
    # Checked before the body is read, so that a stranger learns nothing about what is understood.
    if not _is_signed(request, secret, now):
        return WebhookAnswer(401, b"wrong signature")
    try:
        return _read_body(request)
    except (ValueError, KeyError, IndexError):
        return WebhookAnswer(400, b"not a delivery of Slack")


def _is_signed(request: WebhookRequest, secret: str, now: float) -> bool:
    """Return whether Slack has sent this within the last minutes."""
    timestamp = request.headers.get("x-slack-request-timestamp", "")
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 16):
        return False
    if abs(now - int(timestamp)) > REPLAY_WINDOW:
        return False
    expected = hmac.new(secret.encode(), b"v0:" + timestamp.encode() + b":" + request.body, hashlib.sha256).hexdigest()
    given = request.headers.get("x-slack-signature", "")
    return hmac.compare_digest(f"v0={expected}".encode(), given.encode())


def _read_body(request: WebhookRequest) -> Delivery | WebhookAnswer:
    """Return the delivery in a body, or the answer to one that has none.

    Raises ValueError, KeyError and IndexError for anything else.
    """
    if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        form = {key: values[0] for key, values in parse_qs(request.body.decode()).items()}
        if "payload" in form:
            return Delivery("interactive", decode_object(form["payload"]))
        if "command" in form:
            return Delivery("slash_commands", form)
        # Slack looks now and then whether the certificate of a command's address is valid.
        return WebhookAnswer(200) if "ssl_check" in form else WebhookAnswer(400, b"no command")
    payload = decode_object(request.body)
    match payload.get("type"):
        case "url_verification":
            return WebhookAnswer(200, str(payload["challenge"]).encode(errors="replace"))
        case "event_callback":
            return Delivery("events_api", payload)
        case _:  # such as app_rate_limited
            return WebhookAnswer(200)
