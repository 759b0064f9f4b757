from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pegasus.models.providers.answer_reader import EventDecoder

STREAM = (
    b': a comment\n\nevent: message_start\ndata: {"a":1}\n\n'
    b"data: first\ndata: second\nid: 7\nretry: 10\n\ndata:[DONE]\n\n"
)
EVENTS = [b'{"a":1}', b"first\nsecond", b"[DONE]"]


def decode(chunks: list[bytes]) -> list[bytes]:
    decoder = EventDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def test_events_come_with_their_joined_data() -> None:
    assert decode([STREAM]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=8), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_it_does_not_matter_where_the_stream_is_cut_or_how_lines_end(cuts: list[int], line_end: bytes) -> None:
    stream = STREAM.replace(b"\n", line_end) + b": the end\n"
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
