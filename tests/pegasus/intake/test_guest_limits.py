"""The actor that counts what guests send."""

from __future__ import annotations

from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from actors import ActorError, Child, open_supervisor
from pegasus.intake import (
    AdmitGuest,
    DiskLimits,
    GuestDisk,
    GuestLimits,
    TooManyMessages,
    run_guest_limits,
)
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.settings import LiveValue

EVE = InboundMessage("hello", ChannelInfo("slack", "D1", "eve"), id="m-1")
BOB = attrs.evolve(EVE, channel=ChannelInfo("slack", "D2", "bob"))


@asynccontextmanager
async def guest_limits(per_minute: int = 0, most: int = 0, size_of=lambda folder: 0, folders=None):
    async with open_supervisor() as supervisor:
        journal = supervisor.ref("journal")
        disk = GuestDisk(journal, lambda: 0, LiveValue(DiskLimits(most)), folders, size_of)
        limits = LiveValue(GuestLimits(per_minute))
        yield await supervisor.start_child(Child("guests", run_guest_limits, limits, lambda: disk))


async def test_each_guest_has_as_many_messages_a_minute_as_are_allowed(autojump_clock):
    async with guest_limits(per_minute=2) as guests:
        for _ in range(2):
            await guests.ask(AdmitGuest, EVE, False)
        with pytest.raises(TooManyMessages, match="try again in 30 s"):
            await guests.ask(AdmitGuest, EVE, False)
        await guests.ask(AdmitGuest, BOB, False)
        await trio.sleep(30)
        await guests.ask(AdmitGuest, EVE, False)


async def test_a_message_that_is_sent_again_does_not_count_again(autojump_clock):
    async with guest_limits(per_minute=1) as guests:
        await guests.ask(AdmitGuest, EVE, False)
        for _ in range(3):
            await guests.ask(AdmitGuest, EVE, True)


async def test_a_guest_whose_folder_is_counted_keeps_no_other_waiting(autojump_clock, tmp_path):
    may_count = trio.Event()

    def counts_slowly(folder):
        trio.from_thread.run(may_count.wait)
        return 1 << 30

    big = attrs.evolve(EVE, text="x" * (1 << 17))
    async with (
        guest_limits(most=1 << 20, size_of=counts_slowly, folders=tmp_path) as guests,
        trio.open_nursery() as nursery,
    ):

        async def ask_with_a_big_one():
            with pytest.raises(ActorError):  # no journal keeps its count
                await guests.ask(AdmitGuest, big, False)

        nursery.start_soon(ask_with_a_big_one)
        await guests.ask(AdmitGuest, BOB, False)
        may_count.set()
