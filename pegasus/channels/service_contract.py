"""Agreement between the adapter of a chat service and the rest of the product: context and state, refusals, webhooks.

* `ServiceContext` is what the composition root gives it, and `ChannelState` is how it is, for people.
* Refusals are everything that a service may say instead of yes. The code of a service translates into them, and each kind is handled
  in one place, `ServiceAdapter`. The fourth kind, `ReplyRefused`, is known to every `Adapter`.
* `WebhookRequest` is a request that the service makes to us. The HTTP server (`pegasus.web`) reads the body within its limit and hands
  the request to the receiver of the channel, which is the service's adapter. The receiver checks the signature and returns only when
  the message is on disk, so that its answer is the acknowledgement. It never raises for anything that a stranger may send.

      POST /channels/telegram/{secret}      receiver of "telegram"
      POST /channels/slack/events           receiver of "slack"
      POST /channels/sms/twilio             receiver of "sms"

  Without a receiver for the type, the server answers 404.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from random import Random
from typing import Any, Final, Protocol

import attrs

from pegasus.access import AnswerScope, is_owner
from pegasus.intake import Intake
from pegasus.messages import ChannelInfo, OutboundMessage
from pegasus.settings import LiveValue

APPROVAL: Final = "approval"
"""Key of a reply's metadata: id of the approval that it asks for. It is shown with buttons where a service has them."""
SCOPES_OF_YES: Final = "scopes"
"""Key of the metadata of such a reply: scopes that a yes may have, the narrowest first."""
_LABELS: Final[Mapping[str, str]] = {
    AnswerScope.ONCE: "Allow once",
    AnswerScope.ARGUMENTS: "Same call always",
    AnswerScope.TOOL: "Tool in this task",
    AnswerScope.SERVER: "Server in this task",
    AnswerScope.HOUR: "Tool for an hour",
    AnswerScope.FOREVER: "Tool always",
}
"""Labels of the buttons of a yes, short enough for two beside each other on a phone."""


def yes_buttons(reply: OutboundMessage) -> list[tuple[str, str]]:
    """Return scope and label of each yes that a reply with an approval offers.

    >>> yes_buttons(OutboundMessage("?", channel, 1, {"approval": "a-7f3k", "scopes": ["once", "tool"]}))
    [('once', 'Allow once'), ('tool', 'Tool in this task')]
    """
    scopes = reply.metadata.get(SCOPES_OF_YES)
    offered = scopes if isinstance(scopes, list | tuple) else (AnswerScope.ONCE.value, AnswerScope.ARGUMENTS.value)
    return [(str(scope), _LABELS[str(scope)]) for scope in offered if scope in _LABELS]


@attrs.frozen
class ChannelState:
    """State of a service's adapter, for people: `ChannelState("telegram", "parked", "the bot token was refused")`."""

    type: str
    """The channel type, as "telegram"."""
    state: str
    """"connecting", "up", "down" (tried again), "parked" (not tried again), or "elsewhere" (another node serves it)."""
    reason: str = ""
    """Reason why it is down or parked. Never a secret."""
    name: str = ""
    """Name of the agent on the service, such as "@pegasus_bot"."""


async def _no_answer(*_: object) -> str:
    return "This cannot be answered here."


@attrs.frozen(eq=False, repr=False, kw_only=True)
class ServiceContext:
    """Everything that the adapters of services are given by the composition root."""

    intake: Intake
    """The way in."""
    clock: Callable[[], int]
    """Wall clock, ms since the epoch."""
    random: Random = attrs.field(factory=Random)
    """For pauses. No secret comes from it."""
    owners: LiveValue[Collection[str]] = attrs.field(factory=lambda: LiveValue(()))
    """The setting `agent.owners`."""
    public_url: str = ""
    """The setting `http.public_url`: where the outside reaches this machine. "" if it does not."""
    commands: Mapping[str, str] = attrs.field(factory=dict)
    """Commands with their meaning, for services that list them. Names with their slash."""
    decide: Callable[[str, str, str], Awaitable[str]] = _no_answer
    """Answers an approval, or lets in the person who has a code: (id, decision, by) → a sentence for the person who has clicked.

    The decision is "deny", or the scope of a yes. It checks nothing: whoever calls it has made sure that an owner has clicked."""
    transport: Any = None
    """An `httpx2.AsyncBaseTransport` in place of the network, for tests; None: the network."""

    def is_owner(self, channel: ChannelInfo) -> bool:
        """Return whether the person on this channel is an owner."""
        return is_owner(channel, self.owners.now)


# ------------------------------------------------------------------ refusals


class ServiceDown(Exception):
    """The service gave no answer that counts: no connection, a timeout, a 5xx. Tried again for ever. str() is the reason.

    Example: `raise ServiceDown("cannot connect", may_have_acted=False)`. `ServiceCalls` waits and calls again;
    with `may_have_acted` it is first looked up whether the message is there (`attempts`).
    """

    def __init__(self, reason: str, *, may_have_acted: bool = True, says_failed: bool = False) -> None:
        super().__init__(reason)
        self.may_have_acted = may_have_acted
        """The service may have done what it was asked for. False if the request never got there, or was answered with a failure."""
        self.says_failed = says_failed
        """True if the answer was a failure. A server in front of the service may say so, though it is done."""


class RateLimited(Exception):
    """The service wants to be left alone for some seconds (429). Example: `RateLimited(3.0)`."""

    def __init__(self, seconds: float, *, for_all: bool = False) -> None:
        super().__init__(f"rate limit: {seconds:g} s")
        self.seconds = seconds
        self.for_all = for_all
        """The limit is the one of the whole account, and not of a conversation."""


class CredentialsRefused(Exception):
    """The service does not take the token any more. The channel is parked. str() is the reason, without the token."""


class NotKept(Exception):
    """A message of somebody may not be on disk: the disk refuses, or too many messages wait. The service is to send it again.

    So it is if the disk does not let the people be read whom the owner has let in, and the writer may be one of them.

    Example: `raise NotKept("20 messages wait")` by `MessageIntake.accept`. The adapter answers 503, or polls
    for the same updates again.
    """


# ------------------------------------------------------------------ webhooks


@attrs.frozen(eq=False, repr=False)
class WebhookRequest:
    """A request as it came. It has no repr, since path, headers and body hold secrets and people's words."""

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
    """HTTP status. From 400 on the server sends the body as the message of an error object, unless it is JSON
    already."""
    body: bytes = b""
    """Content; b"" for none."""
    content_type: str = "text/plain; charset=utf-8"
    """Its Content-Type. "application/json" marks an error object that the receiver has made itself."""
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
