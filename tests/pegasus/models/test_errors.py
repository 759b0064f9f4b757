from __future__ import annotations

import pytest

from pegasus.models.errors import event_status, one_line, provider_message, status_error, unreachable_error

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
