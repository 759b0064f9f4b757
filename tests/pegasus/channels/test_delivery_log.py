"""The delivery log: one writer for all conversations, the order of its lines, and what a stop, a crash or a full disk leaves."""

from contextlib import asynccontextmanager, suppress

import pytest
import trio

from pegasus.channels.attempts import SendAttempts
from pegasus.channels.delivery_log import DeliveryLog
from pegasus.json_lines import scan_lines
from pegasus.messages import ChannelInfo, OutboundMessage
from pegasus.storage import LeaseLost, TakeLease, UnacknowledgedChannels
from pegasus.testing.memory_database import MemoryDatabase
from pegasus.testing.memory_disk import MemoryDisk
from tests.pegasus.storage.conftest import run_journal, run_node

PATH = "channels/letters.jsonl"
LATENCY = 0.1


def reply_to(chat, seq=1):
    return OutboundMessage("hi", ChannelInfo("letters", chat), seq)


@asynccontextmanager
async def opened(disk, log=None):
    """Give a log with its writer, and the journal."""
    log = log or DeliveryLog("letters")
    async with run_journal(disk) as journal:
        await log.load(journal.ref)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.write_all)
            yield log, journal
            nursery.cancel_scope.cancel()


def lines(disk):
    return [line.value for line in scan_lines(disk.content(PATH))]


async def test_conversations_that_send_at_the_same_time_share_their_writes(autojump_clock):
    disk = MemoryDisk(delay=LATENCY)
    async with opened(disk) as (log, _):
        before = disk.runs
        async with trio.open_nursery() as nursery:
            for n in range(20):
                nursery.start_soon(log.set_attempts, reply_to(f"c{n}"), 0, 1)
        assert disk.runs - before <= 2
        assert sorted(line["channelId"] for line in lines(disk)) == sorted(f"c{n}" for n in range(20))


async def test_a_piece_whose_attempt_is_on_disk_is_recorded_with_the_next_attempt(autojump_clock):
    disk = MemoryDisk(delay=LATENCY)
    async with opened(disk) as (log, _):
        await log.set_attempts(reply_to("a", 1), 0, 1)
        began = trio.current_time()
        await log.add_piece(reply_to("a", 1), part=0, of=1, id="m1")
        assert trio.current_time() == began
        await log.set_attempts(reply_to("a", 2), 0, 1)
        assert trio.current_time() - began == pytest.approx(LATENCY)
        assert [line.get("id") for line in lines(disk)] == [None, "m1", None]


async def test_a_piece_without_an_attempt_is_on_disk_before_the_next_one_is_sent(autojump_clock):
    disk = MemoryDisk(delay=LATENCY)
    async with opened(disk) as (log, _):
        await log.add_piece(reply_to("a"), part=0, of=2, id="m1")
        assert [line["id"] for line in lines(disk)] == ["m1"]


async def test_a_reply_is_acknowledged_when_its_pieces_are_on_disk(autojump_clock):
    disk = MemoryDisk()
    async with opened(disk) as (log, journal):
        reply = await journal.post("k1", ChannelInfo("letters", "a"))
        await log.set_attempts(reply, 0, 1)
        disk.fail(times=20)
        await log.add_piece(reply, part=0, of=1, id="m1")
        log.acknowledge(reply)
        await trio.sleep(1)
        assert await journal.ask(UnacknowledgedChannels, "letters") == ("a",)
        await trio.sleep(300)  # twenty attempts, 15 s apart in the end
        assert await journal.ask(UnacknowledgedChannels, "letters") == ()
        assert lines(disk)[-1]["id"] == "m1"


async def test_a_disk_that_is_full_for_a_while_loses_no_line_and_keeps_their_order(autojump_clock):
    disk = MemoryDisk()
    async with opened(disk) as (log, _):
        await log.set_attempts(reply_to("a"), 0, 1)
        disk.fail(times=20)
        await log.add_piece(reply_to("a"), part=0, of=1, id="m1")
        for n in range(5):
            await log.set_fact(f"n{n}", n)
        assert [line.get("key") or line.get("id") for line in lines(disk)] == [None, "m1", *(f"n{n}" for n in range(5))]


async def test_a_stop_writes_what_was_added(autojump_clock):
    disk = MemoryDisk(delay=LATENCY)
    async with opened(disk) as (log, _):
        await log.set_attempts(reply_to("a"), 0, 1)
        await log.add_piece(reply_to("a"), part=0, of=1, id="m1")
    async with opened(disk) as (log, _):
        assert log.ids_of(reply_to("a")) == ["m1"]


@pytest.mark.parametrize("operation", range(1, 5))
async def test_a_writer_whose_journal_has_crashed_goes_on_with_the_next_one(autojump_clock, operation):
    disk = MemoryDisk(delay=LATENCY)
    log = DeliveryLog("letters")
    with suppress(ExceptionGroup):
        async with opened(disk, log):
            await log.set_attempts(reply_to("a"), 0, 1)
            disk.lose_power(operation)
            await log.add_piece(reply_to("a"), part=0, of=2, id="m1")
            await trio.sleep(1)
    disk.crash()
    async with opened(disk, log):
        await log.set_attempts(reply_to("a"), 1, 1)
        await log.add_piece(reply_to("a"), part=1, of=2, id="m2")
    async with opened(disk) as (again, _):
        assert again.ids_of(reply_to("a")) == ["m1", "m2"]
        assert again.is_delivered(reply_to("a"))


# ------------------------------------------------------------------ several nodes


async def taken(node, log):
    lease = await node.ask(TakeLease, "channel/letters")
    await log.load(node.ref, lease)
    return lease


async def test_a_node_that_was_paused_before_a_message_left_sends_none(autojump_clock):
    """Its attempt is written, and another node makes the next one. What is done with that answer must not be done."""
    database, log, sent = MemoryDatabase(), DeliveryLog("letters"), []
    link = database.link("a")

    class Paused:
        def __getattr__(self, name):
            return getattr(link, name)

        async def commit(self, step):
            stored = await link.commit(step)
            autojump_clock.jump(60)
            return stored

    class Nodes:
        def link(self, name):
            return Paused() if name == "a" else database.link(name)

    async def send():
        sent.append("m1")
        return "m1"

    async with run_node(Nodes(), "a") as a:
        await taken(a, log)
        with pytest.raises(LeaseLost):
            await SendAttempts(log).make(reply_to("c"), 0, send)
    assert sent == []
    async with run_node(database, "b") as b:
        other = DeliveryLog("letters")
        await taken(b, other)
        assert other.attempts(reply_to("c"), 0).count == 1


async def test_what_another_node_has_delivered_is_known_when_a_channel_comes_back_and_late_lines_are_refused(
    autojump_clock,
):
    database, logs = MemoryDatabase(), (DeliveryLog("letters"), DeliveryLog("letters"))
    async with run_node(database, "a") as a, run_node(database, "b") as b:
        lease = await taken(a, logs[0])
        await logs[0].add_piece(reply_to("c", 1), part=0, of=1, id="m1")
        database.cut("a")
        await trio.sleep(10)
        await taken(b, logs[1])
        await logs[1].add_piece(reply_to("c", 2), part=0, of=1, id="m2")
        database.mend("a")
        await trio.sleep(10)
        with pytest.raises(LeaseLost):
            await logs[0].add_piece(reply_to("c", 2), part=0, of=1, id="m2-again")
        database.cut("b")
        await trio.sleep(10)
        assert (await taken(a, logs[0])).token > lease.token + 1
        assert logs[0].ids_of(reply_to("c", 2)) == ["m2"]
