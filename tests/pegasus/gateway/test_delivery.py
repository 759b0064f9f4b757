"""The cursor: every reply once, in order, whatever way and whenever it comes. Routes: to whom."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pegasus.gateway.reply_feed import MAX_KEPT, Cursor, PushAction, Routes
from pegasus.messages import ChannelInfo
from pegasus.protocol import ClientChannel


def offer(cursor, seq):
    """Push a reply whose frame is called after its number."""
    return cursor.offer(seq, f"r{seq}")


def test_the_next_reply_is_sent():
    cursor = Cursor(3)
    assert (offer(cursor, 4), cursor.sent) == (PushAction.SEND, 4)


def test_a_reply_that_was_sent_is_skipped():
    assert offer(Cursor(3), 3) is PushAction.SKIP


def test_a_gap_is_read_from_the_journal_and_the_reply_behind_it_follows():
    cursor = Cursor(3)
    assert offer(cursor, 6) is PushAction.READ
    assert offer(cursor, 7) is PushAction.SKIP  # kept aside
    assert [cursor.take(seq) for seq in (4, 5, 6)] == [True, True, True]
    assert cursor.next_kept(7) == "r7"
    assert cursor.next_kept(7) is None
    cursor.finish_reading(7)
    assert offer(cursor, 8) is PushAction.SEND


def test_a_gap_that_stays_was_acknowledged_by_somebody_else():
    cursor = Cursor(3)
    offer(cursor, 6)
    assert cursor.next_kept(6) == "r6"
    cursor.finish_reading(6)
    assert offer(cursor, 7) is PushAction.SEND


def test_a_push_behind_one_that_was_never_seen_makes_the_journal_be_read_again():
    cursor = Cursor(8, is_reading=True)
    offer(cursor, 10)
    assert cursor.next_kept(8) is None
    assert cursor.must_read_again()
    assert cursor.take(9)
    assert cursor.next_kept(10) == "r10"


def test_what_was_missed_while_the_journal_is_read_makes_it_be_read_again():
    cursor = Cursor(3)
    assert cursor.note_gap()
    assert not cursor.must_read_again()
    assert not cursor.note_gap()
    assert cursor.must_read_again()


def test_when_too_many_are_kept_aside_the_journal_is_read_again():
    cursor = Cursor(0, is_reading=True)
    for seq in range(1, MAX_KEPT + 2):
        offer(cursor, seq)
    assert cursor.must_read_again()
    assert not cursor.must_read_again()


def test_a_frame_goes_at_once_when_the_replies_before_it_went():
    assert Cursor(5).hold(5, "frame") is PushAction.SEND


def test_a_frame_waits_for_the_replies_before_it():
    cursor = Cursor(5)
    assert cursor.hold(6, "frame") is PushAction.READ
    assert cursor.take(6)
    assert cursor.finish_reading(6) == ["frame"]


def test_a_later_frame_waits_behind_one_that_waits():
    cursor = Cursor(5, is_reading=True)
    cursor.hold(6, "ended")
    assert cursor.hold(0, "began") is PushAction.SKIP
    assert cursor.finish_reading(6) == ["ended", "began"]


class ManyWays(RuleBasedStateMachine):
    """A journal, and pushes that come late or twice, against what the client sees."""

    @initialize(acknowledged=st.integers(0, 3), waiting=st.integers(0, 5))
    def hello(self, acknowledged, waiting):
        self.last = self.at_hello = acknowledged + waiting
        self.acknowledged = acknowledged
        self.pushed = []  # made, not yet offered
        self.seen = []
        self.owed_from = acknowledged
        self.cursor = Cursor(0, is_reading=True)
        self.reading = True
        self.page = None

    @rule()
    def the_agent_says_something(self):
        self.last += 1
        self.pushed.append(self.last)

    @precondition(lambda self: self.pushed)
    @rule()
    def a_push_arrives(self):
        seq = self.pushed.pop(0)
        decision = offer(self.cursor, seq)
        if decision is PushAction.SEND:
            self.seen.append(seq)
        self.reading = self.reading or decision is PushAction.READ

    @precondition(lambda self: self.last)
    @rule(data=st.data())
    def the_switchboard_starts_again(self, data):
        first = data.draw(st.integers(1, self.last))
        self.pushed = list(range(first, self.last + 1))
        self.reading = self.cursor.note_gap() or self.reading

    @rule()
    def pushes_get_lost(self):
        self.pushed = []
        self.reading = self.cursor.note_gap() or self.reading

    @precondition(lambda self: self.reading and self.page is None)
    @rule()
    def the_journal_is_read(self):
        self.page = (self.last, list(range(self.acknowledged + 1, self.last + 1)))

    @precondition(lambda self: self.page is not None)
    @rule()
    def what_was_read_is_sent(self):
        last, seqs = self.page
        self.page = None
        self.seen += [seq for seq in seqs if self.cursor.take(seq)]
        self.cursor.skip_to(self.at_hello)
        while (message := self.cursor.next_kept(last)) is not None:
            self.seen.append(int(message[1:]))
        if not self.cursor.must_read_again():
            self.cursor.finish_reading(last)
            self.reading = False

    @precondition(lambda self: self.seen)
    @rule()
    def the_client_acknowledges(self):
        self.acknowledged = max(self.acknowledged, self.seen[-1])

    @invariant()
    def each_comes_once_in_order_without_gaps(self):
        if hasattr(self, "seen"):
            assert self.seen == list(range(self.owed_from + 1, self.owed_from + 1 + len(self.seen)))

    def teardown(self):
        if not hasattr(self, "seen"):
            return
        while self.pushed:
            self.a_push_arrives()
        if self.page is not None:
            self.what_was_read_is_sent()
        while self.reading:
            self.the_journal_is_read()
            self.what_was_read_is_sent()
        assert self.seen == list(range(self.owed_from + 1, self.last + 1))


TestManyWays = ManyWays.TestCase


@given(st.lists(st.integers(1, 20), max_size=30))
def test_nothing_is_ever_sent_twice(seqs):
    cursor = Cursor(0)
    sent = []
    for seq in seqs:
        if offer(cursor, seq) is PushAction.SEND:
            sent.append(seq)
        if cursor.is_reading:
            while (message := cursor.next_kept(20)) is not None:
                sent.append(int(message[1:]))
            cursor.finish_reading(cursor.sent)
    assert sent == sorted(set(sent))


# ------------------------------------------------------------------ routes


def feed(channel_id):
    """A feed as far as the routes look at it."""
    return SimpleNamespace(channel=ClientChannel("web", channel_id))


def routes_of(*feeds):
    routes = Routes()
    for each in feeds:
        routes.add(each)
    return routes


def test_all_clients_of_an_address_get_its_replies():
    first, second = feed("c1"), feed("c1")
    assert list(routes_of(first, second, feed("c2")).recipients("web", "c1")) == [first, second]


def test_a_bridge_gets_what_has_no_client_of_its_own():
    bridge, client = feed(None), feed("c1")
    routes = routes_of(bridge, client)
    assert list(routes.recipients("web", "c1")) == [client]
    assert list(routes.recipients("web", "c2")) == [bridge]
    assert list(routes.recipients("irc", "c1")) == []
    assert routes.has_own_client(ChannelInfo("web", "c1", "u1"))
    assert not routes.has_own_client(ChannelInfo("web", "c2"))


def test_when_the_last_client_of_an_address_goes_it_falls_to_the_bridges():
    bridge, first, second = feed(None), feed("c1"), feed("c1")
    routes = routes_of(bridge, first, second)
    assert list(routes.remove(first)) == []
    assert list(routes.remove(second)) == [bridge]
    assert list(routes.recipients("web", "c1")) == [bridge]


def test_nothing_stays_behind():
    feeds = [feed(None), feed("c1")]
    routes = routes_of(*feeds)
    assert list(routes.all()) == feeds
    for each in feeds:
        routes.remove(each)
    assert (list(routes.all()), routes._feeds) == ([], {})
