"""What providers say when a conversation is too long, and what sounds like it and is something else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pegasus.models import ModelRequest, UserTurn
from pegasus.models.errors import status_error
from pegasus.models.formats.anthropic import AnthropicWire
from pegasus.models.formats.chat import ChatWire
from pegasus.models.refusals import is_overflow, output_limit

TOO_LONG = {
    "anthropic": (400, "prompt is too long: 213462 tokens > 200000 maximum"),
    "anthropic, with the answer": (
        400,
        "input length and `max_tokens` exceed context limit: 199900 + 8192 > 200000, decrease input length or `max_tokens`",
    ),
    "openai": (400, "Your input exceeds the context window of this model. Please adjust your input and try again."),
    "openai, older": (
        400,
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 tokens. Please reduce "
        "the length of the messages.",
    ),
    "openai, one message": (
        400,
        "Invalid 'messages[3].content': string too long. Expected a string with maximum length 10485760, but got 12000000",
    ),
    "openai, a minute's limit": (
        429,
        "Request too large for gpt-6 in organization org on tokens per min (TPM): Limit 30000, Requested 35000. The input or "
        "output tokens must be reduced in order to run successfully.",
    ),
    "gemini": (400, "The input token count (1196265) exceeds the maximum number of tokens allowed (1048576)."),
    "ollama": (400, "prompt too long; exceeded max context length by 31 tokens"),
    "ollama, input": (400, "the input length exceeds the context length"),
    "vllm": (400, "The prompt (total length 25938) is too long to fit into the model (context length 4096)."),
    "vllm, newer": (
        400,
        "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens.",
    ),
    "litellm": (400, "litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - Error code: 400"),
    "llama.cpp": (400, "the request exceeds the available context size, try increasing it"),
    "llama.cpp, as a failure": (500, "the request exceeds the available context size"),
    "lm studio": (400, "The number of tokens to keep from the initial prompt is greater than the context length."),
    "openrouter": (
        400,
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 232463 tokens",
    ),
    "xai": (400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
    "groq": (413, "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7000"),
    "groq, words": (400, "Please reduce the length of the messages or completion."),
    "bedrock": (400, "Input is too long for requested model."),
    "minimax": (400, "invalid params, context window exceeds limit"),
    "kimi": (400, "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)"),
    "copilot": (400, "prompt token count of 130000 exceeds the limit of 128000"),
    "a proxy": (413, "<html><title>413 Request Entity Too Large</title></html>"),
}
SOMETHING_ELSE = [
    (400, "max_tokens: 9000 > 4096, which is the maximum allowed number of output tokens for this model"),
    (400, "max_tokens is too large: 9000. This model supports at most 4096 completion tokens."),
    (400, "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024"),
    (
        400,
        "Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with "
        "length 51 instead.",
    ),
    (400, "Invalid 'messages[4].tool_call_id': string too long. Expected a string with maximum length 40"),
    (400, "Invalid 'input[7].call_id': string too long. Expected a string with maximum length 64"),
    (400, "Invalid 'messages[2].name': string too long. Expected a string with maximum length 64"),
    (400, "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'; the input is too long"),
    (400, "temperature is out of range"),
    (401, "invalid key; context length exceeded"),
    (404, "The model `maximum context length` does not exist"),
    (429, "Rate limit reached: too many tokens per minute, please reduce your prompt"),
    (429, "This request would exceed your organization's rate limit of 30,000 input tokens per minute"),
    (500, "Internal server error"),
    (529, "Overloaded"),
]


@pytest.mark.parametrize("provider", TOO_LONG)
def test_a_conversation_that_is_too_long_is_an_overflow(provider: str) -> None:
    status, words = TOO_LONG[provider]
    for body in (words, {"error": {"message": words}}, [{"error": {"message": words, "code": 400}}]):
        error = status_error("p/m", status, body)
        assert (error.kind, error.status) == ("overflow", status)
        assert "too long" in str(error)


@pytest.mark.parametrize(
    "body", [{"error": {"code": "context_length_exceeded"}}, {"type": "exceed_context_size_error"}]
)
def test_a_code_says_it_too(body: object) -> None:
    assert is_overflow(400, body)


@pytest.mark.parametrize(("status", "words"), SOMETHING_ELSE)
def test_what_only_sounds_like_it_is_not(status: int, words: str) -> None:
    assert status_error("p/m", status, {"error": {"message": words}}).kind != "overflow"


def test_a_huge_error_body_costs_little() -> None:
    assert not is_overflow(400, "exceeds " * 1_000_000)


# ------------------------------------------------------------------ answers that are too long


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("max_tokens: 9000 > 4096, which is the maximum allowed number of output tokens for claude-x", 4096),
        ("max_tokens is too large: 8192. This model supports at most 4096 completion tokens", 4096),
        ("`max_tokens` must be less than or equal to `4096`, the maximum value for `max_tokens`", 4096),
        (
            "'max_tokens' is too large: 8192. This model's maximum context length is 8000 tokens and your request has 2000 "
            "input tokens",
            3000,
        ),
        ("input length and `max_tokens` exceed context limit: 192000 + 8192 > 200000", 4000),
        ("maximum context length is 9000 tokens. However, you requested 10346 (2154 in the messages, 8192 in the completion)", 3423),
        ("maximum context length is 4096 tokens, max_tokens 8192, your request has 4000 input tokens", None),
        ("max_tokens is not supported; use max_completion_tokens", None),
        ("maximum context length is 4096 tokens. However, your messages resulted in 8545 tokens", None),
        ("max_tokens: 9000 > 9000000", None),
    ],
)  # fmt: skip
def test_how_long_an_answer_may_be_is_read_in_the_refusal(words: str, limit: int | None) -> None:
    assert output_limit(400, {"error": {"message": words}}, 8192) == limit


@pytest.mark.parametrize("wire", [AnthropicWire("m"), ChatWire("m")])
def test_a_model_with_short_answers_is_asked_for_short_ones(wire: Any) -> None:
    request = ModelRequest("", (UserTurn(text="hi"),), max_tokens=8192)
    refusal = {"error": {"message": "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens"}}
    wire.body(request)
    assert wire.adapt(400, refusal, request)
    assert json.loads(wire.body(request))["max_tokens"] == 4096
