"""Recorded answers of models, read again as they come over the wire."""

from __future__ import annotations

import attrs

from pegasus.messages import Json
from pegasus.models.base import ModelRequest, ModelResponse
from pegasus.models.formats import ChatWire, encode_json


def read_again(response: ModelResponse, request: ModelRequest) -> ModelResponse:
    """Return an answer as this version reads it: text and calls go through the form of Chat Completions.

    So a version that reads calls or their arguments in another way is noticed where answers are replayed. request: what is answered.
    Usage, thoughts and the reason of the end stay as they are.
    """
    calls: list[Json] = [
        {
            "index": number,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": encode_json(call.arguments).decode()},
        }
        for number, call in enumerate(response.calls)
    ]
    delta: dict[str, Json] = {"role": "assistant", "content": response.text, **({"tool_calls": calls} if calls else {})}
    assembler = ChatWire("recorded").assembler(request)
    assembler.feed({"choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls" if calls else "stop"}]})
    found = assembler.response()
    return attrs.evolve(response, text=found.text, calls=found.calls)
