"""Routing by channel type, in virtual time, with a journal that holds an outbox in memory."""

from contextlib import asynccontextmanager

import attrs
import trio
import trio.testing

from actors import Child, Intensity, Mailbox, open_supervisor
from pegasus.channels import CatchUp, DeliverReply, run_switchboard
from pegasus.messages import ChannelInfo, OutboundMessage, Typing
from pegasus.storage import NextReplies, QueuedReply, StorageError

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
        self.outgoing.append(QueuedReply(len(self.outgoing) + 1, message))
        self.give()
        return message

    def give(self):
        fresh = tuple(one for one in self.outgoing if one.position > self.confirmed)
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
    async with board() as here:
        sms, web, irc = here.outbox.post(SMS), here.outbox.post(WEB), here.outbox.post(IRC)
        await settled()
        assert here.sms.got == [DeliverReply(sms)]
        assert here.gateway.got == [DeliverReply(web), DeliverReply(irc)]


async def test_typing_goes_the_same_way(autojump_clock):
    async with board() as here:
        ref = here.supervisor.ref("switchboard")
        await ref.tell(Typing(SMS, True))
        await ref.tell(Typing(WEB, True))
        await settled()
        assert (here.sms.got, here.gateway.got) == ([Typing(SMS, True)], [Typing(WEB, True)])


async def test_what_was_handed_over_is_confirmed(autojump_clock):
    async with board() as here:
        here.outbox.post(WEB)
        here.outbox.post(SMS)
        await settled()
        assert here.outbox.confirmed == 2


async def test_a_type_without_adapter_is_no_error_and_does_not_stop_the_others(autojump_clock):
    async with board(default=False) as here:
        here.outbox.post(IRC)
        sms = here.outbox.post(SMS)
        await settled()
        assert here.sms.got == [DeliverReply(sms)]


async def test_an_adapter_that_fails_does_not_stop_the_others(autojump_clock):
    async with board() as here:
        here.outbox.post(SMS, "crash")
        await settled()
        web, sms = here.outbox.post(WEB), here.outbox.post(SMS)
        await settled()
        assert here.gateway.got == [DeliverReply(web)]
        assert here.sms.got == ["crashed", DeliverReply(sms)]


async def test_an_adapter_that_hangs_costs_the_others_little_and_catches_up(autojump_clock):
    async with board(capacity=2) as here:
        here.sms.go = trio.Event()
        for n in range(10):
            here.outbox.post(SMS, f"{n}")
        web = here.outbox.post(WEB)
        await trio.sleep(2)
        assert here.gateway.got == [DeliverReply(web)]
        here.sms.go.set()
        await settled()
        assert here.sms.got[-1] == CatchUp()
        assert len(here.sms.got) == 4  # one in hand, two in the mailbox, and the news that there was more
        again = here.outbox.post(SMS)
        await settled()
        assert here.sms.got[-1] == DeliverReply(again)


async def test_what_was_not_confirmed_is_handed_out_again_after_a_crash(autojump_clock):
    async with board() as here:
        await here.supervisor.stop_child("switchboard")
        web = here.outbox.post(WEB)
        await here.supervisor.restart_child("switchboard")
        await settled()
        assert here.gateway.got == [DeliverReply(web)]


async def test_an_outbox_that_cannot_be_read_is_tried_again(autojump_clock):
    async with board() as here:
        await here.supervisor.stop_child("switchboard")
        here.outbox.failures = 2
        web = here.outbox.post(WEB)
        await here.supervisor.restart_child("switchboard")
        await trio.sleep(3)
        assert here.gateway.got == [DeliverReply(web)]


async def test_many_replies_keep_their_order(autojump_clock):
    async with board(capacity=4) as here:
        said = [here.outbox.post(WEB, f"{n}") for n in range(300)]
        await settled()
        assert here.gateway.got == [DeliverReply(message) for message in said]
