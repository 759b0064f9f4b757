"""Which refusals mean that the conversation is too long for the model: no two providers say it in the same words.

Sources of the words: https://platform.claude.com/docs/en/api/errors, https://developers.openai.com/api/docs/guides/error-codes,
issue trackers of google-gemini/gemini-cli, vllm-project/vllm, ollama/ollama, ggml-org/llama.cpp, BerriAI/litellm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from pegasus.models.errors import provider_message

_CODES: Final = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "request_too_large", "model_context_window_exceeded"}
)
"""OpenAI's and Azure's code, llama.cpp's type, Anthropic's type for 413."""

_WORDS: Final = re.compile(
    r"prompt is too long"  # Anthropic, vLLM ("… to fit into the model")
    r"|prompt \([^)]*\) is too long"  # vLLM
    r"|input is too long|prompt too long|context (?:is )?too long"  # Bedrock, Ollama
    r"|exceeds? (?:the |its |this model's )?(?:maximum |max |available |model's |model )*context"  # OpenAI, llama.cpp, Ollama
    r"|exceeds? context limit"  # Anthropic: input length and `max_tokens` exceed context limit
    r"|context (?:window|length|size|limit) (?:is |was |has been )?(?:exceed|reached|full)"  # MiniMax, LiteLLM, many
    r"|context[_ ]?(?:length|window)[_ ]?exceeded|ContextWindowExceeded"  # LiteLLM
    r"|input token count.{0,40}exceeds"  # Gemini
    r"|maximum context length|maximum model length|max_model_len"  # OpenAI, OpenRouter, vLLM
    r"|maximum prompt length|max(?:imum)? input length|maximum allowed input length"  # xAI, SGLang, DashScope
    r"|maximum number of (?:input )?tokens allowed"
    r"|(?:greater|longer|larger|more) than the (?:model's )?(?:maximum )?context"  # LM Studio, SGLang
    r"|reduce (?:the length of (?:the |your )?(?:messages|prompt|input)|your (?:prompt|message size))"  # OpenAI, Groq
    r"|tokens must be reduced in order to run"  # OpenAI: a request above the rate limit of a whole minute
    r"|exceeded model token limit|prompt token count.{0,40}exceeds|token limit exceeded"  # Kimi, Copilot
    r"|too many (?:input |prompt )?tokens(?! per)"
    r"|messages\W+\d+.{0,40}string too long"  # OpenAI: one message above 10 million characters
    r"|(?:request|payload|body|entity) (?:entity |body |is )*(?:exceeds the maximum|too large)",
    re.IGNORECASE | re.DOTALL,
)
_OUTPUT: Final = re.compile(
    r"max_tokens|max_completion_tokens|max_new_tokens|(?:completion|output) tokens|in the (?:completion|output)",
    re.IGNORECASE,
)
_LIMIT: Final = re.compile(
    r"max_tokens[`'\"]?: ?\d+ > (\d+)"  # Anthropic: max_tokens: 9000 > 4096, which is the maximum allowed number of output …
    r"|at most (\d+) (?:completion|output) tokens"  # OpenAI
    r"|max(?:_completion)?_tokens.{0,60}(?:less than or equal to|between 1 and|\[1, ?|<= ?) ?[`'\"]?(\d+)",  # Groq, DashScope
    re.IGNORECASE,
)
_WINDOW: Final = re.compile(
    r"(?:context length|context limit|context window)(?: is| of)?(?: only)? (\d+)", re.IGNORECASE
)
_SUM: Final = re.compile(r"(\d+) \+ \d+ > (\d+)")
"""Anthropic: input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000."""
_INPUT: Final = re.compile(
    r"(\d+) (?:input tokens|tokens? (?:from|in) the (?:input|messages|prompt)|in the messages|of text input)"
    r"|(?:has|resulted in|contains) (?:at least )?(\d+) (?:input )?tokens",
    re.IGNORECASE,
)
_LEAST: Final = 1024
"""Tokens below which an answer is not worth asking for: then it is the conversation that is too long."""


def is_overflow(status: int, body: object) -> bool:
    """Whether a refusal with this status and body says that the conversation, not something else, is too long."""
    if status == 413 or _CODES.intersection(_marks(body)):
        return True
    if status in (401, 402, 403, 404):
        return False
    said = provider_message(body)[:4000]
    if status == 429:  # else it speaks of tokens per minute, and passes
        return "must be reduced in order to run" in said
    return bool(_WORDS.search(said))


def output_limit(status: int, body: object, asked: int) -> int | None:
    """How many tokens of answer to ask for instead, where a refusal says that only so many are left or allowed; else None."""
    said = provider_message(body)[:4000] if status in (400, 422) else ""
    if not _OUTPUT.search(said):
        return None
    if limit := _LIMIT.search(said):
        found = int(next(group for group in limit.groups() if group))
        return found if 0 < found < asked else None
    # Half of the room: the conversation grows, and not every further message should be refused first.
    half = _room(said) // 2
    return half if _LEAST <= half < asked else None


def _room(said: str) -> int:
    """Tokens that the window leaves for the answer, where both it and the input are named; else 0."""
    if both := _SUM.search(said):
        return int(both[2]) - int(both[1])
    window, used = _WINDOW.search(said), _INPUT.search(said)
    return int(window[1]) - int(used[1] or used[2]) if window and used else 0


def _marks(body: object) -> Iterator[str]:
    """Types and codes in an error body."""
    if isinstance(body, list) and body:
        yield from _marks(body[0])
    if isinstance(body, Mapping):
        for key in ("type", "code"):
            if isinstance(value := body.get(key), str):
                yield value
        yield from _marks(body.get("error"))
