"""Vocabulary of model calls: the conversation, the request, the response, the errors, and the `LanguageModel` protocol.

Nothing in this file knows a provider. The rest of Pegasus speaks to models only in these values, and each wire format (`formats/`)
translates them and back. So a conversation that began with one provider can go on with another one.

A conversation is a tuple of turns that strictly alternate: user, assistant, user, … It begins and ends with a `UserTurn`. What
happens between two answers of the model (results of its tool calls, messages that arrived meanwhile) is merged into one
`UserTurn`, because providers reject two messages of the same role in a row.

    request = ModelRequest("You are helpful.", (UserTurn(text="What time is it?"),), tools=(CLOCK,))
    response = await model.generate(request)
    turns = (*request.turns, AssistantTurn(response.text, response.calls), UserTurn(results=(ToolResult(…),)))
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final, Protocol, TypeAlias

import attrs

from pegasus.messages import ChannelInfo, Json, Metadata
from pegasus.outside import without_fences
from pegasus.settings import ModelSettings


@attrs.frozen
class ToolSpec:
    """Description of a tool for the model."""

    name: str
    """Name by which the model calls it. A wire format may have to change it for a service (`wire_name`), and
    changes it back."""
    description: str
    """Explanation for the model: what the tool does, and when to use it."""
    parameters: Metadata
    """JSON Schema of an object: the tool's arguments."""

    @cached_property
    def text(self) -> str:
        """All of it as it roughly stands in a prompt. Kept: each new conversation is measured with the same tools."""
        return f"{self.name} {self.description} {json.dumps(self.parameters, ensure_ascii=False, default=str)}"


@attrs.frozen
class ToolCall:
    """Request of the model to run a tool."""

    id: str
    """Id that is unique in the conversation. Its `ToolResult` has the same one."""
    name: str
    """Name of the tool, which need not exist: the model may have made it up."""
    arguments: Metadata = attrs.field(factory=dict)
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
    """Text of the people, with a line for each message that says where it came from."""
    images: tuple[Image, ...] = ()
    """Pictures that came with the text."""


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
    """Id of the `ToolCall` that it answers."""
    name: str
    """Name of the tool; some services want it beside the result."""
    content: str
    """JSON text or plain text."""
    is_error: bool = False
    """True if the tool failed or was not run. The content says why."""


@attrs.frozen(eq=False)
class AssistantTurn:
    """Answer of the model, as it stands in the conversation. Compares by identity, see `UserTurn`."""

    text: str = ""
    """Text of the answer, without reasoning; "" for an answer that only calls tools."""
    calls: tuple[ToolCall, ...] = ()
    """Calls in the order of the answer."""
    thinking: tuple[Json, ...] = ()
    """The provider's own thinking blocks. They go back unchanged to a provider of the type in `thinking_of`."""
    thinking_of: str | None = None
    """Provider type that wrote `thinking` ("anthropic", "gemini"). Other providers never see these blocks."""


Turn: TypeAlias = UserTurn | AssistantTurn


@attrs.frozen(eq=False)
class Label:
    """Purpose of a model call: usage records, budgets and routing rules read it. It is not sent to the provider."""

    role: str = "default"
    """"default", "subagent", "compact" or "reflection"; "transcribe", "speech" or "embed" for a call that is no conversation."""
    channel: ChannelInfo | None = None
    """Chat that the call is for."""
    item: int | None = None
    """Number of the message in the queue."""
    task_id: str = ""
    """Task that the call is for; "" for none."""
    guest: str = ""
    """Person that the call is for if they are no owner, as "slack:U1"; "" for an owner's work."""


NO_LABEL = Label()


# ---------------------------------------------------------------- the answer while it is streamed


@attrs.frozen
class TextPiece:
    """Piece of the answer's text. The pieces together are `ModelResponse.text`."""

    text: str
    """The next characters, never "" when a listener gets it."""


@attrs.frozen
class ReasoningPiece:
    """Piece of the model's reasoning. It is never part of the answer's text."""

    text: str
    """"" where the provider keeps the reasoning to itself and only shows that the model is at work."""


@attrs.frozen
class CallBegun:
    """Beginning of a tool call. Calls may be written at the same time, so pieces of several may alternate."""

    number: int
    """Place of the call in the answer, from 0."""
    name: str
    """The tool's own name, as in `ToolSpec`."""


@attrs.frozen
class CallPiece:
    """Piece of a call's arguments. The pieces of a call together are the JSON text of its arguments, or nothing for none.

    The model may write JSON that is broken or cut off, so a call counts only once it is in the response.
    """

    number: int
    """Number of the call in its `CallBegun`, which always comes before."""
    text: str
    """The next characters of the JSON text."""


@attrs.frozen
class AnotherAttempt:
    """Word that the call has failed and is made again.

    Example: `on_pieces([AnotherAttempt("retrying (429), attempt 2")])`, and `on_pieces([AnotherAttempt("")])` when the server answers.
    """

    activity: str
    """Few words for people; "" ends them, as None does."""


StreamPiece: TypeAlias = TextPiece | ReasoningPiece | CallBegun | CallPiece | AnotherAttempt
"""Piece of an answer while it arrives, or what delays it."""
OnPieces: TypeAlias = Callable[[Sequence[StreamPiece | None]], None]
"""Listener of a streamed answer: the pieces that have come together. None among them: everything streamed before is void. The list is
emptied after the call, so a listener keeps the pieces, not the list."""


# ---------------------------------------------------------------- request and response


@attrs.frozen(repr=False)
class CallOptions:
    """Options that hold for one call. It has no repr, because headers may hold keys.

    Example: `CallOptions(effort="low", timeout=30.0)`. `effective_options` makes them of the settings.
    """

    effort: str = ""
    """"low", "medium" or "high"; "" for what the provider decides."""
    room_to_think: int = 0
    """Tokens that an answer may have for thinking, beyond what the caller reads."""
    temperature: float | None = None
    """None for what the provider decides."""
    max_tokens: int = 0
    """Length of the answer at most, thinking included; 0 for what the request asks for."""
    timeout: float = ModelSettings().timeout
    """Seconds until the first token, retries included."""
    silence_timeout: float = ModelSettings().silence_timeout
    """Seconds between two tokens."""
    context_window: int = 0
    """Tokens that fit into the model; 0 for what is known of it."""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    """HTTP headers of the request, over those that the SDK sends."""
    query: Mapping[str, str] = attrs.field(factory=dict)
    """Query parameters of the request's address."""
    extra_body: Mapping[str, Json] = attrs.field(factory=dict)
    """Fields of the request's body, over those of the wire format."""


NO_OPTIONS: Final = CallOptions()
"""Options where no setting says anything."""


@attrs.frozen(eq=False, repr=False)
class ModelRequest:
    """One call of a model.

    Every call of an `AssistantTurn` has its `ToolResult` in the `UserTurn` after it, and there are no other results. Providers
    reject anything else.
    """

    system: str
    """System prompt; "" for none."""
    turns: tuple[Turn, ...]
    """Alternating; the first and the last are `UserTurn`s."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools that the model may call. Providers find them in their caches if the order stays the same."""
    tool_choice: str = "auto"
    """"auto", "none", "required", or the name of the tool that the model must call."""
    max_tokens: int = 8192
    """Upper limit of the answer's length, in tokens."""
    label: Label = NO_LABEL
    """Purpose of the call. It decides about routing, budgets and records."""
    options: CallOptions = NO_OPTIONS
    """Effort, times and additions of the settings. The client fills them in; callers leave them alone."""
    asks_again: bool = False
    """True where an answer came already and was not usable. An empty one then is not asked for once more."""
    on_pieces: OnPieces | None = None
    """Receives the answer while it is streamed. It must not block. If it raises, the error is logged and streaming to it ends; the
    call goes on. What comes after the last None is the answer. A server that does not stream gives whole pieces."""


@attrs.frozen
class Usage:
    """Tokens of one call, as the provider counted them; all zero where it did not count."""

    prompt_tokens: int = 0
    """The whole input, including what came from or went into the provider's cache."""
    completion_tokens: int = 0
    """The whole answer, thinking included."""
    cache_read_tokens: int = 0
    """Part of the prompt that came from the provider's cache."""
    cache_write_tokens: int = 0
    """Part of the prompt that went into the provider's cache."""
    cache_hour_tokens: int = 0
    """Part of `cache_write_tokens` that is kept for an hour, where the provider tells them apart. It costs more."""

    def __add__(self, other: Usage) -> Usage:
        """Return the tokens of two calls together."""
        return Usage(*map(sum, zip(attrs.astuple(self), attrs.astuple(other), strict=True)))


@attrs.frozen
class ModelResponse:
    """Answer of a model."""

    text: str
    """Text for people, without reasoning and without calls."""
    calls: tuple[ToolCall, ...]
    """Calls to carry out, with those that the model wrote as text. A server may use the id of one again in another answer."""
    usage: Usage
    """Tokens that the call has taken."""
    stop_reason: str
    """Reason of its end: "end", "tool_calls", "length" (cut off at a token limit), "refusal" (by the model or a filter), "pause"
    (it goes on when asked again), "error" (the provider broke it off), else the provider's own word. See `wire_format.WORDS`."""
    thinking: tuple[Json, ...] = ()
    """As in `AssistantTurn`."""
    thinking_of: str | None = None
    """As in `AssistantTurn`."""
    reasoning: str = ""
    """Reasoning as plain text, for people. It is not sent back to the provider; `thinking` is."""
    model: str = ""
    """`<provider>/<model>` that answered, which a rule or a fallback may have chosen; "" if the model itself does not say."""
    notice: str = ""
    """Sentence for the owner about the model's server, to be shown once beside the answer: it has cut the prompt, say. Usually ""."""

    @property
    def is_empty(self) -> bool:
        """True if the model ended without a text, a call or a thought."""
        return self.stop_reason == "end" and not (self.text.strip() or self.calls or self.reasoning.strip())


class ModelError(Exception):
    """A model call failed, after all retries that fit into its time. `str()` is one line for users and contains no secret.

    Example: `raise ModelError("openai: the key was refused", kind="auth", status=401)`. `Fallback` asks another
    model for the kinds that are about the provider's state; all others reach the caller.
    """

    def __init__(
        self, message: str, *, kind: str, status: int | None = None, partial: str = "", context_window: int = 0
    ) -> None:
        super().__init__(message)
        self.kind = kind
        """Class of the failure:

        * "auth": the key was refused (401, 403).
        * "request": the same request would fail again (400, 402, 404, 422).
        * "overflow": the conversation is too long for the model (413, or the provider says so).
        * "window": not even the shortest prompt fits into the model.
        * "silent": the model has no way to speak, as the settings are.
        * "tools": the server does not take tools with this model.
        * "budget": a limit of the settings; the call was not made.
        * "overloaded": 429, 503, 529.
        * "server": other 5xx.
        * "network": no connection, or it broke.
        * "timeout": no token within `models.timeout`, or none after another within `models.silence_timeout`.
        * "protocol": the answer could not be understood.
        """
        self.model = ""
        """`<provider>/<model>` that failed; "" if the call did not come that far."""
        self.status = status
        """HTTP status, if there was one."""
        self.context_window = context_window
        """Tokens that fit into the model, where a refusal of kind "overflow" names them; else 0."""
        self.may_be_length = False
        """True for a refusal of kind "request" whose words are not understood, and whose circumstances are those of a conversation
        that is too long (`ModelFacts.may_be_too_long`). Compacting once and asking again is worth it."""
        self.partial = partial
        """The longest text that arrived in one attempt before it failed; "" if none did. It never holds reasoning or calls."""


class LanguageModel(Protocol):
    """A model that can be called. Calls may overlap; nothing is kept from one call to the next.

    Example: `StandIn()`, `ModelClient` and `PreparedModel` are such models: `response = await
    model.generate(request)`.
    """

    @property
    def name(self) -> str:
        """`<provider>/<model>` as in the settings."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the model's answer, after retries if needed.

        Raises ModelError. On cancellation the connection is closed, and what was streamed is retracted.
        """


def without_request_fences(request: ModelRequest) -> ModelRequest:
    """Return a request without the fences around text from outside, for programs that take the place of a model."""
    return attrs.evolve(request, turns=tuple(map(_without_turn_fences, request.turns)))


def _without_turn_fences(turn: Turn) -> Turn:
    if isinstance(turn, AssistantTurn):
        return turn
    results = tuple(attrs.evolve(result, content=without_fences(result.content)) for result in turn.results)
    return attrs.evolve(turn, results=results, text=without_fences(turn.text))
