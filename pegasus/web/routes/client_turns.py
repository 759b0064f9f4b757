"""A turn for a client of OpenAI's interfaces: its message, the conversation that it belongs to, and the answer, streamed or not.

The messages of these interfaces name no conversation of the agent; `client_chats` finds it. What is sent to the agent is the new
message alone, with the instructions of the client as what they are, and what the agent has not heard of the chat as text from outside.

A stream is a text that only grows, and a draft may change. `GrowingText` sends of a draft what continues the text before it. A client
that hangs up stops the turn, which is how front ends stop an answer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import attrs
import trio
from starlette.types import Receive, Scope, Send

from pegasus.channels import GrowingText, OnSaid
from pegasus.formatting import first_cause, quote
from pegasus.intake import NAME_RULE, is_name
from pegasus.messages import INSTRUCTIONS, RELAYED, ChannelInfo, InboundMessage, Json, OutboundMessage, ReplyDraft
from pegasus.models import Label, ModelError
from pegasus.web.config import WebServices
from pegasus.web.requests import QUIET, ApiRequest, EventStreamResponse, failures_as_errors
from pegasus.web.routes.client_chats import (
    CONVERSATION,
    FRONT_END,
    ClientChats,
    ClientRequest,
    KnownTurn,
    Placed,
    parse_request,
    token_of,
)
from pegasus.web.routes.conversations import API, Conversations, TurnTranscript, channel_id_of, new_message_id
from pegasus.web.routes.messages import LONGEST_WAIT, message_of
from pegasus.web.visitors import ApiError

MODEL: Final = "pegasus"
"""The model that is listed. A request may name any."""
_SEAM: Final = 64
"""Characters by which the end of the last reasoning is found in the next."""
_FIELDS: Final = {"channel.channelId": "user", "id": "Idempotency-Key"}
"""Names of what a message holds, as clients of these interfaces know it."""
_FAILURES: Final = {"budget": (429, "overloaded"), "request": (400, "bad_request"), "overflow": (400, "bad_request")}
"""Statuses of a model's failures that are the client's, by kind; others are those of the model."""
IDEMPOTENCY: Final = "idempotency-key"
"""Header field with a client's own id of a request, which it may send again."""


def text_and_media(content: Json) -> tuple[str, list[Json]]:
    """Return the text and the attachments of a message's content: a text, or a list of parts.

    Pictures and files come as data URLs, recordings in base64. Raises ApiError for anything else.
    """
    if isinstance(content, str):
        return content, []
    if not isinstance(content, list):
        raise ApiError(400, "bad_request", "messages: content: allowed: a text or a list of parts")
    texts: list[str] = []
    media: list[Json] = []
    for part in content:
        fields = part if isinstance(part, Mapping) else {}
        # The content of a part stands under the name of its type.
        inner = fields.get(str(fields.get("type")))
        match fields.get("type"):
            case "text" if isinstance(inner, str):
                texts.append(inner)
            case "image_url" if isinstance(inner, Mapping) and isinstance(url := inner.get("url"), str):
                if url[:5].lower() == "data:":
                    # A picture has no name in this format.
                    media.append(_attachment(f"image-{len(media) + 1}", url))
                else:
                    texts.append(url)
            case "file" if isinstance(inner, Mapping) and isinstance(data := inner.get("file_data"), str):
                media.append(_attachment(str(inner.get("filename") or f"file-{len(media) + 1}"), data))
            case "input_audio" if isinstance(inner, Mapping) and isinstance(data := inner.get("data"), str):
                name = str(inner.get("format") or "wav")
                media.append({"name": f"recording-{len(media) + 1}.{name}", "mime": f"audio/{name}", "data": data})
            case kind:
                raise ApiError(
                    400,
                    "bad_request",
                    f"messages: content: found a part of type {kind!r:.40}, allowed: text, image_url, file, input_audio",
                )
    return "\n".join(texts), media


def _attachment(name: str, url: str) -> Json:
    """Return a file as the agent's protocol has it.

    Raises ApiError for anything but base64: an address would have to be fetched, by a machine that may see more
    than its client.
    """
    head, comma, data = url[5:].partition(",") if url[:5].lower() == "data:" else ("", "", "")
    if not comma or not head.endswith(";base64"):
        raise ApiError(400, "bad_request", "messages: content: allowed: a data URL in base64")
    return {
        "name": name,
        "mime": head.removesuffix(";base64").partition(";")[0] or "application/octet-stream",
        "data": data,
    }


class ReasoningPieces:
    """Turns the newest part of the reasoning, again and again, into pieces that follow each other. Pure.

    Clients show them apart from the text, as `reasoning_content`. They come with `agent.show_reasoning` only.

    Example: `pieces.piece("First I")` is "First I", and `pieces.piece("First I look")` is then " look".
    """

    def __init__(self) -> None:
        self._last = ""

    def piece(self, newest: str) -> str:
        """Return what is new. The beginning may have been left out since; without a seam, all of it is new."""
        tail = self._last[-_SEAM:]
        at = newest.rfind(tail) if tail else -1
        piece = newest if at < 0 else newest[at + len(tail) :]
        self._last = newest or self._last
        return piece


@attrs.frozen(eq=False, repr=False)
class ClientMessage:
    """A message of a client: `ClientMessage.parse(fields["messages"], fields.get("user"))`."""

    history: ClientRequest
    """Facts that tell which chat it is about."""
    text: str
    """Text of the new message."""
    media: Sequence[Json]
    """Its files, as the agent's protocol has them."""
    user: str = ""
    """Field `user`, "" for none."""
    follows: str = ""
    """Id of the message before it in its chat, where a client names that; "" for none."""

    @classmethod
    def parse(cls, messages: Json, user: Json, follows: str = "") -> ClientMessage:
        """Return what the fields of a request are. Raises ApiError for a message that makes no sense."""
        history = parse_request(messages)
        if history is None:
            raise ApiError(400, "bad_request", "messages: found no message of the role user")
        text, media = text_and_media(history.new)
        if user is not None and not isinstance(user, str):
            raise ApiError(400, "bad_request", "user: allowed: a text")
        if user and not is_name(user):
            raise ApiError(400, "bad_request", f"user: found {quote(user, 80)}, allowed: {NAME_RULE}")
        return cls(history.with_files(media), text, media, user or "", follows)


@attrs.define(eq=False, repr=False)
class ClientTurn:
    """A turn that has begun."""

    message: InboundMessage
    """The message as it is sent to the agent."""
    placed: Placed | None = None
    """Its place in its chat; None where it has none of its own, or has had it before."""
    known: KnownTurn | None = None
    """The turn as its chat has it."""


class ClientTurns:
    """Turns for clients of OpenAI's interfaces."""

    def __init__(self, conversations: Conversations, services: WebServices) -> None:
        self._conversations = conversations
        self._services = services
        self._chats = ClientChats(services.intake.journal)

    async def is_about_a_chat(self, request: ApiRequest, message: ClientMessage) -> bool:
        """Return whether a front end asks for something about a chat, such as its title: one message with the history in it."""
        if message.history.turns or message.media:
            return False
        with failures_as_errors():
            await self._chats.read()
        return self._chats.is_about_a_chat(self._token_of(request), message.text)

    def _token_of(self, request: ApiRequest) -> str:
        return token_of(request.grant, self._services.gateway_config.now.token)

    async def begin(self, request: ApiRequest, sent: ClientMessage) -> ClientTurn:
        """Return the turn of a message, which is not sent yet. Raises ApiError for one that no conversation may have."""
        with failures_as_errors():
            await self._chats.read()
        # No other task runs from here to the end: two requests at once find each other's messages.
        id, grant = request.http.headers.get(IDEMPOTENCY, ""), request.grant
        token, placed, channel = self._token_of(request), None, dict[str, Json](type=API)
        is_bound = bool(grant.token.channel_id) and not grant.is_home
        if not is_bound:
            if not grant.is_home:  # rules and limits know the client by its token, whatever chat it is
                channel["userId"] = token
            repeated = self._chats.find_message(token, id) if id else None
            if repeated is None:
                placed = self._place(request, sent, token)
            channel["channelId"] = placed.chat.id if placed is not None else repeated.id if repeated is not None else ""
        fields: dict[str, Json] = {"id": id or None, "text": sent.text, "media": list(sent.media) or None}
        try:
            message = message_of(request, {**fields, "channel": channel})
        except ApiError as error:
            raise _in_words_of_clients(error) from None
        # Front ends put texts of files and of pages into what they send as the person's.
        metadata = {**message.metadata, RELAYED: True, **(placed.quotes() if placed is not None else {})}
        message = attrs.evolve(message, metadata=metadata)
        if not id:
            message = attrs.evolve(message, id=new_message_id(message.channel.address))
        known = self._chats.begin(placed, sent.history, message.id) if placed is not None else None
        return ClientTurn(message, placed, known)

    def _place(self, request: ApiRequest, sent: ClientMessage, token: str) -> Placed:
        if sent.follows:
            placed = self._chats.place_after(sent.history, token, sent.follows)
            if placed is None:
                message = (
                    f"previous_response_id: found {quote(sent.follows, 80)}, which is in no conversation of this token"
                )
                raise ApiError(404, "not_found", message)
            return placed
        headers = request.http.headers
        front_end = headers.get(FRONT_END, "")
        named = headers.get(CONVERSATION, "") or front_end
        return self._chats.place(sent.history, token, user=sent.user, named=named, is_front_end=bool(front_end))

    async def run(
        self,
        request: ApiRequest,
        sent: ClientMessage,
        on_said: OnSaid | None = None,
        on_accepted: Callable[[ClientTurn], Awaitable[None]] | None = None,
    ) -> tuple[ClientTurn, TurnTranscript]:
        """Send a message, and return when its turn has ended. Its replies count as received.

        The turn is stopped if the client hangs up: that is how front ends stop an answer. A client that names its request by an
        `Idempotency-Key` may send it again, so that its turn goes on; but not when its token was revoked.
        """
        turn = await self.begin(request, sent)
        message, transcript, is_accepted = turn.message, None, False

        async def accepted() -> None:
            nonlocal is_accepted
            is_accepted = True
            if turn.placed is not None and turn.known is not None:
                await self._chats.keep(turn.placed, turn.known)
            if on_accepted is not None:
                await on_accepted(turn)

        added = turn.placed.metadata if turn.placed is not None else {}
        if sent.history.instructions:
            added = {**added, INSTRUCTIONS: sent.history.instructions}
        try:
            with failures_as_errors():
                transcript = await self._conversations.converse(
                    message,
                    request.grant,
                    LONGEST_WAIT,
                    on_said,
                    on_accepted=accepted,
                    wants_unasked=True,
                    added=added,
                )
        except ApiError as error:
            raise _in_words_of_clients(error) from None
        finally:
            may_repeat = IDEMPOTENCY in request.http.headers and not request.has_lost_rights
            if transcript is None and (request.has_gone or request.has_lost_rights) and not may_repeat:
                self._services.withdraw(message)
            if not is_accepted and turn.placed is not None and turn.known is not None:
                self._chats.drop(turn.placed, turn.known)
        if transcript.replies:
            # Before the answer: whoever has it and asks for what is unread must not be given it again.
            await self._conversations.acknowledge_turn(message.channel.address, transcript.replies)
        return turn, transcript

    async def answer(self, request: ApiRequest, sent: ClientMessage) -> tuple[ClientTurn, TurnTranscript, str]:
        """Do what `run` does, and return the answer as one text, too: the replies, with an empty line between them."""
        turn, transcript = await self.run(request, sent)
        text = "\n\n".join(reply.text_with_names for reply in transcript.replies)
        self.note_answer(request, turn, transcript, text)
        return turn, transcript, text

    def note_answer(self, request: ApiRequest, turn: ClientTurn, transcript: TurnTranscript, text: str) -> None:
        """Note the text that a client gets. To be called before its last part is sent, since the next request may come at once."""
        chat, id = turn.message.channel.channel_id, turn.message.id
        if transcript.is_done and self._chats.note_answer(chat, id, text):
            request.nursery.start_soon(self._chats.keep_answer, chat, id)

    def usage_of(self, transcript: TurnTranscript) -> tuple[int, int, int]:
        """Return the tokens that all calls of models for the message have used so far: read, written, read from a cache."""
        used = self._services.item_usage(transcript.item)
        return used.prompt_tokens, used.completion_tokens, used.cache_read_tokens

    @property
    def now(self) -> int:
        """Wall clock, seconds."""
        return int(self._services.clock() / 1000)


def _in_words_of_clients(error: ApiError) -> ApiError:
    """Return an error with the names that clients know."""
    name, colon, rest = error.message.partition(":")
    return ApiError(error.status, error.code, f"{_FIELDS.get(name, name)}{colon}{rest}")


def model_of(fields: Mapping[str, Json]) -> str:
    """Return the model of a request. Clients show the name that they have asked for, so it is given back, whatever it is."""
    model = fields.get("model")
    return model if isinstance(model, str) and model else MODEL


def label_of(request: ApiRequest, role: str) -> Label:
    """Return what a call of a model for a client is counted by: its conversation, and a guest's token."""
    grant, services = request.grant, request.services
    channel = ChannelInfo(API, channel_id_of(grant, services.gateway_config.now.token))
    is_owner = grant.is_owner(channel, services.intake.owners.now)
    return Label(role, channel, guest="" if is_owner else grant.account_of(channel, is_bridge=False))


def model_failure(error: ModelError) -> ApiError:
    """Return the answer to a call of a model that has failed. What the client can change is a 4xx."""
    status, code = _FAILURES.get(error.kind, (503, "unavailable"))
    return ApiError(status, code, str(error))


class ClientStream(EventStreamResponse):
    """A turn as server-sent events. Subclasses know the events; see `begin_events` and what follows it.

    One task waits for the turn and sends its pieces. A second one sends comments while nothing is said, since
    proxies and clients give up on a silent connection. The status is sent when the message is on disk: a refusal before that has a
    status of its own, by which clients know whether to try again, and an error after that is an event.
    """

    def __init__(self, turns: ClientTurns, request: ApiRequest, sent: ClientMessage) -> None:
        super().__init__()
        self.turns = turns
        self._request = request
        self._sent = sent
        self._growing = GrowingText()
        self._thoughts = ReasoningPieces()
        self._is_begun = False
        """The status was sent."""
        self._sending = trio.Lock()
        """Held while something is sent: pieces and comments come from two tasks."""
        self.text = ""
        """The answer so far."""

    @abstractmethod
    async def begin_events(self, turn: ClientTurn) -> None:
        """Send what comes before the answer."""

    @abstractmethod
    async def piece(self, text: str) -> None:
        """Send a part of the answer."""

    async def thought(self, text: str) -> None:
        """Send a part of the reasoning, if clients can read it."""

    @abstractmethod
    async def end_events(self, transcript: TurnTranscript) -> None:
        """Send what comes after the answer."""

    @abstractmethod
    async def error_events(self, error: ApiError) -> None:
        """Send what ends a stream that fails."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream the turn. Raises ApiError for a refusal before the first byte. Cancelled: the client has gone, see `run`."""
        self._send = send
        error: BaseException | None = None
        try:
            async with trio.open_nursery() as self._nursery:
                turn, transcript = await self.turns.run(self._request, self._sent, self._take, self._begin)
                # Ends the comments that keep the connection open.
                self._nursery.cancel_scope.cancel()
        except* ApiError as group:
            error = first_cause(group)  # several may have come at the same time; the client gets one
        if error is not None and not self._is_begun:
            raise error  # a refusal has its status, by which clients know whether to try again
        if isinstance(error, ApiError):
            await self.error_events(error)
        else:
            self.turns.note_answer(self._request, turn, transcript, self.text)
            await self.end_events(transcript)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _begin(self, turn: ClientTurn) -> None:
        """Begin the response: the message is on disk, so that an error is an event from now on."""
        self._is_begun, self.turn = True, turn
        await self._send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await self.begin_events(turn)
        self._nursery.start_soon(self._keep_alive)

    async def _take(self, message: OutboundMessage | ReplyDraft) -> None:
        """Send what is new of a draft or a reply; nothing if that is nothing."""
        if isinstance(message, ReplyDraft):
            if thought := self._thoughts.piece(message.reasoning):
                await self.thought(thought)
            piece = self._growing.draft(message.text)
        else:
            piece = self._growing.reply(message.text_with_names)
        if piece:
            self.text += piece
            await self.piece(piece)

    async def write(self, text: str) -> None:
        """Send bytes of the stream, and note when: a comment is only due after a silence."""
        async with self._sending:
            self._written_at = trio.current_time()
            body = text.encode("utf-8", "replace")
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def _keep_alive(self) -> None:
        """Send a comment after each QUIET seconds in which nothing was sent, until cancelled."""
        while True:
            await trio.sleep_until(self._written_at + QUIET)
            if trio.current_time() >= self._written_at + QUIET:
                await self.write(": the agent is thinking\n\n")
