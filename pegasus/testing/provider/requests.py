"""Requests to the test provider, and the checks that both formats share.

A `ProviderRequest` has its conversation in Pegasus's own values, the same for both formats, so that a script need not know which
format it was asked in. Anything that the real service would refuse raises `Invalid`, with a message like the service's. So a test
fails where the product would have failed with a real key.

`TurnBuilder` checks the rules about the order of a conversation. They are the ones that are violated most easily, by a compaction, a
cancelled call or a restart that drops one half of a pair; both services refuse the whole request then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

import attrs

from pegasus.models import AssistantTurn, Image, ToolCall, ToolResult, Turn, UserTurn, picture_problem
from pegasus.outside import without_fences

_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Names of tools that both services accept."""
_DATA_URL: Final = re.compile(r"data:(image/[a-z]+);base64,([A-Za-z0-9+/=]+)")


class Invalid(Exception):
    """A request that the provider answers with 400; `str()` is its message.

    Raised by the readers of all formats. The server makes the refusal of it, and keeps the message in `invalid`.

    Example::

        read_chat({"model": "test", "messages": []})  # Invalid: messages: must not be empty
    """


def require(condition: bool, message: str) -> None:
    """Raise Invalid unless the condition holds.

    `message` is what the service would answer; it reaches the test through the client's error.
    """
    if not condition:
        raise Invalid(message)


def refuse_other_keys(value: Any, keys: Collection[str], where: str) -> None:
    """Refuse a value that is no object or has other keys than these.

    Raises Invalid with the name of the first key that is not allowed.
    """
    require(isinstance(value, dict), f"{where}: an object is required")
    for key in value:
        require(key in keys, f"{where}.{key}: Extra inputs are not permitted")


def require_text(value: Any, where: str) -> str:
    """Return a text; raise Invalid if it is blank or has lone surrogates.

    Both services refuse blank text. Lone surrogates survive Python's JSON encoder as escapes, and the services
    refuse them.
    """
    require(isinstance(value, str), f"{where}: Input should be a valid string")
    require(bool(value.strip()), f"{where}: text content blocks must contain non-whitespace text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{where}: lone surrogates are not valid text") from None
    return str(value)


def require_image(mime: Any, data: Any, where: str) -> Image:
    """Return a picture that both APIs accept.

    data: base64. The rules (kinds, size) are the product's own, `picture_problem`.
    """
    require(isinstance(mime, str) and isinstance(data, str), f"{where}: Input should be a valid string")
    why = picture_problem(mime, data)
    require(why is None, f"{where}: could not process image: {why}")
    return Image(mime, data)


def require_data_url(value: Any, where: str) -> Image:
    """Return the picture of a data URL. Pictures are embedded; a link would make the service fetch it."""
    found = _DATA_URL.fullmatch(str(value))
    if found is None:
        raise Invalid(f"{where}: must be a data URL of an image")
    return require_image(found[1], found[2], where)


def require_tool_name(value: Any, where: str) -> str:
    """Return a tool name that both APIs accept."""
    require(
        isinstance(value, str) and bool(_TOOL_NAME.fullmatch(value)),
        f"{where}: String should match '^[a-zA-Z0-9_-]{{1,64}}$'",
    )
    return str(value)


def check_schema(value: Any, where: str) -> None:
    """Check the parameters of a tool.

    Only the outer type is checked; the schemas of all tools have tests of their own.
    """
    require(isinstance(value, dict) and value.get("type") == "object", f"{where}: must be a JSON schema of type object")


def check_tool_names(names: list[str], value: Any, *, is_chosen: bool) -> None:
    """Check the tools of a request as a whole. value: its field "tools". is_chosen: it says which tool is to be called."""
    require(len(names) == len(set(names)), "tools: names must be unique")
    require(value is None or bool(names), "tools: must not be empty")
    require(bool(names) or not is_chosen, "tool_choice: only allowed when tools are specified")


def require_arguments(raw: Any, where: str) -> dict[str, Any]:
    """Return the arguments of a call, which some formats carry as JSON in a text."""
    require(isinstance(raw, str), f"{where}: must be a string of JSON")
    try:
        arguments = json.loads(raw)
    except ValueError as error:
        raise Invalid(f"{where}: not valid JSON: {error}") from error
    require(isinstance(arguments, dict), f"{where}: must be an object")
    return dict(arguments)


class TurnBuilder:
    """Builder of a conversation that checks its order: roles alternate, and every call has its result in the next turn.

    Results wait for the turn that they belong to: the next of the user, or one without text before the assistant's or at the end.

    For example:

        conversation = TurnBuilder()
        conversation.user("hello", "messages.0")
        conversation.assistant(AssistantTurn("", (ToolCall("c1", "now", {}),)), "messages.1")
        conversation.result("c1", "12:00", is_error=False)
        conversation.user("", "messages.2")   # every call must have its result before
        turns = conversation.end("messages.3")
    """

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        """The turns so far; user and assistant alternate."""
        self._ids: set[str] = set()
        """Ids of all calls so far, which must be unique in the whole conversation."""

        self._results: list[tuple[str, str, bool]] = []
        """Results (call id, content, is_error) of the next user turn."""

    def result(self, call_id: str, content: str, *, is_error: bool) -> None:
        """Add a result to the next user turn."""
        self._results.append((call_id, content, is_error))

    def user(self, text: str, where: str, images: tuple[Image, ...] = ()) -> None:
        """Add a user turn with the results before it.

        Fences around text from outside are left out, so that scripts read what was said; `raw` and `body` have them.
        """
        before = self.turns[-1] if self.turns else None
        require(not isinstance(before, UserTurn), f"{where}: roles must alternate between user and assistant")
        open_calls = {call.id: call for call in before.calls} if isinstance(before, AssistantTurn) else {}
        read: list[ToolResult] = []
        for call_id, content, failed in self._results:
            require(
                call_id in open_calls, f"{where}: unexpected tool result: no call {call_id!r} in the message before"
            )
            read.append(ToolResult(call_id, open_calls.pop(call_id).name, without_fences(content), failed))
        require(not open_calls, f"{where}: tool calls without a result immediately after: {', '.join(open_calls)}")
        self.turns.append(UserTurn(tuple(read), without_fences(text), images))
        self._results = []

    def assistant(self, turn: AssistantTurn, where: str) -> None:
        """Add an assistant turn."""
        if self._results:
            self.user("", where)
        require(bool(self.turns), f"{where}: first message must use the user role")
        require(isinstance(self.turns[-1], UserTurn), f"{where}: roles must alternate between user and assistant")
        for call in turn.calls:
            require(call.id not in self._ids, f"{where}: tool call ids must be unique: {call.id!r}")
            self._ids.add(call.id)
        self.turns.append(turn)

    def end(self, where: str) -> tuple[Turn, ...]:
        """Return all turns; the last one must be the user's. where: the place behind the last message."""
        if self._results:
            self.user("", where)
        require(bool(self.turns), "messages: at least one message is required")
        require(isinstance(self.turns[-1], UserTurn), "messages: the conversation must end with a user message")
        return tuple(self.turns)


@attrs.frozen(eq=False)
class ProviderRequest:
    """A call as it arrived. Scripts read `last`, `calls` and `turns`; tests of a client read `raw` and `body` too.

    Example::

        def script(request: ProviderRequest) -> ProviderAnswer:
            return ProviderAnswer("three turns" if len(request.turns) == 3 else "another number")
    """

    format: str
    """"anthropic" or "openai"."""
    path: str
    """Path of the URL without the query."""
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes
    """The bytes as they arrived, for tests that compare requests byte by byte."""
    raw: Mapping[str, Any] = attrs.field(repr=False)
    """The parsed body."""
    turns: tuple[Turn, ...]
    """The conversation, the same for both formats."""
    system: str = ""
    """The system prompt; "" if there is none."""
    tools: tuple[str, ...] = ()
    """Names of the tools."""
    stream: bool = False
    """True if the answer is to be streamed."""
    query: str = ""
    """Query of the URL."""
    n: int = 0
    """Number of the request: 1 for the first one of the server, also counting invalid ones."""

    @property
    def model(self) -> str:
        """Model id."""
        return str(self.raw.get("model", ""))

    @property
    def last(self) -> UserTurn:
        """Last turn, which the model must answer."""
        turn = self.turns[-1]
        return turn if isinstance(turn, UserTurn) else UserTurn()

    @property
    def calls(self) -> Mapping[str, ToolCall]:
        """Calls of the assistant turn before the last turn, by id."""
        before = self.turns[-2] if len(self.turns) > 1 else None
        return {call.id: call for call in before.calls} if isinstance(before, AssistantTurn) else {}
