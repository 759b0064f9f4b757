"""What a call costs: prices of known models, those of the settings over them. US dollars per million tokens.

Looked up on 2026-11-22 in the providers' own lists and what others quote of them: https://platform.claude.com/docs/en/about-claude/pricing,
https://developers.openai.com/api/docs/pricing, https://ai.google.dev/gemini-api/docs/pricing. Prices change: `[prices]` of the
settings wins. What is in neither has no price; its calls are counted in tokens only, and reports say so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from pegasus.models.base import Usage

if TYPE_CHECKING:
    from pegasus.settings import PriceSettings

READ_ON: Final = "2026-11-22"
_MILLION: Final = 1_000_000
_AS_INPUT: Final = -1.0


class Price(NamedTuple):
    """Dollars per million tokens; -1: as input. Prompts of more than long_above tokens cost a multiple, 0 = never."""

    input: float
    output: float
    cache_read: float = _AS_INPUT
    cache_write: float = _AS_INPUT
    long_above: int = 0
    long_input: float = 1.0
    long_output: float = 1.0

    def cost(self, usage: Usage) -> float:
        """Dollars for one call."""
        read, write = usage.cache_read_tokens, usage.cache_write_tokens
        plain = max(0, usage.prompt_tokens - read - write)
        prompt = plain * self.input + read * self._or_input(self.cache_read) + write * self._or_input(self.cache_write)
        is_long = self.long_above and usage.prompt_tokens > self.long_above
        more, more_out = (self.long_input, self.long_output) if is_long else (1.0, 1.0)
        return (prompt * more + usage.completion_tokens * self.output * more_out) / _MILLION

    def at_most(self, prompt: int, completion: int) -> float:
        """Dollars for a call with at most so many tokens, whatever the cache does."""
        dearest = max(self.input, self.cache_write)
        return self._replace(input=dearest).cost(Usage(prompt, completion))

    def _or_input(self, price: float) -> float:
        return self.input if price < 0 else price


FREE: Final = Price(0.0, 0.0)


def _claude(input: float, output: float, cache_read: float) -> Price:
    """Writing to the cache for five minutes, as Pegasus does, costs a quarter more than input."""
    return Price(input, output, cache_read, 1.25 * input)


def _gpt(input: float, output: float, cache_read: float, cache_write: float = _AS_INPUT) -> Price:
    """From GPT-5.4 on, more than 272,000 tokens of input make the whole call dearer."""
    return Price(input, output, cache_read, cache_write, 272_000, 2.0, 1.5)


_OPUS, _OLD_OPUS = _claude(5, 25, 0.5), _claude(15, 75, 1.5)
_SONNET = _claude(3, 15, 0.3)

PRICES: Final[Mapping[str, Price]] = {
    "claude-fable-5-1": _claude(10, 50, 0.25),
    "claude-fable-5": _claude(10, 50, 1.0),
    "claude-opus-5-5": _claude(4, 20, 0.2),
    **dict.fromkeys([f"claude-opus-{n}" for n in ("5", "4-8", "4-7", "4-6", "4-5")], _OPUS),
    **dict.fromkeys(["claude-opus-4-1", "claude-opus-4", "claude-3-opus"], _OLD_OPUS),
    "claude-sonnet-5-5": _claude(2, 10, 0.1),
    "claude-sonnet-5": _claude(2, 10, 0.2),
    **dict.fromkeys([f"claude-sonnet-{n}" for n in ("4-6", "4-5", "4")], _SONNET),
    **dict.fromkeys(["claude-3-7-sonnet", "claude-3-5-sonnet"], _SONNET),
    "claude-haiku-5-5": Price(0.1, 0.5, 0.01, 0.125, 100_000, 5.0, 5.0),
    "claude-haiku-4-5": _claude(1, 5, 0.1),
    "claude-3-5-haiku": _claude(0.8, 4, 0.08),
    "claude-3-haiku": Price(0.25, 1.25, 0.03, 0.3),
    "gpt-6-astra": _gpt(10, 50, 1.0, 12.5),
    "gpt-6.1-sol": _gpt(2, 10, 0.1, 2.5),
    "gpt-6.1-terra": _gpt(1, 5, 0.05, 1.25),
    "gpt-6-sol": _gpt(2, 10, 0.2, 2.5),
    "gpt-6-luna": _gpt(0.1, 0.5, 0.01, 0.125),
    "gpt-5.6-terra": _gpt(2, 12, 0.2, 2.5),
    "gpt-5.5": _gpt(5, 30, 0.5),
    "gpt-5.4": _gpt(2.5, 15, 0.25),
    "gpt-5.4-mini": Price(0.75, 4.5, 0.075),
    "gpt-5.4-nano": Price(0.2, 1.25, 0.02),
    **dict.fromkeys(["gpt-5.1", "gpt-5"], Price(1.25, 10, 0.125)),
    "gpt-5-mini": Price(0.25, 2, 0.025),
    "gpt-5-nano": Price(0.05, 0.4, 0.005),
    "gpt-4.1": Price(2, 8, 0.5),
    "gpt-4.1-mini": Price(0.4, 1.6, 0.1),
    "gpt-4.1-nano": Price(0.1, 0.4, 0.025),
    "gpt-4o": Price(2.5, 10, 1.25),
    "gpt-4o-mini": Price(0.15, 0.6, 0.075),
    "o3": Price(2, 8, 0.5),
    "o4-mini": Price(1.1, 4.4, 0.275),
    # half price until the end of 2026 for 3.6 to 3.8 Flash; here is what they cost from then on, so that no limit is broken
    **dict.fromkeys([f"gemini-3.{n}-flash" for n in (8, 7, 6)], Price(1.5, 7.5, 0.15)),
    "gemini-3.5-flash-lite": Price(0.3, 2.5, 0.03),
    "gemini-3.1-pro": Price(2, 12, 0.2, _AS_INPUT, 200_000, 2.0, 1.5),
    "gemini-3-flash": Price(0.5, 3, 0.05),
    "gemini-2.5-pro": Price(1.25, 10, 0.125, _AS_INPUT, 200_000, 2.0, 1.5),
    "gemini-2.5-flash": Price(0.3, 2.5, 0.03),
    "gemini-2.5-flash-lite": Price(0.1, 0.4, 0.01),
}
"""By the model's name without date. Prices of a provider's own address, for answers that are not batched or hurried."""

_SUFFIX: Final = re.compile(r"(-\d{4}-\d\d-\d\d|-\d{4,8}|-latest|-preview|@.*|\[1m\])+$")
_PRICED: Final = frozenset({"anthropic", "openai", "gemini"})
_AT_HOME: Final = frozenset({"ollama", "offline"})


class Prices:
    """Prices by `<provider>/<model>`. own: of the settings. types: the type of each provider by its name."""

    def __init__(self, own: Mapping[str, PriceSettings], types: Mapping[str, str]) -> None:
        self._own = {name: Price(p.input, p.output, p.cache_read, p.cache_write) for name, p in own.items()}
        self._types = types

    def of(self, spec: str) -> Price | None:
        """The price of a model, or None where nobody knows it. What runs on one's own machine is free."""
        if spec in self._own:
            return self._own[spec]
        provider, _, model = spec.partition("/")
        kind = self._types.get(provider, provider)
        if kind in _AT_HOME:
            return FREE
        return known_price(model) if kind in _PRICED else None


def known_price(model: str) -> Price | None:
    """The price of a model by its name, with or without a date and the maker's name before a "/"."""
    name = model.lower().rpartition("/")[2]
    return PRICES.get(name) or PRICES.get(_SUFFIX.sub("", name))
