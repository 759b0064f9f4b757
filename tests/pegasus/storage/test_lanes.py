"""Whose turn it is: priorities, ageing, what is handed out, and what waits of an address."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pegasus.messages import Address, ChannelInfo, InboundMessage
from pegasus.storage.directory import Directory
from pegasus.storage.inbox import InboxLog
from pegasus.storage.inbox_messages import Overloaded
from pegasus.storage.item_queue import AGEING, MAIN, OWNERS_IN_A_ROW

from .conftest import AT

ANN, BOB = Address("web", "ann"), Address("web", "bob")


class Lane:
    """One lane of an inbox whose writes always succeed."""

    def __init__(self, name=MAIN):
        self.name = name
        self.log = InboxLog(Directory())

    def add(self, n, priority=0, address=ANN, **more):
        self.log.start_numbers_after(n - 1)
        assert self.accept(n, priority, address, **more).n == n

    def accept(self, n, priority, address, **more):
        message = InboundMessage("", ChannelInfo(address.type, address.channel_id), f"{n}")
        answer = self.log.accept(message, self.name, AT, priority, **more)
        self.log.written(0)
        return answer

    def due(self):
        return self.log.queue.due(self.name)

    def get(self, n):
        return self.log.queue.item(n)

    def remove(self, n):
        self.log.done(n)

    def hand_out(self, n):
        self.log.queue.hand_out(self.log.queue.item(n))

    def oldest_of(self, address, after):
        return self.log.queue.newer(address, after)


def lane_of(*items, name=MAIN):
    lane = Lane(name)
    for item in items:
        lane.add(*item)
    return lane


def drained(lane):
    """The numbers in the order in which they are handed out and done."""
    order = []
    while pending := lane.due():
        order.append(pending.n)
        lane.remove(pending.n)
    return order


def numbers(*found):
    return [None if pending is None else pending.n for pending in found]


def test_a_lower_priority_goes_first_and_the_oldest_within_a_rank():
    lane = lane_of((1, 2), (2, 1), (3, 0), (4, 1), (5, 0))
    assert drained(lane) == [3, 5, 2, 4, 1]


def test_in_other_lanes_owners_go_first_and_then_the_oldest():
    assert drained(lane_of((1, 2), (2, 1), (3, 0), name="control")) == [3, 1, 2]


def test_a_flood_of_others_does_not_keep_an_owner_waiting():
    lane = lane_of(*((n, 1) for n in range(1, 1001)), (1001,), (1002,))
    assert drained(lane)[:3] == [1001, 1002, 1]


def test_work_for_an_owner_goes_before_a_flood_of_others():
    lane = lane_of(*((n, 1) for n in range(1, 501)))
    lane.add(501, 2, owner=True)
    lane.add(502)
    assert drained(lane)[:3] == [502, 501, 1]


def test_a_sender_may_have_so_many_waiting_and_others_have_their_own():
    lane = lane_of()
    answers = [
        lane.accept(n, 1, address, max_of_sender=3) for n, address in enumerate([ANN, ANN, BOB, ANN, ANN, BOB], start=1)
    ]
    assert [isinstance(answer, Overloaded) for answer in answers] == [False, False, False, False, True, False]
    assert answers[4] == Overloaded(3, of_sender=True)
    lane.remove(1)
    assert lane.accept(9, 1, ANN, max_of_sender=3).n


def test_nobody_starves():
    """However many urgent ones come, a less urgent one is passed by so many of them only."""
    assert passes(lane_of((1, 2), (2, 1)), 1) == AGEING - 1


def test_a_busy_owner_keeps_nobody_out():
    assert passes(lane_of((1, 2), (2,)), 0) == OWNERS_IN_A_ROW


def passes(lane, priority):
    """How many items of this priority pass the first item, while one comes for each that is done."""
    passed = 0
    for n in range(3, 10_000):
        pending = lane.due()
        lane.hand_out(pending.n)
        lane.remove(pending.n)
        if pending.n == 1:
            break
        passed += 1
        lane.add(n, priority)
    return passed


def test_what_is_handed_out_is_due_before_all_others():
    lane = lane_of((1,), (2,))
    lane.hand_out(1)
    lane.hand_out(2)
    lane.add(3)
    assert drained(lane) == [1, 2, 3]


def test_several_handed_out_are_due_in_that_order():
    lane = lane_of((1,), (2,), (3,))
    for n in (2, 1, 2):
        lane.hand_out(n)
    assert drained(lane) == [2, 1, 3]


def test_handed_out_again_is_another_attempt():
    lane = lane_of((1,))
    for _ in range(3):
        lane.hand_out(1)
    assert lane.due().attempts == 3


def test_the_oldest_of_an_address_is_shown_until_it_is_handed_out():
    lane = lane_of((1,), (2, 0, BOB), (3,), (4,))
    assert numbers(lane.oldest_of(ANN, 0), lane.oldest_of(ANN, 1), lane.oldest_of(BOB, 0)) == [1, 3, 2]
    lane.hand_out(1)
    lane.remove(3)
    assert numbers(lane.oldest_of(ANN, 0), lane.oldest_of(ANN, 4), lane.oldest_of(Address("x", "y"), 0)) == [
        4,
        None,
        None,
    ]


class Naive:
    """The same by sorting (number, priority, address) each time."""

    def __init__(self):
        self.items, self.handed, self.in_a_row = [], [], 0

    def due(self):
        if self.handed:
            return self.handed[0]
        owners = [n for n, priority, _ in self.items if not priority]
        others = [(n + priority * AGEING, n) for n, priority, _ in self.items if priority]
        if owners and (self.in_a_row < OWNERS_IN_A_ROW or not others):
            return min(owners)
        return min(others, default=(0, None))[1]

    def hand_out(self, number):
        if number not in self.handed:
            self.handed.append(number)
            is_owners = any(n == number and not priority for n, priority, _ in self.items)
            self.in_a_row = self.in_a_row + 1 if is_owners else 0

    def oldest_of(self, address, after):
        waiting = [n for n, _, other in self.items if other == address and n > after]
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


@given(st.lists(steps, max_size=60), st.integers(1, 300))
def test_a_lane_is_what_sorting_everything_says(script, after):
    lane, naive, last = Lane(), Naive(), 0
    for step, *args in script:
        if step == "add":
            priority, address, gap = args
            last += gap
            lane.add(last, priority, address)
            naive.items.append((last, priority, address))
        else:
            if not naive.items:
                continue
            found = lane.due().n if step == "remove due" else naive.items[args[0] % len(naive.items)][0]
            if step == "hand out":
                lane.hand_out(found)
                naive.hand_out(found)
            else:
                lane.remove(found)
                naive.items = [item for item in naive.items if item[0] != found]
                naive.handed = [n for n in naive.handed if n != found]
        assert numbers(lane.due()) == [naive.due()]
        for address in (ANN, BOB):
            assert numbers(lane.oldest_of(address, after)) == [naive.oldest_of(address, after)]
        assert lane.log.queue.count_waiting() == len(naive.items)
    assert len(drained(lane)) == len(naive.items)
