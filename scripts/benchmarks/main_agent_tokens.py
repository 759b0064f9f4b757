"""The estimate of a prompt's tokens against what the provider reports, over a long conversation in English, Chinese and code.

The provider (a server on loopback) reports what real tokenizers count: every text of the conversation is one of
counted_texts.json, where its tokens by three tokenizers stand beside it (made with the package bpe-openai, which has the tables
in it). Before each call the prompt is estimated from what the call before reported and the turns since, as the agent does.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import trio

from benchmarks.report import Result
from benchmarks.workplace import Workplace
from pegasus.models import AssistantTurn, ModelRequest, ModelService, TokenCounter, Turn, Usage, UserTurn
from pegasus.settings import ModelSettings, ProviderSettings
from pegasus.testing.provider import open_provider
from pegasus.testing.provider.answers import ProviderAnswer
from pegasus.testing.provider.requests import ProviderRequest

LIMIT = 1.05
ROUNDS = 200  # questions
LEARNING = 3  # questions that are not judged: before them nothing is known
ENCODINGS = ("o200k_base", "cl100k_base", "voyage3_base")
_PER_MESSAGE, _HEAD = 4, 25
_TEXTS = json.loads((Path(__file__).parent / "counted_texts.json").read_text("utf-8"))


@attrs.frozen
class Estimate:
    """One prompt. cold: estimated as a whole, without anything reported."""

    reported: int
    estimated: int
    cold: int

    @property
    def off(self) -> float:
        """At least 1; too much and too little count alike."""
        return max(self.estimated / self.reported, self.reported / self.estimated)


def measure(place: Workplace) -> Iterator[Result]:
    rounds = place.rounds(ROUNDS, 40)
    for form in ("anthropic", "openai"):
        for encoding in ENCODINGS:
            seen = trio.run(_converse, form, encoding, rounds)[LEARNING:]
            worst = max(seen, key=lambda estimate: estimate.off)
            last = seen[-1]
            detail = {
                "mean_off": sum(estimate.off for estimate in seen) / len(seen),
                "cold_off": last.cold / last.reported,
            }
            name = f"tokens, estimated at worst, {encoding}, {form}"
            yield Result(name, worst.estimated, worst.reported, "reported", "", worst.off, LIMIT, None, detail)


async def _converse(form: str, encoding: str, rounds: int) -> Sequence[Estimate]:
    texts = random.Random(5).choices(_TEXTS, k=2 * rounds + 1)
    true = {entry["text"]: entry[encoding] for entry in _TEXTS}
    answers = iter(texts[1::2])

    def script(request: ProviderRequest) -> ProviderAnswer:
        prompt = _HEAD + true[request.system] + sum(true[turn.text] + _PER_MESSAGE for turn in request.turns)
        text = next(answers)["text"]
        return ProviderAnswer(text, usage=Usage(prompt, true[text]), pieces=3)

    async with open_provider(script, keep=1) as server:
        url = server.url if form == "anthropic" else server.openai_url
        settings = {form: ProviderSettings(type=form, api_key="key", base_url=url)}
        models = ModelService(ModelSettings(default=f"{form}/m"), settings, rng=random.Random(1))
        try:
            return await _talk(models, texts[0]["text"], [entry["text"] for entry in texts[2::2]])
        finally:
            await models.aclose()


async def _talk(models: ModelService, system: str, questions: Sequence[str]) -> Sequence[Estimate]:
    model, counter = models.client(), models.target("default").counter
    turns: list[Turn] = []
    seen = []
    for question in questions:
        turns.append(UserTurn(text=question))
        request = ModelRequest(system, tuple(turns))
        estimated = counter.estimate(request)
        cold = TokenCounter().estimate(request)
        response = await model.generate(request)
        turns.append(AssistantTurn(response.text))
        seen.append(Estimate(response.usage.prompt_tokens, estimated, cold))
    return seen
