"""Interface of a provider's wire format, and the pieces that all wire formats share.

A wire format translates between the values of `base.py` and one HTTP API. It does no I/O: `HttpModel` sends the bytes of `body`,
feeds what comes back to an `AnswerAssembler`, and asks `adapt` what to make of a refusal. To add a provider with an API of its
own, write a `WireFormat` and an `AnswerAssembler` in a new file and name them in `service.py`; `openai.py` is a good model.

Two rules hold for every format:

* `body` is a pure function of the request and of what `adapt` has learned. The conversation stands at the end of the body, so the
  next request of the same conversation begins with the same bytes, and the provider finds them in its prompt cache.
* Names of tools and ids of calls are restricted on the wire (`wire_name`, `wire_id`). The restriction is undone in the answer, so
  the rest of Pegasus never sees it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn, Protocol
from weakref import WeakKeyDictionary

from pegasus.messages import Json, Metadata
from pegasus.models.base import AssistantTurn, ModelRequest, ModelResponse, ToolSpec, Turn, UserTurn

UNLIMITED: Final = 1 << 31
"""Length limit of answers, in tokens, while a model has not refused a smaller one."""


class AnswerAssembler(Protocol):
    """Collects the events of one streamed answer.

    The data comes from outside. Malformed data may raise KeyError, IndexError, TypeError, AttributeError or ValueError from any
    method; the caller turns these into a ModelError of kind "protocol".
    """

    def feed(self, event: Any) -> object:
        """Take the JSON of one server-sent event. Return the error object if the event is an error, else None."""

    def feed_whole(self, body: Any) -> object:
        """Take a complete answer from a server that does not stream. Return as `feed` does."""

    def finish(self) -> None:
        """Note the end of the stream that some formats mark by `[DONE]`."""

    @property
    def complete(self) -> bool:
        """True when the answer has its end. The usage may still follow."""

    def response(self) -> ModelResponse:
        """Return the answer. Only valid when `complete`."""


class WireFormat(Protocol):
    """Wire format of one provider, for one model. It may remember what the server refused (see `adapt`)."""

    path: str
    """Path of the endpoint below the base URL."""

    def body(self, request: ModelRequest) -> bytes:
        """Return the request as JSON."""

    def assembler(self, request: ModelRequest, on_text: Callable[[str], None]) -> AnswerAssembler:
        """Return an assembler for the answer to this request, which streams text to `on_text`."""

    def adapt(self, status: int, body: object, request: ModelRequest) -> bool:
        """Learn from a refusal how to ask differently. Return True if the call is worth another try at once.

        Each lesson can be learned only once, so a server that refuses everything does not cause an endless loop.
        """


def ignore_text(piece: str) -> None:
    """Drop streamed text: the listener where nobody listens."""


# ------------------------------------------------------------------ JSON


def encode_json(value: Json) -> bytes:
    """Return compact UTF-8 JSON that every provider accepts.

    Lone surrogates become "?", NaN and infinities become null: tool results and tool arguments may contain both, and a body that a
    provider rejects would make the whole conversation unusable.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
        text = json.dumps(finite, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def join_surrogates(text: str) -> str:
    """Return the text with surrogate pairs that arrived in two pieces joined; lone surrogates become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class MessageCache:
    """Messages of the turns of conversations, translated once for each turn.

    A conversation is sent again and again, a little longer each time. Translating a turn costs some microseconds, writing it as JSON
    much less. With the translation kept, a call costs about the same however long the conversation is. The messages of a turn are
    forgotten with the turn. `clear` must be called when turns are translated differently from now on.
    """

    def __init__(self, translate: Callable[[Turn], Iterable[Json]]) -> None:
        self._translate = translate
        self._messages: WeakKeyDictionary[Turn, list[Json]] = WeakKeyDictionary()

    def of(self, turns: tuple[Turn, ...]) -> list[Json]:
        """Return the messages of all turns, in order. They must not be changed."""
        for turn in turns:
            if turn not in self._messages:
                self._messages[turn] = list(self._translate(turn))
        return [message for turn in turns for message in self._messages[turn]]

    def clear(self) -> None:
        """Forget all translations."""
        self._messages.clear()


# ------------------------------------------------------------------ names and ids

_ALLOWED: Final = r"[a-zA-Z0-9_-]{1,64}"
_NOT_ALLOWED: Final = r"[^a-zA-Z0-9_-]"
_LONGEST_NAME: Final = 64
_LONGEST_ID: Final = 40


def wire_name(name: str) -> str:
    """Return a tool's name as both wire formats allow it (`^[a-zA-Z0-9_-]{1,64}$`). Different names stay different."""
    return name if re.fullmatch(_ALLOWED, name) else _shorten(name, _LONGEST_NAME)


def wire_id(call_id: str) -> str:
    """Return a call's id as both wire formats allow it: OpenAI takes 40 characters, Anthropic `^[a-zA-Z0-9_-]+$`."""
    if len(call_id) <= _LONGEST_ID and re.fullmatch(_ALLOWED, call_id):
        return call_id
    return _shorten(call_id, _LONGEST_ID)


def _shorten(word: str, limit: int) -> str:
    checksum = f"_{zlib.crc32(word.encode('utf-8', 'surrogatepass')):08x}"
    return re.sub(_NOT_ALLOWED, "_", word)[: limit - len(checksum)] + checksum


def wire_names(tools: tuple[ToolSpec, ...]) -> dict[str, str]:
    """Return the names that tools have on the wire, by their own names."""
    return {tool.name: wire_name(tool.name) for tool in tools}


def original_names(tools: tuple[ToolSpec, ...]) -> dict[str, str]:
    """Return the tools' own names by their names on the wire."""
    return {wire: own for own, wire in wire_names(tools).items()}


class CallIds:
    """Unique ids for the tool calls of one answer.

    Some servers give no ids, or count from `call_0` in every answer. Two calls with one id would make the conversation invalid for
    every strict provider, and a reply would look like one that was already sent. So an id that is missing or already used in the
    conversation is replaced. The replacement depends only on the conversation: asking again gives the same id.

        ids = CallIds(request.turns)
        ids.unique("call_0")  # "call_0", or for example "call_0_5f3b9a10_0" if that is taken
    """

    def __init__(self, turns: tuple[Turn, ...]) -> None:
        self._used = {wire_id(call.id) for turn in turns if isinstance(turn, AssistantTurn) for call in turn.calls}
        self._turns = turns

    def unique(self, call_id: str) -> str:
        """Return the id in a form that is valid on the wire, or a replacement if it is empty or used."""
        unique = wire_id(call_id) if call_id else ""
        number = 0
        while not unique or unique in self._used:
            unique = wire_id(f"{call_id[:12] or 'call'}_{self._checksum()}_{number}")
            number += 1
        self._used.add(unique)
        return unique

    def _checksum(self) -> str:
        """Return a mark of this point of the conversation: its length and its last input."""
        last = self._turns[-1] if self._turns else None
        inputs = (last.text, *(result.content for result in last.results)) if isinstance(last, UserTurn) else ()
        checksum = zlib.crc32("\n".join(inputs).encode("utf-8", "surrogatepass"))
        return f"{checksum:08x}{len(self._turns):x}"


# ------------------------------------------------------------------ arguments of tool calls

_DEEPEST: Final = 200
"""Levels of nesting. Deeper values could exhaust the stack when they are written again."""
_JSON_KINDS: Final = {str: "a string", list: "a list", bool: "a boolean", int: "a number", float: "a number"}


def parse_arguments(raw: object, *, cut: str = "") -> tuple[Metadata, str | None]:
    """Return the arguments of a tool call, and an explanation for the model if they could not be read.

    raw: JSON text, or the value itself from servers that send it so. cut: why the answer ended early, if it did.
    """
    if isinstance(raw, str):
        if not raw.strip():
            return {}, None
        try:
            raw = json.loads(raw, parse_constant=_reject_constant)
        except RecursionError:
            return {}, "the arguments are nested too deeply"
        except ValueError as error:
            return {}, f"the arguments are not valid JSON: {cut or error}"
    if raw is None:
        return {}, None
    if not isinstance(raw, dict):
        return {}, f"the arguments must be a JSON object, not {_JSON_KINDS.get(type(raw), type(raw).__name__)}"
    if _is_deeper_than(raw, _DEEPEST):
        return {}, "the arguments are nested too deeply"
    text = json.dumps(raw, ensure_ascii=False)
    repaired = join_surrogates(text)
    return (raw if repaired is text else json.loads(repaired)), None


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _is_deeper_than(value: object, limit: int) -> bool:
    """Walk the levels of the value one by one, without recursion."""
    level = [value]
    for _ in range(limit):
        children = [
            child
            for node in level
            for child in (node.values() if isinstance(node, Mapping) else node)  # type: ignore[attr-defined]
        ]
        level = [child for child in children if isinstance(child, dict | list)]
        if not level:
            return False
    return True
