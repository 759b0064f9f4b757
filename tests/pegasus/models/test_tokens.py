"""Counting tokens: the estimate against what real tokenizers counted, and the exact ways where there are any."""

from __future__ import annotations

import base64
import gc
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
import trio

from pegasus.models import (
    AssistantTurn,
    Image,
    ModelRequest,
    Models,
    ToolCall,
    ToolResult,
    Turn,
    Usage,
    UserTurn,
)
from pegasus.models import counting as exact
from pegasus.models import tokens as estimates
from pegasus.models.anthropic import AnthropicWire
from pegasus.models.counting import ByProvider, ByTable, encoding_name, load_encoding, table_file
from pegasus.models.tokens import Counter, Gauge, Size, text_size
from pegasus.settings import ModelSettings
from pegasus.testing.provider import ProviderServer
from pegasus.testing.provider_answer import Answer
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
    sizes = [text_size(entry["text"]) for entry in texts]
    guess = sum(size.narrow + size.wide for size in sizes)
    assert guess == pytest.approx(sum(entry["o200k_base"] for entry in texts), rel=0.12)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_long_mixed_conversation_is_estimated_within_five_percent_all_the_way(encoding: str) -> None:
    turns = conversation(["english", "code", "chinese"], 400)
    gauge, counter = Gauge(), Counter(Gauge())
    worst = 0.0
    for n in range(1, 400, 2):
        asked = ModelRequest("", tuple(turns[:n]))
        true = truth(asked.turns, encoding)
        if n > 10:  # the first few are a matter of a hundred tokens
            worst = max(worst, abs(gauge.whole(asked) - true) / true)
            assert counter.estimate(true, []) == true
        gauge.learn(asked, Usage(true))
    assert worst < 0.05


def test_the_tokenizer_of_the_model_is_learnt_for_each_kind_of_script() -> None:
    """cl100k_base needs half as much again for Chinese as o200k_base does, and the same for English."""
    gauge = Gauge()
    turns = conversation(["english", "chinese"], 120)
    for n in range(1, 120, 2):
        asked = ModelRequest("", tuple(turns[:n]))
        gauge.learn(asked, Usage(truth(asked.turns, "cl100k_base")))
    for kind in ("english", "chinese"):
        new = [UserTurn(text=entry["text"]) for entry in COUNTED if entry["kind"] == kind]
        assert gauge.estimate(0, new) == pytest.approx(truth(tuple(new), "cl100k_base") - 50, rel=0.1)
    assert gauge.factors[1] > 1.25 * gauge.factors[0]


def test_a_last_turn_that_was_merged_with_more_is_counted_anew() -> None:
    gauge = Gauge()
    first, answer = UserTurn(text="hello " * 50), AssistantTurn("well " * 50)
    short = UserTurn(text="one " * 100)
    gauge.learn(ModelRequest("", (first, answer, short)), Usage(1000))
    merged = UserTurn(text="one " * 100 + "two " * 100)
    assert 1080 < gauge.whole(ModelRequest("", (first, answer, merged))) < 1120


def test_usage_that_makes_no_sense_teaches_nothing() -> None:
    gauge = Gauge()
    turns: list[Turn] = [UserTurn(text="hello " * 50)]
    for tokens in (0, 1000, 900, 10_000_000, 1):
        gauge.learn(ModelRequest("", tuple(turns)), Usage(tokens))
        turns += [AssistantTurn("x " * 50), UserTurn(text="y " * 50)]
    assert gauge.factors == (1.0, 1.0)


def test_tools_calls_results_and_pictures_count() -> None:
    gauge = Gauge()
    bare = ModelRequest("", (UserTurn(text="hi"),))
    calls = (ToolCall("1", "reply", {"text": "some words"}),)
    rich = ModelRequest(
        "", (UserTurn(text="hi"), AssistantTurn("", calls), UserTurn((ToolResult("1", "reply", "ok"),)))
    )
    picture = ModelRequest("", (UserTurn(text="hi", images=(Image("image/png", "AAAA"),)),))
    sizes = [gauge.whole(asked) for asked in (bare, request(), rich, picture)]
    assert sizes[0] < sizes[1]
    assert sizes[0] < sizes[2]
    assert sizes[3] - sizes[0] > 500


def test_a_message_of_five_megabytes_is_estimated_by_samples() -> None:
    text = "".join(entry["text"] for entry in COUNTED) * 60
    whole = sum(text_size(text[n : n + 60_000]).narrow for n in range(0, len(text), 60_000))
    assert text_size(text).narrow == pytest.approx(whole, rel=0.1)


def test_conversations_that_are_gone_are_forgotten() -> None:
    gauge = Gauge()
    gauge.learn(ModelRequest("", (UserTurn(text="a"), AssistantTurn("b"), UserTurn(text="c"))), Usage(10))
    gc.collect()
    assert len(gauge._seen) == len(gauge._sizes) == 0


# ------------------------------------------------------------------ asking Anthropic


async def test_anthropic_is_asked_for_the_number(server: ProviderServer) -> None:
    server.tokens = lambda asked: 1000 + len(asked.turns)
    async with opened("anthropic", server) as model:
        assert await model.counter.count(request()) == 1001
    assert server.invalid == []


@pytest.mark.parametrize("answer", ["unknown path", "no number"])
async def test_where_nobody_can_be_asked_it_is_an_estimate_and_not_asked_again(
    server: ProviderServer, answer: str
) -> None:
    if answer == "no number":
        server.tokens = lambda _: -1
    async with opened("anthropic", server) as model:
        assert 0 < await model.counter.count(request()) < 200
        asked = server.counted
        assert 0 < await model.counter.count(request()) < 200
        assert server.counted == asked


async def test_a_provider_that_does_not_answer_is_waited_for_once(autojump_clock: object) -> None:
    class Silent:
        async def get(self) -> None:
            await trio.sleep_forever()

    counter = Counter(Gauge(), ByProvider(Silent(), "/count", lambda _: b""))
    began = trio.current_time()
    for _ in range(3):
        assert 0 < await counter.count(request()) < 200
    assert trio.current_time() - began == pytest.approx(5)


async def test_counting_is_for_when_it_matters(server: ProviderServer) -> None:
    server.tokens = lambda _: 12345
    guess = Gauge().whole(request())
    async with opened("anthropic", server) as model:
        for limit in (100_000, 2 * guess):
            assert guess <= await model.counter.compare(request(), limit) < limit / 2 + 1
        assert server.counted == 0
        assert await model.counter.compare(request(), guess) == 12345


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_no_request_has_more_tokens_than_it_can_have_at_most(encoding: str) -> None:
    """Neither one of which nothing is known, nor one that the provider has counted in part."""
    turns = conversation(["english", "code", "chinese"], 60)
    gauge = Gauge()
    for n in range(1, 60):
        asked = ModelRequest("A system prompt that is as long as what stands before the turns.", tuple(turns[:n]))
        assert truth(asked.turns, encoding) <= gauge.at_most(asked)
        if n % 3 == 0:
            gauge.learn(asked, Usage(truth(asked.turns, encoding)))
    assert gauge.at_most(asked) < 2 * truth(asked.turns, encoding)


async def test_far_from_the_limit_no_text_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most calls are; neither before the call nor when its usage is known."""
    looked = []
    monkeypatch.setattr(estimates, "text_size", lambda text: looked.append(text) or Size(len(text) / 4))
    gauge = Gauge()
    counter = Counter(gauge)
    turns = conversation(["english"], 40)
    for n in range(1, 40, 2):
        asked = ModelRequest("", tuple(turns[:n]))
        assert await counter.compare(asked, 1_000_000) < 500_000
        counter.learn(asked, Usage(truth(asked.turns, "o200k_base")))
    assert looked == []
    await counter.compare(ModelRequest("", tuple(turns)), 10)
    assert len(looked) == 40 - 1  # the first turn taught nothing: the prompt was in it


async def test_a_model_learns_from_every_answer(server: ProviderServer, form: str) -> None:
    server.script = lambda _: Answer("x", usage=Usage(777, 5))
    asked = request()
    async with opened(form, server) as model:
        await model.generate(asked)
        longer = (*asked.turns, AssistantTurn("x"), UserTurn(text="and?"))
        assert 777 < await model.counter.count(request(*longer)) < 800


def test_a_count_body_has_what_counts_and_nothing_else() -> None:
    body: Any = json.loads(AnthropicWire("m").count_body(request()))
    assert set(body) == {"model", "messages", "tools", "system"}


# ------------------------------------------------------------------ tables


def table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of single bytes in the place of OpenAI's."""
    data = b"".join(b"%s %d\n" % (base64.b64encode(bytes([n])), n) for n in range(256))
    name = hashlib.sha1(b"https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken").hexdigest()
    (folder / name).write_bytes(data)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
    monkeypatch.setitem(exact._HASHES, "o200k_base", hashlib.sha256(data).hexdigest())


async def test_a_table_on_this_machine_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(tmp_path, monkeypatch)
    counter = Counter(Gauge(), ByTable("gpt-6"))
    short, long = ModelRequest("", (UserTurn(text="a" * 100),)), ModelRequest("", (UserTurn(text="a" * 50_100),))
    assert await counter.count(long) - await counter.count(short) == 50_000


@pytest.mark.parametrize("damage", ["absent", "changed", "switched off"])
async def test_without_a_whole_table_nothing_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    def download(*_: object) -> bytes:
        raise AssertionError("a download in the middle of a conversation")

    monkeypatch.setattr("tiktoken.load.read_file", download)
    table(tmp_path, monkeypatch)
    [file] = tmp_path.iterdir()  # noqa: ASYNC240
    if damage == "absent":
        file.unlink()
    elif damage == "changed":
        file.write_bytes(b"YQ== 0\n")
    else:
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert table_file("o200k_base") is None
    assert load_encoding("o200k_base") is None
    assert 0 < await Counter(Gauge(), ByTable("gpt-6")).count(request()) < 200
    assert damage != "changed" or file.exists()


def test_each_model_has_its_encoding() -> None:
    assert [encoding_name(name) for name in ("gpt-4", "gpt-4-0613", "gpt-3.5-turbo")] == ["cl100k_base"] * 3
    assert [encoding_name(name) for name in ("gpt-4o", "gpt-4.1", "o3", "gpt-6.1-terra")] == ["o200k_base"] * 4


async def test_counting_does_not_block_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(tmp_path, monkeypatch)
    counter = Counter(Gauge(), ByTable("gpt-6"))
    ticked = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(counter.count, ModelRequest("", (UserTurn(text="a b " * 100_000),)))
        await trio.lowlevel.checkpoint()
        ticked.set()
    assert ticked.is_set()


# ------------------------------------------------------------------ by role


async def test_each_role_has_its_counter_and_both_lanes_share_it(server: ProviderServer) -> None:
    server.script = lambda _: Answer("x", usage=Usage(777, 5))
    models = Models(
        ModelSettings(default="openai/m", compact="offline/stand-in"),
        {"openai": provider_of("openai", server)},
        rng=random.Random(1),
    )
    before = models.counter()
    asked = request()
    await models.get("default", "main").generate(asked)
    longer = (*asked.turns, AssistantTurn("x"), UserTurn(text="and?"))
    assert 777 < await models.counter().count(request(*longer)) < 800
    assert models.counter() is before
    assert await models.counter("compact").count(asked) < 200
    await models.aclose()
