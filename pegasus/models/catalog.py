"""Catalogue of known models: what a call costs, and how many tokens fit into a conversation.

Prices are US dollars per million tokens. They were looked up on 2026-11-22 in the providers' own lists and what others quote of them:
https://platform.claude.com/docs/en/about-claude/pricing, https://developers.openai.com/api/docs/pricing,
https://ai.google.dev/gemini-api/docs/pricing. Prices change, so `[prices]` of the settings wins. A model that is in neither has no
price: its calls are counted in tokens only, and reports say so. Models on one's own machine are free.

To add a model, add a line to `PRICES`, without date or "-latest" in its name, and to `_WINDOWS` if no entry matches it. Tests check
that prices are plausible. Where a price depends on the length of the prompt, `long_above` and the factors say how.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from pegasus.models.base import Usage

if TYPE_CHECKING:
    from pegasus.settings import PriceSettings, ProviderSettings

READ_ON: Final = "2026-11-22"
"""Day on which the prices were looked up."""
_MILLION: Final = 1_000_000
"""Number of tokens that a price is for."""
_AS_INPUT: Final = -1.0
"""Price of cached input of a provider that does not charge it apart."""


@attrs.frozen
class TokenPrice:
    """Price of a model in dollars per million tokens.

    Example: `TokenPrice(3, 15, 0.3, 3.75).cost(Usage(1_000, 200))` is 0.006.
    """

    input: float
    """Tokens of the prompt that the cache has no part in."""
    output: float
    """Tokens of the answer, thinking included."""
    cache_read: float = _AS_INPUT
    """Input that came from the provider's cache; -1: as other input."""
    cache_write: float = _AS_INPUT
    """Input that went into the provider's cache; -1: as other input."""
    long_above: int = 0
    """Tokens of the prompt above which the whole call costs more; 0: never."""
    long_input: float = 1.0
    """Factor of all input prices for such a call."""
    long_output: float = 1.0
    """Factor of the output price for such a call."""
    cache_hour: float = _AS_INPUT
    """Input that went into the cache for an hour; -1: as for the usual time."""

    def cost(self, usage: Usage) -> float:
        """Return the dollars for one call.

        `prompt_tokens` includes what the cache had and took; these parts have prices of their own. A server that counts them apart
        from the prompt would make the rest negative, which is taken as 0.
        """
        read, write = usage.cache_read_tokens, usage.cache_write_tokens
        plain = max(0, usage.prompt_tokens - read - write)
        long = min(usage.cache_hour_tokens, write) if self.cache_hour >= 0 else 0
        cached = (write - long) * self._or_input(self.cache_write) + long * self.cache_hour
        prompt = plain * self.input + read * self._or_input(self.cache_read) + cached
        is_long = self.long_above and usage.prompt_tokens > self.long_above
        input_factor, output_factor = (self.long_input, self.long_output) if is_long else (1.0, 1.0)
        return (prompt * input_factor + usage.completion_tokens * self.output * output_factor) / _MILLION

    def at_most(self, prompt: int, completion: int) -> float:
        """Return the dollars for a call with at most so many tokens, whatever the cache does."""
        highest = max(self.input, self.cache_write, self.cache_hour)
        return attrs.evolve(self, input=highest).cost(Usage(prompt, completion))

    def _or_input(self, price: float) -> float:
        return self.input if price < 0 else price


FREE: Final = TokenPrice(0.0, 0.0)
"""Price of models on one's own machine."""


def _claude(input: float, output: float, cache_read: float) -> TokenPrice:
    """Return a price of Anthropic's: the cache for five minutes costs a quarter more than input, for an hour twice as much."""
    return TokenPrice(input, output, cache_read, 1.25 * input, cache_hour=2 * input)


def _gpt(input: float, output: float, cache_read: float, cache_write: float = _AS_INPUT) -> TokenPrice:
    """Return a price of OpenAI's: from GPT-5.4 on, more than 272,000 tokens of input make the whole call cost more."""
    return TokenPrice(input, output, cache_read, cache_write, 272_000, 2.0, 1.5)


_OPUS, _OLD_OPUS = _claude(5, 25, 0.5), _claude(15, 75, 1.5)
_SONNET = _claude(3, 15, 0.3)

PRICES: Final[Mapping[str, TokenPrice]] = {
    "claude-fable-5-1": _claude(10, 50, 0.25),
    "claude-fable-5": _claude(10, 50, 1.0),
    "claude-opus-5-5": _claude(4, 20, 0.2),
    **dict.fromkeys([f"claude-opus-{n}" for n in ("5", "4-8", "4-7", "4-6", "4-5")], _OPUS),
    **dict.fromkeys(["claude-opus-4-1", "claude-opus-4", "claude-3-opus"], _OLD_OPUS),
    "claude-sonnet-5-5": _claude(2, 10, 0.1),
    "claude-sonnet-5": _claude(2, 10, 0.2),
    **dict.fromkeys([f"claude-sonnet-{n}" for n in ("4-6", "4-5", "4")], _SONNET),
    **dict.fromkeys(["claude-3-7-sonnet", "claude-3-5-sonnet"], _SONNET),
    "claude-haiku-5-5": TokenPrice(0.1, 0.5, 0.01, 0.125, 100_000, 5.0, 5.0, cache_hour=0.2),
    "claude-haiku-4-5": _claude(1, 5, 0.1),
    "claude-3-5-haiku": _claude(0.8, 4, 0.08),
    "claude-3-haiku": TokenPrice(0.25, 1.25, 0.03, 0.3, cache_hour=0.5),
    "gpt-6-astra": _gpt(10, 50, 1.0, 12.5),
    "gpt-6.1-sol": _gpt(2, 10, 0.1, 2.5),
    "gpt-6.1-terra": _gpt(1, 5, 0.05, 1.25),
    "gpt-6-sol": _gpt(2, 10, 0.2, 2.5),
    "gpt-6-luna": _gpt(0.1, 0.5, 0.01, 0.125),
    "gpt-5.6-terra": _gpt(2, 12, 0.2, 2.5),
    "gpt-5.5": _gpt(5, 30, 0.5),
    "gpt-5.4": _gpt(2.5, 15, 0.25),
    "gpt-5.4-mini": TokenPrice(0.75, 4.5, 0.075),
    "gpt-5.4-nano": TokenPrice(0.2, 1.25, 0.02),
    **dict.fromkeys(["gpt-5.1", "gpt-5"], TokenPrice(1.25, 10, 0.125)),
    "gpt-5-mini": TokenPrice(0.25, 2, 0.025),
    "gpt-5-nano": TokenPrice(0.05, 0.4, 0.005),
    "gpt-4.1": TokenPrice(2, 8, 0.5),
    "gpt-4.1-mini": TokenPrice(0.4, 1.6, 0.1),
    "gpt-4.1-nano": TokenPrice(0.1, 0.4, 0.025),
    "gpt-4o": TokenPrice(2.5, 10, 1.25),
    "gpt-4o-mini": TokenPrice(0.15, 0.6, 0.075),
    "o3": TokenPrice(2, 8, 0.5),
    "o4-mini": TokenPrice(1.1, 4.4, 0.275),
    # half price until the end of 2026 for 3.6 to 3.8 Flash; these are the prices from then on, so that no budget is exceeded
    **dict.fromkeys([f"gemini-3.{n}-flash" for n in (8, 7, 6)], TokenPrice(1.5, 7.5, 0.15)),
    "gemini-3.5-flash-lite": TokenPrice(0.3, 2.5, 0.03),
    "gemini-3.1-pro": TokenPrice(2, 12, 0.2, _AS_INPUT, 200_000, 2.0, 1.5),
    "gemini-3-flash": TokenPrice(0.5, 3, 0.05),
    "gemini-2.5-pro": TokenPrice(1.25, 10, 0.125, _AS_INPUT, 200_000, 2.0, 1.5),
    "gemini-2.5-flash": TokenPrice(0.3, 2.5, 0.03),
    "gemini-2.5-flash-lite": TokenPrice(0.1, 0.4, 0.01),
}
"""Prices by the model's name without a date, at the provider's own address, without batch or priority processing."""

_SUFFIX: Final = r"(-\d{4}-\d\d-\d\d|-\d{4,8}|-latest|-preview|@.*|\[1m\])+$"
"""Date or other additions to a model's name."""
_PRICED_TYPES: Final = ("anthropic", "openai", "gemini")
_FREE_TYPES: Final = ("ollama", "llamacpp", "lmstudio", "offline")


class PriceList:
    """Prices of the models by `<provider>/<model>`: those of the settings, then the built-in ones.

    Example::

        prices = PriceList(settings.prices, settings.providers)
        prices.find("openai/gpt-4o-2024-08-06")  # TokenPrice(2.5, 10, …)

    own: `[prices]` of the settings, by `<provider>/<model>`. providers: for the types of the providers.
    """

    def __init__(self, own: Mapping[str, PriceSettings], providers: Mapping[str, ProviderSettings]) -> None:
        self._own = {
            name: TokenPrice(price.input, price.output, price.cache_read, price.cache_write)
            for name, price in own.items()
        }
        self._types = {name: provider.type for name, provider in providers.items()}

    def find(self, spec: str) -> TokenPrice | None:
        """Return the price of a model, None if it is unknown.

        The built-in prices hold for providers of a service's own type under any name and address: a gateway usually charges the same.
        A provider of another type has no price unless the settings give one.
        """
        if spec in self._own:
            return self._own[spec]
        provider, _, model = spec.partition("/")
        provider_type = self._types.get(provider) or provider
        if provider_type in _FREE_TYPES:
            return FREE
        return known_price(model) if provider_type in _PRICED_TYPES else None


def known_price(model: str) -> TokenPrice | None:
    """Return the built-in price of a model by its name, with or without a date and the maker's name before a "/"."""
    name = model.lower().rpartition("/")[2]
    return PRICES.get(name) or PRICES.get(re.sub(_SUFFIX, "", name))


# ------------------------------------------------------------------ context windows

DEFAULT_WINDOW: Final = 128_000
"""Tokens of a model that is not known."""

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
    ("deepseek-flash", 1_000_000),
    ("deepseek-v4", 1_000_000),
    ("grok-4.5", 500_000),
    ("gpt-oss-", 131_072),
    ("openai.gpt-oss-", 131_072),
)
"""Tokens by the beginning of a model's name; the first match wins. Sources:
https://platform.claude.com/docs/en/about-claude/models/overview, https://developers.openai.com/api/docs/models,
https://ai.google.dev/gemini-api/docs/models, https://api-docs.deepseek.com/quick_start/pricing, https://docs.x.ai/docs/models,
https://console.groq.com/docs/models."""


def known_window(spec: str) -> int:
    """Return the tokens that fit into a model, named as `<provider>/<model>` or alone; 0 if it is not known. See `ModelFacts`."""
    model = spec.rpartition("/")[2].lower()
    return next((size for prefix, size in _WINDOWS if model.startswith(prefix)), 0)
