"""When a log is rewritten, and from which pieces."""

from __future__ import annotations

import pytest

from pegasus.storage.directory import Directory
from pegasus.storage.inbox import InboxLog
from pegasus.storage.record_log import SMALL, in_pieces, merge_spans
from pegasus.storage.volume import Span


@pytest.mark.parametrize(
    ("size", "live", "considered", "expected"),
    [
        (SMALL, 0, 0, False),
        (SMALL + 1, 0, 0, True),
        (3 * SMALL, SMALL, 0, True),
        (3 * SMALL, 2 * SMALL, 0, False),
        (3 * SMALL, 0, 2 * SMALL, False),
        (3 * SMALL + 1, 0, 2 * SMALL, True),
    ],
)
def test_a_log_is_rewritten_when_it_is_large_mostly_dead_and_has_grown(monkeypatch, size, live, considered, expected):
    log = InboxLog(Directory())
    monkeypatch.setattr(InboxLog, "live_bytes", live)
    log.size = considered
    log.note_rewrite()
    log.size = size
    assert log.should_rewrite() is expected


def test_neighbouring_spans_become_one():
    spans = [Span(0, 3), Span(3, 4), Span(8, 1), Span(9, 1), Span(5, 2)]
    assert merge_spans(spans) == [Span(0, 7), Span(8, 2), Span(5, 2)]
    assert merge_spans([]) == []


def test_long_lists_are_cut_into_pieces():
    assert [len(piece) for piece in in_pieces(range(2_500))] == [1000, 1000, 500]
    assert list(in_pieces([])) == []
