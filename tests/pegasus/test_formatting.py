import time

import pytest

from pegasus.formatting import code_fence, format_duration, format_time, plural, quote, truncate


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (59, "59 s"),
        (90, "1.5 min"),
        (7200, "2.0 h"),
        (1e6, "11.6 d"),
        (59.7, "1.0 min"),
        (3599.9, "1.0 h"),
        (86399, "1.0 d"),
        (3590, "59.8 min"),
    ],
)
def test_spans(seconds, words):
    assert format_duration(seconds) == words


@pytest.mark.parametrize(("n", "words"), [(0, "0 entries"), (1, "1 entry"), (2, "2 entries"), (1204, "1,204 entries")])
def test_counts(n, words):
    assert plural(n, "entry", "entries") == words


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (1_772_029_800_999, "2026-02-25 14:30:00"),
        (-1, "1970-01-01 00:00:00"),
        (2**70, "9999-12-31 23:59:59"),
    ],
)
def test_times(ms, words):
    assert format_time(ms) == words


def test_a_time_where_one_lives(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert format_time(1_772_029_800_999, local=True) == "2026-02-25 23:30:00"
        assert format_time(2**70, local=True).startswith("10000-01-01 08:59")
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("text", "words"), [(" a\n b ", "a b"), ("abc def", "abc …"), ("abcde", "abcde")])
def test_excerpts(text, words):
    assert truncate(text, 5) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("loud", '"loud"'),
        ("a b\nc", '"a b c"'),
        ("gr\xfc\xdfe", '"gr\xfc\xdfe"'),
        ("a\x1b[31m\ud800", '"a\\x1b[31m\\ud800"'),
        ("x" * 100, f'"{"x" * 59}…"'),
        (3.5, "3.5"),
        (None, "None"),
        ([1] * 100, f"[{'1, ' * 19}1…"),
    ],
)
def test_what_was_found_is_one_short_line_with_double_quotes_around_texts(value, words):
    assert quote(value) == words


@pytest.mark.parametrize(("text", "length"), [("", 3), ("a `b`", 3), ("```\nx\n```", 4), ("```` ``", 5)])
def test_a_fence_is_longer_than_any_in_its_text(text, length):
    assert code_fence(text) == "`" * length


def test_a_fence_around_very_many_backticks_is_found_by_one_look():
    begun = time.process_time()
    assert code_fence("`" * 700_000) == "`" * 700_001
    assert time.process_time() - begun < 2
