"""Speech in and out against a server in OpenAI's format: what is sent, what comes back, and how calls fail."""

from random import Random

import openai
import pytest
import trio

from pegasus.models import Label, ModelError, ModelService, PriceList, UsageTracker
from pegasus.models.providers import ModelConfigError
from pegasus.settings import BudgetSettings, ModelSettings, ProviderSettings
from pegasus.testing.provider import open_provider, refuse
from pegasus.testing.provider.audio import heard, spoken

OGG = b"OggS\0\2" + bytes(range(256)) + b"\r\n--x\r\nOpusHead"
LABEL = Label("transcribe")


def service(server, budget=None, **models):
    tracker = UsageTracker(lambda: 1_772_020_800_000, Random(0), budget or BudgetSettings(), PriceList({}, {}))
    tracker.load(())
    settings = ModelSettings(
        transcribe="whisper/large", speech="whisper/tts", timeout=models.pop("timeout", 20.0), **models
    )
    providers = {"whisper": ProviderSettings(type="openai", api_key="k", base_url=server.openai_url)}
    return ModelService(settings, providers, rng=Random(0), usage=tracker)


async def test_a_recording_becomes_its_words_and_is_counted(monkeypatch):
    async with open_provider() as server:
        server.audio = lambda call: heard("Buy milk", {"type": "tokens", "input_tokens": 14, "output_tokens": 3})
        models = service(server)
        assert await models.audio("transcribe").transcribe(OGG, "audio/ogg", LABEL) == "Buy milk"
        [call] = server.audio_calls
        await models.aclose()
    assert (call.file, call.mime, call.fields["model"]) == (OGG, "audio/ogg", "large")
    [record] = models.usage.unsaved
    assert (record.model, record.role, record.prompt_tokens, record.completion_tokens) == (
        "whisper/large",
        "transcribe",
        14,
        3,
    )


async def test_a_text_becomes_a_recording():
    async with open_provider() as server:
        server.audio = lambda call: spoken(OGG)
        models = service(server)
        assert await models.audio("speech").speak("Hello", Label("speech"), voice="alloy") == OGG
        await models.aclose()
        assert server.audio_calls[0].fields == {
            "model": "tts",
            "input": "Hello",
            "voice": "alloy",
            "response_format": "opus",
        }
    assert models.usage.unsaved[0].estimated


async def test_the_server_of_the_tests_is_that_of_the_official_client():
    def both(server_url):
        client = openai.OpenAI(api_key="k", base_url=server_url, max_retries=0)
        text = client.audio.transcriptions.create(model="whisper-1", file=("a.ogg", OGG, "audio/ogg")).text
        audio = client.audio.speech.create(model="tts-1", voice="alloy", input="Hello", response_format="opus").read()
        return text, audio

    async with open_provider() as server:
        server.audio = lambda call: heard("Buy milk") if call.file is not None else spoken(OGG)
        with trio.fail_after(30):
            assert await trio.to_thread.run_sync(both, server.openai_url) == ("Buy milk", OGG)
        assert server.audio_calls[0].file == OGG


@pytest.mark.parametrize(
    ("answer", "kind", "calls"),
    [
        (refuse(401), "auth", 1),
        (refuse(400, "Invalid file format."), "request", 1),
        (refuse(503), "overloaded", 3),
        (spoken(b"<html>", "text/html"), "server", 1),
        (heard(None), "server", 1),
    ],
)
async def test_a_failure_is_told_in_words_and_only_a_passing_one_is_tried_again(monkeypatch, answer, kind, calls):
    monkeypatch.setattr("pegasus.models.endpoint_model.PAUSE", 0.01)
    async with open_provider() as server:
        server.audio = lambda call: answer
        models = service(server)
        with pytest.raises(ModelError) as failed:
            await models.audio("transcribe").transcribe(OGG, "audio/ogg", LABEL)
        assert (failed.value.kind, len(server.audio_calls)) == (kind, calls)
        assert models.usage.unsaved == []
        await models.aclose()


async def test_a_server_that_never_answers_costs_the_timeout():
    async def hang(call):
        await trio.sleep_forever()

    async with open_provider() as server:
        server.audio = hang
        models = service(server, timeout=0.2)
        with pytest.raises(ModelError, match=r"no answer within 0\.2 seconds"):
            await models.audio("transcribe").transcribe(OGG, "audio/ogg", LABEL)
        await server.until(lambda server: server.hung_up == 1)
        await models.aclose()


async def test_a_budget_that_is_spent_refuses_the_call():
    async with open_provider() as server:
        server.audio = lambda call: heard("x " * 600)
        models = service(server, BudgetSettings(daily_tokens=100))
        await models.audio("transcribe").transcribe(OGG, "audio/ogg", LABEL)
        with pytest.raises(ModelError) as refused:
            await models.audio("transcribe").transcribe(OGG, "audio/ogg", LABEL)
        assert refused.value.kind == "budget"
        assert len(server.audio_calls) == 1
        await models.aclose()


async def test_what_is_too_much_is_refused_before_anything_is_sent():
    async with open_provider() as server:
        models = service(server)
        with pytest.raises(ModelError, match="allowed: 26,214,400"):
            await models.audio("transcribe").transcribe(bytes(27 << 20), "audio/ogg", LABEL)
        with pytest.raises(ModelError, match="allowed: 4,096"):
            await models.audio("speech").speak("a" * 5000, Label("speech"), voice="alloy")
        assert server.count == 0
        await models.aclose()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("anthropic/claude", "models.transcribe: found"),
        ("whisper", "models.transcribe: found"),
        ("openai/whisper-1", "has no key"),
    ],
)
def test_a_setting_that_cannot_work_is_found_at_the_start(spec, words):
    providers = {"anthropic": ProviderSettings(api_key="k")}
    with pytest.raises(ModelConfigError, match=words):
        ModelService(ModelSettings(default="offline/stand-in", transcribe=spec), providers, rng=Random(0))
