"""Peculiarities of services that speak Chat Completions, as far as requests depend on them: above all, reasoning that goes back.

Only what cannot be learned from a refusal without losing something stands here: reasoning must be kept from the first answer on, and
some services answer worse, without a refusal, if it is missing.

* DeepSeek and Moonshot want the `reasoning_content` of every answer with tool calls back, and of the answers between them
  (https://api-docs.deepseek.com/guides/thinking_mode). It is ignored elsewhere, so it is not sent there.
* OpenRouter wants `reasoning_details` back unchanged (https://openrouter.ai/docs/use-cases/reasoning-tokens).
* Mistral wants its thinking chunks back in the content (https://docs.mistral.ai/capabilities/reasoning/). Its ids of calls have
  nine letters and digits, and a message of the user must not follow a result.
* Gemini wants its signatures back on the calls (https://ai.google.dev/gemini-api/docs/thought-signatures).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import attrs

from pegasus.messages import Json
from pegasus.models.formats.wire_format import wire_id

if TYPE_CHECKING:
    from pegasus.models.formats.wire_format import WireAnswer

_SHORT_ID: Final = r"[a-zA-Z0-9]{9}"


@attrs.frozen(eq=False, repr=False)
class ChatDialect:
    """Way of a service to speak Chat Completions."""

    name: str
    """Value of `thinking_of`: what one service wants back is not sent to another."""
    wants_back: str = ""
    """"reasoning_content", "reasoning_details", "thinking" (chunks in the content), or "" for no reasoning at all."""
    signs_calls: bool = False
    """The service refuses calls without its signature."""
    thinks: bool = False
    """Its models think unless they are told not to."""
    has_reasoning_field: bool = False
    """Effort is `reasoning.effort` instead of `reasoning_effort`."""
    has_short_ids: bool = False
    """Ids of calls have nine letters and digits."""
    needs_answer_to_results: bool = False
    """A message of the user must not follow results directly."""

    def add_reasoning(self, message: dict[str, Json], turn: WireAnswer) -> None:
        """Put the reasoning of a turn into its message, in the way of the service.

        DeepSeek refuses a message with calls that has no reasoning at all, so an empty one stands for that of another provider.
        """
        kind = self.wants_back
        kept = next((block[kind] for block in turn.thinking if block.get("type") == kind and kind in block), None)
        if kind == "reasoning_content" and (kept is not None or turn.calls):
            message[kind] = kept or ""
        elif kind == "reasoning_details" and kept is not None:
            message[kind] = kept
        elif kind == "thinking" and kept is not None:
            parts: list[Json] = [{"type": "thinking", "thinking": kept, "closed": True}]
            if isinstance(message["content"], str):
                parts.append({"type": "text", "text": message["content"]})
            message["content"] = parts

    def reasoning_to_keep(self, text: str, details: Sequence[Mapping[str, Any]], *, continues: bool) -> list[Json]:
        """Return the reasoning of an answer as the service wants it back, as one block; nothing where it does not want it.

        text: the reasoning. details: as `extend_details` has made them. continues: the answer has calls, or goes on after some.
        """
        match self.wants_back:
            case "reasoning_details" if details:
                return [{"type": "reasoning_details", "reasoning_details": [_joined(block) for block in details]}]
            case "thinking" if text:
                return [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]
            case "reasoning_content" if text and continues:
                return [{"type": "reasoning_content", "reasoning_content": text}]
        return []


OPENAI: Final = ChatDialect("openai")
"""Way of OpenAI, and of every server that is not known."""
GEMINI: Final = ChatDialect("gemini", signs_calls=True, thinks=True)
_DEEPSEEK: Final = ChatDialect("deepseek", wants_back="reasoning_content", thinks=True)
_MISTRAL: Final = ChatDialect("mistral", wants_back="thinking", has_short_ids=True, needs_answer_to_results=True)
_OPENROUTER: Final = ChatDialect("openrouter", wants_back="reasoning_details", has_reasoning_field=True)
_XAI: Final = ChatDialect("xai", thinks=True)
_BY_HOST: Final = {
    "x.ai": _XAI,
    "deepseek.com": _DEEPSEEK,
    "moonshot.ai": _DEEPSEEK,
    "moonshot.cn": _DEEPSEEK,
    "mistral.ai": _MISTRAL,
    "openrouter.ai": _OPENROUTER,
}
"""Dialects by the last two parts of the address's host."""
_BY_NAME: Final = {"gemini": GEMINI, "deepseek": _DEEPSEEK, "mistral": _MISTRAL, "openrouter": _OPENROUTER, "xai": _XAI}
"""Dialects by the names of known services, whatever gateway they are reached by."""


def short_id(call_id: str) -> str:
    """Return an id of a call with nine letters and digits. The same id always gives the same one."""
    whole = wire_id(call_id)
    return whole if re.fullmatch(_SHORT_ID, whole) else f"c{zlib.crc32(whole.encode()):08x}"


def dialect_of(service: str, url: str) -> ChatDialect:
    """Return the dialect of a server: by its service if that has one, else by its address.

    service: name of the known service that it belongs to, "" for none.
    """
    host = urlsplit(url).hostname or ""
    return _BY_NAME.get(service) or _BY_HOST.get(".".join(host.split(".")[-2:]), OPENAI)


# ------------------------------------------------------------------ blocks of reasoning that come in pieces

_GROWING: Final = ("text", "summary", "data")
"""Keys of a block of reasoning whose texts come in pieces."""


def extend_details(details: list[dict[str, Any]], detail: Mapping[str, Any]) -> None:
    """Add a piece of a reasoning block to the blocks before it.

    Pieces of a block have one type and index. Texts grow, as lists of pieces (`_GROWING`); other fields are replaced.
    """
    block = details[-1] if details else None
    if block is None or any(block.get(key) != detail.get(key) for key in ("type", "index")):
        block = {}
        details.append(block)
    for key, value in detail.items():
        if key in _GROWING and isinstance(value, str):
            block[key] = pieces = block[key] if isinstance(block.get(key), list) else []
            pieces.append(value)
        elif value is not None or key not in block:
            block[key] = value


def _joined(block: Mapping[str, Any]) -> Json:
    """Return a block of reasoning with its texts in one piece."""
    return {
        key: "".join(value) if key in _GROWING and isinstance(value, list) else value for key, value in block.items()
    }
