"""Reasons why an answer ended: the words of all providers, translated to the six of `ModelResponse.stop_reason`.

Sources: https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons,
https://developers.openai.com/api/reference/resources/chat, https://ai.google.dev/api/generate-content#FinishReason
(its OpenAI endpoint says `function_call_filter: MALFORMED_FUNCTION_CALL`), and what compatible servers have been seen to send.

An answer that is not whole has two consequences. Its last tool call may be half written and must not be run (`missing_arguments`).
And if it has no tool calls, nothing would make the model think again, so it must be asked to continue (`unfinished`).
"""

from __future__ import annotations

import json
from typing import Final

from pegasus.models.base import ModelResponse

WORDS: Final = {
    "end": "stop eos eos_token end end_turn stop_sequence complete completed load unload",
    "tool_calls": "tool_calls tool_use function_call tool_call",
    "length": "length max_tokens max_output_tokens model_length model_context_window_exceeded context_length incomplete",
    "refusal": (
        "refusal content_filter content_filtered guardrail_intervened guardrails sensitive safety recitation blocklist "
        "prohibited_content spii image_safety language error_toxic"
    ),
    "pause": "pause_turn pause_run pause",
    "error": (
        "error function_call_filter malformed_function_call unexpected_tool_call missing_thought_signature abort aborted "
        "network_error insufficient_system_resource other unknown finish_reason_unspecified"
    ),
}
"""Providers' words by ours."""
_REASON_BY_WORD: Final = {word: reason for reason, words in WORDS.items() for word in words.split()}

CUT: Final = {
    "length": "the answer was cut off at the token limit",
    "refusal": "the answer was stopped by the provider's filter",
    "pause": "the answer paused in the middle",
    "error": "the answer was broken off by the provider",
}
"""Stop reasons after which the last tool call may be half written, with an explanation for the model.

"end" and "tool_calls" are missing here, and so are unknown words: an answer counts as whole unless its end is known to be a cut."""


def stop_reason(word: str, *, has_calls: bool) -> str:
    """Return our reason for a provider's word, or the word itself if it is unknown.

    Words for a regular end depend on the answer alone ("tool_calls" if it has calls, else "end"), because servers confuse them.
    """
    whole = word.strip().lower()
    reason = _REASON_BY_WORD.get(whole) or _REASON_BY_WORD.get(whole.partition(":")[0].strip()) or word
    if reason in ("", "end", "tool_calls"):
        return "tool_calls" if has_calls else "end"
    return reason


def missing_arguments(raw: object, reason: str, *, is_last: bool) -> str | None:
    """Return why a call without arguments must not be run, or None.

    A tool may take no arguments. But if the answer was cut off and this was its last call, the arguments were still to come.
    """
    is_empty = raw is None or (isinstance(raw, str) and not raw.strip()) or raw == {}
    if is_last and is_empty and reason in CUT:
        return f"the arguments are missing: {CUT[reason]}"
    return None


def is_failure(response: ModelResponse) -> bool:
    """Return True if the provider gave up on its own answer and nothing came. The same call may succeed when repeated."""
    return response.stop_reason == "error" and not response.text.strip() and not response.calls


def unfinished(response: ModelResponse) -> str | None:
    """Return the text that asks the model to continue an incomplete answer, or None if that is not necessary.

    With tool calls it is not necessary: their results cause the next call, and a half-written call has an error that says why.
    """
    if response.calls or response.stop_reason not in ("length", "pause", "error"):
        return None
    why = CUT[response.stop_reason]
    if response.stop_reason == "length":
        return f"({why[0].upper()}{why[1:]}. Go on from there, in smaller steps; do not begin anew.)"
    return f"({why[0].upper()}{why[1:]}. Go on from there.)"


def refusal_note(details: object) -> str:
    """Return the provider's explanation of its refusal, as a note in place of the text it kept back; "" if it gave none."""
    given = details.get("explanation") or details.get("category") if isinstance(details, dict) else None
    text = given if isinstance(given, str) else json.dumps(given)
    return f"(The provider refused this answer: {text})" if given else ""
