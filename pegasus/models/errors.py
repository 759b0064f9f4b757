"""Failures of model calls: a `ModelError` for every refusal, broken connection and unreadable answer.

The message of an error is read by users in a chat. It is one line, says what can be done, and contains no key and no HTML page.

Refusals are also classified here by their text. Two kinds need more than a message: "the conversation is too long" leads to
compaction (kind "overflow"), and "the answer may not be that long" to a shorter answer (`output_limit`). No two providers say these
in the same words, and many servers send them with the wrong status. Sources of the patterns:
https://platform.claude.com/docs/en/api/errors, https://developers.openai.com/api/docs/guides/error-codes, and the issue trackers of
google-gemini/gemini-cli, vllm-project/vllm, ollama/ollama, ggml-org/llama.cpp, BerriAI/litellm. The patterns are strings, so that
they are compiled at the first refusal only.

Examples of messages:

    anthropic/claude-sonnet-5-5: the provider refused the key (401): invalid x-api-key [it may be wrong or expired: check
        ANTHROPIC_API_KEY or api_key of [providers.anthropic]]
    openai/gpt-6.1-terra: the provider is overloaded or limits the rate (429): quota used up
    ollama/qwen3:8b: Ollama does not answer at localhost:11434. Is it running? (`ollama serve`)
    lab/x: no answer within 120 s (models.timeout); before that: the connection to the provider failed: …
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from pegasus.models.base import ModelError
from pegasus.redaction import Redactor

# The next three are regular expressions for text that must not reach a chat: keys, markup, control characters.
# Keys appear in refusals ("Incorrect API key provided: sk-…"), also keys that are not in these settings.
_KEY_LIKE: Final = r"\b(?:sk|xai|gsk|AIza|key)[-_][A-Za-z0-9_\-*.…]{6,}|(?i:bearer)\s+\S{6,}"
_TAG: Final = r"(?is)<(script|style)\b.*?</\1>|<[^>]*>"
_UNPRINTABLE: Final = r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+"
_LONGEST_LINE: Final = 240
"""Characters of a provider's message that are shown. Some servers send a whole page or the whole request back."""
_SHORTEST_SECRET: Final = 8
"""Characters. A shorter secret ("none", "test") is not masked: it would cut ordinary words out of messages."""
_LONGEST_READ: Final = 100_000
"""Characters of a refusal that are searched for secrets. What is shown is among the first 10,000 of them."""
_LONGEST_SEARCH: Final = 4000
"""Characters of a refusal that patterns look at."""

OVERLOADED_STATUSES: Final = frozenset({429, 503, 529})
"""Statuses of a provider that works but has no capacity. 529 is Anthropic's own."""

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


# ------------------------------------------------------------------ errors for each kind of failure


def status_error(
    model: str, status: int, body: object, secrets: tuple[str, ...] = (), *, key_name: str = ""
) -> ModelError:
    """Return the error for a refusal: an HTTP status from 400 on, or an error event with such a status.

    model: `<provider>/<model>`. body: parsed JSON of the refusal, its text, or None. secrets: strings to mask. key_name: environment
    variable that the key may come from, "" if there is none.
    """
    kind, problem, advice = _classify(model, status, body, key_name)
    message = one_line(provider_message(body), secrets)
    text = f"{model}: {problem} ({status})" + (f": {message}" if message else "")
    window = window_in_refusal(body) if kind == "overflow" else 0
    return ModelError(f"{text} [{advice}]" if advice else text, kind=kind, status=status, context_window=window)


def _classify(model: str, status: int, body: object, key_name: str) -> tuple[str, str, str]:
    """Return kind, problem and advice for a refusal.

    The kind is for code (retries, compaction, the fallback), problem and advice are for people. The words of a refusal count more than
    its status: Gemini refuses a key with 400, and OpenRouter a model.
    """
    provider, _, model_id = model.partition("/")
    message = provider_message(body)[:_LONGEST_SEARCH]
    if is_overflow(status, body):
        return "overflow", "the conversation is too long for this model", ""
    if refuses_tools(status, body):
        return "tools", "the provider does not take tools with this model", ""
    if status in (401, 403) or (status == 400 and re.search(_ABOUT_KEY, message)):
        place = f"{key_name} or " if key_name else ""
        return (
            "auth",
            "the provider refused the key",
            f"it may be wrong or expired: check {place}api_key of [providers.{provider}]",
        )
    if status in (400, 404) and re.search(_ABOUT_MODEL, message):
        pull = f"; `ollama pull {model_id}` gets it" if "pull" in message or provider == "ollama" else ""
        return "request", f"the provider has no model {model_id}", f"choose another one with `/model`{pull}"
    if status == 404:
        advice = f"check the model's name and base_url of [providers.{provider}]"
        return "request", "the provider does not know this model or address", advice
    if status == 402:
        return "request", "the provider wants a payment first", "check plan and billing of your account there"
    if is_out_of_quota(body):
        advice = "check plan and billing of your account there, or choose another model with `/model`"
        return "overloaded", "your account's quota is used up", advice
    if is_loading(status, body):
        return "overloaded", "the server is still loading the model", ""
    if status in OVERLOADED_STATUSES:
        return "overloaded", "the provider is overloaded or limits the rate", ""
    if status >= 500 or status in (408, 409):
        return "server", "the provider failed", ""
    return "request", "the provider refused the request", ""


# Gemini: "API key expired. Please renew the API key.", "API key not valid. Please pass a valid API key." with status 400.
_ABOUT_KEY: Final = r"(?i)api key (?:has )?(?:expired|not valid|not found|is invalid)"
_ABOUT_MODEL: Final = (
    r"(?i)\bmodels?\b.{0,160}(?:not found|does not exist|not exist|is not a valid model)"  # Ollama, OpenAI, vLLM, Gemini, DeepSeek
    r"|is not a valid model|invalid model|unknown model|no such model"  # OpenRouter, Mistral
    r"|^model: \S+$"  # Anthropic
)
"""Words of a refusal that is about the model's name."""


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
    return status == 503 and bool(re.search(r"(?i)\bloading\b", provider_message(body)[:_LONGEST_SEARCH]))


def is_temporary(error: ModelError) -> bool:
    """Return True if the same request may succeed when it is repeated after a pause.

    An overflow may come with a status that is usually temporary (429 or 500), but the conversation does not get shorter by waiting.
    """
    status = error.status or 0
    return error.kind not in ("overflow", "tools") and (status >= 500 or status in (408, 409, 429))


_LOCAL_PROGRAMS: Final = {
    "ollama": ("Ollama", "`ollama serve`"),
    "llamacpp": ("llama.cpp", "`llama-server -m MODEL.gguf -c 32768 --jinja`"),
    "lmstudio": ("LM Studio", "start its server with `lms server start`"),
}
"""By type of provider, the program that serves it, and how to start that."""


def unreachable_error(model: str, provider_type: str, url: str, cause: BaseException) -> ModelError:
    """Return the error for a server that accepted no connection.

    url: the provider's base URL; a user name and password in it are not shown. cause: exception of the attempt to connect.
    """
    address = urlsplit(url).netloc.rpartition("@")[2]
    program, start = _LOCAL_PROGRAMS.get(provider_type, ("", ""))
    if program:
        text = f"{program} does not answer at {address}. Is it running? ({start})"
    else:
        provider = model.partition("/")[0]
        reason = one_line(str(_root_cause(cause))) or type(cause).__name__
        text = f"cannot connect to {address} ({reason}). Check base_url of [providers.{provider}] and the network"
    return ModelError(f"{model}: {text}", kind="network")


def network_error(model: str, cause: BaseException, secrets: tuple[str, ...] = ()) -> ModelError:
    """Return the error for a connection that broke after it had been made. secrets: strings to mask."""
    root = _root_cause(cause)
    reason = one_line(str(root), secrets) or type(root).__name__
    return ModelError(f"{model}: the connection to the provider failed: {reason}", kind="network")


def cut_error(model: str) -> ModelError:
    """Return the error for a stream that ended before the answer was complete.

    The part that arrived is not used: a tool call whose arguments are cut off could do something else than the model wanted.
    """
    return ModelError(f"{model}: the provider's answer broke off in the middle", kind="network")


def protocol_error(model: str, detail: str, secrets: tuple[str, ...] = ()) -> ModelError:
    """Return the error for an answer that cannot be understood. detail: what was found."""
    text = f"{model}: the provider's answer makes no sense: {one_line(detail, secrets)}"
    return ModelError(text, kind="protocol")


def timeout_error(model: str, seconds: float, last: ModelError | None) -> ModelError:
    """Return the error for a call that has not begun to answer in time, retries included. last: the failure of the attempt before."""
    before = f"; before that: {str(last).removeprefix(f'{model}: ')}" if last else ""
    return ModelError(f"{model}: no answer within {seconds:g} s (models.timeout){before}", kind="timeout")


def silence_error(model: str, seconds: float) -> ModelError:
    """Return the error for an answer in whose middle nothing came for too long."""
    text = f"{model}: the answer stopped in the middle: nothing more came for {seconds:g} s (models.silence_timeout)"
    return ModelError(text, kind="timeout")


def _root_cause(error: BaseException) -> BaseException:
    """Return the deepest cause with a message of its own, looking into exception groups (a host may have many addresses)."""
    while True:
        deeper = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error.__context__
        if deeper is None or not str(deeper):
            return error
        error = deeper


# ------------------------------------------------------------------ text of refusals


def one_line(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Return at most 240 characters on one line, without tags, control characters and anything that looks like a key.

    secrets: strings that are masked wherever they stand. Only the beginning of a long text is searched, so a page of many megabytes
    costs little.
    """
    text = Redactor(secrets, shortest=_SHORTEST_SECRET, mask="…").apply(text[:_LONGEST_READ])[: 40 * _LONGEST_LINE]
    text = re.sub(_KEY_LIKE, "…", re.sub(_UNPRINTABLE, " ", re.sub(_TAG, " ", text)))
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_LINE else text[: _LONGEST_LINE - 1].rstrip() + "…"


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
    r"|exceeded model token limit|prompt token count.{0,40}exceeds|token limit exceeded"  # Kimi, Copilot
    r"|too many (?:input |prompt )?tokens(?! per)"
    r"|messages\W+\d+.{0,40}string too long"  # OpenAI: one message above 10 million characters
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
    message = provider_message(body)[:_LONGEST_SEARCH]
    if status == 429:  # other 429s speak of tokens per minute, and pass
        return "must be reduced in order to run" in message
    return bool(re.search(_OVERFLOW, message))


_WINDOW_NAMED: Final = (
    r"n_ctx\W{1,6}(\d+)"  # llama.cpp, also inside of Ollama's message
    r"|context (?:length|window|size|limit)(?: is| of|:)?(?: only)? \(?(\d+)"  # OpenAI, vLLM, llama.cpp, LM Studio
    r"|(?:max|maximum) (?:context|prompt|model|input) length (?:is|of) \(?(\d+)"  # xAI, vLLM
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
    message = re.sub(r"(?<=\d),(?=\d{3})", "", json.dumps(body, default=str)[:_LONGEST_SEARCH])
    found = re.search("(?i)" + _WINDOW_NAMED, message.replace("\\", ""))
    window = int(next(group for group in found.groups() if group)[:9]) if found else 0
    return window if window in _WINDOWS else 0


def _types_and_codes(body: object) -> Iterator[str]:
    """Yield the types and codes in an error body."""
    if isinstance(body, list) and body:
        yield from _types_and_codes(body[0])
    if isinstance(body, Mapping):
        for key in ("type", "code"):
            if isinstance(value := body.get(key), str):
                yield value
        yield from _types_and_codes(body.get("error"))


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
    message = provider_message(body)[:_LONGEST_SEARCH] if status in _STATUSES_OF_NO_TOOLS else ""
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
    message = provider_message(body)[:_LONGEST_SEARCH] if status in (400, 422) else ""
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
