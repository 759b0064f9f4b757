import pytest

from pegasus.wording import count, span


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (59, "59 s"), (90, "1.5 min"), (7200, "2.0 h"), (1e6, "11.6 d")],
)
def test_spans(seconds, words):
    assert span(seconds) == words


@pytest.mark.parametrize(("n", "words"), [(0, "0 entries"), (1, "1 entry"), (2, "2 entries"), (1204, "1,204 entries")])
def test_counts(n, words):
    assert count(n, "entry", "entries") == words
