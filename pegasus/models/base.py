"""Vocabulary of model calls: the conversation, the request, the response, the errors, and the `LanguageModel` protocol.

Nothing in this file knows a provider. The rest of Pegasus speaks to models only in these values, and a provider's file
(`anthropic.py`, `openai.py`) translates them to its wire format and back. So a conversation that began with one provider can go on
with another one.

A conversation is a tuple of turns that strictly alternate: user, assistant, user, … It begins and ends with a `UserTurn`. What
happens between two answers of the model (results of its tool calls, messages that arrived meanwhile) is merged into one
`UserTurn`, because providers reject two messages of the same role in a row.

    request = ModelRequest("You are helpful.", (UserTurn(text="What time is it?"),), tools=(CLOCK,))
    response = await model.generate(request)
    turns = (*request.turns, AssistantTurn(response.text, response.calls), UserTurn(results=(ToolResult(…),)))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import attrs

from pegasus.messages import ChannelInfo, Json, Metadata


@attrs.frozen
class ToolSpec:
    """Description of a tool for the model."""

    name: str
    description: str
    parameters: Metadata
    """JSON Schema of an object: the tool's arguments."""


@attrs.frozen
class ToolCall:
    """Request of the model to run a tool."""

    id: str
    name: str
    arguments: Metadata
    """The object that the model gave; empty where `error` is set."""
    error: str | None = None
    """Explanation for the model why its arguments could not be read (broken JSON, not an object). The tool must not be run."""


# ---------------------------------------------------------------- the conversation


@attrs.frozen(eq=False)
class UserTurn:
    """Input between two assistant turns, sent in this order: tool results, images, text. At least one of them is not empty.

    Turns compare by identity. The same object appears in all later requests of its conversation, which is how a token counter
    recognises what the provider has counted before.
    """

    results: tuple[ToolResult, ...] = ()
    """One for each call of the assistant turn before, in the order of the calls."""
    text: str = ""
    images: tuple[Image, ...] = ()


@attrs.frozen(eq=False, repr=False)
class Image:
    """Picture for the model."""

    mime: str
    """"image/png", "image/jpeg", "image/gif" or "image/webp"."""
    data: str
    """Base64."""
    name: str = ""
    """File name, for people."""


@attrs.frozen
class ToolResult:
    """Outcome of a tool call, as the model reads it."""

    call_id: str
    name: str
    content: str
    """JSON text or plain text."""
    is_error: bool = False


@attrs.frozen(eq=False)
class AssistantTurn:
    """Answer of the model, as it stands in the conversation. Compares by identity, see `UserTurn`."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thinking: tuple[Json, ...] = ()
    """The provider's own thinking blocks. They go back unchanged to a provider of the type in `thinking_of`."""
    thinking_of: str | None = None
    """Provider type that wrote `thinking` ("anthropic", "gemini"). Other providers never see these blocks."""


Turn: TypeAlias = UserTurn | AssistantTurn


@attrs.frozen(eq=False)
class Label:
    """Purpose of a model call: usage records, budgets and routing rules read it. It is not sent to the provider."""

    role: str = "default"
    """"default", "subagent", "compact" or "reflection"."""
    channel: ChannelInfo | None = None
    """Chat that the call is for."""
    item: int | None = None
    """Number of the message in the queue."""
    task_id: str = ""


NO_LABEL = Label()

OnText: TypeAlias = Callable[[str | None], None]
"""Listener of streamed text: a piece of the answer, or None when everything streamed so far will not be part of the answer."""


@attrs.frozen
class ModelRequest:
    """One call of a model.

    Every call of an `AssistantTurn` has its `ToolResult` in the `UserTurn` after it, and there are no other results. Providers
    reject anything else.
    """

    system: str
    turns: tuple[Turn, ...]
    """Alternating; the first and the last are `UserTurn`s."""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    """"auto", "none", "required", or the name of the tool that the model must call."""
    max_tokens: int = 8192
    """Upper limit of the answer's length, in tokens."""
    label: Label = NO_LABEL
    on_text: OnText | None = None
    """Receives the text while it is streamed. It must not block. If it raises, the error is logged and streaming to it ends; the
    call goes on. After the last None the pieces together are the response's text."""


@attrs.frozen
class Usage:
    """Tokens of one call, as the provider counted them; all zero where it did not count."""

    prompt_tokens: int = 0
    """The whole input, including what came from or went into the provider's cache."""
    completion_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@attrs.frozen
class ModelResponse:
    """Answer of a model."""

    text: str
    calls: tuple[ToolCall, ...]
    usage: Usage
    stop_reason: str
    """Why the answer ended: "end", "tool_calls", "length" (cut off at a token limit), "refusal" (by the model or a filter), "pause"
    (it goes on when asked again), "error" (the provider broke it off), else the provider's own word. See `wire_format.WORDS`."""
    thinking: tuple[Json, ...] = ()
    """As in `AssistantTurn`."""
    thinking_of: str | None = None


class ModelError(Exception):
    """A model call failed, after all retries that fit into its time. `str()` is one line for users and contains no secret."""

    def __init__(self, message: str, *, kind: str, status: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        """Class of the failure:

        * "auth": the key was refused (401, 403).
        * "request": the same request would fail again (400, 402, 404, 422).
        * "overflow": the conversation is too long for the model (413, or the provider says so).
        * "budget": a limit of the settings; the call was not made.
        * "overloaded": 429, 503, 529.
        * "server": other 5xx.
        * "network": no connection, or it broke.
        * "timeout": no answer within `models.timeout`.
        * "protocol": the answer could not be understood.
        """
        self.status = status
        """HTTP status, if there was one."""


class LanguageModel(Protocol):
    """A model that can be called. Calls may overlap; nothing is kept from one call to the next."""

    @property
    def name(self) -> str:
        """`<provider>/<model>` as in the settings."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the model's answer, after retries if needed.

        Raises ModelError. On cancellation the connection is closed, and text that was streamed is retracted.
        """
