"""JSON objects in lines. Server-sent events are in test_sse.py."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pegasus.models.providers.answer_reader import LineDecoder

STREAM = b'{"a":1}\n\n{"text":"\xc3\xa9"}\r\n {"b":2}\n'
LINES = [b'{"a":1}', b'{"text":"\xc3\xa9"}\r', b' {"b":2}']


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_it_does_not_matter_where_the_stream_is_cut(cuts: list[int]) -> None:
    decoder = LineDecoder()
    edges = [0, *sorted(cuts), len(STREAM)]
    assert [line for a, b in pairwise(edges) for line in decoder.feed(STREAM[a:b])] == LINES
    assert decoder.rest == b""


def test_a_line_without_its_end_is_kept_until_the_end() -> None:
    decoder = LineDecoder()
    assert decoder.feed(b'{"a":1}\n{"b"') == [b'{"a":1}']
    assert decoder.feed(b":2}") == []
    assert decoder.rest == b'{"b":2}'
    assert decoder.is_framed(decoder.rest)
    assert not decoder.is_framed(b"<html>")
    assert decoder.end() == [b'{"b":2}']
    assert decoder.end() == []
