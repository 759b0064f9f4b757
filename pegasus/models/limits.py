"""How many tokens fit into a model: what is known by the beginning of its name."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

DEFAULT: Final = 128_000

_WINDOWS: Final = (
    ("claude-haiku-4", 200_000),
    ("claude-opus-4-5", 200_000),
    ("claude-sonnet-4-5", 200_000),
    ("claude-3", 200_000),
    ("claude-", 1_000_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4", 128_000),
    ("gpt-5.4-", 400_000),  # mini and nano
    ("gpt-5.4", 1_050_000),
    ("gpt-5.5", 1_050_000),
    ("gpt-5.6", 1_050_000),
    ("gpt-5", 400_000),
    ("gpt-6", 1_050_000),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4", 200_000),
    ("gemini-", 1_048_576),
)
"""First match wins. Sources: https://platform.claude.com/docs/en/about-claude/models/overview,
https://developers.openai.com/api/docs/models, https://ai.google.dev/gemini-api/docs/models."""


@lru_cache(maxsize=64)
def context_window(name: str) -> int:
    """Tokens, for a model as `<provider>/<model>` or alone; 128,000 where nothing is known."""
    model = name.rpartition("/")[2].lower()
    return next((size for prefix, size in _WINDOWS if model.startswith(prefix)), DEFAULT)
