"""Bodies of requests, and of answers that the server makes itself.

Each operation names the class of its body: one that does not fit is refused before the handler sees it. The same classes are in the
description of the API. A field that is null counts as missing.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from pegasus.messages import Json, Media, Metadata, OutboundMessage
from pegasus.wire import SnakeCase

EndReason: TypeAlias = Literal["stop", "length"]
"""Reason of the end of a completion: its turn has ended, or the time was over before, or somebody has stopped it."""
ResponseStatus: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed"]
"""State of a response."""

# ------------------------------------------------------------------ messages


@attrs.frozen
class NamedChannel:
    """A conversation that a message names. What is left out is that of the token."""

    channel_id: str | None = None
    type: str | None = None
    user_id: str | None = None
    reply_to: str | None = None


@attrs.frozen
class MessageBody:
    """A message to the agent. The same `id` in the same conversation is one message."""

    text: str
    id: str | None = None
    channel: NamedChannel | None = None
    metadata: Metadata | None = None
    media: tuple[Media, ...] | None = None


@attrs.frozen
class SentAnswer:
    """A message that is on disk."""

    id: str


@attrs.frozen
class TurnAnswer:
    """Replies to a message. `done` is false if the time was over before its turn had ended, `stopped` true if it was stopped."""

    id: str
    replies: tuple[OutboundMessage, ...]
    done: bool
    stopped: bool = False


@attrs.frozen
class RepliesAnswer:
    """Replies of a conversation, and the number to ask with next."""

    replies: tuple[OutboundMessage, ...]
    seq: int


@attrs.frozen
class InterruptBody:
    """A conversation, left out: that of the token."""

    channel: NamedChannel | None = None


# ------------------------------------------------------------------ OpenAI's interfaces


@attrs.frozen
class ChatMessage(SnakeCase):
    """A message of a chat: of the role user, assistant, system, developer or tool."""

    role: str
    content: Json = None


@attrs.frozen
class StreamOptions(SnakeCase):
    """Options of a stream."""

    include_usage: bool | None = None


@attrs.frozen
class CompletionBody(SnakeCase):
    """A chat completion. Options that OpenAI has beside these are ignored."""

    messages: tuple[ChatMessage, ...]
    model: str | None = None
    user: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


@attrs.frozen
class CompletionMessage(SnakeCase):
    """The answer of the agent."""

    role: Literal["assistant"]
    content: str
    refusal: None


@attrs.frozen
class CompletionChoice(SnakeCase):
    """The one choice of a completion."""

    index: int
    message: CompletionMessage
    logprobs: None
    finish_reason: EndReason


@attrs.frozen
class CompletionAnswer(SnakeCase):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: tuple[CompletionChoice, ...]
    usage: Metadata


@attrs.frozen
class ResponseBody(SnakeCase):
    """A request for a response. Options that OpenAI has beside these are ignored, and tools are refused."""

    input: str | tuple[Metadata, ...]
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    user: str | None = None
    metadata: Metadata | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    tools: tuple[Metadata, ...] | None = None
    tool_choice: str | Metadata | None = None
    background: bool | None = None


@attrs.frozen
class ResponseAnswer(SnakeCase):
    """A response, as OpenAI's API has it."""

    id: str
    created_at: int
    completed_at: int | None
    status: ResponseStatus
    model: str
    output: tuple[Metadata, ...]
    usage: Metadata | None
    incomplete_details: Metadata | None
    error: Metadata | None
    instructions: str | None
    previous_response_id: str | None
    user: str | None
    safety_identifier: str | None
    prompt_cache_key: str | None
    metadata: Metadata
    object: Literal["response"]
    background: bool
    frequency_penalty: float
    max_output_tokens: int | None
    max_tool_calls: int | None
    parallel_tool_calls: bool
    presence_penalty: float
    reasoning: Metadata | None
    service_tier: str
    store: bool
    temperature: float
    text: Metadata
    tool_choice: str
    tools: tuple[Metadata, ...]
    top_logprobs: int
    top_p: float
    truncation: str


@attrs.frozen
class EmbeddingsBody(SnakeCase):
    """Texts to be made vectors of."""

    input: str | tuple[str, ...]
    model: str | None = None
    encoding_format: Literal["float", "base64", None] = None
    user: str | None = None


@attrs.frozen
class TranscriptionBody(SnakeCase):
    """A recording, with what its transcription is to be."""

    file: bytes
    model: str | None = None
    response_format: Literal["json", "verbose_json", "diarized_json", "text", "srt", "vtt", None] = None
    language: str | None = None
    prompt: str | None = None


@attrs.frozen
class SpeechBody(SnakeCase):
    """A text to be spoken."""

    input: str
    voice: str | Metadata
    model: str | None = None
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm", None] = None
    speed: float | None = None
    instructions: str | None = None
    stream_format: Literal["audio", None] = None


@attrs.frozen
class ModelJson(SnakeCase):
    """A model that OpenAI's clients may name."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


@attrs.frozen
class ModelsAnswer(SnakeCase):
    """All such models."""

    object: Literal["list"]
    data: tuple[ModelJson, ...]


# ------------------------------------------------------------------ the agent


@attrs.frozen
class SortingBody:
    """Changes of these settings; what is left out stays."""

    trust: str | None = None
    reads: tuple[str, ...] | None = None
    fetches: tuple[str, ...] | None = None
    acts: tuple[str, ...] | None = None
    asks: tuple[str, ...] | None = None


@attrs.frozen
class InputBody:
    """The answer that a task waits for."""

    input: str | None = None


@attrs.frozen
class FileBody:
    """A new content; `was` is the one that was read."""

    content: str
    was: str | None = None


@attrs.frozen
class PairingBody:
    """A code that somebody has been given who wants to write to the agent."""

    code: str


@attrs.frozen
class SettingBody:
    """A new value of a key, null for its default; `was` is the one that was read."""

    path: tuple[str, ...]
    was: str
    value: str | None = None


@attrs.frozen
class MarkdownBody:
    """Texts in Markdown."""

    texts: tuple[str, ...]


@attrs.frozen
class UndoBody:
    """The number of a change."""

    n: int


@attrs.frozen
class EditBody:
    """A message, and what is said in its place."""

    id: str
    text: str


@attrs.frozen
class DecisionBody:
    """The answer to an approval."""

    decision: Literal["allow", "deny"]
    scope: Literal["once", "arguments", "tool", "server", "hour", "forever", "always", None] = None
    calls: tuple[int, ...] | None = None
    reason: str | None = None
    values: Metadata | None = None


@attrs.frozen
class JobSchedule:
    """Times of a job: one of them, with `tz` beside `cron` and `at`."""

    cron: str | None = None
    tz: str | None = None
    every: float | None = None
    at: str | None = None
    when: str | None = None


@attrs.frozen
class JobBody:
    """A new job."""

    schedule: JobSchedule
    prompt: str
    channel: str | None = None
    name: str | None = None
    kind: Literal["message", "task"] | None = None
    missed: Literal["once", "skip"] | None = None
    enabled: bool | None = None


@attrs.frozen
class TokenBody:
    """A token."""

    token: str


@attrs.frozen
class CodeBody:
    """The code of a link."""

    code: str


@attrs.frozen
class SignInAnswer:
    """The command that signs a browser in."""

    command: str


@attrs.frozen
class SignedInAnswer:
    """The token that a browser is signed in with."""

    name: str
    scopes: tuple[str, ...]


@attrs.frozen
class EmptyAnswer:
    """Nothing."""


@attrs.frozen
class NameJson:
    """The name of a conversation, or of a node."""

    name: str


@attrs.frozen
class AliveAnswer:
    """The process answers. waiting: a sentence about what it waits for, if it does."""

    status: Literal["ok"]
    waiting: str = ""


@attrs.frozen
class DeliveryAnswer:
    """A webhook that was taken: the message or the task that it has become, or that it has come before."""

    id: str = ""
    task_id: str = ""
    repeated: bool = False
