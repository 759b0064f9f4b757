"""Routing by channel type, in virtual time, with a journal that holds an outbox in memory."""

from contextlib import asynccontextmanager
from types import SimpleNamespace

import attrs
import trio
import trio.testing

from actors import Child, Intensity, Mailbox, open_supervisor
from pegasus.channels import CatchUp, DeliverReply, run_switchboard, switchboard
from pegasus.messages import ChannelInfo, OutboundMessage, ReplyDraft, Typing
from pegasus.storage import NextReplies, StorageError
from pegasus.storage.messages import DueReply

WEB, SMS, IRC = ChannelInfo("web", "c1"), ChannelInfo("sms", "+1"), ChannelInfo("irc", "#a")


class Outbox:
    """The part of the journal that hands out replies; what was not confirmed is given again to whoever asks with 0."""

    def __init__(self):
        self.outgoing = []
        self.confirmed = 0
        self.waiting = None
        self.failures = 0

    async def run(self, inbox):
        async for asked in inbox:
            assert isinstance(asked, NextReplies)
            if self.failures:
                self.failures -= 1
                asked.reply.fail(StorageError("cannot read"))
                continue
            self.confirmed = max(self.confirmed, asked.handed)
            self.waiting = asked.reply
            self.give()

    def post(self, channel, text="x"):
        message = OutboundMessage(text, channel, len(self.outgoing) + 1)
        self.outgoing.append(DueReply(len(self.outgoing) + 1, message))
        self.give()
        return message

    def give(self):
        fresh = tuple(reply for reply in self.outgoing if reply.position > self.confirmed)
        if self.waiting is not None and fresh:
            reply, self.waiting = self.waiting, None
            reply.send(fresh)


class Adapter:
    """Keeps what it gets; hangs on request."""

    def __init__(self):
        self.got = []
        self.go = trio.Event()
        self.go.set()

    async def run(self, inbox):
        async for message in inbox:
            if isinstance(message, DeliverReply) and message.reply.text == "crash":
                self.got.append("crashed")
                raise RuntimeError("an adapter fails")
            self.got.append(message)
            await self.go.wait()


@attrs.define
class Board:
    supervisor: object
    outbox: Outbox
    gateway: Adapter
    sms: Adapter


@asynccontextmanager
async def board(*, default=True, capacity=64):
    outbox, gateway, sms = Outbox(), Adapter(), Adapter()
    patience = Intensity(restarts=10, period=60.0)
    async with open_supervisor([Child("journal", outbox.run)], intensity=patience) as supervisor:
        for name, adapter in (("gateway", gateway), ("sms", sms)):
            await supervisor.start_child(Child(name, adapter.run, mailbox=Mailbox(capacity)))
        fallback = supervisor.ref("gateway") if default else None
        adapters = {"sms": supervisor.ref("sms")}
        await supervisor.start_child(
            Child("switchboard", run_switchboard, supervisor.ref("journal"), adapters, fallback)
        )
        yield Board(supervisor, outbox, gateway, sms)


async def settled():
    await trio.testing.wait_all_tasks_blocked()


async def test_replies_go_to_the_adapter_of_their_type_and_others_to_the_gateway(autojump_clock):
    async with board() as running:
        sms, web, irc = running.outbox.post(SMS), running.outbox.post(WEB), running.outbox.post(IRC)
        await settled()
        assert running.sms.got == [DeliverReply(sms)]
        assert running.gateway.got == [DeliverReply(web), DeliverReply(irc)]


async def test_typing_goes_the_same_way(autojump_clock):
    async with board() as running:
        ref = running.supervisor.ref("switchboard")
        await ref.tell(Typing(SMS, True))
        await ref.tell(Typing(WEB, True))
        await settled()
        assert (running.sms.got, running.gateway.got) == ([Typing(SMS, True)], [Typing(WEB, True)])


async def test_drafts_for_an_adapter_that_hangs_do_not_delay_others(autojump_clock):
    async with board(capacity=1) as running:
        ref = running.supervisor.ref("switchboard")
        running.sms.go = trio.Event()
        for number in range(20):
            await ref.tell(ReplyDraft(SMS, f"draft {number}"))
        began = trio.current_time()
        await ref.tell(ReplyDraft(WEB, "Once"))
        await settled()
        assert running.gateway.got == [ReplyDraft(WEB, "Once")]
        assert trio.current_time() == began


async def test_what_was_handed_over_is_confirmed(autojump_clock):
    async with board() as running:
        running.outbox.post(WEB)
        running.outbox.post(SMS)
        await settled()
        assert running.outbox.confirmed == 2


async def test_a_type_without_adapter_is_a_warning_and_does_not_stop_the_others(autojump_clock, monkeypatch):
    warnings = []
    log = SimpleNamespace(warning=lambda text, **fields: warnings.append((text, fields)))
    monkeypatch.setattr(switchboard, "_log", log)
    async with board(default=False) as running:
        running.outbox.post(IRC)
        sms = running.outbox.post(SMS)
        await settled()
        assert running.sms.got == [DeliverReply(sms)]
        expected = "no adapter for this channel type; the reply waits in the outbox"
        assert warnings == [(expected, {"to": str(IRC.address), "seq": 1})]


async def test_an_adapter_that_fails_does_not_stop_the_others(autojump_clock):
    async with board() as running:
        running.outbox.post(SMS, "crash")
        await settled()
        web, sms = running.outbox.post(WEB), running.outbox.post(SMS)
        await settled()
        assert running.gateway.got == [DeliverReply(web)]
        assert running.sms.got == ["crashed", DeliverReply(sms)]


async def test_an_adapter_that_hangs_costs_the_others_little_and_catches_up(autojump_clock):
    async with board(capacity=2) as running:
        running.sms.go = trio.Event()
        for n in range(10):
            running.outbox.post(SMS, f"{n}")
        web = running.outbox.post(WEB)
        await trio.sleep(2)
        assert running.gateway.got == [DeliverReply(web)]
        running.sms.go.set()
        await settled()
        assert running.sms.got[-1] == CatchUp()
        assert len(running.sms.got) == 4  # one in hand, two in the mailbox, and the news that there was more
        again = running.outbox.post(SMS)
        await settled()
        assert running.sms.got[-1] == DeliverReply(again)


async def test_what_was_not_confirmed_is_handed_out_again_after_a_crash(autojump_clock):
    async with board() as running:
        await running.supervisor.stop_child("switchboard")
        web = running.outbox.post(WEB)
        await running.supervisor.restart_child("switchboard")
        await settled()
        assert running.gateway.got == [DeliverReply(web)]


async def test_an_outbox_that_cannot_be_read_is_tried_again(autojump_clock):
    async with board() as running:
        await running.supervisor.stop_child("switchboard")
        running.outbox.failures = 2
        web = running.outbox.post(WEB)
        await running.supervisor.restart_child("switchboard")
        await trio.sleep(3)
        assert running.gateway.got == [DeliverReply(web)]


async def test_many_replies_keep_their_order(autojump_clock):
    async with board(capacity=4) as running:
        said = [running.outbox.post(WEB, f"{n}") for n in range(300)]
        await settled()
        assert running.gateway.got == [DeliverReply(message) for message in said]
