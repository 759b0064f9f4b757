"""The API of OpenAI's chat, as far as front ends use it: `POST /v1/chat/completions`, `GET /v1/models`.

Any client of that API can talk to the agent when its base URL is changed. The agent keeps the conversation itself: only the last
user message of a request is new input, and what the client sends before it, system messages and tools included, is not taken in. The
texts of the turn's replies are the answer, with an empty line between them; a turn in silence is an answer with empty content. `user`
is the conversation, else one that belongs to the token.

What of the format means something here:

* `finish_reason` is "stop" for a turn that has ended, and "length" for one that still works after LONGEST_WAIT: what it has said
  until then is the answer.
* A stream begins with its status only when the message is on disk. So a refusal before that (a full queue, a bad request) has a status
  of its own, by which clients know whether to try again. An error after that is an event of the stream.
* A client that hangs up stops the turn, which is how front ends stop an answer. One that sends an `Idempotency-Key` may lose its
  connection and send the request again: the turn goes on, and a turn that has ended is answered again from memory.
* Front ends ask models for more than answers: for the title of a chat, for tags, to merge or to continue answers. The agent would take
  that for something that a person has said, or do again what it has done. So it is answered here (`answer_without_agent`).

A stream is a text that only grows, and a draft may change. `GrowingText` sends of a draft what continues the text before it.

Source of the format: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import attrs
import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pegasus.access import MESSAGE
from pegasus.channels import GrowingText, OnSaid
from pegasus.formatting import first_cause, quote
from pegasus.messages import RELAYED, InboundMessage, Json, OutboundMessage, ReplyDraft
from pegasus.web.config import WebServices
from pegasus.web.operations import Operation
from pegasus.web.requests import QUIET, ApiRequest, EventStreamResponse, failures_as_errors, json_response
from pegasus.web.routes.conversations import API, Conversations, TurnTranscript, new_message_id
from pegasus.web.routes.messages import LONGEST_WAIT, message_of
from pegasus.web.visitors import ApiError
from pegasus.wire import encode_json

MODEL: Final = "pegasus"
"""The model that is listed. A request may name any."""
CHUNK: Final = "chat.completion.chunk"
"""Type of the parts of a streamed answer."""
DONE: Final = "[DONE]"
"""Last event of a streamed answer."""
NO_USAGE: Final[Mapping[str, Json]] = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
"""Usage of an answer without the agent."""
_SEAM: Final = 64
"""Characters by which the end of the last reasoning is found in the next."""
_CHORES: Final = (
    "Your task is to reflect the speaker's likely facial expression through a fitting emoji.",
    "Query: History:\n",
)
"""Beginnings of what Open WebUI asks for without the marks of its other prompts: a face, and which of its tools to call."""
_MERGE: Final = "You have been provided with a set of responses from various models to the latest user query:"
"""Beginning of what Open WebUI asks for when somebody wants the answers of several models to be merged."""
NO_MERGE: Final = "(The answers stay as they are: the agent does not merge answers of several models.)"
_FIELDS: Final = {"channel.channelId": "user", "id": "Idempotency-Key"}
"""Names of what a message holds, as clients of this API know it."""
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


def last_user_message(messages: Json) -> Json:
    """Return the content of the last user message. Raises ApiError if there is none.

    What stands behind it is left out, too: an answer that the client has begun, or results of tools of its own.
    """
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, Mapping) and message.get("role") == "user":
            return message.get("content")
    raise ApiError(400, "bad_request", "messages: found no message of the role user")


def answer_without_agent(messages: Json, text: str, *, is_streamed: bool) -> str | None:
    """Return the answer to what a front end asks for, and not a person; None for a message of a person.

    text: of the last user message. The marks are those of the prompts of Open WebUI, which sends them like messages:

    * Title, tags and next questions of a chat, never streamed: nothing.
    * Answers of several models to be merged, which somebody waits for: a sentence.
    * An answer to be continued, which is the chat up to that answer: nothing. Its question was carried out, and answers of the agent
      are whole.

    `is_streamed` tells people from front ends: an answer that somebody waits for is streamed, one for a title
    or for tags is not.
    """
    if _is_answered(messages):
        return ""
    if text.startswith(_MERGE):
        return NO_MERGE
    is_chore = text.startswith(_CHORES) or (text.startswith("### Task:") and "<chat_history>" in text)
    return "" if is_chore and not is_streamed else None


def _is_answered(messages: Json) -> bool:
    """Return whether an answer with content stands behind the last user message."""
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, Mapping) and message.get("role") in ("user", "assistant"):
            content = message.get("content")
            has_content = bool(content.strip() if isinstance(content, str) else content)
            if message["role"] == "user" or has_content:
                return message["role"] == "assistant"
    return False


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


def chunk_json(head: Mapping[str, Json], delta: Mapping[str, Json], reason: str | None = None) -> str:
    """Return a chunk of a streamed answer: what is new, or the reason of the end."""
    choice: dict[str, Json] = {"index": 0, "delta": delta, "finish_reason": reason}
    return encode_json({**head, "choices": [choice]})


def event_text(data: str) -> str:
    """Return a server-sent event."""
    return f"data: {data}\n\n"


class CompletionStream(EventStreamResponse):
    """A chat completion as server-sent events: a chunk for each piece of text, then the reason of the end, then `[DONE]`.

    One task waits for the turn and sends its pieces. A second one sends comments while nothing is said, since
    proxies and clients give up on a silent connection.
    """

    def __init__(
        self, routes: CompletionRoutes, request: ApiRequest, message: InboundMessage, model: str, with_usage: bool
    ) -> None:
        super().__init__()
        self._routes = routes
        self._request = request
        self._message = message
        self._with_usage = with_usage
        self._head: dict[str, Json] = {**routes.head(model), "object": CHUNK}
        self._text = GrowingText()
        self._thoughts = ReasoningPieces()
        self._is_begun = False
        """The status was sent."""
        self._sending = trio.Lock()
        """Held while something is sent: pieces and comments come from two tasks."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream the turn. Raises ApiError for a refusal before the first byte. Cancelled: the client has gone, see `run_turn`."""
        self._send = send
        error: BaseException | None = None
        try:
            async with trio.open_nursery() as self._nursery:
                with failures_as_errors():
                    turn = await self._routes.run_turn(self._request, self._message, self._take, self._begin)
                # Ends the comments that keep the connection open.
                self._nursery.cancel_scope.cancel()
        except* ApiError as group:
            error = first_cause(group)  # several may have come at the same time; the client gets one
        if error is not None and not self._is_begun:
            raise error  # a refusal has its status, by which clients know whether to try again
        if isinstance(error, ApiError):
            await self._write(event_text(encode_json(error.body)))
        else:
            await self._chunk({}, "stop" if turn.is_done else "length")
            if self._with_usage:
                usage = self._routes.usage_of(turn)
                await self._write(event_text(encode_json({**self._head, "choices": [], "usage": usage})))
        await self._write(event_text(DONE))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _begin(self) -> None:
        """Begin the response: the message is on disk, so that an error is an event from now on."""
        self._is_begun = True
        await self._send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await self._chunk({"role": "assistant", "content": ""})
        self._nursery.start_soon(self._keep_alive)

    async def _take(self, message: OutboundMessage | ReplyDraft) -> None:
        """Send what is new of a draft or a reply; nothing if that is nothing."""
        piece = ""
        if isinstance(message, ReplyDraft):
            if thought := self._thoughts.piece(message.reasoning):
                await self._chunk({"reasoning_content": thought})
            piece = self._text.draft(message.text)
        else:
            piece = self._text.reply(message.text_with_names)
        if piece:
            await self._chunk({"content": piece})

    async def _chunk(self, delta: Mapping[str, Json], reason: str | None = None) -> None:
        """Send a chunk; reason: of the end, in the last one."""
        await self._write(event_text(chunk_json(self._head, delta, reason)))

    async def _write(self, text: str) -> None:
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
                await self._write(": the agent is thinking\n\n")


class CompletionRoutes:
    """Handlers of the chat API."""

    def __init__(self, conversations: Conversations, services: WebServices) -> None:
        self._conversations = conversations
        self._services = services

    async def list_models(self, request: ApiRequest) -> Response:
        """Return the one model there is."""
        _ = request.grant  # anybody with a token may know
        entry: dict[str, Json] = {"id": MODEL, "object": "model", "created": 0, "owned_by": MODEL}
        return json_response({"object": "list", "data": [entry]})

    async def show_model(self, request: ApiRequest) -> Response:
        """Return the model."""
        _ = request.grant
        if request.path["id"] != MODEL:
            raise ApiError(
                404, "not_found", f"there is no model {quote(request.path['id'], 80)}; there is {quote(MODEL)}"
            )
        return json_response({"id": MODEL, "object": "model", "created": 0, "owned_by": MODEL})

    async def complete(self, request: ApiRequest) -> Response:
        """Return the answer of the agent to the last user message; streamed if `stream` is true.

        Raises ApiError for a request that makes no sense, before anything is sent to the agent. Cancelled, see
        `run_turn`.
        """
        fields = await request.json()
        messages, is_streamed = fields.get("messages"), fields.get("stream") is True
        text, media = text_and_media(last_user_message(messages))
        # Names the conversation. Without it all requests of a token belong to one.
        user = fields.get("user")
        if user is not None and not isinstance(user, str):
            raise ApiError(400, "bad_request", "user: allowed: a text")
        model = fields.get("model")
        # Clients show the name that they have asked for, so it is given back, whatever it is.
        model = model if isinstance(model, str) and model else MODEL
        options = fields.get("stream_options")
        with_usage = isinstance(options, Mapping) and options.get("include_usage") is True
        answer = answer_without_agent(messages, text, is_streamed=is_streamed)
        if answer is not None:
            return self._streamed_answer(model, answer, with_usage) if is_streamed else self._answer(model, answer)
        channel: dict[str, Json] = {"type": API, **({"channelId": request.grant.below(user)} if user else {})}
        id = request.http.headers.get(IDEMPOTENCY)
        message = message_of(request, {"id": id, "text": text, "media": media or None, "channel": channel})
        # Front ends put texts of files and of pages into what they send as the person's.
        message = attrs.evolve(message, metadata={**message.metadata, RELAYED: True})
        if not id:
            message = attrs.evolve(message, id=new_message_id(message.channel.address))
        if is_streamed:
            return CompletionStream(self, request, message, model, with_usage)
        with failures_as_errors():
            turn = await self.run_turn(request, message)
        content = "\n\n".join(reply.text_with_names for reply in turn.replies)
        return self._answer(model, content, "stop" if turn.is_done else "length", self.usage_of(turn))

    def _answer(self, model: str, content: str, reason: str = "stop", usage: Mapping[str, Json] = NO_USAGE) -> Response:
        """Return an answer that is not streamed.

        Fields that have no meaning here have the values that clients expect.
        """
        answer: dict[str, Json] = {"role": "assistant", "content": content, "refusal": None}
        choice: dict[str, Json] = {"index": 0, "message": answer, "logprobs": None, "finish_reason": reason}
        return json_response({**self.head(model), "object": "chat.completion", "choices": [choice], "usage": usage})

    def _streamed_answer(self, model: str, content: str, with_usage: bool) -> Response:
        """Return an answer without the agent in the form of a stream that has ended."""
        head: dict[str, Json] = {**self.head(model), "object": CHUNK}
        events = [chunk_json(head, {"role": "assistant", "content": content}), chunk_json(head, {}, "stop")]
        if with_usage:
            events.append(encode_json({**head, "choices": [], "usage": NO_USAGE}))
        body = "".join(map(event_text, [*events, DONE]))
        return Response(body, headers={"cache-control": "no-store"}, media_type="text/event-stream")

    async def run_turn(
        self,
        request: ApiRequest,
        message: InboundMessage,
        on_said: OnSaid | None = None,
        on_accepted: Callable[[], Awaitable[None]] | None = None,
    ) -> TurnTranscript:
        """Send the message, and return when its turn has ended. Its replies count as received.

        The turn is stopped if the client hangs up: that is how front ends stop an answer. A client that names its request by an
        `Idempotency-Key` may send it again, so that its turn goes on; but not when its token was revoked.
        """
        turn = None
        try:
            turn = await self._conversations.converse(
                message, request.grant, LONGEST_WAIT, on_said, on_accepted=on_accepted, wants_unasked=True
            )
        except ApiError as error:
            name, colon, rest = error.message.partition(":")
            raise ApiError(error.status, error.code, f"{_FIELDS.get(name, name)}{colon}{rest}") from None
        finally:
            may_repeat = IDEMPOTENCY in request.http.headers and not request.has_lost_rights
            if turn is None and (request.has_gone or request.has_lost_rights) and not may_repeat:
                self._services.withdraw(message)
        if turn.replies:
            await self._conversations.acknowledge_turn(message.channel.address, turn.replies)
        return turn

    def usage_of(self, turn: TurnTranscript) -> dict[str, Json]:
        """Return the tokens that all calls of models for the message have used so far."""
        used = self._services.item_usage(turn.item)
        total = used.prompt_tokens + used.completion_tokens
        return {
            "prompt_tokens": used.prompt_tokens,
            "completion_tokens": used.completion_tokens,
            "total_tokens": total,
            "prompt_tokens_details": {"cached_tokens": used.cache_read_tokens},
        }

    def head(self, model: str) -> dict[str, Json]:
        """Return the fields that every answer has."""
        return {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(self._services.clock() / 1000),
            "model": model,
        }


def completion_operations(conversations: Conversations, services: WebServices) -> tuple[Operation, ...]:
    """Return the operations of this file."""
    routes = CompletionRoutes(conversations, services)
    return (
        Operation(
            "POST",
            "/v1/chat/completions",
            routes.complete,
            "Talk to the agent as OpenAI clients do",
            MESSAGE,
            fields=("model", "messages", "user", "stream", "stream_options"),
        ),
        Operation("GET", "/v1/models", routes.list_models, "The model that OpenAI clients may name", ""),
        Operation("GET", "/v1/models/{id}", routes.show_model, "A model", ""),
    )
