"""The base class of adapters: each reply once, in order, also after a crash; a reply refused for good is reported."""

from contextlib import asynccontextmanager

import trio
from trio.testing import wait_all_tasks_blocked

from actors import Child, Intensity, open_supervisor
from pegasus.channels import Adapter, CatchUp, DeliverReply, ReplyRefused
from pegasus.messages import ChannelInfo, ReplyDraft, Typing
from pegasus.storage import UNDELIVERED_REPLY, Connected, Disconnected, Overloaded
from tests.pegasus.gateway.world import FakeJournal

PHONE = ChannelInfo("sms", "+1")
OTHER = ChannelInfo("sms", "+2")


class Sms(Adapter):
    """Delivers to a list; crashes or refuses where the text says so."""

    def __init__(self):
        super().__init__("sms")
        self.sent = []
        self.crashes = 0

    async def deliver(self, reply):
        await trio.lowlevel.checkpoint()
        if reply.text == "refused":
            raise ReplyRefused("the number does not exist")
        if self.crashes:
            self.crashes -= 1
            raise RuntimeError("the service is away")
        self.sent.append((reply.channel.channel_id, reply.seq))


@asynccontextmanager
async def running(adapter, journal):
    often = Intensity(restarts=10, period=60.0)
    async with open_supervisor([Child("journal", journal.run)], intensity=often) as supervisor:
        await supervisor.start_child(Child("sms", adapter.run, supervisor.ref("journal")))
        yield supervisor.ref("sms")
        await wait_all_tasks_blocked()
        await supervisor.stop_child("sms")
        await wait_all_tasks_blocked()  # the journal reads the last message of the adapter


async def test_what_was_missed_is_delivered_at_the_start_and_acknowledged(autojump_clock):
    adapter, journal = Sms(), FakeJournal()
    journal.post(PHONE, "one")
    journal.post(PHONE, "two")
    journal.post(OTHER, "one")
    async with running(adapter, journal):
        pass
    assert adapter.sent == [("+1", 1), ("+1", 2), ("+2", 1)]
    assert journal.acks == [(PHONE.address, 1), (PHONE.address, 2), (OTHER.address, 1)]


async def test_a_reply_that_comes_twice_is_delivered_once(autojump_clock):
    adapter, journal = Sms(), FakeJournal()
    async with running(adapter, journal) as ref:
        reply = journal.post(PHONE, "one")
        await ref.tell(DeliverReply(reply))
        await ref.tell(DeliverReply(reply))
        await ref.tell(CatchUp())
    assert adapter.sent == [("+1", 1)]


async def test_a_gap_is_filled_from_the_journal_in_order(autojump_clock):
    adapter, journal = Sms(), FakeJournal()
    async with running(adapter, journal) as ref:
        for text in ("one", "two"):
            journal.post(PHONE, text)
        await ref.tell(DeliverReply(journal.post(PHONE, "three")))
    assert adapter.sent == [("+1", 1), ("+1", 2), ("+1", 3)]


async def test_after_a_crash_the_reply_is_delivered_and_nothing_twice(autojump_clock):
    adapter, journal = Sms(), FakeJournal()
    async with running(adapter, journal) as ref:
        await ref.tell(DeliverReply(journal.post(PHONE, "one")))
        await wait_all_tasks_blocked()
        adapter.crashes = 2
        await ref.tell(DeliverReply(journal.post(PHONE, "two")))
        await trio.sleep(30)
    assert adapter.sent == [("+1", 1), ("+1", 2)]


async def test_a_reply_that_is_refused_for_good_is_reported_once_and_blocks_no_other(autojump_clock):
    adapter, journal = Sms(), FakeJournal()
    async with running(adapter, journal) as ref:
        refused = journal.post(PHONE, "refused")
        await ref.tell(DeliverReply(refused))
        await ref.tell(DeliverReply(refused))
        await ref.tell(DeliverReply(journal.post(PHONE, "two")))
    assert adapter.sent == [("+1", 2)]
    [(report, lane)] = journal.accepted
    assert (lane, report.metadata) == ("main", {"type": UNDELIVERED_REPLY, "seq": 1})
    assert report.text.startswith("the number does not exist\n")


async def test_the_report_of_a_refused_reply_waits_for_room_in_the_inbox(autojump_clock):
    adapter, journal = Sms(), FakeJournal()
    journal.verdict = Overloaded(1_000)
    async with running(adapter, journal) as ref:
        await ref.tell(DeliverReply(journal.post(PHONE, "refused")))
        await trio.sleep(60)
        assert journal.acks == []
        journal.verdict = None
        await trio.sleep(60)
    [(report, _)] = journal.accepted
    assert report.metadata == {"type": UNDELIVERED_REPLY, "seq": 1}
    assert journal.acks == [(PHONE.address, 1)]


async def test_the_journal_knows_that_the_type_is_served_while_the_adapter_runs(autojump_clock):
    adapter, journal = Sms(), FakeJournal()
    async with running(adapter, journal):
        await wait_all_tasks_blocked()
        assert journal.presence == [Connected("sms", None)]
    assert journal.presence == [Connected("sms", None), Disconnected("sms", None)]


async def test_an_adapter_that_is_slow_to_show_drafts_shows_the_newest_and_delivers_the_reply(autojump_clock):
    shown = []

    class Slow(Sms):
        async def show_draft(self, draft):
            await trio.sleep(1)
            shown.append(draft.text)

    adapter, journal = Slow(), FakeJournal()
    async with running(adapter, journal) as ref:
        await ref.tell(ReplyDraft(PHONE, "draft 0"))
        await trio.sleep(0.5)
        for number in range(1, 10):
            await ref.tell(ReplyDraft(PHONE, f"draft {number}"))
        await trio.sleep(5)
        assert shown == ["draft 0", "draft 9"]
        for message in (ReplyDraft(PHONE, "late"), ReplyDraft(PHONE, ""), ReplyDraft(PHONE, "old")):
            ref.tell_nowait(message)
        ref.tell_nowait(DeliverReply(journal.post(PHONE, "one")))
        await trio.sleep(5)
    assert shown == ["draft 0", "draft 9", ""]
    assert adapter.sent == [("+1", 1)]


async def test_typing_and_drafts_are_ignored_unless_a_subclass_shows_them(autojump_clock):
    adapter, journal = Sms(), FakeJournal()
    async with running(adapter, journal) as ref:
        await ref.tell(Typing(PHONE, True))
        await ref.tell(ReplyDraft(PHONE, "dra"))
        await ref.tell(DeliverReply(journal.post(PHONE, "one")))
    assert adapter.sent == [("+1", 1)]
