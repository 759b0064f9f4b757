"""Why an answer ended: every provider's own word as one of ours, and what an answer that is not whole leaves to do.

Sources: https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons,
https://developers.openai.com/api/reference/resources/chat, https://ai.google.dev/api/generate-content#FinishReason
(its OpenAI endpoint says `function_call_filter: MALFORMED_FUNCTION_CALL`), and what compatible servers have been seen to say.
"""

from __future__ import annotations

import json
from typing import Final

from pegasus.models.base import ModelResponse

_WORDS: Final = {
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
_OURS: Final = {word: ours for ours, words in _WORDS.items() for word in words.split()}

CUT: Final = {
    "length": "the answer was cut off at the token limit",
    "refusal": "the answer was stopped by the provider's filter",
    "pause": "the answer paused in the middle",
    "error": "the answer was broken off by the provider",
}
"""Stop reasons that may leave the last tool call half written, and why, in words for the model."""


def stop_reason(word: str, *, calls: bool) -> str:
    """One of ours for a provider's word, or the word itself if nobody knows it. calls: the answer has tool calls."""
    whole = word.strip().lower()
    ours = _OURS.get(whole) or _OURS.get(whole.partition(":")[0].strip()) or word
    if ours in ("", "end", "tool_calls"):
        return "tool_calls" if calls else "end"
    return ours


def half_call(raw: object, stop: str, *, last: bool) -> str | None:
    """Why a call without any arguments must not be run: it is the last of an answer that was cut off before they came."""
    empty = raw is None or (isinstance(raw, str) and not raw.strip()) or raw == {}
    if last and empty and stop in CUT:
        return f"the arguments are missing: {CUT[stop]}"
    return None


def came_to_nothing(response: ModelResponse) -> bool:
    """Whether the provider itself gave up, with nothing to show for it: the same question may get an answer."""
    return response.stop_reason == "error" and not response.text.strip() and not response.calls


def unfinished(response: ModelResponse) -> str | None:
    """What to tell the model so that it goes on, where its answer is not whole and nothing else makes it think again; else None.

    With calls nothing is needed: their results bring the next thought, and a half call has an error that says why.
    """
    if response.calls or response.stop_reason not in ("length", "pause", "error"):
        return None
    why = CUT[response.stop_reason]
    if response.stop_reason == "length":
        return f"({why[0].upper()}{why[1:]}. Go on from there, in smaller steps; do not begin anew.)"
    return f"({why[0].upper()}{why[1:]}. Go on from there.)"


def explanation(details: object) -> str:
    """What the provider said about its refusal, as a note in place of the text that it kept back; "" if nothing."""
    said = details.get("explanation") or details.get("category") if isinstance(details, dict) else None
    return f"(The provider refused this answer: {said if isinstance(said, str) else json.dumps(said)})" if said else ""
