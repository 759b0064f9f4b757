"""One message to a push service (RFC 8030), and what its answer means.

An address comes from whoever subscribes. So it is treated as one that a stranger chose: only https, only public addresses, and a
redirect is not followed. `push.allowed_hosts` permits other addresses, for a push service of one's own; without TLS it may be on this
machine alone.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import attrs
import trio

from pegasus.push.keys import VapidKey, encrypt, read_point, read_secret
from pegasus.push.notices import PushNotice
from pegasus.push.subscriptions import PushSubscription
from pegasus.retry import requested_pause
from pegasus.tools import AddressGuard, FetchLimits, HttpAnswer, ToolError, fetch

DEADLINE: Final = 30.0
"""Seconds for a whole request."""
LONGEST_WAIT: Final = 24 * 3600.0
"""Seconds of a Retry-After that are waited at most."""
_ANSWER: Final = FetchLimits(max_body=2000, seconds=10.0, redirects=0)


class PushState(Enum):
    """Meaning of an answer."""

    TAKEN = "taken"
    """The service has it, and brings it to the browser."""
    GONE = "gone"
    """There is no such subscription any more, or it was made with another key."""
    REFUSED = "refused"
    """This message is refused, and will be the next time."""
    LATER = "later"
    """Another attempt may succeed."""


@attrs.frozen
class PushResult:
    """Outcome of an attempt."""

    state: PushState
    reason: str = ""
    """Reason for the log."""
    after: float = 0.0
    """Seconds that the service asks to wait."""


async def send_push(
    row: PushSubscription, notice: PushNotice, key: VapidKey, guard: AddressGuard, now: int, contact: str
) -> PushResult:
    """Send a message to the push service of a browser. now: wall clock, ms. Raises nothing that is expected."""
    try:
        body = encrypt(notice.content, read_point(row.p256dh), read_secret(row.auth))
    except ValueError as error:  # somebody has edited the file
        return PushResult(PushState.GONE, f"its keys cannot be used: {error}")
    headers = {
        "authorization": key.authorization(row.endpoint, now, contact),
        "content-encoding": "aes128gcm",
        "content-type": "application/octet-stream",
        "ttl": str(notice.ttl),
        "urgency": notice.urgency,
        "topic": notice.topic,
    }
    try:
        with trio.fail_after(DEADLINE):
            answer = await fetch(guard, "POST", row.endpoint, headers, body, limits=_ANSWER)
    except ToolError as error:
        return PushResult(PushState.LATER, str(error))
    except trio.TooSlowError:
        return PushResult(PushState.LATER, f"no answer within {DEADLINE:g} s")
    return _read(answer, now)


def _read(answer: HttpAnswer, now: int) -> PushResult:
    """Return the meaning of an answer."""
    said = f"status {answer.status} {answer.body[:200].decode(errors='replace')}".strip()
    if 200 <= answer.status < 300:
        return PushResult(PushState.TAKEN)
    # 401 and 403: the subscription belongs to another key, such as that of a home that was restored without its own.
    if answer.status in (401, 403, 404, 410):
        return PushResult(PushState.GONE, said)
    if answer.status == 429 or answer.status >= 500:
        pause = requested_pause(answer.headers, now / 1000) or 0.0
        return PushResult(PushState.LATER, said, min(pause, LONGEST_WAIT))
    return PushResult(PushState.REFUSED, said)
