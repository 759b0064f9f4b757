"""What only nodes have: taking and losing chats, replies that go out elsewhere, a database that does not answer. In virtual time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from actors import GaveUp, Stopped, watch
from pegasus.cli.nodes import drain_text
from pegasus.messages import ChannelInfo, InboundMessage, OutboundMessage
from pegasus.observe import Activity
from pegasus.storage import (
    UNDELIVERED_REPLY,
    Accept,
    Accepted,
    Acknowledge,
    Commit,
    CompleteItem,
    Connected,
    Discard,
    Disconnected,
    GiveBack,
    ItemDone,
    LaneDone,
    LeaseLost,
    LostChats,
    LostLease,
    NextChange,
    NextChat,
    NextItem,
    NextReplies,
    NextTold,
    Post,
    PutRows,
    ReadFile,
    ReadRows,
    StorageError,
    TakeLease,
    TellNodes,
    Unacknowledged,
    Waiting,
    chat_owner,
)
from pegasus.storage.database import InboxItem, NewItem, NodeList
from pegasus.storage.database.calls import DatabaseCalls
from pegasus.storage.database.items import TAKEN_AT_ONCE
from pegasus.storage.database.notes import Notes
from pegasus.storage.database.replies import FollowedReplies
from pegasus.testing.memory_database import Fate, MemoryDatabase
from pegasus.wire import encode_json, to_wire
from tests.pegasus.storage.conftest import CLI, NOW, WEB, run_node

SESSION = "sessions/web%3Ac1.jsonl"
OWNER = chat_owner(WEB.address)
LEASE = 5.0
LOOK = 0.5


@pytest.fixture
def database():
    return MemoryDatabase()


@asynccontextmanager
async def two_nodes(database, **options):
    """Two nodes that run agents of chats, and have room for none at first."""
    async with run_node(database, "a", **options) as a, run_node(database, "b", **options) as b:
        for node in (a, b):
            with trio.move_on_after(0.1):
                await node.ask(NextChat)
        yield a, b


async def take_chat(node, running=frozenset()):
    """Do what begins an agent: take a chat that is due, its lease, and its item."""
    address = await node.ask(NextChat, running)
    lease = await node.ask(TakeLease, chat_owner(address))
    return address, lease, await node.ask(NextItem, "main", address)


async def begin_chat(node, id="m1", channel=WEB):
    lease = await node.ask(TakeLease, chat_owner(channel.address))
    await node.accept(id, channel=channel)
    return lease, await node.ask(NextItem, "main", channel.address)


async def answer(node, lease, item, text="Hi", after=None, channel=WEB):
    """Do what ends an item: one commit with the line and the reply, and the note."""
    lines = ((SESSION, f"{text}\n".encode()),)
    post = Post(f"{item.n}/reply", text, channel.channel_id, channel)
    [reply] = await node.ask(partial(Commit, appends=lines, posts=(post,), lease=lease, after=after))
    await node.tell(CompleteItem(item.n, lease))
    return reply


async def texts(node, handed=0):
    return [due.message.text for due in await node.ask(NextReplies, handed)]


async def within(seconds, call):
    with trio.fail_after(seconds):
        return await call


# ------------------------------------------------------------------ taking over


async def test_what_a_node_owns_takes_and_asks_is_counted(database, autojump_clock):
    activity = Activity(lambda: 3_000)
    async with run_node(database, "a", activity=activity) as a:
        lease, _ = await begin_chat(a)
        await a.tell(GiveBack(lease))
        await begin_chat(a, "m2", CLI)
        kind = (lease.owner.partition("/")[0],)
        assert {name: read() for name, read in activity.gauges.items()} == {
            "pegasus_nodes": {(): 1},
            "pegasus_node_lease_seconds": {(): pytest.approx(LEASE - 1, abs=LEASE / 3)},
            "pegasus_node_keys": {kind: 1},
        }
        assert activity.counts["pegasus_keys_taken_total"] == {kind: 2}
        assert activity.counts["pegasus_keys_lost_total"] == {kind: 1}
        assert sum(activity.durations["pegasus_pickup_duration_seconds"]["web",].buckets) == 1
        made = activity.counts["pegasus_database_transactions_total"]["ok",]
        await trio.sleep(60)
        took = activity.counts["pegasus_database_seconds_total"][()]
        assert took < 1, "the wait for notices is no transaction"
        made = activity.counts["pegasus_database_transactions_total"]["ok",]
        database.stop()
        await trio.sleep(LEASE / 3)
        assert activity.counts["pegasus_database_transactions_total"]["ok",] == made
        assert activity.counts["pegasus_database_transactions_total"]["down",] > 0
        database.start()


async def test_a_node_says_which_settings_it_has_after_a_reload(database, autojump_clock):
    digest = ["before"]
    async with run_node(database, "a", settings=lambda: digest[0]):
        await trio.sleep(1)
        digest[0] = "after"
        await trio.sleep(LEASE)
        [node] = await database.link("c").nodes()
        assert node.facts.settings == "after"


async def test_the_chat_of_a_node_that_died_is_taken_over_after_its_lease(database, autojump_clock):
    async with run_node(database, "b") as b, run_node(database, "a") as a:
        old, _ = await begin_chat(a)
        database.kill("a")
        began = trio.current_time()
        address, lease, item = await take_chat(b)
        assert LEASE - 2 <= trio.current_time() - began <= LEASE + LOOK
        assert (address, item.message.id, item.attempt) == (WEB.address, "m1", 1)
        assert lease.token > old.token
        assert (await answer(b, lease, item)).seq == 1


async def test_a_node_without_its_database_stops_a_second_before_another_one_begins(database, autojump_clock):
    async with two_nodes(database) as (a, b):
        lease, item = await begin_chat(a)
        events = []

        async def note(name, *question):
            await question[0].ask(*question[1:])
            events.append((name, trio.current_time()))

        async with trio.open_nursery() as nursery:
            for question in ((a, LostChats, {WEB.address: lease}), (a, LostLease, lease)):
                nursery.start_soon(note, "stopped", *question)
            nursery.start_soon(note, "taken", b, NextChat)
            await trio.sleep(1)
            database.cut("a")
        assert [name for name, _ in sorted(events, key=lambda event: event[1])] == ["stopped", "stopped", "taken"]
        with pytest.raises(LeaseLost):
            await answer(a, lease, item)
        database.mend("a")
        new = await b.ask(TakeLease, OWNER)
        taken = await b.ask(NextItem, "main", WEB.address)
        assert (await answer(b, new, taken, "from b")).text == "from b"
        assert await a.ask(ReadFile, SESSION) == b"from b\n"


async def test_a_node_that_was_cut_off_registers_anew_and_works(database, autojump_clock):
    async with run_node(database) as a:
        await begin_chat(a)
        database.cut("a")
        await trio.sleep(20)
        database.mend("a")
        _, lease, item = await take_chat(a)
        assert (item.message.id, (await answer(a, lease, item)).seq) == ("m1", 1)
        assert len([report for report in a.reports if "lost its lease" in report]) == 1


async def test_whoever_runs_agents_is_told_of_each_lost_lease_also_of_chats_that_were_taken_again(
    database, autojump_clock
):
    """Under the old lease an agent would be given the item of its chat, which it cannot end, again and again."""
    async with run_node(database) as a:
        running = {channel.address: (await begin_chat(a, str(channel), channel))[0] for channel in (CLI, WEB)}
        lost = tuple(running)
        told = await a.ref.request(LostChats, running)
        database.cut("a")
        await trio.sleep(LEASE)
        assert await told.get() == lost
        database.mend("a")
        await trio.sleep(LOOK)
        assert len(database.tables.nodes()[0].keys) == 2, "it has both again"
        assert await within(0.1, a.ask(LostChats, running)) == lost
        running = {address: await a.ask(TakeLease, chat_owner(address)) for address in lost}
        with trio.move_on_after(60) as scope:
            await a.ask(LostChats, running)
        assert scope.cancelled_caught


async def test_a_change_under_a_lease_does_not_outlive_it(database, autojump_clock):
    """It waits for the database, and ends when somebody else may have begun. Whoever waits for more is told at once."""
    async with run_node(database) as a:
        lease, item = await begin_chat(a)
        database.cut("a")
        began = trio.current_time()
        with pytest.raises(LeaseLost):
            await answer(a, lease, item)
        assert trio.current_time() - began < LEASE


@pytest.mark.parametrize("latencies", [(0, 3), (0, 0, 0, 3)], ids=["the lease is under way", "its items are"])
async def test_a_lease_that_arrives_after_its_registration_has_ended_is_none(database, autojump_clock, latencies):
    """The node has registered anew by then, and another one has the key. Of a schedule or a channel it would never notice."""
    activity = Activity()
    async with run_node(database, "a", activity=activity) as a, run_node(database, "b") as b:
        await trio.sleep(0.1)
        delays = iter(latencies)
        database.latency = lambda: next(delays, 0)
        taking = await a.ref.request(TakeLease, "schedule")
        await trio.sleep(LOOK)
        database.tables.end_lease(1)
        await b.ask(TakeLease, "schedule")
        with pytest.raises(LeaseLost):
            await taking.get()
        assert not activity.gauges["pegasus_node_keys"]()


async def test_a_claim_that_is_done_after_its_caller_has_given_up_leaves_no_item_open(database, autojump_clock):
    """It makes the lease void that was taken meanwhile: nothing is refused but the note that the item is done."""
    async with run_node(database) as a:
        lease, item = await begin_chat(a)
        await trio.sleep(2 * LOOK)
        database.tables.claim(1, OWNER)
        await a.tell(CompleteItem(item.n, lease))
        lost = await within(2 * LOOK, a.ask(LostChats, {WEB.address: lease}))
        assert lost == (WEB.address,)
        _, lease, item = await within(2 * LOOK, take_chat(a))
        await a.tell(CompleteItem(item.n, lease))
        await trio.sleep(LOOK)
        assert database.tables.inbox[item.n].done_at is not None


async def test_a_lease_whose_asker_has_left_is_given_back(database, autojump_clock):
    async with run_node(database, "a") as a, run_node(database, "b") as b:
        await trio.sleep(0.1)
        delays = iter((0, 1))
        database.latency = lambda: next(delays, 0)
        with trio.move_on_after(LOOK):
            await a.ask(TakeLease, "schedule")
        with pytest.raises(LeaseLost):
            await b.ask(TakeLease, "schedule")
        await trio.sleep(1)
        await b.ask(TakeLease, "schedule")


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNANSWERED, Fate.LATE])
@pytest.mark.parametrize("drained", [False, True])
async def test_a_lease_whose_asker_has_left_before_an_answer_that_is_lost_is_given_back(
    database, autojump_clock, fate, drained
):
    async with run_node(database, "a") as a, run_node(database, "b") as b:
        await trio.sleep(0.1)
        held = [await a.ask(TakeLease, key) for key in ("main", "channel/sms")]
        fates = [fate, fate]
        database.fate = lambda link, method: fates.pop() if method == "claim" and fates else Fate.DONE
        for key in ("schedule", held[0].owner):
            with trio.move_on_after(LOOK):
                await a.ask(TakeLease, key)
        if drained:
            await database.link("operator").drain("a")
        await trio.sleep(database.lateness + LEASE)
        await b.ask(TakeLease, "schedule")
        assert (await b.ask(TakeLease, "main")).token > held[0].token
        if not drained:
            with pytest.raises(LeaseLost):
                await b.ask(TakeLease, held[1].owner)


async def test_a_lease_whose_asker_has_left_is_given_back_when_the_database_is_there_again(database, autojump_clock):
    async with run_node(database, "a") as a, run_node(database, "b") as b:
        await trio.sleep(0.1)
        lost = [Fate.LOST]
        database.fate = lambda link, method: lost.pop() if method == "give_back" and lost else Fate.DONE
        delays = iter((0, 1))
        database.latency = lambda: next(delays, 0)
        with trio.move_on_after(LOOK):
            await a.ask(TakeLease, "schedule")
        await trio.sleep(LEASE)
        await b.ask(TakeLease, "schedule")
        assert (await a.accept("m1")).n == 1


async def test_what_a_node_ends_in_order_is_taken_at_once(database, autojump_clock):
    async with run_node(database, "b") as b:
        async with run_node(database, "a") as a:
            await begin_chat(a)
        address, _, item = await within(LOOK, take_chat(b))
        assert (address, item.message.id) == (WEB.address, "m1")


async def test_a_drained_node_gives_everything_back_and_takes_nothing(database, autojump_clock):
    async with two_nodes(database) as (a, b):
        lease, item = await begin_chat(a)
        idle = await a.ask(TakeLease, "schedule")
        await database.link("operator").drain("a")
        await within(LEASE, a.ask(LostLease, idle))
        with pytest.raises(LeaseLost):
            await a.ask(TakeLease, "schedule")
        assert (await b.ask(TakeLease, "schedule")).token > idle.token
        assert (await answer(a, lease, item)).seq == 1, "what is at work may end"
        await a.accept("m2", channel=WEB)
        assert (await take_chat(b))[2].message.id == "m2"


async def test_who_drains_the_last_node_that_works_is_told(database, autojump_clock):
    nodes = NodeList(database.link("c"))
    async with two_nodes(database):
        assert await nodes.drain("a") == {"name": "a", "working": 1}
        assert await nodes.drain("b") == {"name": "b", "working": 0}
        assert await nodes.drain("c") is None
    assert "messages wait until one is started" in drain_text({"name": "b", "working": 0})
    assert "messages wait" not in drain_text({"name": "b", "working": 1})


async def test_a_drained_node_that_loses_its_lease_is_drained_still(database, autojump_clock):
    activity = Activity()
    async with run_node(database, "a", activity=activity) as a:
        await database.link("operator").drain("a")
        await trio.sleep(LEASE)
        database.cut("a")
        await trio.sleep(2 * LEASE)
        database.mend("a")
        await trio.sleep(2 * LEASE)
        assert [(state.facts.name, state.is_draining) for state in await database.link("operator").nodes()] == [
            ("a", True)
        ]
        assert activity.is_draining
        with pytest.raises(LeaseLost):
            await a.ask(TakeLease, "schedule")


async def test_chats_without_an_agent_go_back_and_to_a_node_with_room(database, autojump_clock):
    channels = [ChannelInfo("web", f"c{n}") for n in range(4)]
    async with two_nodes(database) as (a, b):
        with trio.move_on_after(1):
            await a.ask(LostChats, {})
        for channel in channels:
            await a.accept("m", channel=channel)
        first = await a.ask(NextChat)  # and there is no room for more
        running = {first: await a.ask(TakeLease, chat_owner(first))}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(a.ask, LostChats, running)
            found = []
            while len(found) < 3:
                found.append((await within(10, take_chat(b, frozenset(found))))[0])
            assert {*found} == {channel.address for channel in channels} - {first}
            nursery.cancel_scope.cancel()


async def test_of_ten_thousand_chats_that_are_due_at_once_a_node_holds_a_few_at_a_time(database, autojump_clock):
    channels = {n: ChannelInfo("web", f"c{n}") for n in range(1, 10_001)}
    messages = {n: encode_json(to_wire(InboundMessage("Hi", channel, "m"))) for n, channel in channels.items()}
    items = [
        NewItem(chat_owner(channel.address), channel.address, f"{n}", messages[n], "main", 0, 1, is_owners=True)
        for n, channel in channels.items()
    ]
    database.tables.fill("", [InboxItem(n, item, None) for n, item in enumerate(items, 1)])
    async with two_nodes(database) as (a, b), trio.open_nursery() as nursery:
        done = []
        for node in (a, b) * 3:
            _, lease, item = await within(2, take_chat(node))
            done.append(item.n)
            await node.tell(CompleteItem(item.n, lease))
        assert len({*done}) == 6
        assert max(done) <= 6 * TAKEN_AT_ONCE  # those come first that have waited for longest
        held = [len(state.keys) for state in database.tables.nodes()]
        assert TAKEN_AT_ONCE <= min(held) <= max(held) <= 8 * TAKEN_AT_ONCE
        for node in (a, b):  # there is room for no more
            nursery.start_soon(node.ask, LostChats, {})
        await trio.sleep(3)
        assert [len(state.keys) for state in database.tables.nodes()] == [0, 0]
        assert database.tables.waiting(None, None, None, None) == 10_000 - 6
        nursery.cancel_scope.cancel()


async def test_a_chat_that_has_waited_is_not_given_back_while_its_agent_starts(database, autojump_clock):
    async with two_nodes(database) as (a, _):
        await a.accept("m", channel=WEB)
        await a.ask(NextChat)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(a.ask, LostChats, {})  # an agent is named there when it has started
            await trio.sleep(1.9)
            lease = await a.ask(TakeLease, OWNER)
            await trio.sleep(1.5)
            item = await within(1, a.ask(NextItem, "main", WEB.address))
            assert (await answer(a, lease, item)).seq == 1
            nursery.cancel_scope.cancel()


async def test_a_key_that_is_given_back_is_free_at_once(database, autojump_clock):
    async with two_nodes(database) as (a, b):
        lease = await a.ask(TakeLease, "schedule")
        with pytest.raises(LeaseLost, match="another node owns schedule"):
            await b.ask(TakeLease, "schedule")
        await a.tell(GiveBack(lease))
        await trio.sleep(0.1)
        assert (await b.ask(TakeLease, "schedule")).token > lease.token
        with pytest.raises(LeaseLost):
            await a.ask(Commit, (("x.jsonl", b"1\n"),), (), lease)


async def test_of_two_nodes_of_one_name_the_second_is_refused(database, autojump_clock):
    async with run_node(database, "a"):
        database.link("other")
        with pytest.raises(GaveUp, match=r"another node has the name 'a'.*another name"):
            async with run_node(Renamed(database), "a") as second:
                await second.accept("m")


class Renamed:
    """The database as another process sees it, whose link has a name of its own."""

    def __init__(self, database):
        self._database = database

    def link(self, name):
        return self._database.link(f"other {name}")


async def test_a_node_takes_its_name_again_after_it_was_killed(database, autojump_clock):
    with trio.move_on_after(1) as scope:
        async with run_node(database, "a") as a:
            await begin_chat(a)
            database.kill("a")
            scope.cancel()
            await trio.sleep_forever()
    async with run_node(database, "a") as again:
        assert (await within(LEASE + 1, take_chat(again)))[2].message.id == "m1"


async def test_an_item_that_ends_while_its_chat_is_taken_anew_is_not_lost(autojump_clock):
    """The note comes too late for the old lease. The database would ignore it, so it has no effect here either."""
    database = MemoryDatabase(latency=lambda: 0.1)
    async with run_node(database) as a:
        lease, item = await begin_chat(a)
        taking = await a.ref.request(TakeLease, OWNER)
        await trio.sleep(0.05)
        await a.tell(CompleteItem(item.n, lease))
        new = await taking.get()
        again = await within(1, a.ask(NextItem, "main", WEB.address))
        assert (again.n, again.attempt) == (item.n, 2)
        await a.tell(CompleteItem(again.n, new))
        assert await a.ask(Waiting) == 0


# ------------------------------------------------------------------ messages at one node for another


async def test_a_message_reaches_the_node_that_owns_its_chat(database, autojump_clock):
    async with two_nodes(database) as (a, b):
        lease, item = await begin_chat(a)
        await answer(a, lease, item)
        assert await b.accept("m2", channel=WEB) == Accepted(2, duplicate=False)
        assert (await within(0.3, a.ask(NextItem, "main", WEB.address))).message.id == "m2"
        assert await b.accept("m2", channel=WEB) == Accepted(2, duplicate=True)


async def test_messages_of_two_nodes_keep_their_order(autojump_clock):
    """The node that owns the chat accepts one before it has heard of the one before."""
    database = MemoryDatabase(loses_notice=lambda: True)
    async with two_nodes(database) as (a, b):
        lease, item = await begin_chat(a)
        await b.accept("m2", channel=WEB)
        await a.accept("m3", channel=WEB)
        await answer(a, lease, item)
        for id in ("m2", "m3"):
            item = await within(1, a.ask(NextItem, "main", WEB.address))
            assert item.message.id == id
            await a.tell(CompleteItem(item.n, lease))


async def test_a_command_reaches_the_node_that_owns_the_chat_in_time(database, autojump_clock):
    async with two_nodes(database) as (a, b):
        await begin_chat(a)
        await b.accept("/stop", channel=WEB, lane="control")
        assert (await within(0.3, a.ask(NextItem, "control", WEB.address))).message.id == "/stop"


async def test_a_command_for_a_chat_that_nobody_owns_is_taken_where_there_is_room_for_commands_only(
    database, autojump_clock
):
    async with run_node(database) as a:
        await a.accept("m", channel=CLI)
        await a.accept("/status", channel=WEB, lane="control")
        assert await within(0.3, a.ask(NextChat, frozenset(), ("control",))) == WEB.address


async def test_without_notices_everything_is_half_a_second_later(autojump_clock):
    database = MemoryDatabase(loses_notice=lambda: True)
    async with two_nodes(database) as (a, b):
        await b.tell(Connected("web", "c1"))
        lease, item = await begin_chat(a)
        await answer(a, lease, item)
        assert await within(LOOK + 0.1, texts(b)) == ["Hi"]
        await b.accept("m2", channel=WEB)
        assert (await within(LOOK + 0.1, a.ask(NextItem, "main", WEB.address))).message.id == "m2"


async def test_who_is_heard_at_an_address_is_known_to_all_nodes(database, autojump_clock):
    """A guest has written at one node. What a report says there, from another node, belongs to the guest's conversation."""
    guest = InboundMessage("hi", WEB, "m1", {"apart": True, "account": "guest"})
    async with two_nodes(database, scope="global") as (a, b):
        await a.ask(TakeLease, OWNER)
        await b.accept("m0", channel=WEB)
        await a.ask(Accept, guest, "main", 1)
        await b.ask(Accept, InboundMessage("done", WEB, "\x1ft1"), "main", 2)
        items = [await a.ask(NextItem, "main", WEB.address, True)]
        await a.tell(CompleteItem(items[0].n))
        items.append(await a.ask(NextItem, "main", WEB.address, True))
        assert [item.message.id for item in items] == ["m1", "\x1ft1"]
        assert await a.ask(Waiting, WEB.address, None, None, False) == 1


async def test_the_end_of_an_item_is_told_at_any_node(database, autojump_clock):
    async with two_nodes(database) as (a, b):
        lease, item = await begin_chat(a)
        ended = []

        async def wait(node, *question):
            await node.ask(*question)
            ended.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            for node in (a, b):
                nursery.start_soon(wait, node, ItemDone, item.n)
                nursery.start_soon(wait, node, LaneDone, "main")
            await trio.sleep(3)
            assert ended == []
            done = trio.current_time()
            await answer(a, lease, item)
        assert len(ended) == 4
        assert max(ended) <= done + 2 * LOOK


async def test_discarding_counts_messages_that_other_nodes_have_accepted(database, autojump_clock):
    async with two_nodes(database) as (a, b):
        lease, item = await begin_chat(a)
        for id in ("m2", "m3"):
            await b.accept(id, channel=WEB)
        report = InboundMessage("dropped", WEB, "\x1fdiscard/9")
        assert (
            await a.ask(
                partial(Discard, report=report, before=9, priority=9, report_priority=2, owner=True, lease=lease)
            )
            == 2
        )
        await answer(a, lease, item)
        told = await a.ask(NextItem, "main", WEB.address)
        assert (told.message.text, told.message.metadata["discarded"]) == ("dropped", 2)
        await a.tell(CompleteItem(told.n, lease))
        assert (await a.ask(Waiting), await b.ask(Waiting)) == (0, 0)


# ------------------------------------------------------------------ replies


async def test_a_reply_goes_out_where_its_client_is_connected(database, autojump_clock):
    async with two_nodes(database) as (a, b):
        await b.tell(Connected("web", "c1"))
        await b.tell(Connected("mail", None))
        lease, item = await begin_chat(a)
        await answer(a, lease, item, "one")
        assert await within(0.2, texts(b)) == ["one"]
        mail = Post("k2", "two", "x@example.org", WEB, "mail")
        await a.ask(Commit, (), (mail,), lease)
        assert await within(0.2, texts(b, 1)) == ["two"]


async def test_a_client_that_comes_back_is_followed_though_its_leaving_is_done_late(autojump_clock):
    database = MemoryDatabase(loses_notice=lambda: True)  # none is sent to who is not connected
    async with run_node(database, "a") as a, run_node(database, "b") as b:
        lease = await a.ask(TakeLease, OWNER)
        await b.tell(Connected("web", "c1"))
        await trio.sleep(1)
        late = [Fate.LATE]
        database.fate = lambda link, method: late.pop() if method == "connect" and late else Fate.DONE
        await b.tell(Disconnected("web", "c1"))
        await trio.sleep(0.1)
        await b.tell(Connected("web", "c1"))
        await trio.sleep(database.lateness)
        assert not late
        await a.ask(partial(Commit, posts=(Post("k", "Hi", "c1", WEB),), lease=lease))
        assert await within(LOOK, texts(b)) == ["Hi"]


async def test_replies_of_many_nodes_to_one_address_keep_their_order(database, autojump_clock):
    async with two_nodes(database) as (a, b):
        await b.tell(Connected("web", "c1"))
        await b.ask(Unacknowledged, "web", "c1")
        numbers = range(40)

        async def post(node, n):
            await node.ask(Commit, (), (Post(f"k{n}", "hi", "c1", WEB),))

        async with trio.open_nursery() as nursery:
            for n in numbers:
                nursery.start_soon(post, (a, b)[n % 2], n)
        seqs, handed = [], 0
        while len(seqs) < len(numbers):
            for due in await within(1, b.ask(NextReplies, handed)):
                seqs.append(due.message.seq)
                handed = due.position
        assert seqs == [n + 1 for n in numbers]


async def test_between_reading_and_following_nothing_is_missed(database, autojump_clock):
    async with two_nodes(database) as (a, b):
        for n in range(3):
            await a.post(f"k{n}", WEB, text=str(n))
        await b.tell(Connected("web", "c1"))
        missed = await b.ask(Unacknowledged, "web", "c1")
        await a.post("k3", WEB, text="3")
        assert [reply.text for reply in missed] + await within(0.2, texts(b)) == ["0", "1", "2", "3"]
        await a.tell(Acknowledge(WEB.address, 4))
        await trio.sleep(0.1)
        assert await b.ask(Unacknowledged, "web", "c1") == ()


async def test_a_reply_is_left_to_the_node_that_serves_its_type(database, autojump_clock):
    async with two_nodes(database) as (a, b):
        await b.tell(Connected("mail", None))
        await trio.sleep(3)
        await a.post("k1", WEB, text="heard within the process")
        await a.post("k2", ChannelInfo("mail", "x"), text="sent by b")
        assert await texts(a) == ["heard within the process"]
        assert await texts(b) == ["sent by b"]
        await b.tell(Disconnected("mail", None))


async def test_a_bridge_hears_of_new_addresses_in_the_order_of_posting(database, autojump_clock):
    calls = DatabaseCalls(print, Activity(NOW))
    replies = FollowedReplies(database, calls, Notes(database, calls), lambda: None)
    replies.connected("mail", None)
    replies.posted(
        OutboundMessage(text, ChannelInfo("mail", id), seq)
        for text, id, seq in (("1", "x", 1), ("2", "y", 1), ("3", "x", 2))
    )
    assert [reply.message.text for _, reply in replies.handout.outgoing] == ["1", "2", "3"]


async def test_replies_that_nobody_fetches_are_reported_and_given_up(database, autojump_clock):
    later = NOW + 31 * 24 * 3600 * 1000
    async with run_node(database) as a:
        for n in range(3):
            await a.post(f"k{n}", WEB, text=f"text {n}")
        await a.post("k", CLI)
        await a.tell(Acknowledge(CLI.address, 1))
    async with run_node(database, "a", now=lambda: later) as a, run_node(database, "b", now=lambda: later) as b:
        await b.post("new", WEB)
        await trio.sleep(1)
        [reply] = await b.ask(Unacknowledged, "web", "c1")
        assert reply.seq == 4
        assert sum("3 replies to web:c1 were dropped" in report for report in (*a.reports, *b.reports)) >= 1
    async with run_node(database) as a:
        item = (await take_chat(a))[2]
        assert (await a.ask(Waiting), item.message.metadata["type"]) == (1, UNDELIVERED_REPLY)
        assert "text 2" in item.message.text


async def test_a_turn_costs_four_transactions(database, autojump_clock):
    """A message, two durable steps, and the notes of its end. What others do is looked at beside that, whatever there is to do."""
    async with run_node(database) as a:
        await a.tell(Connected("web", "c1"))
        lease, item = await begin_chat(a)
        await answer(a, lease, item)
        await trio.sleep(1)
        done = []
        database.fate = lambda link, method: done.append(method) or Fate.DONE
        await a.accept("m2", channel=WEB)
        item = await a.ask(NextItem, "main", WEB.address)
        await a.ask(Commit, ((SESSION, b"question\n"),), (), lease)
        await answer(a, lease, item)
        [due] = await a.ask(NextReplies, 1)
        await a.tell(Acknowledge(WEB.address, due.message.seq))
        await trio.sleep(3)
        looks = {"take", "newest_items", "renew", "owed", "served_types"}
        assert [method for method in done if method not in looks] == ["accept", "commit", "commit", "note"]


async def test_what_is_told_to_others_in_a_moment_is_one_notice_and_the_first_waits_for_nothing(
    database, autojump_clock
):
    async with two_nodes(database) as (a, b):
        await trio.sleep(LEASE)  # until each knows of the other
        began, heard, made = trio.current_time(), [], []
        database.fate = lambda link, method: made.append(method) or Fate.DONE

        async def tell():
            for n in range(50):
                await a.tell(TellNodes(str(n)))
                await trio.sleep(0.02)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell)
            heard += await b.ask(NextTold)
            assert trio.current_time() - began < 0.1
            while len(heard) < 50:
                heard += await b.ask(NextTold)
        assert heard == [str(n) for n in range(50)]
        assert made.count("notify") <= 6


async def test_a_node_tells_the_others_from_its_first_moment_on(database, autojump_clock):
    async with run_node(database, "a") as a, run_node(database, "b") as b:
        await b.ask(Waiting)
        await b.tell(TellNodes("a draft"))
        assert await within(1, a.ask(NextTold)) == ("a draft",)


# ------------------------------------------------------------------ changes of others


async def test_who_follows_a_collection_hears_of_a_change_at_another_node(database, autojump_clock):
    async with two_nodes(database) as (a, b):
        found = []

        async def follow(*question):
            found.append(await b.ask(NextChange, *question))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, "tokens", "", 0)
            nursery.start_soon(follow, "approvals", "", 0)
            await trio.sleep(2)
            version = await a.ask(PutRows, "tokens", "", {"tokens/x": "{}"}, frozenset(), lambda: b"", 0)
            await a.append("approvals.jsonl", b'{"id":"a"}\n{"id":"b"}\n')
        assert sorted(found) == sorted([version, 2])
        assert (await b.ask(ReadRows, "tokens")).version == version


# ------------------------------------------------------------------ a database that does not answer


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNANSWERED, Fate.LATE])
@pytest.mark.parametrize("after", [0, None])
async def test_a_commit_whose_answer_is_lost_is_done_once(database, autojump_clock, fate, after):
    async with run_node(database) as a:
        lease, item = await begin_chat(a)
        await trio.sleep(0.3)
        database.plan("a", fate)
        assert (await answer(a, lease, item, after=after)).seq == 1
        await trio.sleep(10)
        assert await a.ask(ReadFile, SESSION) == b"Hi\n"
        assert len(await a.ask(Unacknowledged, "web", "c1")) == 1


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNANSWERED])
async def test_a_chat_is_taken_though_the_answer_is_lost(database, autojump_clock, fate):
    async with run_node(database) as a:
        database.fate = lambda link, method: fate if method == "take" and fates.pop() else Fate.DONE
        fates = [False] * 99 + [True]
        await a.accept("m1", channel=WEB)
        assert (await within(4, take_chat(a)))[2].message.id == "m1"


async def test_while_the_database_is_down_everything_waits_and_nothing_is_lost(database, autojump_clock):
    async with run_node(database, lease=30.0) as a:
        lease, item = await begin_chat(a)
        database.stop()
        done = []

        async def accept(n):
            done.append(await a.accept(f"w{n}", channel=CLI))

        async with trio.open_nursery() as nursery:
            for n in range(20):
                nursery.start_soon(accept, n)
            nursery.start_soon(answer, a, lease, item)
            await trio.sleep(8)
            assert done == []
            database.start()
        assert len({accepted.n for accepted in done}) == 20
        assert await a.ask(Waiting) == 20
        assert await a.ask(ReadFile, SESSION) == b"Hi\n"
        assert len([report for report in a.reports if "waits until the database answers" in report]) == 1


async def test_a_database_that_only_reads_is_reported_once_and_waited_for_as_long_as_somebody_does(autojump_clock):
    database, activity = MemoryDatabase(), Activity()
    async with run_node(database, activity=activity) as a:
        database.refusal = "its disk is full"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(a.accept, "m", channel=WEB))
            await trio.sleep(1)
            for _ in range(600):
                assert activity.waits_for
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
        assert len([told for told in a.reports if "its disk is full" in told]) == 1
        database.refusal = ""
        await trio.sleep(LEASE)
        assert not activity.waits_for


async def test_a_node_to_which_nobody_says_anything_is_ready_again_after_its_database_was_restarted(autojump_clock):
    database, activity = MemoryDatabase(), Activity()
    async with run_node(database, activity=activity):
        database.stop()
        await trio.sleep(2)
        assert activity.waits_for
        database.start()
        await trio.sleep(LEASE)
        assert not activity.waits_for


async def test_who_leaves_while_the_database_is_down_is_not_worked_for(database, autojump_clock):
    async with run_node(database) as a:
        await a.accept("m", channel=WEB)
        database.stop()
        with trio.move_on_after(1):
            await a.accept("left", channel=CLI)
        await trio.sleep(1)
        database.start()
        await trio.sleep(10)
        assert await a.ask(Waiting) == 1


async def test_a_database_that_is_down_at_the_start_is_waited_for(database, autojump_clock):
    database.stop()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def start():
            await trio.sleep(60)
            database.start()

        async with run_node(database) as a:
            assert trio.current_time() >= 60
            assert (await a.accept("m")).n == 1


async def test_the_end_does_not_wait_for_a_database_that_is_down(database, autojump_clock):
    exits = []

    async def note_end(ref):
        exits.append((await watch(ref)).exit)

    async with trio.open_nursery() as nursery:
        async with run_node(database) as a:
            nursery.start_soon(note_end, a.ref)
            await begin_chat(a)
            await a.tell(CompleteItem(1))
            database.stop()
            waiting = await a.ref.request(ReadFile, SESSION)
            await trio.sleep(0.2)
            began = trio.current_time()
        assert trio.current_time() - began < 10
    with pytest.raises(StorageError):
        await waiting.get()
    assert [type(exit) for exit in exits] == [Stopped]
