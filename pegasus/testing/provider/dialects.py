"""Services that speak Chat Completions, each in its own way: what they check, and where the reasoning stands in their answers.

`open_provider(script, dialect=DIALECTS["deepseek"])` is a server that answers and refuses like DeepSeek. A dialect is a thin layer
around the common checks of `chat`: it checks what is its own, and takes it out before the rest is read.

The facts are from the services' documentation, named at each entry, and from the refusals that users of other clients have reported.
A service that ignores what it does not know has no entry for that: the common checks are stricter anyway.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from typing import Any, Final

import attrs

from pegasus.testing.provider.answers import Call, NewId, ProviderAnswer, refuse, split
from pegasus.testing.provider.requests import Invalid, refuse_other_keys, require, require_text

_REASONING_TOKENS: Final = 30
"""Tokens of reasoning in the usage of services that count them apart."""


@attrs.frozen
class Dialect:
    """A service's way of Chat Completions."""

    name: str
    """Name by which tests and `DIALECTS` know the service."""
    root: str = "/v1"
    """Path of the base URL."""
    reasoning: str = "reasoning_content"
    """Place of the reasoning in an answer: "reasoning_content", "reasoning", "details", "chunks", or "" for nowhere."""
    wants_back: str = ""
    """Field of an assistant message with calls that must not be missing; "" for none."""
    efforts: tuple[str, ...] = ("none", "low", "medium", "high")
    """Values of `reasoning_effort`; () for a service that refuses it."""
    has_reasoning_field: bool = False
    """The effort may also be `reasoning.effort`."""
    refused: tuple[str, ...] = ()
    """Common fields of the body that it refuses."""
    short_ids: bool = False
    """Ids of calls have nine letters and digits."""
    user_after_results: bool = True
    """A message of the user may follow results directly."""
    signs_calls: bool = False
    """The first call of each message must have the signature that came with it."""
    counts_reasoning: bool = True
    """Reasoning is a part of `completion_tokens`, not only of the total."""
    key_headers: tuple[str, ...] = ("authorization",)
    """Headers that may hold the key; () for a server without keys."""

    def refusal(self, raw: Mapping[str, Any]) -> ProviderAnswer | None:
        """Return the refusal of a parameter that this service does not take, None if there is none.

        Such a refusal is what a client may learn from, unlike that of an invalid request.
        """
        for field in self.refused:
            if field in raw:
                detail = [{"type": "extra_forbidden", "loc": ["body", field], "msg": "Extra inputs are not permitted"}]
                body = json.dumps({"object": "error", "detail": detail}).encode()
                return ProviderAnswer(status=422, body=body, content_type="application/json")
        if "reasoning_effort" in raw and raw["reasoning_effort"] not in self.efforts:
            return refuse(400, f"`reasoning_effort` must be one of {', '.join(self.efforts) or 'nothing'}")
        return None

    def plain(self, raw: dict[str, Any]) -> dict[str, Any]:
        """Return a request without what is peculiar to this service, which is checked. Raises Invalid."""
        if not isinstance(raw.get("messages"), list):
            return raw
        plain = dict(raw)
        if self.has_reasoning_field and "reasoning" in plain:
            reasoning = plain.pop("reasoning")
            refuse_other_keys(reasoning, ("effort", "max_tokens", "exclude", "enabled"), "reasoning")
            require("reasoning_effort" not in raw, "reasoning: not together with reasoning_effort")
        before = ""
        messages: list[Any] = []
        for index, message in enumerate(raw["messages"]):
            where = f"messages[{index}]"
            role = message.get("role")
            # Some services want an assistant message between a result and the next words of the user.
            if before == "tool" and role == "user":
                require(self.user_after_results, "Unexpected role 'user' after role 'tool'")
            before = role
            messages.append(self._plain_answer(message, where) if role == "assistant" else message)
            if self.short_ids and role == "tool":
                _check_short(message.get("tool_call_id"))
        return {**plain, "messages": messages}

    def _plain_answer(self, message: dict[str, Any], where: str) -> dict[str, Any]:
        """Return an assistant message without its reasoning, which is checked."""
        plain = dict(message)
        calls = message.get("tool_calls") or ()
        if self.wants_back in ("reasoning_content", "reasoning_details"):
            given = plain.pop(self.wants_back, None)
            if calls:
                require(
                    given is not None, f"The `{self.wants_back}` in the thinking mode must be passed back to the API."
                )
            for detail in given if isinstance(given, list) else ():
                is_signed = detail.get("signature") == _signature(detail.get("text"))
                require(is_signed, f"{where}.reasoning_details: Invalid `signature` in `thinking` block")
        elif self.wants_back == "thinking" and isinstance(plain.get("content"), list):
            parts = plain["content"]
            for part in parts:
                if part.get("type") == "thinking":
                    refuse_other_keys(part, ("type", "thinking", "closed"), f"{where}.content")
                    for inner in part["thinking"]:
                        require_text(inner.get("text"), f"{where}.content.thinking")
            plain["content"] = "".join(part["text"] for part in parts if part.get("type") == "text") or None
        for call in calls if self.short_ids else ():
            _check_short(call.get("id"))
        if self.signs_calls and calls:
            google = (calls[0].get("extra_content") or {}).get("google") or {}
            require(
                bool(google.get("thought_signature")),
                "Function call is missing a thought_signature in functionCall parts.",
            )
        return plain

    # -------------------------------------------------------------- answers

    def reasoning_deltas(self, answer: ProviderAnswer) -> list[dict[str, Any]]:
        """Return the deltas of an answer's reasoning.

        In the form "details" the signature comes in a delta of its own, behind all text, as blocks are signed when they are whole.
        """
        pieces = split(answer.reasoning, answer.pieces) if answer.reasoning else []
        if self.reasoning == "details":
            deltas = [{"reasoning": piece, "reasoning_details": [_detail(piece, None)]} for piece in pieces]
            return [*deltas, {"reasoning_details": [_detail("", _signature(answer.reasoning))]}] if pieces else []
        if self.reasoning == "chunks":
            return [
                {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": piece}]}]} for piece in pieces
            ]
        return [{self.reasoning: piece} for piece in pieces] if self.reasoning else []

    def call_fields(self, index: int, call: Call, new_id: NewId) -> dict[str, Any]:
        """Return id and additions of a call in an answer. index: its place; only the first call is signed."""
        made = new_id()
        call_id = call.id or (made[-9:] if self.short_ids else f"call_{made}")
        signature = {"extra_content": {"google": {"thought_signature": f"sig-{made}"}}}
        return {"id": call_id, **(signature if self.signs_calls and index == 0 else {})}

    def usage(self, usage: dict[str, Any], answer: ProviderAnswer) -> dict[str, Any]:
        """Return the usage as this service counts it.

        Services that do not count reasoning as output have it in the total all the same, so that the sum does not fit.
        """
        if self.counts_reasoning or not answer.reasoning:
            return usage
        return {**usage, "total_tokens": usage["total_tokens"] + _REASONING_TOKENS}


def _check_short(call_id: Any) -> None:
    """Raise Invalid unless a call's id is one that Mistral takes."""
    if not re.fullmatch(r"[a-zA-Z0-9]{9}", str(call_id)):
        raise Invalid(f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9.")


def _signature(text: object) -> str:
    """Return the signature of a block of reasoning. It covers every character, as the real one does."""
    return f"signed-{zlib.crc32(str(text).encode()):08x}"


def _detail(text: str, signature: str | None) -> dict[str, Any]:
    """Return a piece of reasoning with its signature; None until the block is whole."""
    detail = {"type": "reasoning.text", "text": text, "format": "anthropic-claude-v1", "index": 0}
    return {**detail, "signature": signature}


PLAIN: Final = Dialect("openai")
"""The common format, with reasoning where most servers put it."""

DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect
    for dialect in (
        # https://docs.vllm.ai/en/latest/features/reasoning_outputs.html
        Dialect("vllm", reasoning="reasoning", key_headers=()),
        # https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
        Dialect("llamacpp", key_headers=()),
        # https://lmstudio.ai/docs/developer/openai-compat
        Dialect("lmstudio", key_headers=()),
        # https://openrouter.ai/docs/use-cases/reasoning-tokens
        Dialect("openrouter", "/api/v1", "details", "reasoning_details", has_reasoning_field=True),
        # https://console.groq.com/docs/reasoning
        Dialect("groq", "/openai/v1", "reasoning", efforts=("low", "medium", "high")),
        # https://docs.mistral.ai/capabilities/reasoning/, https://docs.mistral.ai/api/
        Dialect(
            "mistral",
            "/v1",
            "chunks",
            "thinking",
            refused=("stream_options", "max_completion_tokens"),
            short_ids=True,
            user_after_results=False,
        ),
        # https://api-docs.deepseek.com/guides/thinking_mode
        Dialect("deepseek", "", wants_back="reasoning_content", efforts=("minimal", "low", "medium", "high", "max")),
        # https://docs.x.ai/docs/guides/reasoning
        Dialect("xai", counts_reasoning=False),
        # https://ai.google.dev/gemini-api/docs/openai, https://ai.google.dev/gemini-api/docs/thought-signatures
        Dialect("gemini", "/v1beta/openai", "", signs_calls=True, counts_reasoning=False),
        # https://cloud.google.com/vertex-ai/generative-ai/docs/start/openai
        Dialect(
            "vertex",
            "/v1/projects/my-project/locations/global/endpoints/openapi",
            "",
            signs_calls=True,
            counts_reasoning=False,
        ),
        # https://learn.microsoft.com/azure/foundry/openai/api-version-lifecycle
        Dialect("azure", "/openai/v1", "", key_headers=("api-key", "authorization")),
        # https://docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions-mantle.html
        Dialect("bedrock", "/v1", "reasoning"),
    )
}
"""By the names that the services have as providers."""
