"""A streamed chat completion put together again, for servers that differ in what they leave out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pegasus.messages import Json
from pegasus.models.base import ModelResponse, ToolCall, Usage
from pegasus.models.encoding import mend, read_arguments
from pegasus.models.ids import CallIds
from pegasus.models.stops import CUT, half_call, stop_reason
from pegasus.models.telling import Tell, nobody


class _Call:
    """A tool call as it grows."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.whole: Any = None  # arguments that came as a value, not as text
        self.extra: Json = None


class ChatAssembler:
    """form: the wire format's name; names: tools by their name on the wire; ids: makes the calls' ids unique.

    tell: told the text as it comes.
    """

    def __init__(self, form: str, names: Mapping[str, str], ids: CallIds, tell: Tell = nobody) -> None:
        self._form = form
        self._names = names
        self._ids = ids
        self._tell = tell
        self._pieces: list[str] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._usage: Any = None
        self._stop = ""
        self._refused = False
        self.complete = False

    def feed(self, event: Any) -> object:
        """Take one chunk. Returns an error object if that is what it is, else None."""
        if event.get("error"):
            return event["error"]
        if event.get("object") == "error":
            return event
        self._usage = event.get("usage") or self._usage
        for choice in event.get("choices") or ():
            if choice.get("index", 0) in (0, None):
                self._choose(choice, choice.get("delta") or choice.get("message") or {})
        return None

    def whole(self, body: Any) -> object:
        """Take a completion that came in one piece."""
        error = self.feed(body)
        if error is None and not body["choices"]:
            return {"message": "an answer without choices"}
        self.complete = True
        return error

    def end(self) -> None:
        """`[DONE]`: the end, also for servers that give no finish_reason."""
        self.complete = self.complete or bool(self._pieces or self._calls)

    def _choose(self, choice: Any, delta: Any) -> None:
        self._write(delta.get("content"))
        if delta.get("refusal"):
            self._refused = True
            self._write(delta["refusal"])
        for call in delta.get("tool_calls") or ():
            self._grow(call)
        if delta.get("function_call"):  # the form before tool_calls, which some servers still send
            self._grow({"index": 0, "function": delta["function_call"]})
        if choice.get("finish_reason"):
            self._stop = str(choice["finish_reason"])
            self.complete = True

    def _write(self, content: Any) -> None:
        """Text, or a list of parts that have text."""
        if isinstance(content, str) and content:
            self._pieces.append(content)
            self._tell(content)
        for part in content if isinstance(content, list) else ():
            if isinstance(part.get("text"), str):
                self._write(part["text"])

    def _grow(self, delta: Any) -> None:
        function = delta.get("function") or {}
        call = self._slot(delta.get("index"), str(delta.get("id") or ""), bool(function.get("name")))
        call.id = call.id or str(delta.get("id") or "")
        call.name = call.name or str(function.get("name") or "")
        call.extra = delta.get("extra_content") or call.extra
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            call.pieces.append(arguments)
        elif arguments is not None:
            call.whole = arguments

    def _slot(self, index: Any, call_id: str, named: bool) -> _Call:
        """The call that a piece belongs to: by index, unless the id says that another one has begun."""
        call = self._by_index.get(index) if isinstance(index, int) else (self._calls[-1] if self._calls else None)
        another = call is not None and bool(call_id) and bool(call.id) and call_id != call.id
        nameless = not isinstance(index, int) and not call_id and named
        if call is None or another or nameless:
            call = _Call()
            self._calls.append(call)
        if isinstance(index, int):
            self._by_index[index] = call
        return call

    def response(self) -> ModelResponse:
        """The answer. Only when complete."""
        stop = "refusal" if self._refused else stop_reason(self._stop, calls=bool(self._calls))
        calls = tuple(self._call(call, stop, last=call is self._calls[-1]) for call in self._calls)
        extras = tuple(
            {"id": done.id, "extra_content": call.extra}
            for done, call in zip(calls, self._calls, strict=True)
            if call.extra
        )
        return ModelResponse(
            text=mend("".join(self._pieces)),
            calls=calls,
            usage=_usage(self._usage),
            stop_reason=stop,
            thinking=extras,
            thinking_of=self._form if extras else None,
        )

    def _call(self, call: _Call, stop: str, *, last: bool) -> ToolCall:
        raw = call.whole if call.whole is not None else "".join(call.pieces)
        arguments, error = read_arguments(raw, cut=CUT.get(stop, ""))
        error = error or half_call(raw, stop, last=last)
        return ToolCall(self._ids.unique(mend(call.id)), self._names.get(call.name, mend(call.name)), arguments, error)


def _usage(usage: Any) -> Usage:
    """Missing numbers are 0; cached tokens are part of prompt_tokens here."""
    if not isinstance(usage, Mapping):
        return Usage()
    details = usage.get("prompt_tokens_details") or {}
    return Usage(
        _count(usage.get("prompt_tokens")),
        _count(usage.get("completion_tokens")),
        _count(details.get("cached_tokens")),
        _count(details.get("cache_write_tokens")),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
