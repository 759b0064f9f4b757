"""Framing of streamed answers: server-sent events, and JSON objects in lines."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pegasus.models.providers.http_model import EventDecoder, LineDecoder

# ------------------------------------------------------------------ server-sent events

EVENT_STREAM = (
    b': a comment\n\nevent: message_start\ndata: {"a":1}\n\n'
    b"data: first\ndata: second\nid: 7\nretry: 10\n\ndata:[DONE]\n\n"
)
EVENTS = [b'{"a":1}', b"first\nsecond", b"[DONE]"]


def decode(chunks: list[bytes]) -> list[bytes]:
    decoder = EventDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def test_events_come_with_their_joined_data() -> None:
    assert decode([EVENT_STREAM]) == EVENTS


@given(st.lists(st.integers(0, len(EVENT_STREAM)), max_size=8), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_it_does_not_matter_where_the_stream_is_cut_or_how_lines_end(cuts: list[int], line_end: bytes) -> None:
    stream = EVENT_STREAM.replace(b"\n", line_end) + b": the end\n"
    edges = [0, *sorted(cuts), len(stream)]
    assert decode([stream[a:b] for a, b in pairwise(edges)]) == EVENTS


def test_an_event_without_its_empty_line_is_kept_back() -> None:
    decoder = EventDecoder()
    assert decoder.feed(b"data: 1\n\ndata: 2") == [b"1"]
    assert decoder.rest == b"data: 2"


def test_a_huge_event_in_small_pieces_is_not_copied_for_each_piece() -> None:
    """Sixteen megabytes in 4 kB pieces: copied each time, it would be 32 gigabytes."""
    decoder = EventDecoder()
    assert decoder.feed(b"data: ") == []
    for _ in range(4096):
        assert decoder.feed(b"x" * 4096) == []
    (data,) = decoder.feed(b"\n\n")
    assert len(data) == 4096 * 4096


# ------------------------------------------------------------------ JSON objects in lines

LINE_STREAM = b'{"a":1}\n\n{"text":"\xc3\xa9"}\r\n {"b":2}\n'
LINES = [b'{"a":1}', b'{"text":"\xc3\xa9"}\r', b' {"b":2}']


@given(st.lists(st.integers(0, len(LINE_STREAM)), max_size=8))
def test_it_does_not_matter_where_a_stream_of_lines_is_cut(cuts: list[int]) -> None:
    decoder = LineDecoder()
    edges = [0, *sorted(cuts), len(LINE_STREAM)]
    assert [line for a, b in pairwise(edges) for line in decoder.feed(LINE_STREAM[a:b])] == LINES
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
