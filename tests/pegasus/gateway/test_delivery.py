"""The cursor: every reply once, in order, whatever way and whenever it comes. Routes: to whom."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pegasus.gateway.delivery import MAX_KEPT, Cursor, PushDecision, Routes
from pegasus.messages import Address, ChannelInfo, OutboundMessage
from pegasus.protocol import ClientChannel

CHANNEL = ChannelInfo("web", "c1")


def reply(seq):
    return OutboundMessage(f"r{seq}", CHANNEL, seq)


def test_the_next_reply_is_sent():
    cursor = Cursor(3)
    assert (cursor.offer(reply(4)), cursor.sent) == (PushDecision.SEND, 4)


def test_a_reply_that_was_sent_is_skipped():
    assert Cursor(3).offer(reply(3)) is PushDecision.SKIP


def test_a_gap_is_read_from_the_journal_and_the_reply_behind_it_follows():
    cursor = Cursor(3)
    assert cursor.offer(reply(6)) is PushDecision.READ
    assert cursor.offer(reply(7)) is PushDecision.SKIP  # kept aside
    assert [cursor.take(reply(seq)) for seq in (4, 5, 6)] == [True, True, True]
    assert cursor.next_kept(7) == reply(7)
    assert cursor.next_kept(7) is None
    cursor.finish_reading(7)
    assert cursor.offer(reply(8)) is PushDecision.SEND


def test_a_gap_that_stays_was_acknowledged_by_somebody_else():
    cursor = Cursor(3)
    cursor.offer(reply(6))
    assert cursor.next_kept(6) == reply(6)
    cursor.finish_reading(6)
    assert cursor.offer(reply(7)) is PushDecision.SEND


def test_a_push_behind_one_that_was_never_seen_makes_the_journal_be_read_again():
    cursor = Cursor(8, is_reading=True)
    cursor.offer(reply(10))
    assert cursor.next_kept(8) is None
    assert cursor.must_read_again()
    assert cursor.take(reply(9))
    assert cursor.next_kept(10) == reply(10)


def test_what_was_missed_while_the_journal_is_read_makes_it_be_read_again():
    cursor = Cursor(3)
    assert cursor.note_gap()
    assert not cursor.must_read_again()
    assert not cursor.note_gap()
    assert cursor.must_read_again()


def test_when_too_many_are_kept_aside_the_journal_is_read_again():
    cursor = Cursor(0, is_reading=True)
    for seq in range(1, MAX_KEPT + 2):
        cursor.offer(reply(seq))
    assert cursor.must_read_again()
    assert not cursor.must_read_again()


def test_a_frame_goes_at_once_when_the_replies_before_it_went():
    assert Cursor(5).hold_until("frame", 5) == ("frame", False)


def test_a_frame_waits_for_the_replies_before_it():
    cursor = Cursor(5)
    assert cursor.hold_until("frame", 6) == (None, True)
    assert cursor.take(reply(6))
    assert cursor.finish_reading(6) == ["frame"]


def test_a_later_frame_waits_behind_one_that_waits():
    cursor = Cursor(5, is_reading=True)
    cursor.hold_until("ended", 6)
    assert cursor.hold_until("began", 0) == (None, False)
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
        decision = self.cursor.offer(reply(seq))
        if decision is PushDecision.SEND:
            self.seen.append(seq)
        self.reading = self.reading or decision is PushDecision.READ

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
        self.seen += [seq for seq in seqs if self.cursor.take(reply(seq))]
        self.cursor.skip_to(self.at_hello)
        while (message := self.cursor.next_kept(last)) is not None:
            self.seen.append(message.seq)
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
        if cursor.offer(reply(seq)) is PushDecision.SEND:
            sent.append(seq)
        if cursor.is_reading:
            while (message := cursor.next_kept(20)) is not None:
                sent.append(message.seq)
            cursor.finish_reading(cursor.sent)
    assert sent == sorted(set(sent))


# ------------------------------------------------------------------ routes


C1 = Address("web", "c1")


def client(channel_id):
    return ClientChannel("web", channel_id)


BRIDGE = ClientChannel("web")


def test_all_clients_of_an_address_get_its_replies():
    routes = Routes()
    routes.add(client("c1"), "a")
    routes.add(client("c1"), "b")
    routes.add(client("c2"), "c")
    assert set(routes.recipients(C1)) == {"a", "b"}


def test_a_bridge_gets_what_has_no_client_of_its_own():
    routes = Routes()
    routes.add(BRIDGE, "bridge")
    routes.add(client("c1"), "a")
    assert list(routes.recipients(C1)) == ["a"]
    assert list(routes.recipients(Address("web", "c2"))) == ["bridge"]
    assert list(routes.recipients(Address("irc", "c1"))) == []


def test_when_the_last_client_of_an_address_goes_it_falls_to_the_bridges():
    routes = Routes()
    routes.add(BRIDGE, "bridge")
    routes.add(client("c1"), "a")
    routes.add(client("c1"), "b")
    assert list(routes.remove(client("c1"), "a")) == []
    assert list(routes.remove(client("c1"), "b")) == ["bridge"]
    assert list(routes.recipients(C1)) == ["bridge"]


def test_nothing_stays_behind():
    routes = Routes()
    for channel in (BRIDGE, client("c1")):
        routes.add(channel, "x")
        routes.remove(channel, "x")
        routes.remove(channel, "x")
    assert (list(routes.all()), routes._clients, routes._bridges) == ([], {}, {})
