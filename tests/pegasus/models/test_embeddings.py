"""Embeddings against a server in OpenAI's format: what is sent, what comes back, and how calls fail."""

import json
from random import Random

import openai
import pytest
import trio

from pegasus.app.memory_embedder import MemoryEmbedder
from pegasus.models import Label, ModelError, ModelService, PriceList, UsageTracker
from pegasus.models.providers import ModelConfigError
from pegasus.redaction import KnownSecrets
from pegasus.settings import BudgetSettings, ModelSettings, ProviderSettings
from tests.embedding_server import SIZE, embedding_server, vector_of

LABEL = Label("embed")


@pytest.fixture
def server():
    with embedding_server() as server:
        yield server
        assert server.refused == []


def service(server, budget=None, type="openai", embed="here/small"):
    tracker = UsageTracker(lambda: 1_772_020_800_000, Random(0), budget or BudgetSettings(), PriceList({}, {}))
    tracker.load(())
    url = server.url.removesuffix("/v1") if type == "ollama" else server.url
    providers = {"here": ProviderSettings(type=type, api_key="k", base_url=url)}
    return ModelService(ModelSettings(embed=embed), providers, rng=Random(0), usage=tracker)


@pytest.fixture
async def model(server):
    models = service(server)
    yield models.embedder
    await models.aclose()


def is_near(one, other):
    return list(one) == pytest.approx(list(other), abs=1e-6)


@pytest.mark.parametrize(
    "type",
    [
        pytest.param(name, marks=pytest.mark.tried("models", f"embeddings of a provider of type {name}", "vectors"))
        for name in ("openai", "ollama", "llamacpp", "lmstudio", "gemini")
    ],
)
async def test_each_text_has_its_vector_and_the_call_is_counted(server, type):
    models = service(server, type=type)
    first, second = await models.embedder.embed(["tea", "a cat"], LABEL, within=20)
    await models.aclose()
    assert is_near(first, vector_of("tea"))
    assert is_near(second, vector_of("a cat"))
    assert (server.asked, server.models) == ([["tea", "a cat"]], ["small"])
    [record] = models.usage.unsaved
    assert (record.model, record.role, record.prompt_tokens) == ("here/small", "embed", 6)


async def test_the_server_of_the_tests_is_that_of_the_official_client(server):
    def ask():
        client = openai.OpenAI(api_key="k", base_url=server.url, max_retries=0)
        return client.embeddings.create(model="small", input=["tea", "a cat"], encoding_format="float").data

    found = await trio.to_thread.run_sync(ask)
    assert [len(each.embedding) for each in found] == [SIZE, SIZE]


def body(**fields):
    return 200, json.dumps(fields).encode()


BAD = {
    "one too few": lambda texts: [vector_of("tea")],
    "one too many": lambda texts: [vector_of("tea")] * 3,
    "of two lengths": lambda texts: [vector_of("tea"), vector_of("tea")[1:]],
    "NaN": lambda texts: [[float("nan")] * SIZE] * 2,
    "infinite": lambda texts: [[1e999] * SIZE] * 2,
    "beyond a float": lambda texts: [[1e300] * SIZE] * 2,
    "nothing": lambda texts: [[]] * 2,
    "zeros": lambda texts: [[0.0] * SIZE] * 2,
    "texts": lambda texts: [["a"] * SIZE] * 2,
    "truth": lambda texts: [[True] * SIZE] * 2,
    "null": lambda texts: [[None] * SIZE] * 2,
    "huge": lambda texts: [[0.5] * 10_000] * 2,
    "base64": lambda texts: ["AAAAAA=="] * 2,
    "the same index twice": lambda texts: body(data=[{"index": 0, "embedding": [1.0]}] * 2),
    "no data": lambda texts: body(object="list"),
    "data of another kind": lambda texts: body(data={"0": [1.0]}),
    "a list": lambda texts: (200, b"[1, 2]"),
    "a page": lambda texts: (200, b"<html>"),
}


@pytest.mark.tried("models", "embeddings: NaN, zeros, base64, too few, of two lengths", "memory is searched by words")
@pytest.mark.parametrize("case", BAD)
async def test_an_answer_that_is_no_vectors_is_a_failure_of_the_server(server, model, case):
    server.answer = BAD[case]
    with pytest.raises(ModelError) as failed:
        await model.embed(["a", "b"], LABEL, within=20)
    assert failed.value.kind == "server"


async def test_a_server_that_has_failed_is_left_alone_until_the_pause_is_over(server, autojump_clock):
    models = service(server)
    model = models.embedder
    model.breaker.failed("503")
    with pytest.raises(ModelError, match="failed a moment ago: 503"):
        await model.embed(["tea"], LABEL, within=20)
    assert server.asked == []
    await trio.sleep(31)
    assert model.breaker.lets_through
    await models.aclose()


async def test_a_slow_server_costs_its_time_once(server, model):
    server.may_answer.clear()
    with pytest.raises(ModelError) as failed:
        await model.embed(["tea"], LABEL, within=0.2)
    assert failed.value.kind == "timeout"
    with trio.fail_after(0.2), pytest.raises(ModelError):
        await model.embed(["tea"], LABEL, within=0.2)
    assert len(server.asked) == 1
    server.may_answer.set()


async def test_a_budget_that_is_spent_refuses_the_call_and_the_breaker_stays_closed(server):
    models = service(server, BudgetSettings(daily_tokens=2))
    with pytest.raises(ModelError) as failed:
        await models.embedder.embed(["a long text about tea " * 20], LABEL, within=20)
    assert (failed.value.kind, models.embedder.breaker.state, server.asked) == ("budget", "closed", [])
    await models.aclose()


@pytest.mark.parametrize("embed", ["anthropic/claude-haiku-5-5", "nobody/x", "offline/stand-in"])
def test_a_provider_without_the_endpoint_is_refused_at_the_start(server, embed):
    with pytest.raises(ModelConfigError, match=r"models\.embed"):
        service(server, embed=embed)


# ------------------------------------------------------------------ for memory


async def test_no_secret_is_sent(server, model):
    embedder = MemoryEmbedder(lambda: model, KnownSecrets(["hunter2-hunter2"]).redact)
    key = "ghp_" + "a1B2" * 9
    [vector] = await embedder.embed([f"the token is hunter2-hunter2 and {key}"], 20)
    assert is_near(vector, vector_of(server.texts[0]))
    assert server.texts == ["the token is *** and ghp_***"]


async def test_a_text_that_is_refused_does_not_hold_up_the_others(server, model):
    def answer(texts):
        if any(len(text) > 50 for text in texts):
            return 400, b'{"error": {"message": "input is too long"}}'
        return [vector_of(text) for text in texts]

    server.answer = answer
    first, refused, last = await MemoryEmbedder(lambda: model, str).embed(["tea", "x" * 60, "cat"], 20)
    assert is_near(first, vector_of("tea"))
    assert refused == ()
    assert is_near(last, vector_of("cat"))


@pytest.mark.parametrize("answer", [(503, b"{}"), (401, b"{}"), (200, b"{}")])
async def test_a_server_that_does_not_work_is_none(server, model, answer, monkeypatch):
    monkeypatch.setattr("pegasus.models.endpoint_model.PAUSE", 0.01)
    server.answer = lambda texts: answer
    embedder = MemoryEmbedder(lambda: model, str)
    assert await embedder.embed(["tea", "cat"], 20) is None
    asked = len(server.asked)
    assert await embedder.embed(["tea"], 20) is None
    assert len(server.asked) == asked
