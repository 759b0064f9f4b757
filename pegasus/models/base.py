"""What a language model is to Pegasus: one call in, text and tool calls out. No provider is named here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import attrs

from pegasus.messages import ChannelInfo, Json, Metadata


@attrs.frozen
class ToolSpec:
    """A tool as the model sees it. parameters: JSON Schema of an object."""

    name: str
    description: str
    parameters: Metadata


@attrs.frozen
class ToolCall:
    """The model asks for a tool.

    arguments: the object the model gave. error: why the arguments could not be read (broken JSON, not an
    object), in words for the model; arguments is then empty and the tool must not be run.
    """

    id: str
    name: str
    arguments: Metadata
    error: str | None = None


# ---------------------------------------------------------------- the conversation, as every provider must accept it


@attrs.frozen(eq=False)
class UserTurn:
    """What stands between two assistant turns: the results of the calls before, in call order, then images, then text.

    At least one of them is non-empty. `fragments` is where a provider keeps the turn's serialised
    form (key: provider's wire format), so that each turn is serialised once in its life.
    """

    results: tuple[ToolResult, ...] = ()
    text: str = ""
    images: tuple[Image, ...] = ()
    fragments: dict[str, bytes] = attrs.field(factory=dict, init=False, repr=False)


@attrs.frozen(eq=False, repr=False)
class Image:
    """A picture for the model. mime: "image/png", "image/jpeg", "image/gif" or "image/webp"; data: base64; name: for people."""

    mime: str
    data: str
    name: str = ""


@attrs.frozen
class ToolResult:
    """content is JSON text or plain text. is_error marks a failed call."""

    call_id: str
    name: str
    content: str
    is_error: bool = False


@attrs.frozen(eq=False)
class AssistantTurn:
    """What the model wrote. thinking: the provider's own thinking blocks, carried back unchanged to the same provider.

    thinking_of: the provider type that wrote them ("anthropic"); other providers leave them out.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thinking: tuple[Json, ...] = ()
    thinking_of: str | None = None
    fragments: dict[str, bytes] = attrs.field(factory=dict, init=False, repr=False)


Turn: TypeAlias = UserTurn | AssistantTurn


@attrs.frozen(eq=False)
class Label:
    """What a model call is for: who counts and limits use looks here.

    role: "default", "subagent", "compact", "reflection". item: number of the queue item; channel: where it came from.
    """

    role: str = "default"
    channel: ChannelInfo | None = None
    item: int | None = None
    task_id: str = ""


NO_LABEL = Label()


@attrs.frozen
class ModelRequest:
    """One call.

    turns: strictly alternating, beginning and ending with a UserTurn; every call of an AssistantTurn has its
    ToolResult in the UserTurn after it, and no ToolResult has no call. The same Turn objects come again in later
    requests (more are appended; the last may be replaced by a merged one), which is what makes `fragments` and
    the provider's prompt cache work.
    tool_choice: "auto", "none", "required", or the name of a tool.
    label: what the call is for; it is not sent. on_text: told every piece of text as it comes, which is not yet sure: None
    takes back all that was told (the answer broke off: it is asked for again, or the call fails). It must not wait; what it
    raises is logged and ends the telling, not the call. The pieces together are the response's text.
    """

    system: str
    turns: tuple[Turn, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    max_tokens: int = 8192
    label: Label = NO_LABEL
    on_text: Callable[[str | None], None] | None = None

    def telling(self, on_text: Callable[[str | None], None]) -> ModelRequest:
        """The same call, telling somebody else."""  # as attrs.evolve would, but that costs, and each call needs it
        return ModelRequest(
            self.system, self.turns, self.tools, self.tool_choice, self.max_tokens, self.label, on_text=on_text
        )


@attrs.frozen
class Usage:
    """Tokens as the provider counted them. prompt_tokens includes what came from or went into its cache."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@attrs.frozen
class ModelResponse:
    """What the model answered.

    stop_reason: "end", "tool_calls", "length" (cut off at a token limit), "refusal" (by the model or a filter), "pause" (it
    wants to go on when asked again), "error" (the provider broke it off), else the provider's own word. See models/stops.py.
    """

    text: str
    calls: tuple[ToolCall, ...]
    usage: Usage
    stop_reason: str
    thinking: tuple[Json, ...] = ()
    thinking_of: str | None = None


class ModelError(Exception):
    """The model could not be asked, after all retries that fit in the time. str() is one line a user can be shown.

    kind: "auth" (401, 403), "request" (400, 404, 422: the same request will fail again), "overflow" (413, or the provider says
    that the conversation is too long for the model), "budget" (a limit of the settings: the call was not made), "overloaded"
    (429, 529, 503), "server" (other 5xx), "network", "timeout", "protocol" (an answer that makes no sense). No secret is in it.
    """

    def __init__(self, message: str, *, kind: str, status: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status


class LanguageModel(Protocol):
    """A model of one provider. Stateless between calls; calls may overlap."""

    @property
    def name(self) -> str:
        """`<provider>/<model>` as in the settings."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Ask once, retries included. Raises ModelError. Cancelling ends the call and closes its connection."""
