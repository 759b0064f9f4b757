"""Peculiarities of services that speak Chat Completions, as far as requests depend on them.

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
from typing import Final
from urllib.parse import urlsplit

import attrs

from pegasus.models.formats.wire_format import wire_id

_SHORT_ID: Final = r"[a-zA-Z0-9]{9}"


@attrs.frozen(eq=False, repr=False)
class ChatDialect:
    """Way of a service to speak Chat Completions.

    Example: `ChatDialect("deepseek", wants_back="reasoning_content")`.
    """

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
