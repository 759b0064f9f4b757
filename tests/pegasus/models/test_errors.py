from __future__ import annotations

import pytest

from pegasus.models.errors import one_line, status_error, unreachable_error
from pegasus.models.refusals import event_status, is_loading, is_out_of_quota, provider_message

KEY = "abcdefgh-secret-key"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "request"), (401, "auth"), (402, "request"), (403, "auth"), (404, "request"), (413, "overflow"),
        (422, "request"), (429, "overloaded"), (500, "server"), (502, "server"), (503, "overloaded"), (529, "overloaded"),
    ],
)  # fmt: skip
def test_each_status_has_its_kind(status: int, kind: str) -> None:
    error = status_error("p/m", status, {"error": {"message": "because"}})
    assert (error.kind, error.status) == (kind, status)
    assert str(error).startswith("p/m: ")
    assert "because" in str(error)


def test_a_refused_key_says_where_the_key_is_set() -> None:
    assert "[providers.corp]" in str(status_error("corp/m", 401, None))


def test_a_message_is_one_short_line_without_the_key() -> None:
    text = f"<html><style>x{{}}</style><b>Bad</b>\nkey {KEY} or sk-ant-api03-abc*** \x1b[31m" + "long " * 500
    line = one_line(text, (KEY,))
    assert line.startswith("Bad key … or … [31mlong")
    assert "\n" not in line
    assert len(line) <= 240


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"type": "error", "error": {"type": "x", "message": "m"}}, "m"),
        ({"message": "m", "code": None}, "m"),
        ({"error": "m"}, "m"),
        ({"detail": [{"msg": "m"}]}, "m"),
        ([{"error": {"message": "m"}}], "m"),
        ("m", "m"),
        (None, ""),
        ({"error": {}}, ""),
    ],
)
def test_the_providers_own_words_are_found(body: object, message: str) -> None:
    assert provider_message(body) == message


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"type": "overloaded_error"}, 529),
        ({"code": "rate_limit_exceeded"}, 429),
        ({"code": 503}, 503),
        ({"type": "never heard of"}, 500),
        ("text", 500),
    ],
)
def test_an_error_inside_a_stream_has_the_status_it_would_have_had(error: object, status: int) -> None:
    assert event_status(error) == status


def test_a_server_that_is_not_there_is_named_with_what_to_do() -> None:
    refused = ExceptionGroup("multiple connection attempts failed", [ConnectionRefusedError(111, "Connection refused")])
    cause = OSError("all attempts to connect to localhost:11434 failed")
    cause.__cause__ = refused
    assert str(unreachable_error("ollama/qwen3:8b", "ollama", "http://localhost:11434/v1/", cause)) == (
        "ollama/qwen3:8b: Ollama does not answer at localhost:11434. Is it running? (`ollama serve`)"
    )
    text = str(unreachable_error("lab/x", "openai", "http://user:secret@10.0.0.5:8000/v1", cause))
    assert "cannot connect to 10.0.0.5:8000 ([Errno 111] Connection refused)" in text
    assert "[providers.lab]" in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "API key expired. Please renew the API key."),  # Gemini
        (400, "API key not valid. Please pass a valid API key."),
        (401, "invalid x-api-key"),
    ],
)
def test_an_expired_key_says_where_to_put_a_new_one(status: int, message: str) -> None:
    error = status_error("gemini/x", status, {"error": {"message": message}}, key_name="GEMINI_API_KEY")
    assert error.kind == "auth"
    assert str(error) == (
        f"gemini/x: the provider refused the key ({status}): {message} "
        "[it may be wrong or expired: check GEMINI_API_KEY or api_key of [providers.gemini]]"
    )


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, "model: claude-sonnet-9"),  # Anthropic
        (404, "The model `gpt-99` does not exist or you do not have access to it."),  # OpenAI, vLLM, Groq, xAI
        (404, 'model "qwen3:900b" not found, try pulling it first'),  # Ollama
        (404, "models/gemini-99 is not found for API version v1beta, or is not supported for generateContent."),
        (400, "foo/bar is not a valid model ID"),  # OpenRouter
        (400, "Invalid model: mistral-99"),
        (400, "Model Not Exist"),  # DeepSeek
    ],
)
def test_an_unknown_model_is_named(status: int, message: str) -> None:
    error = status_error("lab/some-model", status, {"error": {"message": message}})
    assert error.kind == "request"
    assert f"the provider has no model some-model ({status})" in str(error)
    assert "[choose another one with `/model`" in str(error)


def test_a_model_that_ollama_has_not_got_can_be_pulled() -> None:
    error = status_error("ollama/qwen3:8b", 404, {"error": "model 'qwen3:8b' not found"})
    assert str(error).endswith("[choose another one with `/model`; `ollama pull qwen3:8b` gets it]")


@pytest.mark.parametrize(
    "message", ["the model does not support tools", "max_tokens is too large for this model", "registry not found"]
)
def test_other_refusals_are_not_about_the_models_name(message: str) -> None:
    assert "has no model" not in str(status_error("lab/x", 400, {"error": {"message": message}}))


def test_a_used_up_quota_is_told_apart_from_a_rate() -> None:
    body = {"error": {"message": "check your plan", "type": "insufficient_quota", "code": "credit_balance_exhausted"}}
    assert is_out_of_quota(body)
    assert not is_out_of_quota({"error": {"message": "slow down", "type": "rate_limit_exceeded"}})
    assert "your account's quota is used up (429): check your plan" in str(status_error("openai/x", 429, body))


def test_a_server_that_is_loading_is_not_overloaded() -> None:
    body = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
    assert is_loading(503, body)
    assert not is_loading(500, {"error": "error loading model: out of memory"})
