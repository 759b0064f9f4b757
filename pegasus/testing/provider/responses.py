"""Server side of OpenAI's Responses API: checks of a request, events of an answer (https://developers.openai.com/api/reference/resources/responses).

The conversation is a flat list of items. Items between two user messages belong to one assistant turn; outputs of calls become the
results of the next `UserTurn`. The rules of order are in `TurnBuilder`, for all formats.

The service keeps nothing here (`store` must be false), so that it refuses what it could not know: reasoning without its encrypted
content, reasoning that nothing follows, and items that it did not write.

Refusals are worded like the service's, since the product recognises some of them by their text. Checks that all formats share are in
`requests`. A field that the product begins to send must be added to the fields that are allowed here, after a look at the
service's reference: a test that fails for it is meant to fail.

Of the answer the fake has what a client may rely on. Events come in the order of the service: an item is opened, its text comes in
deltas, and it is closed; the last event has all items once more, with the usage. Events that close a part within an item are left out.

    turns, system, tools = read_responses(json.loads(body))               # Invalid for what the service would refuse
    events = response_events(ProviderAnswer("hello"), lambda: "1")        # bytes of server-sent events
"""

from __future__ import annotations

from typing import Any

from pegasus.models import AssistantTurn, Image, ToolCall, Turn
from pegasus.testing.provider.answers import NewId, ProviderAnswer, arguments_text, dump, split
from pegasus.testing.provider.requests import (
    Invalid,
    TurnBuilder,
    check_schema,
    check_tool_names,
    refuse_other_keys,
    require,
    require_arguments,
    require_data_url,
    require_text,
    require_tool_name,
)

_ALLOWED = (
    "model input stream store include max_output_tokens reasoning instructions tools tool_choice parallel_tool_calls "
    "temperature top_p metadata prompt_cache_key service_tier text truncation user safety_identifier"
)
_KEYS = frozenset(_ALLOWED.split())
"""Fields of a request's body. Another one is refused, as the service does it."""
_LONGEST_ID = 64
"""Characters of the id of a call."""
_ENCRYPTED = "reasoning.encrypted_content"
"""Parts of an answer that a request may ask for: reasoning that the client can send back."""
_MARK = "encrypted-by-the-service:"
"""Beginning of the encrypted reasoning that this service writes. It can decrypt no other."""


def read_responses(raw: dict[str, Any]) -> tuple[tuple[Turn, ...], str, tuple[str, ...]]:
    """Return turns, system prompt and tool names of a request. Raises Invalid."""
    refuse_other_keys(raw, _KEYS, "body")
    require_text(raw.get("model"), "model")
    # The strictest case, an account whose organization keeps no data. What passes here passes at all others.
    require(raw.get("store") is False, "store: this organization keeps no data")
    # The service refuses anything lower, so that a client cannot ask for one token to test a key.
    limit = raw.get("max_output_tokens", 16)
    require(isinstance(limit, int) and limit >= 16, "max_output_tokens: Expected a value >= 16")
    require(set(raw.get("include") or ()) <= {_ENCRYPTED}, "include: unexpected value")
    reasoning = raw.get("reasoning") or {}
    refuse_other_keys(reasoning, ("effort", "summary"), "reasoning")
    efforts = (None, "none", "minimal", "low", "medium", "high", "xhigh", "max")
    require(reasoning.get("effort") in efforts, "reasoning.effort: unexpected value")
    system = require_text(raw["instructions"], "instructions") if "instructions" in raw else ""
    tools = _tools(raw.get("tools"), raw.get("tool_choice"))
    require(isinstance(raw.get("input"), list) and bool(raw["input"]), "input: must not be empty")
    return _InputReader().read(raw["input"]), system, tools


def _tools(value: Any, choice: Any) -> tuple[str, ...]:
    """Check the tools and the choice among them; return their names."""
    names: list[str] = []
    for index, tool in enumerate(value or ()):
        where = f"tools[{index}]"
        refuse_other_keys(tool, ("type", "name", "description", "parameters", "strict"), where)
        require(tool.get("type") == "function", f"{where}.type: unexpected value")
        check_schema(tool.get("parameters"), f"{where}.parameters")
        # Left out it counts as true at the service, which then refuses many valid schemas. A client must say what it wants.
        require(isinstance(tool.get("strict"), bool), f"{where}.strict: missing")
        names.append(require_tool_name(tool.get("name"), f"{where}.name"))
    check_tool_names(names, value, is_chosen=choice is not None)
    if choice is not None:
        named = choice.get("name") if isinstance(choice, dict) else None
        require(choice in ("auto", "none", "required") or named in names, "tool_choice: unexpected value")
    return tuple(names)


class _InputReader:
    """Reader of the items of a conversation.

    Items of one assistant turn are collected until an item of the user comes, or the end. The state between two items is in
    the attributes below, which `_end_answer` empties.
    """

    def __init__(self) -> None:
        self._conversation = TurnBuilder()
        # Parts of the assistant turn that is being read.
        self._texts: list[str] = []
        self._calls: list[ToolCall] = []
        self._thinking: list[Any] = []
        self._is_answering = False
        """True within the items of an assistant turn."""
        self._open_reasoning = ""
        """Id of a reasoning item that needs an item after it."""

    def read(self, items: list[Any]) -> tuple[Turn, ...]:
        """Return the turns."""
        for index, item in enumerate(items):
            where = f"input[{index}]"
            require(isinstance(item, dict), f"{where}: an object is required")
            # The type may be left out for messages only.
            kind = item.get("type", "message")
            if kind == "function_call_output":
                self._end_answer(where)
                _output(self._conversation, item, where)
            elif kind == "message" and item.get("role") == "user":
                self._end_answer(where)
                text, images = _user(item, where)
                self._conversation.user(text, where, images)
            else:
                self._read_answer(kind, item, where)
        where = f"input[{len(items)}]"
        self._end_answer(where)
        return self._conversation.end(where)

    def _read_answer(self, kind: str, item: Any, where: str) -> None:
        """Read an item of an assistant turn.

        Text and calls may come in any order; reasoning must be followed by one of them.
        """
        self._is_answering = True
        if kind == "reasoning":
            self._reasoning(item, where)
            return
        self._open_reasoning = ""
        if kind == "function_call":
            self._calls.append(_call(item, where))
        elif kind == "message" and item.get("role") == "assistant":
            refuse_other_keys(item, ("type", "role", "content", "phase"), where)
            self._texts.append(require_text(item.get("content"), f"{where}.content"))
        else:
            raise Invalid(f"{where}: unexpected item of type {kind!r}")

    def _reasoning(self, item: Any, where: str) -> None:
        """Read a reasoning item, which must be as the service wrote it.

        Two of them in a row are refused: the first has no item after it.
        """
        refuse_other_keys(item, ("type", "id", "summary", "encrypted_content"), where)
        require(not self._open_reasoning, _lonely(self._open_reasoning))
        # Without its encrypted content the service would have to look the item up, and it keeps none.
        item_id, encrypted = str(item.get("id")), item.get("encrypted_content")
        require(item_id.startswith("rs_"), f"{where}.id: Expected an ID that begins with 'rs'")
        require(isinstance(item.get("summary"), list), f"{where}.summary: missing")
        require(
            isinstance(encrypted, str),
            f"Item with id '{item_id}' not found. Items are not persisted when `store` is false.",
        )
        require(str(encrypted).startswith(_MARK), f"The encrypted content for item {item_id} could not be verified.")
        self._thinking.append(item)
        self._open_reasoning = item_id

    def _end_answer(self, where: str) -> None:
        """Add the assistant turn that has ended.

        Called before each item of the user, and at the end. Raises Invalid for reasoning that nothing has followed.
        """
        if not self._is_answering:
            return
        require(not self._open_reasoning, _lonely(self._open_reasoning))
        thinking = tuple(self._thinking)
        turn = AssistantTurn("".join(self._texts), tuple(self._calls), thinking, "responses" if thinking else None)
        self._conversation.assistant(turn, where)
        self._texts, self._calls, self._thinking, self._is_answering = [], [], [], False


def _lonely(item_id: str) -> str:
    """Return the refusal of reasoning that no text and no call follows, as after an answer that was cut in two."""
    return f"Item '{item_id}' of type 'reasoning' was provided without its required following item."


def _user(item: Any, where: str) -> tuple[str, tuple[Image, ...]]:
    """Return text and pictures of a user message.

    A plain text stands for one part. Text parts are joined, and pictures keep their order.
    """
    refuse_other_keys(item, ("type", "role", "content"), where)
    content = item.get("content")
    if isinstance(content, str):
        return require_text(content, f"{where}.content"), ()
    require(isinstance(content, list) and bool(content), f"{where}.content: must not be empty")
    texts: list[str] = []
    images: list[Image] = []
    for index, part in enumerate(content):
        at = f"{where}.content[{index}]"
        if part.get("type") == "input_text":
            refuse_other_keys(part, ("type", "text"), at)
            texts.append(require_text(part.get("text"), f"{at}.text"))
        else:
            # Pictures are data URLs; the service also takes addresses, which Pegasus never sends.
            refuse_other_keys(part, ("type", "image_url", "detail"), at)
            require(part.get("type") == "input_image", f"{at}.type: unexpected value")
            images.append(require_data_url(part.get("image_url"), f"{at}.image_url"))
    return "".join(texts), tuple(images)


def _output(conversation: TurnBuilder, item: Any, where: str) -> None:
    """Add the output of a call to the conversation. The format marks errors only by their text.

    `TurnBuilder` refuses an output whose call is not in the turn before.
    """
    refuse_other_keys(item, ("type", "call_id", "output"), where)
    require(isinstance(item.get("call_id"), str), f"{where}.call_id: missing")
    output = require_text(item.get("output"), f"{where}.output")
    conversation.result(item["call_id"], output, is_error=output.startswith("Error"))


def _call(item: Any, where: str) -> ToolCall:
    """Check a call that the model has made.

    `call_id` connects it with its output; the id of the item is another one, and may be left out.
    """
    refuse_other_keys(item, ("type", "id", "call_id", "name", "arguments", "status"), where)
    call_id = item.get("call_id")
    require(
        isinstance(call_id, str) and 0 < len(call_id) <= _LONGEST_ID, f"{where}.call_id: 1 to {_LONGEST_ID} characters"
    )
    arguments = require_arguments(item.get("arguments"), f"{where}.arguments")
    return ToolCall(call_id, require_tool_name(item.get("name"), f"{where}.name"), arguments)


# ------------------------------------------------------------------ answers


def _items(answer: ProviderAnswer, new_id: NewId) -> list[dict[str, Any]]:
    """Return the finished items of an answer: reasoning, text, calls.

    A test gets the same items in the stream and in an answer that is not streamed.
    """
    items: list[dict[str, Any]] = []
    if answer.reasoning:
        summary = [{"type": "summary_text", "text": answer.reasoning}]
        # The encrypted content has the id in it, so that a client which mixes up two items is noticed.
        item_id = f"rs_{new_id()}"
        items.append({"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": _MARK + item_id})
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        items.append(
            {"type": "message", "id": f"msg_{new_id()}", "role": "assistant", "status": "completed", "content": [part]}
        )
    for call in answer.calls:
        identity = {"id": f"fc_{new_id()}", "call_id": call.id or f"call_{new_id()}", "name": call.name}
        arguments = {"arguments": arguments_text(call), "status": "completed"}
        items.append({"type": "function_call", **identity, **arguments})
    return items


def response_events(answer: ProviderAnswer, new_id: NewId) -> list[bytes]:
    """Return the events of a response: each item is opened, sent in deltas and closed; the last event has everything.

    After an error there is no item that is not closed: it comes as the end of the response, with status "failed".
    """
    items = _items(answer, new_id)
    # The first event has no items: a client learns of each when it is opened.
    plain: list[dict[str, Any]] = [{"type": "response.created", "response": _response([], "in_progress", answer)}]
    for index, item in enumerate(items):
        plain += _item_events(index, item, answer.pieces)
    if answer.error:
        failure = {"code": answer.error[0], "message": answer.error[1]}
        failed = {**_response(items, "failed", answer), "error": failure}
        plain.append({"type": "response.failed", "response": failed})
    else:
        status = "incomplete" if answer.stop_reason else "completed"
        plain.append({"type": f"response.{status}", "response": _response(items, status, answer)})
    numbered = ({**event, "sequence_number": number} for number, event in enumerate(plain))
    return [b"event: %s\ndata: %s\n\n" % (event["type"].encode(), dump(event)) for event in numbered]


def _item_events(index: int, item: dict[str, Any], pieces: int) -> list[dict[str, Any]]:
    place = {"item_id": item["id"], "output_index": index}
    empties: dict[str, dict[str, Any]] = {
        "reasoning": {"summary": [], "encrypted_content": ""},
        "message": {"content": []},
    }
    empty = empties.get(item["type"], {"arguments": ""})
    opened = {**item, **empty, **({"status": "in_progress"} if "status" in item else {})}
    stream: list[dict[str, Any]] = [{"type": "response.output_item.added", "output_index": index, "item": opened}]
    if item["type"] == "reasoning":
        text, place = item["summary"][0]["text"], {**place, "summary_index": 0}
        part = {"type": "summary_text", "text": ""}
        stream.append({"type": "response.reasoning_summary_part.added", **place, "part": part})
        name = "response.reasoning_summary_text"
    elif item["type"] == "message":
        text, place = item["content"][0]["text"], {**place, "content_index": 0}
        message_part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
        stream.append({"type": "response.content_part.added", **place, "part": message_part})
        name = "response.output_text"
    else:
        text, name = item["arguments"], "response.function_call_arguments"
    extra: dict[str, Any] = {"logprobs": []} if item["type"] == "message" else {}
    stream += [{"type": f"{name}.delta", **place, "delta": piece, **extra} for piece in split(text, pieces)]
    stream.append({"type": "response.output_item.done", "output_index": index, "item": item})
    return stream


def _response(items: list[dict[str, Any]], status: str, answer: ProviderAnswer) -> dict[str, Any]:
    """Return the response object. Its usage counts the whole input and the reasoning within the output."""
    usage = answer.usage
    details = {
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    counts = {
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    base = {
        "id": "resp_test",
        "object": "response",
        "created_at": 0,
        "model": "test",
        "status": status,
        "output": items,
    }
    options = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None}
    reason = {"reason": answer.stop_reason} if answer.stop_reason else None
    return {
        **base,
        **options,
        "incomplete_details": reason,
        "usage": None if status == "in_progress" else {**counts, **details},
    }


def whole_response(answer: ProviderAnswer, new_id: NewId) -> bytes:
    """Return a response that is not streamed."""
    status = "incomplete" if answer.stop_reason else "completed"
    return dump(_response(_items(answer, new_id), status, answer))
