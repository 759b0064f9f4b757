"""Many requests as few pieces, without changing any order that counts."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pegasus.storage.disk import Batch


def pieces(*requests):
    """The pieces step by step, for requests of appends in order."""
    batch = Batch()
    for request in requests:
        batch.add(request)
    assert all(len({path for path, _ in step}) == len(step) for step in batch.steps()), "different files in a step"
    return [piece for step in batch.steps() for piece in step]


def steps(*requests):
    """Like `pieces`, for requests of appends in order and appends together."""
    batch = Batch()
    for appends, together in requests:
        batch.add(appends, together)
    return batch.steps()


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


def test_files_whose_order_does_not_matter_are_one_step():
    request = [("x", b"1")], [("y", b"2"), ("z", b"3")]
    assert steps(request) == [[("x", b"1")], [("y", b"2"), ("z", b"3")]]
    assert steps(request, ([], [("v", b"4"), ("y", b"5")])) == [[("x", b"1"), ("v", b"4")], [("y", b"25"), ("z", b"3")]]


def test_files_of_different_requests_share_a_step_as_far_as_each_keeps_its_order():
    chats = [([(f"chat{n}", b"s"), (f"index{n}", b"i")], []) for n in range(100)]
    assert [len(step) for step in steps(*chats)] == [100, 100]
    assert steps(([("x", b"1"), ("y", b"2")], []), ([("y", b"3")], []), ([("z", b"4")], [])) == [
        [("x", b"1"), ("z", b"4")],
        [("y", b"23")],
    ]


def test_what_must_be_in_order_is_not_in_one_step():
    """Also if the files are in one already, for a request that does not mind."""
    both = [], [("x", b"1"), ("y", b"2")]
    assert steps(both, ([("x", b"3"), ("y", b"4")], [])) == [[("x", b"13"), ("y", b"2")], [("y", b"4")]]
    assert steps(both, ([("y", b"3")], [("y", b"4"), ("x", b"5")])) == [
        [("x", b"1"), ("y", b"23")],
        [("y", b"4"), ("x", b"5")],
    ]


appends = st.lists(st.tuples(st.sampled_from("abc"), st.just(b"")), max_size=4)


@given(st.lists(st.tuples(appends, appends), max_size=6))
def test_with_files_together_the_order_of_files_and_of_what_must_be_in_order_is_kept(some):
    marked = [
        [[(path, bytes([r, i])) for i, (path, _) in enumerate(part, 10 * k)] for k, part in enumerate(request)]
        for r, request in enumerate(some)
    ]
    result = steps(*marked)
    place = {
        data[k : k + 2]: (n, path)
        for n, step in enumerate(result)
        for path, data in step
        for k in range(0, len(data), 2)
    }
    assert place.keys() == {data for request in marked for part in request for _, data in part}
    for appends, together in marked:
        ordered = [place[data] for _, data in appends]
        assert all(a < b or (a == b and p == q) for (a, p), (b, q) in pairwise(ordered))
        for _, data in together:
            assert not ordered or place[data][0] > ordered[-1][0] or place[data] == ordered[-1]
    for file in "abc":
        given_order = [data for request in marked for part in request for path, data in part if path == file]
        assert b"".join(given_order) == b"".join(data for step in result for path, data in step if path == file)


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
