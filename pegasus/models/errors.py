"""What went wrong with a call, as one line a person can act on: no secrets, no pages of HTML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pegasus.models.base import ModelError

_SECRET = re.compile(r"\b(?:sk|xai|gsk|AIza|key)[-_][A-Za-z0-9_\-*.…]{6,}|(?i:bearer)\s+\S{6,}")
_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_LONGEST = 240
_SHORTEST_SECRET = 8

OVERLOADED_STATUSES = frozenset({429, 503, 529})

_EVENT_STATUSES = {
    "invalid_request_error": 400,
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
"""Error types of both APIs as they come inside a stream, where no status can say it any more."""


def one_line(text: str, secrets: tuple[str, ...] = ()) -> str:
    """At most 240 characters on one line, without tags, control characters and anything that looks like a key."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "…")
    text = text[: 40 * _LONGEST]
    text = _SECRET.sub("…", _UNPRINTABLE.sub(" ", _TAG.sub(" ", text)))
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1].rstrip() + "…"


def provider_message(body: object) -> str:
    """The provider's own words in an error body: Anthropic's, OpenAI's and the usual variants of others; "" if none."""
    if isinstance(body, str):
        return body
    if isinstance(body, list) and body:
        return provider_message(body[0])
    if not isinstance(body, Mapping):
        return ""
    for key in ("error", "message", "detail", "msg"):
        value = body.get(key)
        if isinstance(value, Mapping | list) and value:
            return provider_message(value) or json.dumps(value, default=str)
        if isinstance(value, str) and value:
            return value
    return ""


def event_status(error: object) -> int:
    """The status that an error inside a stream would have had as an answer; 500 where its type is not known."""
    if isinstance(error, Mapping):
        for key in ("type", "code", "status"):
            value = error.get(key)
            if isinstance(value, int) and 400 <= value <= 599:
                return value
            if isinstance(value, str) and value in _EVENT_STATUSES:
                return _EVENT_STATUSES[value]
    return 500


def status_error(model: str, status: int, body: object, secrets: tuple[str, ...] = ()) -> ModelError:
    """An answer with an error status (or the same inside a stream)."""
    from pegasus.models.overflow import is_overflow  # patterns to compile, only where something failed

    kind, what, advice = _classify(status, model.partition("/")[0])
    if is_overflow(status, body):
        kind, what, advice = "overflow", "the conversation is too long for this model", ""
    said = one_line(provider_message(body), secrets)
    text = f"{model}: {what} ({status})" + (f": {said}" if said else "")
    return ModelError(f"{text} [{advice}]" if advice else text, kind=kind, status=status)


def _classify(status: int, provider: str) -> tuple[str, str, str]:
    if status in (401, 403):
        return "auth", "the provider refused the key", f"check api_key of [providers.{provider}]"
    if status == 404:
        advice = f"check the model's name and base_url of [providers.{provider}]"
        return "request", "the provider does not know this model or address", advice
    if status == 402:
        return "request", "the provider wants a payment first", ""
    if status in OVERLOADED_STATUSES:
        return "overloaded", "the provider is overloaded or limits the rate", ""
    if status >= 500 or status in (408, 409):
        return "server", "the provider failed", ""
    return "request", "the provider refused the request", ""


def network_error(model: str, cause: BaseException, secrets: tuple[str, ...] = ()) -> ModelError:
    """No connection, or it broke."""
    why = one_line(str(_root(cause)), secrets) or type(_root(cause)).__name__
    return ModelError(f"{model}: the connection to the provider failed: {why}", kind="network")


def cut_error(model: str) -> ModelError:
    """The stream ended before the answer was complete."""
    return ModelError(f"{model}: the provider's answer broke off in the middle", kind="network")


def protocol_error(model: str, detail: str, secrets: tuple[str, ...] = ()) -> ModelError:
    """An answer that makes no sense."""
    text = f"{model}: the provider's answer makes no sense: {one_line(detail, secrets)}"
    return ModelError(text, kind="protocol")


def timeout_error(model: str, seconds: float, last: ModelError | None) -> ModelError:
    """The time for one call, retries included, is over. last: what an earlier attempt failed with."""
    before = f" (before that: {str(last).removeprefix(f'{model}: ')})" if last else ""
    return ModelError(f"{model}: no answer within {seconds:g} seconds{before}", kind="timeout")


def _root(error: BaseException) -> BaseException:
    """The deepest cause with words of its own."""
    seen = error
    while (cause := seen.__cause__ or seen.__context__) is not None and str(cause):
        seen = cause
    return seen
