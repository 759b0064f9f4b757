"""The API of OpenAI's chat, as far as front ends use it: `POST /v1/chat/completions`, `GET /v1/models`.

Any client of that API can talk to the agent when its base URL is changed. The agent keeps the conversation itself, and finds which one
a request is about (`client_chats`): the last user message is new input, and what the client sends before it tells its place. The texts
of the turn's replies are the answer, with an empty line between them; a turn in silence is an answer with empty content.

What of the format means something here:

* `finish_reason` is "stop" for a turn that has ended, and "length" for one that still works after LONGEST_WAIT: what it has said
  until then is the answer.
* A client that hangs up stops the turn, which is how front ends stop an answer. One that sends an `Idempotency-Key` may lose its
  connection and send the request again: the turn goes on, and a turn that has ended is answered again from memory.
* Front ends ask models for more than answers: for the title of a chat, for tags, to merge or to continue answers. The agent would take
  that for something that a person has said, or do again what it has done. So it is answered here (`answer_without_agent`).

Source of the format: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from pegasus.access import MESSAGE
from pegasus.formatting import quote
from pegasus.messages import Json, Metadata
from pegasus.web.bodies import (
    CompletionAnswer,
    CompletionBody,
    CompletionChoice,
    CompletionMessage,
    EndReason,
    ModelJson,
    ModelsAnswer,
)
from pegasus.web.operations import Operation
from pegasus.web.requests import ApiRequest, json_response
from pegasus.web.routes.client_turns import (
    MODEL,
    ClientMessage,
    ClientStream,
    ClientTurn,
    ClientTurns,
    model_of,
)
from pegasus.web.routes.conversations import TurnTranscript
from pegasus.web.visitors import ApiError
from pegasus.wire import encode_json

CHUNK: Final = "chat.completion.chunk"
"""Type of the parts of a streamed answer."""
DONE: Final = "[DONE]"
"""Last event of a streamed answer."""
NO_USAGE: Final[Mapping[str, Json]] = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
"""Usage of an answer without the agent."""
_ENTRY: Final = ModelJson(MODEL, "model", 0, MODEL)
"""The model, in lists."""
_CHORES: Final = (
    "Your task is to reflect the speaker's likely facial expression through a fitting emoji.",
    "Query: History:\n",
)
"""Beginnings of what Open WebUI asks for without the marks of its other prompts: a face, and which of its tools to call."""
_MERGE: Final = "You have been provided with a set of responses from various models to the latest user query:"
"""Beginning of what Open WebUI asks for when somebody wants the answers of several models to be merged."""
NO_MERGE: Final = "(The answers stay as they are: the agent does not merge answers of several models.)"


def answer_without_agent(messages: Json, text: str, *, is_streamed: bool) -> str | None:
    """Return the answer to what a front end asks for, and not a person; None for a message of a person.

    text: of the last user message. The marks are those of the prompts of Open WebUI, which sends them like messages:

    * Title, tags and next questions of a chat, never streamed: nothing. Those of other front ends are known by the chat that stands in
      them (`ClientTurns.is_about_a_chat`).
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


def chunk_json(head: Mapping[str, Json], delta: Mapping[str, Json], reason: str | None = None) -> str:
    """Return a chunk of a streamed answer: what is new, or the reason of the end."""
    choice: dict[str, Json] = {"index": 0, "delta": delta, "finish_reason": reason}
    return encode_json({**head, "choices": [choice]})


def event_text(data: str) -> str:
    """Return a server-sent event."""
    return f"data: {data}\n\n"


class CompletionStream(ClientStream):
    """A chat completion as server-sent events: a chunk for each piece of text, then the reason of the end, then `[DONE]`."""

    def __init__(
        self, turns: ClientTurns, request: ApiRequest, sent: ClientMessage, model: str, *, with_usage: bool
    ) -> None:
        super().__init__(turns, request, sent)
        self._with_usage = with_usage
        self._head: dict[str, Json] = {**head_json(turns, model), "object": CHUNK}

    async def begin_events(self, turn: ClientTurn) -> None:
        """Send a chunk without text."""
        await self._chunk({"role": "assistant", "content": ""})

    async def piece(self, text: str) -> None:
        """Send a chunk."""
        await self._chunk({"content": text})

    async def thought(self, text: str) -> None:
        """Send a chunk that clients show apart."""
        await self._chunk({"reasoning_content": text})

    async def end_events(self, transcript: TurnTranscript) -> None:
        """Send the reason of the end, and the usage if that was asked for."""
        await self._chunk({}, "stop" if transcript.is_whole else "length")
        if self._with_usage:
            usage = usage_json(self.turns, transcript)
            await self.write(event_text(encode_json({**self._head, "choices": [], "usage": usage})))
        await self.write(event_text(DONE))

    async def error_events(self, error: ApiError) -> None:
        """Send the error."""
        await self.write(event_text(encode_json(error.body)))
        await self.write(event_text(DONE))

    async def _chunk(self, delta: Mapping[str, Json], reason: str | None = None) -> None:
        """Send a chunk; reason: of the end, in the last one."""
        await self.write(event_text(chunk_json(self._head, delta, reason)))


def head_json(turns: ClientTurns, model: str) -> dict[str, Json]:
    """Return the fields that every chunk has."""
    return {"id": new_id(), "created": turns.now, "model": model}


def new_id() -> str:
    """Return the id of an answer."""
    return f"chatcmpl-{secrets.token_hex(12)}"


def usage_json(turns: ClientTurns, transcript: TurnTranscript) -> dict[str, Json]:
    """Return the tokens that all calls of models for the message have used so far."""
    read, written, cached = turns.usage_of(transcript)
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


class CompletionRoutes:
    """Handlers of the chat API."""

    def __init__(self, turns: ClientTurns) -> None:
        self._turns = turns

    async def list_models(self, request: ApiRequest) -> Response:
        """Return the one model there is."""
        _ = request.grant  # anybody with a token may know
        return json_response(ModelsAnswer("list", (_ENTRY,)))

    async def show_model(self, request: ApiRequest) -> Response:
        """Return the model."""
        _ = request.grant
        if request.path["id"] != MODEL:
            raise ApiError(
                404, "not_found", f"there is no model {quote(request.path['id'], 80)}; there is {quote(MODEL)}"
            )
        return json_response(_ENTRY)

    async def complete(self, request: ApiRequest) -> Response:
        """Return the answer of the agent to the last user message; streamed if `stream` is true.

        Raises ApiError for a request that makes no sense, before anything is sent to the agent. Cancelled, see
        `ClientTurns.run`.
        """
        fields = await request.json()
        messages, is_streamed = fields["messages"], fields.get("stream") is True
        sent = ClientMessage.parse(messages, fields.get("user"))
        model = model_of(fields)
        options = fields.get("stream_options")
        with_usage = isinstance(options, Mapping) and options.get("include_usage") is True
        answer = answer_without_agent(messages, sent.text, is_streamed=is_streamed)
        if answer is None and not is_streamed and await self._turns.is_about_a_chat(request, sent):
            answer = ""
        if answer is not None:
            return self._streamed_answer(model, answer, with_usage) if is_streamed else self._answer(model, answer)
        if is_streamed:
            return CompletionStream(self._turns, request, sent, model, with_usage=with_usage)
        _, transcript, content = await self._turns.answer(request, sent)
        reason: EndReason = "stop" if transcript.is_whole else "length"
        return self._answer(model, content, reason, usage_json(self._turns, transcript))

    def _answer(self, model: str, content: str, reason: EndReason = "stop", usage: Metadata = NO_USAGE) -> Response:
        """Return an answer that is not streamed."""
        message = CompletionMessage("assistant", content, None)
        choice = CompletionChoice(0, message, None, reason)
        return json_response(CompletionAnswer(new_id(), "chat.completion", self._turns.now, model, (choice,), usage))

    def _streamed_answer(self, model: str, content: str, with_usage: bool) -> Response:
        """Return an answer without the agent in the form of a stream that has ended."""
        head: dict[str, Json] = {**head_json(self._turns, model), "object": CHUNK}
        events = [chunk_json(head, {"role": "assistant", "content": content}), chunk_json(head, {}, "stop")]
        if with_usage:
            events.append(encode_json({**head, "choices": [], "usage": NO_USAGE}))
        body = "".join(map(event_text, [*events, DONE]))
        return Response(body, headers={"cache-control": "no-store"}, media_type="text/event-stream")


def completion_operations(turns: ClientTurns) -> tuple[Operation, ...]:
    """Return the operations of this file."""
    routes = CompletionRoutes(turns)
    return (
        Operation(
            "POST",
            "/v1/chat/completions",
            routes.complete,
            "Talk to the agent as OpenAI clients do",
            MESSAGE,
            body=CompletionBody,
        ),
        Operation("GET", "/v1/models", routes.list_models, "The model that OpenAI clients may name", ""),
        Operation("GET", "/v1/models/{id}", routes.show_model, "A model", ""),
    )
