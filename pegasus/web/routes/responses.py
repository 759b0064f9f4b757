"""The API of OpenAI's responses: `POST /v1/responses`, streamed or not, with the agent's own conversations behind it.

`previous_response_id` names the answer that a message follows, so that a client need not send its history. An answer further back is
gone back to, as an edit is: the conversation cannot go on in two ways, and what it was is archived. Without it, the input may be the
whole history, and is treated as that of a chat completion.

`instructions` count for as long as the client sends them, as in OpenAI's API. A response cannot be fetched again by its id; the
conversation keeps what was said. Tools of a client are refused with a sentence: it would wait for calls that never come.

Sources of the format: https://platform.openai.com/docs/api-reference/responses and https://www.openresponses.org/specification
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from pegasus.access import MESSAGE
from pegasus.messages import Json, Metadata
from pegasus.web.bodies import ResponseAnswer, ResponseBody, ResponseStatus
from pegasus.web.operations import Operation
from pegasus.web.requests import ApiRequest, json_response
from pegasus.web.routes.client_turns import ClientMessage, ClientStream, ClientTurn, ClientTurns, model_of
from pegasus.web.routes.conversations import TurnTranscript
from pegasus.web.routes.openai import answer_without_agent
from pegasus.web.visitors import ApiError
from pegasus.wire import encode_json, to_wire

_PREFIX: Final = "resp_"
"""Beginning of the id of a response, in front of the id of its message."""
_TEXTS: Final = ("input_text", "output_text", "text")
"""Types of parts that hold a text."""
NO_TOOLS: Final = (
    "tools: the agent has tools of its own and calls none of its client; leave them out, or send tool_choice = none"
)
"""Refusal of tools that a client offers."""


_GIVEN: Final = ("instructions", "previous_response_id", "user", "safety_identifier", "prompt_cache_key")
"""Fields of a request that its response has as they came."""


def messages_of(input: Json, instructions: Json) -> list[Json]:
    """Return an input, a text or a list of items, as the messages of a chat completion. Raises ApiError."""
    system: list[Json] = []
    if instructions is not None:
        system.append({"role": "system", "content": instructions})
    if isinstance(input, str):
        return [*system, {"role": "user", "content": input}]
    messages: list[Json] = []
    for item in input if isinstance(input, list) else []:
        # Calls of tools, their results and reasoning are items, too. They are no words of anybody.
        if isinstance(item, Mapping) and item.get("type", "message") == "message":
            content = item.get("content")
            parts = [_part(part) for part in content] if isinstance(content, list) else content
            messages.append({"role": item.get("role"), "content": parts})
    return [*system, *messages]


def _part(part: Json) -> Json:
    """Return a part of an item's content in the form of a chat completion."""
    fields = part if isinstance(part, Mapping) else {}
    match fields.get("type"):
        case kind if kind in _TEXTS:
            return {"type": "text", "text": fields.get("text")}
        case "refusal":
            return {"type": "text", "text": fields.get("refusal")}
        case "input_image":
            return {"type": "image_url", "image_url": {"url": fields.get("image_url")}}
        case "input_file":
            return {"type": "file", "file": {key: fields.get(key) for key in ("filename", "file_data")}}
    return part


def _message_json(id: str, text: str, status: str) -> dict[str, Json]:
    content: list[Json] = [] if status == "in_progress" else [_text_json(text)]
    return {"id": id, "type": "message", "role": "assistant", "status": status, "content": content}


def _text_json(text: str) -> dict[str, Json]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class ResponseForm:
    """Fields of one response in all its states: its model, its id, and what it follows."""

    def __init__(self, turns: ClientTurns, fields: Mapping[str, Json]) -> None:
        self._turns = turns
        self._fields = fields
        self._created = turns.now
        self.item = f"msg_{secrets.token_hex(12)}"
        """Id of its one message."""

    def response(
        self,
        id: str,
        status: ResponseStatus,
        text: str = "",
        transcript: TurnTranscript | None = None,
        error: Metadata | None = None,
    ) -> ResponseAnswer:
        """Return the response in a state. id: of its message. transcript: of a turn that has ended, or whose time is over.

        Fields that say how a model was called have the values that clients expect: that is the agent's own affair.
        """
        fields: Mapping[str, Any] = self._fields  # they fit `ResponseBody`
        has_output = status in ("completed", "incomplete")
        is_stopped = transcript is not None and transcript.is_stopped
        usage: Metadata | None = None
        if transcript is not None:
            read, written, cached = self._turns.usage_of(transcript)
            usage = {
                "input_tokens": read,
                "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
                "output_tokens": written,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": read + written,
            }
        return ResponseAnswer(
            id=f"{_PREFIX}{id}",
            created_at=self._created,
            completed_at=self._turns.now if status == "completed" else None,
            status=status,
            model=model_of(fields),
            output=(_message_json(self.item, text, status),) if has_output else (),
            usage=usage,
            # Of a turn that somebody has stopped none of the reasons is true that clients know.
            incomplete_details={"reason": "max_output_tokens"} if status == "incomplete" and not is_stopped else None,
            error=error,
            metadata=fields.get("metadata") or {},
            **{name: fields.get(name) for name in _GIVEN},
            object="response",
            background=False,
            frequency_penalty=0.0,
            max_output_tokens=None,
            max_tool_calls=None,
            parallel_tool_calls=False,
            presence_penalty=0.0,
            reasoning=None,
            service_tier="default",
            store=True,
            temperature=1.0,
            text={"format": {"type": "text"}},
            tool_choice="none",
            tools=(),
            top_logprobs=0,
            top_p=1.0,
            truncation="disabled",
        )


class ResponseStream(ClientStream):
    """A response as server-sent events, each with its type and a number."""

    def __init__(self, turns: ClientTurns, request: ApiRequest, sent: ClientMessage, form: ResponseForm) -> None:
        super().__init__(turns, request, sent)
        self._form = form
        self._number = 0

    async def begin_events(self, turn: ClientTurn) -> None:
        """Send that the response has begun, and its one message with one part."""
        for kind in ("created", "in_progress"):
            await self._event(f"response.{kind}", response=to_wire(self._form.response(turn.message.id, "in_progress")))
        item = _message_json(self._form.item, "", "in_progress")
        await self._event("response.output_item.added", output_index=0, item=item)
        await self._event("response.content_part.added", **self._place, part=_text_json(""))

    async def piece(self, text: str) -> None:
        """Send a part of the text."""
        await self._event("response.output_text.delta", **self._place, delta=text, logprobs=[])

    async def end_events(self, transcript: TurnTranscript) -> None:
        """Send the whole text, and then the response."""
        status: ResponseStatus = "completed" if transcript.is_whole else "incomplete"
        await self._event("response.output_text.done", **self._place, text=self.text, logprobs=[])
        await self._event("response.content_part.done", **self._place, part=_text_json(self.text))
        item = _message_json(self._form.item, self.text, status)
        await self._event("response.output_item.done", output_index=0, item=item)
        response = self._form.response(self.turn.message.id, status, self.text, transcript)
        await self._event(f"response.{status}", response=to_wire(response))

    async def error_events(self, error: ApiError) -> None:
        """Send that the response has failed."""
        why = {"code": "server_error", "message": error.message}
        await self._event(
            "response.failed", response=to_wire(self._form.response(self.turn.message.id, "failed", error=why))
        )

    @property
    def _place(self) -> dict[str, Json]:
        return {"item_id": self._form.item, "output_index": 0, "content_index": 0}

    async def _event(self, type: str, **fields: Json) -> None:
        data = encode_json({"type": type, "sequence_number": self._number, **fields})
        self._number += 1
        await self.write(f"event: {type}\ndata: {data}\n\n")


class ResponseRoutes:
    """Handler of responses."""

    def __init__(self, turns: ClientTurns) -> None:
        self._turns = turns

    async def create(self, request: ApiRequest) -> Response:
        """Return the answer of the agent; streamed if `stream` is true. Raises ApiError before anything is sent to the agent."""
        fields = await request.json()
        if fields.get("tools") and fields.get("tool_choice") != "none":
            raise ApiError(400, "bad_request", NO_TOOLS)
        if fields.get("background") is True:
            raise ApiError(400, "bad_request", "background: a response is given to whoever waits for it; leave it out")
        messages = messages_of(fields.get("input"), fields.get("instructions"))
        follows = str(fields.get("previous_response_id") or "")
        sent = ClientMessage.parse(messages, fields.get("user"), follows.removeprefix(_PREFIX))
        form = ResponseForm(self._turns, fields)
        if fields.get("stream") is True:
            return ResponseStream(self._turns, request, sent, form)
        # What a front end asks for, and not a person, is neither streamed nor part of a chat.
        if not follows:
            answer = answer_without_agent(messages, sent.text, is_streamed=False)
            if answer is None and await self._turns.is_about_a_chat(request, sent):
                answer = ""
            if answer is not None:
                return json_response(form.response(secrets.token_hex(12), "completed", answer))
        turn, transcript, text = await self._turns.answer(request, sent)
        status: ResponseStatus = "completed" if transcript.is_whole else "incomplete"
        return json_response(form.response(turn.message.id, status, text, transcript))


def response_operations(turns: ClientTurns) -> tuple[Operation, ...]:
    """Return the operation of this file."""
    return (
        Operation(
            "POST",
            "/v1/responses",
            ResponseRoutes(turns).create,
            "Talk to the agent as clients of OpenAI's responses do",
            MESSAGE,
            body=ResponseBody,
        ),
    )
