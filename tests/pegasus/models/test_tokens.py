"""Counting tokens: the estimate against what real tokenizers counted, and the exact ways where there are any."""

from __future__ import annotations

import base64
import gc
import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from pegasus.models import (
    AssistantTurn,
    Image,
    ModelClient,
    ModelRequest,
    ModelService,
    PromptSize,
    TokenCounter,
    ToolCall,
    ToolResult,
    Turn,
    Usage,
    UserTurn,
)
from pegasus.models.formats.anthropic import AnthropicWire
from pegasus.models.tokens import CountByProvider, CountByTable, text_tokens
from pegasus.settings import ModelSettings, ProviderSettings
from pegasus.testing.provider import ProviderServer
from pegasus.testing.provider.answers import ProviderAnswer
from tests.pegasus.models.conftest import opened, provider_of, request

COUNTED = json.loads((Path(__file__).parents[3] / "scripts/benchmarks/counted_texts.json").read_text("utf-8"))
ENCODINGS = ["o200k_base", "cl100k_base", "voyage3_base"]
TRUE = {encoding: {entry["text"]: entry[encoding] for entry in COUNTED} for encoding in ENCODINGS}


def truth(turns: tuple[Turn, ...], encoding: str) -> int:
    """What a provider with this tokenizer would report; the texts of the turns are those that were counted."""
    return 50 + sum(TRUE[encoding][turn.text] + 4 for turn in turns)


def conversation(kinds: list[str], turns: int) -> list[Turn]:
    rng = random.Random(3)
    texts = [rng.choice([entry["text"] for entry in COUNTED if entry["kind"] in kinds]) for _ in range(turns)]
    return [AssistantTurn(text) if n % 2 else UserTurn(text=text) for n, text in enumerate(texts)]


@pytest.mark.parametrize("kind", ["english", "code", "chinese"])
def test_the_estimate_is_near_before_anything_is_known(kind: str) -> None:
    texts = [entry for entry in COUNTED if entry["kind"] == kind]
    guess = sum(text_tokens(entry["text"]) for entry in texts)
    assert guess == pytest.approx(sum(entry["o200k_base"] for entry in texts), rel=0.12)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_long_mixed_conversation_is_estimated_within_five_percent_all_the_way(encoding: str) -> None:
    turns = conversation(["english", "code", "chinese"], 400)
    counter = TokenCounter()
    worst = 0.0
    for n in range(1, 400, 2):
        asked = ModelRequest("", tuple(turns[:n]))
        true = truth(asked.turns, encoding)
        if n > 10:  # the first few are a matter of a hundred tokens
            worst = max(worst, abs(counter.estimate(asked) - true) / true)
        counter.learn(asked, Usage(true))
        assert counter.estimate(asked) == true
    assert worst < 0.05


def test_the_tokenizer_of_the_model_is_learnt() -> None:
    """cl100k_base needs half as much again for Chinese as o200k_base does."""
    counter = TokenCounter()
    turns = conversation(["chinese"], 120)
    for n in range(1, 120, 2):
        asked = ModelRequest("", tuple(turns[:n]))
        counter.learn(asked, Usage(truth(asked.turns, "cl100k_base")))
    new = tuple(UserTurn(text=entry["text"]) for entry in COUNTED if entry["kind"] == "chinese")
    assert counter.estimate(ModelRequest("", new)) == pytest.approx(truth(new, "cl100k_base") - 50, rel=0.1)
    assert counter.factor > 1.25


def test_the_upper_estimate_learns_from_what_is_reported() -> None:
    counter = TokenCounter()
    new = ModelRequest("", (UserTurn(text="word " * 1000),))
    plain = counter.estimate(new)
    assert counter.at_most(new) > 1.4 * plain
    for _ in range(20):
        counter.learn(ModelRequest("", (UserTurn(text="word " * 1000),)), Usage(round(0.8 * plain)))
    assert 0.87 * plain <= counter.at_most(new) <= 0.9 * plain
    counter.learn(ModelRequest("", (UserTurn(text="word " * 1000),)), Usage(2 * plain))
    assert counter.at_most(new) >= 2.2 * plain


def test_a_server_that_does_not_count_teaches_nothing_and_only_new_turns_are_looked_at() -> None:
    counter = TokenCounter()
    first = UserTurn(text="hello " * 50)
    asked = ModelRequest("", (first,))
    before = counter.estimate(asked)
    counter.learn(asked, Usage())
    assert (counter.factor, counter.estimate(asked)) == (1.0, before)
    longer = ModelRequest("", (first, AssistantTurn("well " * 50), UserTurn(text="so " * 50)))
    assert counter.estimate(longer) == pytest.approx(TokenCounter().estimate(longer), abs=2)
    assert len(counter._split(longer)[1]) == 2


def test_a_last_turn_that_was_merged_with_more_is_counted_anew() -> None:
    counter = TokenCounter()
    first, answer = UserTurn(text="hello " * 50), AssistantTurn("well " * 50)
    short = UserTurn(text="one " * 100)
    counter.learn(ModelRequest("", (first, answer, short)), Usage(250))
    merged = UserTurn(text="one " * 100 + "two " * 100)
    assert 340 < counter.estimate(ModelRequest("", (first, answer, merged))) < 360


def test_usage_that_makes_no_sense_teaches_nothing() -> None:
    counter = TokenCounter()
    turns: list[Turn] = [UserTurn(text="hello " * 50)]
    for tokens in (0, 1000, 900, 10_000_000, 1):
        counter.learn(ModelRequest("", tuple(turns)), Usage(tokens))
        turns += [AssistantTurn("x " * 50), UserTurn(text="y " * 50)]
    assert counter.factor == 1.0


def test_tools_calls_results_and_pictures_count() -> None:
    counter = TokenCounter()
    bare = ModelRequest("", (UserTurn(text="hi"),))
    calls = (ToolCall("1", "reply", {"text": "some words"}),)
    rich = ModelRequest(
        "", (UserTurn(text="hi"), AssistantTurn("", calls), UserTurn((ToolResult("1", "reply", "ok"),)))
    )
    picture = ModelRequest("", (UserTurn(text="hi", images=(Image("image/png", "AAAA"),)),))
    sizes = [counter.estimate(asked) for asked in (bare, request(), rich, picture)]
    assert sizes[0] < sizes[1]
    assert sizes[0] < sizes[2]
    assert sizes[3] - sizes[0] > 500


def test_conversations_that_are_gone_are_forgotten() -> None:
    counter = TokenCounter()
    counter.learn(ModelRequest("", (UserTurn(text="a"), AssistantTurn("b"), UserTurn(text="c"))), Usage(10))
    gc.collect()
    assert len(counter._counted) == 0


# ------------------------------------------------------------------ asking Anthropic


def counter_of(model: ModelClient) -> TokenCounter:
    return model._source.target("default").counter


async def counted(counter: TokenCounter, asked: ModelRequest) -> int:
    """The tokens of a request that is about as long as it may be."""
    return await counter.compare(asked, counter.estimate(asked))


async def test_anthropic_is_asked_for_the_number(server: ProviderServer) -> None:
    server.tokens = lambda asked: 1000 + len(asked.turns)
    async with opened("anthropic", server) as model:
        assert await counted(counter_of(model), request()) == 1001
        assert counter_of(model).method == "counted by the provider"
    assert server.invalid == []


@pytest.mark.parametrize("answer", ["unknown path", "no number"])
async def test_where_nobody_can_be_asked_it_is_an_estimate_and_not_asked_again(
    server: ProviderServer, answer: str
) -> None:
    if answer == "no number":
        server.tokens = lambda _: -1
    async with opened("anthropic", server) as model:
        assert 0 < await counted(counter_of(model), request()) < 200
        asked = server.counted
        assert 0 < await counted(counter_of(model), request()) < 200
        assert server.counted == asked


async def test_a_provider_that_does_not_answer_is_waited_for_once(autojump_clock: object) -> None:
    class Silent:
        async def load(self) -> None:
            await trio.sleep_forever()

    counter = TokenCounter(CountByProvider(Silent(), "/count", lambda _: b""))
    began = trio.current_time()
    for _ in range(3):
        assert 0 < await counted(counter, request()) < 200
    assert trio.current_time() - began == pytest.approx(5)


async def test_counting_is_for_when_it_matters(server: ProviderServer) -> None:
    server.tokens = lambda _: 12345
    guess = TokenCounter().estimate(request())
    async with opened("anthropic", server) as model:
        for limit in (100_000, 2 * guess):
            assert await counter_of(model).compare(request(), limit) == guess
        assert server.counted == 0
        assert await counter_of(model).compare(request(), guess) == 12345


async def test_a_model_learns_from_every_answer(server: ProviderServer, form: str) -> None:
    server.script = lambda _: ProviderAnswer("x", usage=Usage(777, 5))
    asked = request()
    async with opened(form, server) as model:
        await model.generate(asked)
        longer = (*asked.turns, AssistantTurn("x"), UserTurn(text="and?"))
        assert 777 < await counted(counter_of(model), request(*longer)) < 800


def test_a_count_body_has_what_counts_and_nothing_else() -> None:
    body: Any = json.loads(AnthropicWire("m").count_body(request()))
    assert set(body) == {"model", "messages", "tools", "system"}


# ------------------------------------------------------------------ tables


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """tiktoken's cache folder, and no network: a table that is not there cannot be fetched."""

    def read_file(path: str) -> bytes:
        raise OSError("no network")

    monkeypatch.setattr("tiktoken.load.read_file", read_file)
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return tmp_path


def put_table(monkeypatch: pytest.MonkeyPatch, arrives: threading.Event | None = None) -> None:
    """A table of single bytes in the place of OpenAI's, as the network gives it. arrives: it comes when this is set."""
    data = b"".join(b"%s %d\n" % (base64.b64encode(bytes([n])), n) for n in range(256))

    def read_file(path: str) -> bytes:
        if arrives is not None:
            arrives.wait()
        return data

    monkeypatch.setattr("tiktoken.load.read_file", read_file)
    monkeypatch.setattr("tiktoken.load.check_hash", lambda data, expected: True)


async def test_a_table_is_fetched_once_and_then_counts(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_table(monkeypatch)
    by_table = CountByTable("gpt-6")
    counter = TokenCounter(by_table)
    assert counter.method == "estimated from the length of the text"
    await by_table.load()
    assert counter.method == "counted by tiktoken (o200k_base)"
    short, long = ModelRequest("", (UserTurn(text="a" * 100),)), ModelRequest("", (UserTurn(text="a" * 50_100),))
    assert await counted(counter, long) - await counted(counter, short) == 50_000
    assert len(list(tables.iterdir())) == 1  # noqa: ASYNC240


async def test_without_a_network_it_is_an_estimate(tables: Path) -> None:
    by_table = CountByTable("gpt-6")
    await by_table.load()
    assert by_table.method == ""
    assert 0 < await counted(TokenCounter(by_table), request()) < 200


async def test_fetching_a_table_has_a_deadline(
    tables: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    arrives = threading.Event()
    put_table(monkeypatch, arrives)
    by_table = CountByTable("gpt-6")
    try:
        with trio.fail_after(1000):
            await by_table.load()
        assert trio.current_time() == pytest.approx(60)
        assert by_table.method == ""
    finally:
        arrives.set()


def test_each_model_has_its_encoding() -> None:
    old, new = ("gpt-4", "gpt-4-0613", "gpt-3.5-turbo"), ("gpt-4o", "gpt-4.1", "o3", "gpt-6.1-terra")
    assert {CountByTable(name).encoding_name for name in old} == {"cl100k_base"}
    assert {CountByTable(name).encoding_name for name in new} == {"o200k_base"}


async def test_counting_does_not_block_the_agent(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_table(monkeypatch)
    by_table = CountByTable("gpt-6")
    await by_table.load()
    ticked = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(counted, TokenCounter(by_table), ModelRequest("", (UserTurn(text="a b " * 100_000),)))
        await trio.lowlevel.checkpoint()
        ticked.set()
    assert ticked.is_set()


async def test_only_openais_own_models_have_a_table(server: ProviderServer) -> None:
    accounts = {"openai": ProviderSettings(api_key="k"), "lab": provider_of("openai", server)}
    models = ModelService(ModelSettings(default="openai/gpt-6"), accounts, rng=random.Random(1))
    models.client("lab/x")
    assert list(models._setup.tables) == ["openai/gpt-6"]


# ------------------------------------------------------------------ by role


async def test_a_prompt_is_measured_against_the_window_exactly_where_it_is_near_and_known(
    server: ProviderServer,
) -> None:
    server.tokens = lambda _: 5_000
    settings = {"anthropic": provider_of("anthropic", server)}
    models = ModelService(ModelSettings(default="anthropic/test-model"), settings, rng=random.Random(1))
    asked = request(text="word " * 1_000)
    estimate = models.target("default").counter.estimate(asked)
    window = models.context_window()
    assert await models.measure(asked, estimate / window) == PromptSize(estimate, window, is_assumed=True)
    models.target("default").facts.limit(10_000)
    assert await models.measure(asked, 0.8) == PromptSize(estimate, 10_000)
    assert (await models.measure(asked, estimate / 10_000)).tokens != estimate
    await models.aclose()


async def test_each_role_has_its_counter_and_both_lanes_share_it(server: ProviderServer) -> None:
    server.script = lambda _: ProviderAnswer("x", usage=Usage(777, 5))
    models = ModelService(
        ModelSettings(default="openai/m", compact="offline/stand-in"),
        {"openai": provider_of("openai", server)},
        rng=random.Random(1),
    )
    before = models.target("default").counter
    asked = request()
    await models.client("default", "conversation").generate(asked)
    longer = (*asked.turns, AssistantTurn("x"), UserTurn(text="and?"))
    assert 777 < await counted(models.target("default").counter, request(*longer)) < 800
    assert models.target("default").counter is before
    assert await counted(models.target("compact").counter, asked) < 200
    await models.aclose()
