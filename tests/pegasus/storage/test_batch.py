"""Many requests as few pieces, without changing any order that counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pegasus.storage.journal import Batch


def pieces(*requests):
    batch = Batch()
    for request in requests:
        batch.add(request)
    return batch.pieces()


def test_many_appends_to_one_file_are_one_piece():
    assert pieces(*([("x", b"%d" % n)] for n in range(5))) == [("x", b"01234")]


def test_requests_over_the_same_files_in_the_same_order_share_their_pieces():
    assert pieces([("x", b"1"), ("y", b"2")], [("x", b"3"), ("y", b"4")]) == [("x", b"13"), ("y", b"24")]


def test_a_request_in_the_other_order_gets_a_new_piece():
    assert pieces([("x", b"1"), ("y", b"2")], [("y", b"3"), ("x", b"4")]) == [("x", b"1"), ("y", b"23"), ("x", b"4")]


def test_a_request_may_come_back_to_a_file():
    assert pieces([("x", b"1"), ("y", b"2"), ("x", b"3")]) == [("x", b"1"), ("y", b"2"), ("x", b"3")]


def test_nothing_is_nothing():
    assert pieces() == pieces([]) == []


requests = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 255).map(lambda n: bytes([n]))), max_size=4), max_size=6
)


@given(requests)
def test_within_a_request_and_within_a_file_the_order_is_kept(some):
    marked = [[(path, bytes([r, i])) for i, (path, _) in enumerate(request)] for r, request in enumerate(some)]
    result = pieces(*marked)
    flat = [(path, data[k : k + 2]) for path, data in result for k in range(0, len(data), 2)]
    assert sorted(flat) == sorted(append for request in marked for append in request)
    for request in marked:
        assert [append for append in flat if append in request] == request
    for path in "abc":
        given_order = [append for request in marked for append in request if append[0] == path]
        assert [append for append in flat if append[0] == path] == given_order


@given(st.lists(st.permutations(["a", "b", "c"]).map(sorted), min_size=1, max_size=10))
def test_one_piece_per_file_as_a_rule(orders):
    assert len(pieces(*([(path, b"x") for path in order] for order in orders))) == 3
