"""Nothing that was promised is lost, whatever happens when: crashes, torn tails and full disks against a simple model."""

from __future__ import annotations

import errno
from contextlib import AsyncExitStack, suppress

import attrs
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from actors import ActorError, GaveUp
from pegasus.messages import Address, ChannelInfo, OutboundMessage
from pegasus.storage import inbox, record_log
from pegasus.storage.inbox_messages import (
    Accepted,
    CompleteItem,
    NextItem,
    NextItemOfAddress,
    Overloaded,
    TakeItem,
    Waiting,
)
from pegasus.storage.messages import (
    Acknowledge,
    Archive,
    LastSeq,
    Posted,
    ReadFile,
    ReplaceFile,
    StorageError,
    Unacknowledged,
)
from pegasus.testing.memory_disk import MemoryDisk

from .conftest import CLI, NOW, run_journal

SESSION = "main/current.jsonl"
CHANNELS = (ChannelInfo("cli", "main"), ChannelInfo("web", "c1"))
SOME_TEXT = "some text " * 5


@attrs.define
class Model:
    """What the askers were told. A promise is never taken back; what was asked but not answered may have happened or not."""

    accepted: dict[str, int] = attrs.field(factory=dict)
    news: set[str] = attrs.field(factory=set)
    open_ids: set[str] = attrs.field(factory=set)
    done: set[str] = attrs.field(factory=set)
    posted: dict[str, OutboundMessage] = attrs.field(factory=dict)
    unanswered: set[str] = attrs.field(factory=set)
    acked: dict[Address, int] = attrs.field(factory=dict)
    appended: list[bytes] = attrs.field(factory=list)
    tried: list[bytes] = attrs.field(factory=list)

    def address_of(self, key):
        return self.posted[key].channel.address

    def last(self, address):
        return max((m.seq for m in self.posted.values() if m.channel.address == address), default=0)


class System:
    """A journal on a disk, asked and checked against the model; after a crash it is started again on what is left."""

    def __init__(self, max_waiting=5):
        self.disk = MemoryDisk()
        self.model = Model()
        self.count = 0
        self.max_waiting = max_waiting
        self.doom = None  # how the disk will look after a power loss that is under way

    async def start(self):
        self.doom = None
        self.stack = AsyncExitStack()
        self.journal = await self.stack.enter_async_context(
            run_journal(self.disk, now=lambda: NOW, max_waiting=self.max_waiting)
        )

    async def stop(self):
        await self.stack.aclose()

    async def restart(self):
        """The disk may refuse to say that what it shows is durable; then the journal does not start yet."""
        await self.stop()
        while True:
            try:
                return await self.start()
            except GaveUp:
                pass

    async def crash(self, torn, nulls):
        """The machine stops here and now: the old journal goes on writing to a disk that nobody will see again."""
        left = self.disk.survivor(torn, nulls=nulls)
        await self.stop()
        self.disk = left
        await self.start()
        await self.repair_session()
        await self.check()

    async def repair_session(self):
        """As the Main Agent does when it loads its session: the journal leaves other people's files alone."""
        content = await self.journal.ask(ReadFile, SESSION)
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            await self.journal.ask(ReplaceFile, SESSION, whole)

    async def ask(self, ask, *args, **more):
        """The answer, or None where it never came."""
        try:
            return await ask(*args, **more)
        except (StorageError, ActorError):
            return None

    # ------------------------------------------------------------------ rules

    async def accept(self, id):
        self.model.open_ids.add(id)
        result = await self.ask(self.journal.accept, id, text_of(id), CLI, priority=priority_of(id))
        if isinstance(result, Accepted):
            assert result.n == self.model.accepted.get(id, result.n)
            assert result.duplicate or id not in self.model.news
            self.model.news |= set() if result.duplicate else {id}
            assert result.n not in {n for other, n in self.model.accepted.items() if other != id}
            self.model.accepted[id] = result.n
        elif isinstance(result, Overloaded):
            assert id not in self.model.accepted
            assert result.waiting == self.max_waiting

    async def post(self, key, channel):
        self.count += 1
        line = b"%d %s\n" % (self.count, key.encode())
        self.model.tried.append(line)
        try:
            result = await self.journal.post(key, channel, text=SOME_TEXT + key, appends=((SESSION, line),))
        except ActorError:
            self.model.unanswered.add(key)
        except StorageError:
            if key not in self.model.posted and key not in self.model.unanswered:
                assert await self.ask(self.journal.ask, Posted, (key,)) in (None, (None,))
        else:
            self.model.appended.append(line)
            self.promise(key, result)

    def promise(self, key, message):
        if key in self.model.posted:
            assert message.seq == self.model.posted[key].seq
            assert message.channel == self.model.posted[key].channel
        else:
            others = {m.seq for m in self.model.posted.values() if m.channel.address == message.channel.address}
            assert message.seq not in others
            self.model.posted[key] = message

    async def append(self):
        """An append without a reply."""
        self.count += 1
        line = b"%d append\n" % self.count
        self.model.tried.append(line)
        if await self.ask(self.journal.append, SESSION, line) is not None:
            self.model.appended.append(line)

    async def archive(self):
        """As /new does; a fault may leave it undone."""
        await self.ask(self.journal.ask, Archive, SESSION, b"", NOW)

    async def edit(self):
        """While the journal is down somebody deletes the last line of the session, and it stays deleted."""
        self.disk.files._faults.clear()
        await self.stop()
        content = self.disk.content(SESSION)
        edited = content[: content.rfind(b"\n", 0, -1) + 1]
        self.model.appended = [line for line in self.model.appended if line != content[len(edited) :]]
        self.disk = self.disk.survivor()
        if SESSION in self.disk.paths():
            self.disk.put(SESSION, edited)
        await self.start()
        assert await self.journal.ask(ReadFile, SESSION) == edited

    async def done(self, _):
        if await self.journal.ask(Waiting):
            with trio.move_on_after(1):
                item = await self.journal.ask(NextItem)
                self.model.done.add(item.message.id)
                await self.journal.tell(CompleteItem(item.n))

    async def take(self, back):
        """One that waits is taken up beside the others, and may be left undone."""
        item = await self.ask(self.journal.ask, NextItemOfAddress, CLI.address, back)
        if item is None:
            return
        taken = await self.ask(self.journal.ask, TakeItem, item.n)
        if taken is None:
            return
        assert (taken.message, taken.attempt, taken.priority) == (item.message, 1, priority_of(item.message.id))
        again = await self.ask(self.journal.ask, NextItemOfAddress, CLI.address, item.n - 1)
        assert again is None or again.n > item.n
        if back % 2:
            self.model.done.add(item.message.id)
            await self.journal.tell(CompleteItem(item.n))

    async def acknowledge(self, channel, back):
        address = channel.address
        seq = max(0, await self.journal.ask(LastSeq, address) - back)
        await self.journal.tell(Acknowledge(address, seq))
        self.model.acked[address] = max(seq, self.model.acked.get(address, 0))

    # ------------------------------------------------------------------ what must hold

    async def check(self):
        await self.check_inbox()
        await self.check_outbox()
        await self.check_session()

    async def check_inbox(self):
        """Every promised item that is not done waits, once, by priority and then in order."""
        waiting, places = [], []
        while await self.journal.ask(Waiting):
            item = await self.journal.ask(NextItem)
            assert item.message.text == text_of(item.message.id)
            waiting.append(item.message.id)
            places.append((item.priority, item.n))
            assert item.priority == priority_of(item.message.id)
            await self.journal.tell(CompleteItem(item.n))
        assert len(set(waiting)) == len(waiting)
        assert places == sorted(places)
        assert self.model.accepted.keys() - self.model.done <= set(waiting) <= self.model.open_ids
        self.model.done |= set(waiting)
        for id in waiting:
            assert (await self.journal.accept(id)).duplicate

    async def check_outbox(self):
        keys = list(self.model.posted)
        for key, message in zip(keys, await self.journal.ask(Posted, tuple(keys)), strict=True):
            assert message is not None
            self.promise(key, message)
            if message.seq > self.model.acked.get(message.channel.address, 0):
                assert message.text == SOME_TEXT + key
        for channel in CHANNELS:
            address, acked = channel.address, self.model.acked.get(channel.address, 0)
            found = await self.journal.ask(Unacknowledged, address.type, address.channel_id, (), 1_000)
            seqs = [message.seq for message in found]
            assert seqs == sorted(set(seqs))
            promised = {m.seq for m in self.model.posted.values() if m.channel.address == address and m.seq > acked}
            assert promised <= set(seqs)
            assert await self.journal.ask(LastSeq, address) >= self.model.last(address)

    async def check_session(self):
        """Promised lines are there in order; what else is there was asked for; nothing is there twice or in pieces."""
        archived = sorted((len(path), path) for path in self.disk.paths() if path.startswith("main/2026"))
        content = b"".join(self.disk.content(path) for _, path in archived)
        lines = (content + await self.journal.ask(ReadFile, SESSION)).splitlines(keepends=True)
        order = {line: n for n, line in enumerate(self.model.tried)}
        places = [order[line] for line in lines]
        assert places == sorted(set(places))
        assert {order[line] for line in self.model.appended} <= set(places)


ids = st.sampled_from([f"m{n}" for n in range(12)])
keys = st.sampled_from([f"k{n}" for n in range(12)])
channels = st.sampled_from(CHANNELS)
steps = st.one_of(
    st.tuples(st.just("accept"), ids),
    st.tuples(st.just("accept"), ids),
    st.tuples(st.just("post"), keys),
    st.tuples(st.just("post"), keys),
    st.tuples(st.just("append")),
    st.tuples(st.just("archive")),
    st.tuples(st.just("edit")),
    st.tuples(st.just("done"), st.none()),
    st.tuples(st.just("take"), st.integers(0, 5)),
    st.tuples(st.just("acknowledge"), channels, st.integers(0, 2)),
    st.tuples(
        st.just("together"), st.lists(ids, max_size=4), st.lists(keys, max_size=4, unique=True), st.integers(0, 2)
    ),
    st.tuples(st.just("sleep"), st.sampled_from([0.01, 0.1, 2])),
    st.tuples(st.just("fail"), st.integers(1, 12), st.sampled_from([errno.ENOSPC, errno.EIO]), st.integers(1, 4)),
    st.tuples(st.just("crash in"), st.integers(1, 12), st.sampled_from([0, 1, 40, 100_000]), st.booleans()),
    st.tuples(st.just("crash"), st.sampled_from([0, 1, 40, 100_000]), st.booleans()),
    st.tuples(st.just("restart")),
)


async def play(script):
    with trio.fail_after(1_000):  # virtual seconds: nothing may hang
        await play_all(script)


async def play_all(script):
    system = System()
    await system.start()
    try:
        for step, *args in script:
            await take(system, step, args)
        await system.crash(0, False)
    finally:
        await system.stop()


async def take(system, step, args):
    match step:
        case "crash":
            await system.crash(*args)
        case "crash in":
            system.disk.lose_power(args[0])
            system.doom = args[1:]
        case "restart" | "edit" if system.doom is None:
            await (system.restart() if step == "restart" else system.edit())
        case "together":
            await together(system, *args)
        case "sleep":
            await trio.sleep(args[0])
        case "fail":
            system.disk.fail(*args)
        case "post":
            await system.post(args[0], channel_of(args[0]))
        case "accept" | "append" | "archive" | "done" | "take" | "acknowledge":
            with suppress(ActorError):
                await getattr(system, step)(*args)
    if not system.journal.ref.alive:
        await system.crash(*system.doom)


async def together(system, ids, keys, appends):
    async with trio.open_nursery() as nursery:
        for id in ids:
            nursery.start_soon(system.accept, id)
        for key in keys:
            nursery.start_soon(system.post, key, channel_of(key))
        for _ in range(appends):
            nursery.start_soon(system.append)


def text_of(id):
    """Every second text is so long that it is not held in memory but read back."""
    return SOME_TEXT * (1 + int(id[1:]) % 2) + id


def priority_of(id):
    return int(id[1:]) % 3


def channel_of(key):
    """A key is for one address, as in life."""
    return CHANNELS[int(key[1:]) % 2]


@pytest.fixture(autouse=True)
def _small_logs(monkeypatch):
    """Compactions come every few records instead of every megabyte, and texts of some hundred characters are long."""
    monkeypatch.setattr(record_log, "SMALL", 600)
    monkeypatch.setattr(inbox, "KEPT_LINE", 200)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(st.lists(steps, max_size=25))
def test_no_promise_is_broken(script):
    trio.run(play, script, clock=MockClock(autojump_threshold=0))


async def _reply_with_its_session(journal, chat, answered):
    channel = attrs.evolve(CLI, channel_id=chat)
    with suppress(StorageError, ActorError):
        await journal.post(chat, channel, appends=((f"sessions/{chat}.jsonl", b"decided\n"),))
        answered.add(chat)


@pytest.mark.parametrize("torn", [0, 3])
async def test_chats_that_share_their_syncs_keep_their_order_when_the_power_fails(torn):
    """A reply is there only if the line of its own session is; who was answered has both. At each operation of one batch."""
    chats = "abc"
    for operation in range(1, 60):
        disk, answered = MemoryDisk(), set()
        with suppress(Exception):
            async with run_journal(disk, now=lambda: NOW) as journal:
                await journal.append("sessions/other.jsonl", b"1\n")
                disk.lose_power(operation)
                async with trio.open_nursery() as nursery:
                    for chat in chats:
                        nursery.start_soon(_reply_with_its_session, journal, chat, answered)
        left = disk.survivor(torn)
        async with run_journal(left, now=lambda: NOW) as journal:
            posted = {chat for chat in chats if (await journal.ask(Posted, (chat,)))[0] is not None}
            decided = {chat for chat in chats if await journal.ask(ReadFile, f"sessions/{chat}.jsonl") == b"decided\n"}
        assert answered <= posted <= decided
    assert answered == set(chats), "the last power failure came behind the batch"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
async def test_chats_that_share_their_syncs_are_refused_alone_or_written_when_the_disk_refuses(error):
    for operation in range(1, 40):
        disk, answered = MemoryDisk(), set()
        async with run_journal(disk, now=lambda: NOW) as journal:
            await journal.append("sessions/other.jsonl", b"1\n")
            disk.fail(operation, error, 2)
            async with trio.open_nursery() as nursery:
                for chat in "abc":
                    nursery.start_soon(_reply_with_its_session, journal, chat, answered)
            for chat in "abc":
                [posted] = await journal.ask(Posted, (chat,))
                content = await journal.ask(ReadFile, f"sessions/{chat}.jsonl")
                assert (posted is not None, content) == ((True, b"decided\n") if chat in answered else (False, b""))
