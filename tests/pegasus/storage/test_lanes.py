"""Whose turn it is: priorities, ageing, what is handed out, and what waits of an address."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pegasus.messages import Address
from pegasus.storage.lanes import AGEING, MAIN, Lane, QueuedItem
from pegasus.storage.volume import Span

ANN, BOB = Address("web", "ann"), Address("web", "bob")


def item(n, priority=0, address=ANN, lane=MAIN):
    return QueuedItem(n, lane, priority, address, n, None, Span(0, 1))


def lane_of(*items):
    lane = Lane()
    for one in items:
        lane.add(one)
    return lane


def drained(lane):
    """The numbers in the order in which they are handed out and done."""
    order = []
    while pending := lane.due():
        order.append(pending.n)
        lane.remove(pending)
    return order


def numbers(*found):
    return [None if pending is None else pending.n for pending in found]


def test_a_lower_priority_goes_first_and_the_oldest_within_a_rank():
    lane = lane_of(item(1, 2), item(2, 1), item(3, 0), item(4, 1), item(5, 0))
    assert drained(lane) == [3, 5, 2, 4, 1]


def test_in_other_lanes_the_oldest_goes_first():
    assert drained(lane_of(item(1, 2, lane="control"), item(2, 0, lane="control"))) == [1, 2]


def test_nobody_starves():
    """However many urgent ones come, a less urgent one is passed by so many of them only."""
    lane = lane_of(item(1, priority=2), item(2))
    passed = 0
    for n in range(3, 10_000):
        pending = lane.due()
        lane.remove(pending)
        if pending.n == 1:
            break
        passed += 1
        lane.add(item(n))
    assert passed == 2 * AGEING - 1


def test_what_is_handed_out_is_due_before_all_others():
    lane = lane_of(item(1), item(2))
    lane.hand_out(lane.due())
    lane.hand_out(lane.get(2))
    lane.add(item(3))
    assert drained(lane) == [1, 2, 3]


def test_several_handed_out_are_due_in_that_order():
    lane = lane_of(item(1), item(2), item(3))
    for n in (2, 1):
        lane.hand_out(lane.get(n))
    assert drained(lane) == [2, 1, 3]


def test_a_preferred_item_is_due_until_it_is_done():
    lane = lane_of(item(1), item(2, 9))
    lane.hand_out(lane.get(1))
    preferred = lane.due(2)
    assert preferred.n == 2
    lane.remove(preferred)
    assert lane.due(2).n == 1


def test_handed_out_again_is_another_attempt():
    lane = lane_of(item(1))
    for _ in range(3):
        lane.hand_out(lane.due())
    assert lane.due().attempts == 3


def test_the_oldest_of_an_address_is_shown_until_it_is_handed_out():
    lane = lane_of(item(1), item(2, address=BOB), item(3), item(4))
    assert numbers(lane.oldest_of(ANN, 0), lane.oldest_of(ANN, 1), lane.oldest_of(BOB, 0)) == [1, 3, 2]
    lane.hand_out(lane.get(1))
    lane.remove(lane.get(3))
    assert numbers(lane.oldest_of(ANN, 0), lane.oldest_of(ANN, 4), lane.oldest_of(Address("x", "y"), 0)) == [
        4,
        None,
        None,
    ]


def test_a_number_that_is_used_again_is_another_item():
    """A refused write gives its number back; the one that gets it may have another priority."""
    lane = lane_of(item(1, 5))
    lane.remove(lane.get(1))
    for one in (item(1, 0), item(2, 1)):
        lane.add(one)
    assert drained(lane) == [1, 2]


class Naive:
    """The same by sorting everything each time."""

    def __init__(self):
        self.items, self.handed = [], []

    def due(self, prefer):
        if any(one.n == prefer for one in self.items):
            return prefer
        if self.handed:
            return self.handed[0]
        return min(((one.n + one.priority * AGEING, one.n) for one in self.items), default=(0, None))[1]

    def oldest_of(self, address, after):
        waiting = [one.n for one in self.items if one.address == address and one.n > after]
        return min((n for n in waiting if n not in self.handed), default=None)


priorities = st.integers(0, 3)
addresses = st.sampled_from([ANN, BOB])
some = st.integers(1, 40)
steps = st.one_of(
    st.tuples(st.just("add"), priorities, addresses, st.sampled_from([1, AGEING // 2])),
    st.tuples(st.just("add"), priorities, addresses, st.just(1)),
    st.tuples(st.just("hand out"), some),
    st.tuples(st.just("remove"), some),
    st.tuples(st.just("remove due")),
)


@given(st.lists(steps, max_size=60), st.integers(1, 300), st.integers(1, 300))
def test_a_lane_is_what_sorting_everything_says(script, prefer, after):
    lane, naive, last = Lane(), Naive(), 0
    for step, *args in script:
        if step == "add":
            priority, address, gap = args
            last += gap
            one = item(last, priority, address)
            lane.add(one)
            naive.items.append(one)
        else:
            if not naive.items:
                continue
            found = lane.due() if step == "remove due" else naive.items[args[0] % len(naive.items)]
            if step == "hand out":
                lane.hand_out(found)
                naive.handed += [] if found.n in naive.handed else [found.n]
            else:
                lane.remove(found)
                naive.items.remove(found)
                naive.handed = [n for n in naive.handed if n != found.n]
        assert numbers(lane.due(), lane.due(prefer)) == [naive.due(None), naive.due(prefer)]
        for address in (ANN, BOB):
            assert numbers(lane.oldest_of(address, after)) == [naive.oldest_of(address, after)]
        assert len(lane) == len(naive.items)
    assert len(drained(lane)) == len(naive.items)
