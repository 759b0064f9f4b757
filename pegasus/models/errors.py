"""Failures of model calls: a `ModelError` for every refusal, broken connection and unreadable answer.

The message of an error is read by users in a chat. It is one line, says what can be done, and contains no key and no HTML page.

What the text of a refusal says is found out in `refusals`.

Examples of messages:

    anthropic/claude-sonnet-5-5: the provider refused the key (401): invalid x-api-key [it may be wrong or expired: check
        ANTHROPIC_API_KEY or api_key of [providers.anthropic]]
    openai/gpt-6.1-terra: the provider is overloaded or limits the rate (429): quota used up
    ollama/qwen3:8b: Ollama does not answer at localhost:11434. Is it running? (`ollama serve`)
    lab/x: no answer within 120 s (models.timeout); before that: the connection to the provider failed: …
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from pegasus.formatting import cut_text
from pegasus.models.base import ModelError
from pegasus.models.refusals import (
    LONGEST_SEARCH,
    is_loading,
    is_out_of_quota,
    is_overflow,
    names_a_part,
    provider_message,
    refuses_tools,
    window_in_refusal,
)
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
OVERLOADED_STATUSES: Final = frozenset({429, 503, 529})
"""Statuses of a provider that works but has no capacity. 529 is Anthropic's own."""

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
    error = ModelError(f"{text} [{advice}]" if advice else text, kind=kind, status=status, context_window=window)
    is_unknown = problem == _UNKNOWN and not names_a_part(body) and not re.search(_PARAMETERS, message)
    error.may_be_length = is_unknown and status in _STATUSES_OF_LENGTH
    return error


_UNKNOWN: Final = "the provider refused the request"
"""Problem of a refusal whose reason is not known."""
_PARAMETERS: Final = r"\b(?:max(?:_completion)?_tokens|temperature|top_p|response_format|stream_options)\b"
"""Names of parameters. A refusal that has one is about that."""
_STATUSES_OF_LENGTH: Final = frozenset({400, 413, 422})
"""Statuses of refusals that may mean the length of the conversation, whatever their words."""


def _classify(model: str, status: int, body: object, key_name: str) -> tuple[str, str, str]:
    """Return kind, problem and advice for a refusal.

    The kind is for code (retries, compaction, the fallback), problem and advice are for people. The words of a refusal count more than
    its status: Gemini refuses a key with 400, and OpenRouter a model.
    """
    provider, _, model_id = model.partition("/")
    message = provider_message(body)[:LONGEST_SEARCH]
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
    return "request", _UNKNOWN, ""


# Gemini: "API key expired. Please renew the API key.", "API key not valid. Please pass a valid API key." with status 400.
_ABOUT_KEY: Final = r"(?i)api key (?:has )?(?:expired|not valid|not found|is invalid)"
_ABOUT_MODEL: Final = (
    r"(?i)\bmodels?\b.{0,160}(?:not found|does not exist|not exist|is not a valid model)"  # Ollama, OpenAI, vLLM, Gemini, DeepSeek
    r"|is not a valid model|invalid model|unknown model|no such model"  # OpenRouter, Mistral
    r"|^model: \S+$"  # Anthropic
)
"""Words of a refusal that is about the model's name."""


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


# ------------------------------------------------------------------ text for people


def one_line(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Return at most 240 characters on one line, without tags, control characters and anything that looks like a key.

    secrets: strings that are masked wherever they stand. Only the beginning of a long text is searched, so a page of many megabytes
    costs little.
    """
    text = Redactor(secrets, shortest=_SHORTEST_SECRET, mask="…").apply(text[:_LONGEST_READ])[: 40 * _LONGEST_LINE]
    text = re.sub(_KEY_LIKE, "…", re.sub(_UNPRINTABLE, " ", re.sub(_TAG, " ", text)))
    return cut_text(" ".join(text.split()), _LONGEST_LINE)
