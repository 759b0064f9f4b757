from __future__ import annotations

import pytest

from pegasus.models.errors import event_status, one_line, provider_message, status_error

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
