"""Refusals of providers: what the text and the codes of one say, whatever their status.

Two kinds need more than a message: "the conversation is too long" leads to compaction (kind "overflow"), and "the answer may not be
that long" to a shorter answer (`output_limit`). No two providers say these in the same words, and many servers send them with the
wrong status. Sources of the patterns:
https://platform.claude.com/docs/en/api/errors, https://developers.openai.com/api/docs/guides/error-codes, and the issue trackers of
google-gemini/gemini-cli, vllm-project/vllm, ollama/ollama, ggml-org/llama.cpp, BerriAI/litellm. The patterns are strings, so that
they are compiled at the first refusal only.

    body = {"error": {"message": "This model's maximum context length is 8192 tokens", "code": "context_length_exceeded"}}
    provider_message(body), is_overflow(400, body), window_in_refusal(body)  # the message, True, 8192

`errors` makes a `ModelError` of a refusal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

LONGEST_SEARCH: Final = 4000
"""Characters of a refusal that patterns look at."""
# Both APIs stream with status 200 first. A failure after that is an event with a type, which stands for a status.
_STATUS_BY_TYPE: Final = {
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "bio_policy": 400,
    "misalignment_policy_violation": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""HTTP statuses of the error types that both APIs send inside a stream, after the status line has said 200."""


# ------------------------------------------------------------------ the message and the codes


def provider_message(body: object) -> str:
    """Return the message in an error body: Anthropic's, OpenAI's and the usual variants of others; "" if there is none.

    {"type": "error", "error": {"type": "overloaded_error", "message": "…"}}  # Anthropic
    {"error": {"message": "…", "type": "…", "param": null, "code": null}}  # OpenAI
    [{"error": {"message": "…"}}]  # Gemini
    {"detail": [{"msg": "…"}]}  # FastAPI: vLLM and others
    """
    if isinstance(body, str):
        return _inner_message(body)
    if isinstance(body, list) and body:
        return provider_message(body[0])
    if not isinstance(body, Mapping):
        return ""
    for key in ("error", "message", "detail", "msg"):
        value = body.get(key)
        if isinstance(value, Mapping | list) and value:
            return provider_message(value) or json.dumps(value, default=str)
        if isinstance(value, str) and value:
            return _inner_message(value)
    return ""


def _inner_message(text: str) -> str:
    """Return the message in an error that is JSON inside of a text, as Ollama passes on those of llama.cpp; else the text itself."""
    if not text.startswith('{"error"'):
        return text
    try:
        return provider_message(json.loads(text)) or text
    except (ValueError, RecursionError):
        return text


def event_status(error: object) -> int:
    """Return the status that an error inside a stream would have had as a response; 500 where its type is unknown."""
    if isinstance(error, Mapping):
        for key in ("type", "code", "status"):
            value = error.get(key)
            if isinstance(value, int) and 400 <= value <= 599:
                return value
            if isinstance(value, str) and value in _STATUS_BY_TYPE:
                return _STATUS_BY_TYPE[value]
    return 500


def _types_and_codes(body: object) -> Iterator[str]:
    if isinstance(body, list) and body:
        yield from _types_and_codes(body[0])
    if isinstance(body, Mapping):
        for key in ("type", "code"):
            if isinstance(value := body.get(key), str):
                yield value
        yield from _types_and_codes(body.get("error"))


def is_out_of_quota(body: object) -> bool:
    """Return True if a refusal says that the account has no credit or has reached a limit of spending.

    Its status, 429, is that of a rate limit, but waiting does not help (https://developers.openai.com/api/docs/guides/error-codes).
    """
    return "insufficient_quota" in _types_and_codes(body)


def is_loading(status: int, body: object) -> bool:
    """Return True if a server says that it is loading the model.

    llama.cpp answers `{"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}` until it is done
    (https://github.com/ggml-org/llama.cpp/tree/master/tools/server#get-health-returns-heath-check-result).
    """
    return status == 503 and bool(re.search(r"(?i)\bloading\b", provider_message(body)[:LONGEST_SEARCH]))


# ------------------------------------------------------------------ too long: the conversation

_OVERFLOW_CODES: Final = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "request_too_large", "model_context_window_exceeded"}
)
"""OpenAI's and Azure's code, llama.cpp's type, Anthropic's type for 413."""

_OVERFLOW: Final = (
    r"(?is)prompt is too long"  # Anthropic, vLLM ("… to fit into the model")
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
    r"|range of input length|exceeds? max(?:imum)? length"  # DashScope, Z.ai
    r"|exceeded model token limit|prompt token count.{0,40}exceeds|token limit exceeded"  # Kimi, Copilot
    r"|too many (?:input |prompt )?tokens(?! per)"
    r"|messages\W+\d+\W+content(?:\W+\d+\W+text)?\W+string too long"  # OpenAI: one message above 10 million characters
    r"|(?:request|payload|body|entity) (?:entity |body |is )*(?:exceeds the maximum|too large)"
)


def is_overflow(status: int, body: object) -> bool:
    """Return True if a refusal says that the conversation is too long for the model.

    First the codes are compared, then the words. Refusals of the key or the model are left out, whatever their words: a message like
    "the model does not support a context of that size" would else start a useless compaction.
    """
    if status == 413 or _OVERFLOW_CODES.intersection(_types_and_codes(body)):
        return True
    if status in (401, 402, 403, 404):
        return False
    message = provider_message(body)[:LONGEST_SEARCH]
    if names_a_part(body):
        return False
    if status == 429:  # other 429s speak of tokens per minute, and pass
        return "must be reduced in order to run" in message
    return bool(re.search(_OVERFLOW, message))


_PART: Final = (
    r"(?i)\btool_calls?\b|\btool_use\b|\b(?:tool_)?call_?id\b|\btool_use_?id\b|\b(?:function|tools?)\W+(?:\d+\W+)?(?:function\W+)?name\b"
    r"|\b(?:messages|input|contents)\W+\d+\W+(?:[a-z_]+\W+(?:\d+\W+)?)*(?:id|name|role|type)\b|\bids?\b.{0,40}\btoo long\b"
)
"""Words of a refusal that is about a part of a request, like the id of a call: no shorter conversation would be without it."""


def names_a_part(body: object) -> bool:
    """Return True if a refusal names the id, the name or the role of something in the request, by its path or in words."""
    fields = body.get("error") if isinstance(body, Mapping) and isinstance(body.get("error"), Mapping) else body
    param = fields.get("param") if isinstance(fields, Mapping) else ""
    return bool(
        re.search(_PART, f"{provider_message(body)[:LONGEST_SEARCH]} {param if isinstance(param, str) else ''}")
    )


_WINDOW_NAMED: Final = (
    r"n_ctx\W{1,6}(\d+)"  # llama.cpp, also inside of Ollama's message
    r"|context (?:length|window|size|limit)(?: is| of|:)?(?: only)? \(?(\d+)"  # OpenAI, vLLM, llama.cpp, LM Studio
    r"|(?:max|maximum) (?:context|prompt|model|input) length (?:is|of) \(?(\d+)"  # xAI, vLLM
    r"|input length should be \[\d+, ?(\d+)"  # DashScope
    r"|max_model_len\W{1,4}(\d+)|tokens? > (\d+)|tokens allowed \((\d+)\)"  # vLLM, Anthropic, Gemini
)
"""Window in the words of a refusal. Thousands may be separated by commas, which are removed first."""
_WINDOWS: Final = range(256, 1 << 26)
"""Tokens that can be a window."""


def window_in_refusal(body: object) -> int:
    """Return the tokens that fit into the model, where a refusal of a prompt that is too long names them; else 0.

    >>> window_in_refusal("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens")
    8192
    """
    message = re.sub(r"(?<=\d),(?=\d{3})", "", json.dumps(body, default=str)[:LONGEST_SEARCH])
    found = re.search("(?i)" + _WINDOW_NAMED, message.replace("\\", ""))
    window = int(next(group for group in found.groups() if group)[:9]) if found else 0
    return window if window in _WINDOWS else 0


# ------------------------------------------------------------------ tools that are not supported

_TOOLS: Final = r"\b(?:tools?|functions|tool[ _-]?(?:use|calls?|calling|choice)|function[ _-]?call(?:s|ing)?)\b"
_NO_TOOLS: Final = (
    rf"(?i){_TOOLS}[^.\n]{{0,60}}?\b(?:not (?:\w+ )?(?:supported|available|enabled|allowed|implemented)|unsupported)\b"
    rf"|(?:not|n't|un)[ -]?(?:\w+ )?support(?:s|ed|ing)?\b[^.\n]{{0,60}}?{_TOOLS}"  # Ollama: … does not support tools
    r"|no endpoints found that support tool use"  # OpenRouter
    r"|--jinja|--enable-auto-tool-choice|--tool-call-parser"  # llama.cpp, vLLM
)
_ABOUT_ONE_TOOL: Final = r"(?i)schema|strict|parallel|reasoning|image"
"""Words of refusals that are about a detail of the tools, not about tools at all."""
_STATUSES_OF_NO_TOOLS: Final = frozenset({400, 404, 422, 500, 501})
"""llama.cpp answers 500, OpenRouter 404."""


def refuses_tools(status: int, body: object) -> bool:
    """Return True if a refusal says that the server takes no tools with this model.

    Sources of the words: https://github.com/ollama/ollama/blob/main/server/routes.go ("does not support tools"),
    https://github.com/ggml-org/llama.cpp/blob/master/tools/server ("tools param requires --jinja flag"),
    https://docs.vllm.ai/en/latest/features/tool_calling.html (`"auto" tool choice requires --enable-auto-tool-choice`),
    https://openrouter.ai/docs/api-reference/errors ("No endpoints found that support tool use").
    """
    message = provider_message(body)[:LONGEST_SEARCH] if status in _STATUSES_OF_NO_TOOLS else ""
    return bool(re.search(_NO_TOOLS, message)) and not re.search(_ABOUT_ONE_TOOL, message)


# ------------------------------------------------------------------ too long: the answer

_ABOUT_OUTPUT: Final = (
    r"(?i)max_tokens|max_completion_tokens|max_new_tokens|(?:completion|output) tokens|in the (?:completion|output)"
)
_OUTPUT_LIMIT: Final = (
    r"(?i)max_tokens[`'\"]?: ?\d+ > (\d+)"  # Anthropic: max_tokens: 9000 > 4096, which is the maximum allowed number of …
    r"|at most (\d+) (?:completion|output) tokens"  # OpenAI
    r"|max(?:_completion)?_tokens.{0,60}(?:less than or equal to|between 1 and|\[1, ?|<= ?) ?[`'\"]?(\d+)"  # Groq, DashScope
)
_WINDOW: Final = r"(?i)(?:context length|context limit|context window)(?: is| of)?(?: only)? (\d+)"
_INPUT_AND_OUTPUT: Final = r"(\d+) \+ \d+ > (\d+)"
"""Anthropic: input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000."""
_INPUT: Final = (
    r"(?i)(\d+) (?:input tokens|tokens? (?:from|in) the (?:input|messages|prompt)|in the messages|of text input)"
    r"|(?:has|resulted in|contains) (?:at least )?(\d+) (?:input )?tokens"
)
_SHORTEST_ANSWER: Final = 1024
"""Tokens. If there is room for less than this, the conversation is too long rather than the answer."""


def output_limit(status: int, body: object, requested: int) -> int | None:
    """Return how many tokens of answer to request instead, where a refusal says that `requested` is too much; else None.

    Where the refusal only says how large window and input are, the limit is half of the room between them: the conversation grows,
    and the next request should not be refused for the same reason.
    """
    message = provider_message(body)[:LONGEST_SEARCH] if status in (400, 422) else ""
    if not re.search(_ABOUT_OUTPUT, message):
        return None
    if match := re.search(_OUTPUT_LIMIT, message):
        limit = int(next(group for group in match.groups() if group))
        return limit if 0 < limit < requested else None
    half = _room(message) // 2
    return half if _SHORTEST_ANSWER <= half < requested else None


def _room(message: str) -> int:
    """Return the tokens between window and input, where the message names both; else 0."""
    if both := re.search(_INPUT_AND_OUTPUT, message):
        return int(both[2]) - int(both[1])
    window, used = re.search(_WINDOW, message), re.search(_INPUT, message)
    return int(window[1]) - int(used[1] or used[2]) if window and used else 0
