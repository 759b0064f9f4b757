"""Routes for messages and replies: `POST /api/messages`, `GET /api/replies`.

A client has two ways. It may send a message with `wait` and get the replies of its turn in the response. Or it
sends messages without waiting, and asks for replies with `GET /api/replies?after=N`, where N is the number of
the last reply that it has; asking for what comes after N acknowledges everything up to N.

**Which conversation.** A message names it in `channel`, or it goes to the conversation of its token. Each token
may only use channel types and ids of its own, which are checked here for messages and replies alike.

**What counts as received.** Replies of a turn are acknowledged when the response has been sent, and not before:
a client whose connection breaks can still ask for them. A turn that was not over when the time was is not
acknowledged at all, because its client has to ask for the rest in any case.

Messages are read by the functions that the gateway uses for its protocol (`read_message`), so both take the
same fields with the same limits, and errors name them alike.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Final

import attrs
from starlette.background import BackgroundTask
from starlette.responses import Response

from pegasus.access import MESSAGE
from pegasus.gateway import check_media_size, read_message
from pegasus.messages import Address, InboundMessage, Json, OutboundMessage
from pegasus.protocol import BadFrame, ClientChannel
from pegasus.web.bodies import MessageBody, RepliesAnswer, SentAnswer, TurnAnswer
from pegasus.web.operations import Operation
from pegasus.web.requests import ApiRequest, failures_as_errors, json_response
from pegasus.web.routes.conversations import API, Conversations, channel_id_of
from pegasus.web.visitors import ApiError

LONGEST_WAIT: Final = 3600
"""Seconds that a request may wait."""


def _shown(replies: Iterable[OutboundMessage]) -> tuple[OutboundMessage, ...]:
    """Return replies as they stand in responses.

    The key and the paths of stored files say how the agent keeps a reply; neither belongs to the client.
    """
    return tuple(attrs.evolve(reply, files=(), key="") for reply in replies)


def _check_address(request: ApiRequest, type: str, channel_id: str) -> None:
    """Raise ApiError 403 unless the token may speak and listen there.

    A bridge speaks for many people of one channel type, so its token is not bound to one id.
    """
    token = request.grant.token
    refusal = request.grant.refusal(type, None if token.bridge else channel_id)
    if refusal:
        raise ApiError(403, "forbidden", refusal.replace("the hello", "the request"))


def message_of(request: ApiRequest, fields: Mapping[str, Json]) -> InboundMessage:
    """Return the message of a request. Raises ApiError for what no message may hold, and for a channel that is not the token's."""
    named = fields.get("channel") or {}
    given = named.items() if isinstance(named, Mapping) else ()
    default = {"type": request.grant.token.type or API, "channelId": _own_id(request)}
    # A field that is null counts as missing, as everywhere in the API.
    channel = {**default, **{name: value for name, value in given if value is not None}}
    content = {name: fields[name] for name in ("text", "metadata", "media") if fields.get(name) is not None}
    # Without an id of the client's own the message cannot be recognised when it is sent again.
    id = f"http-{secrets.token_hex(8)}" if fields.get("id") in (None, "") else fields["id"]
    try:
        message = read_message({**content, "id": id, "channel": channel}, ClientChannel(str(channel["type"])))
        check_media_size(message, request.services.gateway_config.now.max_media_bytes)
    except BadFrame as error:
        # The protocol's errors name fields below "message."; here the message is the body itself.
        if error.code == "too_large":
            raise ApiError(413, error.code, error.message.removeprefix("message.")) from None
        raise ApiError(400, "bad_request", error.message.removeprefix("message.")) from None
    _check_address(request, message.channel.type, message.channel.channel_id)
    return message


def _own_id(request: ApiRequest) -> str:
    """Return the conversation of a client that names none."""
    return channel_id_of(request.grant, request.services.gateway_config.now.token)


class ReplyRoutes:
    """Handlers of messages and replies."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def post(self, request: ApiRequest) -> Response:
        """Take a message: 202 when it is on disk, or with `wait` 200 when its turn has ended."""
        wait = request.number("wait", LONGEST_WAIT)
        message = message_of(request, await request.json())
        with failures_as_errors():
            if wait is None:
                await self._conversations.submit(message, request.grant)
                return json_response(SentAnswer(message.id), 202)
            # Cancelled (the client has hung up), the message stays: it is on disk, and its replies wait to be
            # fetched.
            turn = await self._conversations.converse(message, request.grant, wait)
        response = json_response(TurnAnswer(message.id, _shown(turn.replies), turn.is_done, turn.is_stopped))
        if turn.replies and turn.is_done:
            acknowledge = self._conversations.acknowledge_turn
            # Starlette runs it when the whole response was sent.
            response.background = BackgroundTask(acknowledge, message.channel.address, turn.replies)
        return response

    async def replies(self, request: ApiRequest) -> Response:
        """Return the replies of a conversation after a number, and wait for one.

        `seq` of the response is the number to ask with next. Without `wait` the answer comes at once, and may
        be empty.
        """
        # A token may be allowed to hear only, as for a display; otherwise it needs the scope to speak.
        if not request.grant.gets_replies:
            request.require(MESSAGE)
        channel_id = request.text("channelId") or _own_id(request)
        address = Address(request.text("type") or request.grant.token.type or API, channel_id)
        _check_address(request, address.type, address.channel_id)
        after, wait = request.number("after") or 0, request.number("wait", LONGEST_WAIT) or 0
        with failures_as_errors():
            # A token that may only listen must not take replies away from the client that they are for.
            if after and request.grant.allows(MESSAGE):
                await self._conversations.acknowledge(address, after)
            found = await self._conversations.replies_after(address, after, wait)
        return json_response(RepliesAnswer(_shown(found), found[-1].seq if found else after))


def message_operations(conversations: Conversations) -> tuple[Operation, ...]:
    """Return the operations of this file."""
    routes = ReplyRoutes(conversations)
    return (
        Operation(
            "POST",
            "/api/messages",
            routes.post,
            "Send a message; with `wait` get the replies",
            MESSAGE,
            query={"wait": int},
            body=MessageBody,
        ),
        Operation(
            "GET",
            "/api/replies",
            routes.replies,
            "Replies of a conversation, long poll",
            "",
            query={"channelId": str, "type": str, "after": int, "wait": int},
        ),
    )
