"""What each method of a database promises, held against every implementation (see `SERVERS` in conftest)."""

from __future__ import annotations

import inspect
from functools import partial

import attrs
import pytest
import trio

from pegasus.messages import Address, ChannelInfo, OutboundMessage
from pegasus.storage import Changed, Lease, LeaseLost, Overloaded, UnacknowledgedReply, chat_owner
from pegasus.storage.database import (
    AcceptedItem,
    Database,
    DurableStep,
    FileContents,
    Heard,
    InboxItem,
    KnownAddress,
    NameTaken,
    NewItem,
    NewReply,
    NodeFacts,
    Notice,
    Numbering,
    Numbers,
    PostedReply,
    ReplyNumbers,
    Rows,
    RowsContents,
    dedupe_of,
)
from pegasus.testing.memory_tables import MemoryTables

C1, C2, MAIL = ChannelInfo("web", "c1"), ChannelInfo("web", "c2"), ChannelInfo("mail", "m")
CHAT, CHAT2, CHAT3 = (chat_owner(channel.address) for channel in (C1, C2, MAIL))
NOT_TABLES = {"next_notices", "aclose", "contents", "fill"}
"""Methods that the link of a database in memory has itself."""


def item(id, channel=C1, **values):
    """An item of the owner with this id of its sender."""
    given = {"lane": "main", "priority": 0, "is_owners": True, "sender": "ann", "at": 1}
    key = chat_owner(channel.address)
    return NewItem(key, channel.address, dedupe_of(channel, id), f'{{"text":"{id}"}}', **(given | values))


def reply(key, channel=C1, text="hi"):
    return NewReply(key, OutboundMessage(text, channel, 0), 5)


def step(id, *, node=1, leases=(), lines=(), after=None, posts=()):
    return DurableStep(id, node, tuple(leases), tuple(lines), after, tuple(posts))


async def accept(database, *items, node=1, max_waiting=1000):
    return [(await database.accept(node, each, max_waiting)).n for each in items]


@pytest.fixture
async def database(server):
    return await server.link("a")


@pytest.fixture
async def node(database):
    return await database.register(NodeFacts("a", instance="a1"), 5)


@pytest.fixture
async def other(database):
    return await database.register(NodeFacts("b", instance="b1"), 5)


def test_the_tables_in_memory_have_the_methods_of_the_interface():
    wanted = {name for name, method in vars(Database).items() if inspect.iscoroutinefunction(method)} - NOT_TABLES
    for name in wanted:
        expected = inspect.signature(getattr(Database, name)).parameters
        assert inspect.signature(getattr(MemoryTables, name)).parameters.keys() == expected.keys(), name


# ------------------------------------------------------------------ nodes and ownership


async def test_a_name_has_one_living_node(server, database, node):
    with pytest.raises(NameTaken):
        await database.register(NodeFacts("a", instance="a2"), 5)
    assert await database.register(NodeFacts("a", instance="a1"), 5) == node
    await server.end_lease(node)
    assert await database.register(NodeFacts("a", instance="a2"), 5) > node


async def test_a_lease_that_has_ended_is_not_renewed(server, database, node, other):
    assert (await database.renew(node, 5)).living == 2
    await server.end_lease(node)
    assert await database.renew(node, 5) is None
    assert (await database.renew(other, 5)).living == 1


async def test_settings_that_were_reloaded_are_known_from_the_next_renewal(database):
    node = await database.register(NodeFacts("a", settings="before"), 5)
    await database.renew(node, 5)
    assert [state.facts.settings for state in await database.nodes()] == ["before"]
    await database.renew(node, 5, "after")
    assert [state.facts.settings for state in await database.nodes()] == ["after"]


async def test_nodes_show_what_they_hold(server, database, node, other):
    await database.claim(node, CHAT)
    await database.claim(other, "schedule")
    assert await database.drain("b")
    assert not await database.drain("c")
    a, b = await database.nodes()
    assert (a.facts.name, a.keys, a.is_draining) == ("a", (CHAT,), False)
    assert (b.facts.name, b.keys, b.is_draining) == ("b", ("schedule",), True)
    assert 4 < a.lease_left <= 5
    assert (await database.renew(other, 5)).is_draining
    await server.end_lease(node)
    assert [state.is_alive for state in await database.nodes()] == [False, True]


async def test_due_keys_are_taken_once_those_first_that_have_waited_for_longest(database, node, other):
    await accept(database, item("1", C2), item("2", C1), item("3", MAIL))
    assert await database.take(node, ["main"], 10) == ()
    assert await database.take(node, ["chat"], 1) == (Lease(CHAT2, 1),)
    assert await database.take(other, ["chat", "main"], 10) == (Lease(CHAT, 1), Lease(CHAT3, 1))
    assert await database.take(node, ["chat"], 10) == ()


async def test_keys_with_a_command_can_be_taken_alone(database, node):
    await accept(database, item("1"), item("2", C2, lane="control"))
    assert [lease.owner for lease in await database.take(node, ["chat"], 9, control_only=True)] == [CHAT2]


async def test_the_keys_of_a_dead_node_are_taken_with_a_new_token(server, database, node, other):
    await accept(database, item("1"))
    [old] = await database.take(node, ["chat"], 10)
    await server.end_lease(node)
    assert await database.take(node, ["chat"], 10) == ()
    assert await database.claim(node, "schedule") is None
    [new] = await database.take(other, ["chat"], 10)
    assert new.token > old.token


async def test_a_key_is_claimed_unless_another_living_node_has_it(server, database, node, other):
    first = await database.claim(node, "schedule")
    assert await database.claim(other, "schedule") is None
    again = await database.claim(node, "schedule")
    assert again.token > first.token
    await database.give_back(other, [again])
    await database.give_back(node, [first])
    assert await database.claim(other, "schedule") is None
    await database.give_back(node, [again])
    assert (await database.claim(other, "schedule")).token > again.token
    await server.end_lease(other)
    assert await database.claim(node, "schedule") is not None


async def test_a_node_that_leaves_has_nothing_any_more(database, node, other):
    await accept(database, item("1"))
    await database.take(node, ["chat"], 10)
    await database.connect(node, 1, [("mail", None)], is_connected=True)
    await database.leave(node)
    await database.leave(node)
    assert await database.renew(node, 5) is None
    assert [lease.owner for lease in await database.take(other, ["chat"], 10)] == [CHAT]
    assert await database.served_types() == frozenset()
    assert [state.facts.name for state in await database.nodes()] == ["b"]


# ------------------------------------------------------------------ inbox


async def test_an_id_is_accepted_once_at_its_address(database, node):
    assert await database.accept(node, item("m"), 1000) == AcceptedItem(1)
    assert await database.accept(node, item("m", at=9), 1000) == AcceptedItem(1, duplicate=True)
    assert (await database.accept(node, item("m", C2), 1000)).duplicate is False
    second = await database.accept(node, item("n"), 1000)
    assert (second.duplicate, second.previous) == (False, 1)
    await database.note([(1, None, 7)], {})
    assert await database.accept(node, item("m"), 0) == AcceptedItem(1, duplicate=True)
    assert (await database.accept(node, item("o"), 1000)).previous == second.n


async def test_numbers_of_a_key_come_in_the_order_of_commits(server, database, node):
    """Whoever has read up to a number has missed none below it."""
    found = []

    async def write(name):
        link = await server.link(name)
        for n in range(5):
            await accept(link, item(f"{name}{n}"), node=node)

    async def read():
        link, seen = await server.link("reader"), 0
        while len(found) < 15:
            for each in await link.items({CHAT: seen}):
                found.append(each.n)
                seen = each.n

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for name in ("b", "c", "d"):
                nursery.start_soon(write, name)
            nursery.start_soon(read)
    assert found == sorted(found)


async def test_lanes_are_full_over_all_nodes_owners_apart_from_others(database, node, other):
    await accept(database, item("1"), item("2", C2), node=node)
    assert await database.accept(other, item("3", MAIL), 2) == Overloaded(2)
    assert isinstance(await database.accept(other, item("3", MAIL, lane="control"), 2), AcceptedItem)
    guest = partial(item, is_owners=False, priority=1, sender="bob")
    assert isinstance(await database.accept(other, guest("4"), 2), AcceptedItem)
    assert await database.accept(other, guest("5", C2, max_of_sender=1), 2) == Overloaded(1, of_sender=True)
    assert isinstance(await database.accept(other, guest("6", max_of_sender=1, sender="eve"), 2), AcceptedItem)


async def test_an_item_that_was_decided_by_a_wrong_belief_is_not_accepted(database, node):
    assert await database.accept(node, item("1", heard="bob"), 9) == Heard("")
    await accept(database, item("1", hears="bob"))
    assert await database.accept(node, item("2"), 9) == Heard("bob")
    assert await database.accept(node, item("1"), 9) == AcceptedItem(1, duplicate=True)
    await accept(database, item("2", heard="bob", hears="*"))
    assert await database.addresses(None, 9) == (KnownAddress(C1.address, "*"),)


async def test_items_are_there_until_they_are_done(database, node):
    one, two, three = await accept(database, item("1"), item("2"), item("3", C2))
    stored = await database.items({CHAT: 0, CHAT2: 0})
    assert [(each.n, each.item) for each in stored] == [(one, item("1")), (two, item("2")), (three, item("3", C2))]
    assert [each.n for each in await database.items({CHAT: one})] == [two]
    first, second = await database.take(node, ["chat"], 9)
    assert await database.newest_items(node) == {first: two, second: three}
    await database.note([(two, None, 7), (two, None, 7), (99, None, 7)], {})
    assert await database.open_items([one, two, three, 99]) == {one, three}
    assert await database.newest_items(node) == {first: two, second: three}
    await database.note([(one, None, 7)], {})
    again = await database.claim(node, CHAT2)
    assert await database.newest_items(node) == {first: 0, again: three}


async def test_a_key_without_items_is_due_no_more(database, node):
    [n] = await accept(database, item("1"))
    await database.note([(n, None, 7)], {})
    assert await database.take(node, ["chat"], 9) == ()


async def test_waiting_items_are_counted(database, node):
    main = attrs.evolve(item("1"), key="main")
    await accept(database, main, item("2", C2, priority=2), item("3", C2, lane="control"))
    count = database.waiting
    assert await count(None, None, None, None) == 3
    assert await count(C2.address, None, None, None) == 2
    assert await count(None, "control", None, None) == 1
    assert await count(None, None, 1, None) == 2
    assert (await count(None, None, None, False), await count(None, None, None, True)) == (1, 2)


async def test_items_are_discarded_and_their_report_accepted_as_one(database, node):
    guest = partial(item, is_owners=False, sender="bob", priority=1)
    numbers = await accept(
        database, item("1"), guest("2"), item("3"), item("4", priority=2), item("5", C2), item("6", is_apart=True)
    )
    report = item("report", priority=2)
    discard = partial(database.discard, node, before=100, priority=1, lease=None)
    assert await discard(attrs.evolve(report, dedupe="f" * 16), senders=["eve"], spared=()) == 0
    assert await discard(report, senders=None, spared=[numbers[0]]) == 2
    assert await discard(report, senders=None, spared=()) is None
    assert await database.open_items(numbers) == {numbers[0], *numbers[3:]}
    stored = await database.items({CHAT: numbers[-1]})
    assert [(each.item, each.discarded) for each in stored] == [(report, 2)]
    assert await database.accept(node, item("2"), 9) == AcceptedItem(numbers[1], duplicate=True)


# ------------------------------------------------------------------ durable steps


async def test_replies_of_an_address_are_numbered_without_a_gap_and_a_key_is_one_reply(database, node):
    first = await database.commit(step("1", posts=[reply("k1"), reply("k2", C2), reply("k3")]))
    assert [(each.message.seq, each.message.key, each.is_new) for each in first] == [
        (1, "k1", True),
        (1, "k2", True),
        (2, "k3", True),
    ]
    second = await database.commit(step("2", posts=[reply("k3", text="other"), reply("k4")]))
    assert [(each.message.seq, each.is_new) for each in second] == [(2, False), (3, True)]
    assert [each and each.message.seq for each in await database.posted(["k4", "no", "k2"])] == [3, None, 1]
    found = await database.replies({C1.address: 1, C2.address: 0}, 9)
    assert [(each.message.channel, each.message.seq) for each in found] == [(C1, 2), (C1, 3), (C2, 1)]
    assert [each.message.text for each in found] == ["hi"] * 3
    assert len(await database.replies({C1.address: 0}, 2)) == 2


async def test_a_step_that_is_repeated_is_answered_as_done(database, node):
    asked = step("id", lines=[("chats/x.jsonl", ("a", "b")), ("u.jsonl", ("x",))], posts=[reply("k")])
    first = await database.commit(asked)
    again = await database.commit(asked)
    assert [each.message for each in again] == [each.message for each in first]
    assert await database.read("chats/x.jsonl") == b"a\nb\n"
    assert (await database.read_lines({"u.jsonl": 0}))["u.jsonl"] == ["x"]


async def test_a_step_is_refused_if_somebody_else_has_written(database, node):
    await database.commit(step("1", lines=[("x.jsonl", ("a",))], after=0))
    for after in (0, 2):
        with pytest.raises(Changed):
            await database.commit(
                step(f"b{after}", lines=[("x.jsonl", ("b",)), ("y.jsonl", ("c",))], after=after, posts=[reply("k")])
            )
    # By another process, which knows the lines and not the id of the request.
    await database.commit(step("c", lines=[("x.jsonl", ("a",))], after=0))
    assert await database.read("x.jsonl") == b"a\n"
    assert await database.read("y.jsonl") == b""
    assert await database.posted(["k"]) == (None,)
    assert await database.lengths(["x.jsonl", "y.jsonl"]) == {"x.jsonl": 1}


async def test_lines_are_kept_byte_for_byte(database, node):
    lines = (
        "",
        " a \t",
        "\u2028\x85\x0b",
        "e\u0301 é \U0001f986 \ufeff",
        '{"a":1.10,"b":"\\u0000"}',
        "x" * 100_000,
        "\\N \\. '",
        "NULL",
        "{,}",
    )
    await database.commit(step("1", lines=[("ä b/%s.jsonl", lines), ("ä b/%s.jsonl", ("last",))]))
    assert (await database.read_lines({"ä b/%s.jsonl": 0}))["ä b/%s.jsonl"] == [*lines, "last"]
    assert await database.read("ä b/%s.jsonl") == "".join(f"{line}\n" for line in (*lines, "last")).encode()
    assert (await database.read_lines({"ä b/%s.jsonl": len(lines)}))["ä b/%s.jsonl"] == ["last"]


async def test_a_stale_lease_is_refused_everywhere_and_nothing_happens(database, node):
    [n] = await accept(database, item("1"))
    old = await database.claim(node, CHAT)
    new = await database.claim(node, CHAT)
    await database.replace("chats/x.jsonl", b"a\n", 1, new)
    refused = [
        partial(database.commit, step("1", leases=[old], lines=[("chats/x.jsonl", ("b",))], posts=[reply("k")])),
        partial(database.commit, step("2", leases=[new, old], posts=[reply("k")])),
        partial(database.replace, "chats/x.jsonl", b"", 1, old),
        partial(database.archive, "3", "chats/x.jsonl", "y.jsonl", b"", 1, old),
        partial(database.discard, node, item("r"), 99, 9, None, (), old),
    ]
    for call in refused:
        with pytest.raises(LeaseLost):
            await call()
    await database.note([(n, old, 7)], {})
    assert await database.open_items([n]) == {n}
    assert await database.read("chats/x.jsonl") == b"a\n"
    assert await database.posted(["k"]) == (None,)
    await database.note([(n, new, 7)], {})
    assert await database.open_items([n]) == frozenset()


async def test_replies_are_owed_until_they_are_acknowledged(database, node, other):
    await database.commit(step("1", posts=[reply("1"), reply("2"), reply("3", C2), reply("4", MAIL)]))
    await database.connect(node, 2, [("web", "c1"), ("mail", None)], is_connected=True)
    assert await database.owed(node) == {C1.address: Numbering(2, 0), MAIL.address: Numbering(1, 0)}
    assert await database.owed(other) == {}
    await database.note([], {C1.address: 1, C2.address: 7, Address("web", "nobody"): 1})
    await database.note([], {C1.address: 0})
    assert await database.numberings([C1.address, C2.address, Address("web", "nobody")]) == {
        C1.address: Numbering(2, 1),
        C2.address: Numbering(1, 0),
    }
    found = await database.unacknowledged("web", None, 9)
    assert [(each.message.channel, each.message.seq, each.is_acknowledged) for each in found] == [
        (C1, 2, False),
        (C2, 1, False),
    ]
    assert [each.message.seq for each in await database.unacknowledged("web", "c1", 9)] == [2]
    assert len(await database.unacknowledged("web", None, 1)) == 1
    assert await database.open_replies(C1.address, 9) == (UnacknowledgedReply(C1.address, 2, "2"),)
    assert len(await database.open_replies(None, 9)) == 3
    assert (await database.open_channels("web"), await database.open_channels("cli")) == (("c1", "c2"), ())
    assert [each.message.key for each in await database.unfetched(10**15, 9)] == ["4", "2", "3"]
    assert (await database.unfetched(0, 9), len(await database.unfetched(10**15, 1))) == ((), 1)
    assert [each.is_acknowledged for each in await database.replies({C1.address: 0}, 9)] == [True, False]
    await database.connect(node, 1, [("web", "c1")], is_connected=False)  # done late: it is there again
    await database.connect(node, 3, [("mail", None)], is_connected=False)
    assert await database.owed(node) == {C1.address: Numbering(2, 1)}


# ------------------------------------------------------------------ addresses


async def test_addresses_are_known_that_were_seen_or_have_a_client(server, database, node, other):
    await accept(database, item("1"), item("2", C2), item("3"))
    await database.connect(node, 4, [("cli", "a|b"), ("web", "c2"), ("mail", None)], is_connected=True)
    await database.connect(other, 5, [("web", "c2"), ("mail", None)], is_connected=True)
    known = await database.addresses(None, 9)
    assert {each.address for each in known} == {Address("cli", "a|b"), C2.address, C1.address}
    assert known[-1].address == C1.address
    assert len(await database.addresses(None, 1)) == 1
    assert [each.address.channel_id for each in await database.addresses("a%7Cb", 9)] == ["a|b"]
    assert await database.served_types() == {"mail"}
    await database.connect(node, 6, [("mail", None), ("web", "c2")], is_connected=False)
    assert await database.served_types() == {"mail"}
    await server.end_lease(other)
    assert await database.served_types() == frozenset()
    assert [each.address for each in await database.addresses("c2", 9)] == [C2.address]


# ------------------------------------------------------------------ files


async def test_files_are_replaced_listed_and_removed(database, node):
    await database.replace("memory/a.md", b"\x00\xff", 7, None)
    await database.replace("memory/b.jsonl", b"1\n2\n", 8, None)
    await database.replace("memory/deep/c.md", b"c", 9, None)
    assert await database.read("memory/a.md") == b"\x00\xff"
    assert await database.read("memory/b.jsonl") == b"1\n2\n"
    assert await database.names("memory") == (("a.md", 2, 7), ("b.jsonl", 4, 8))
    await database.commit(step("1", lines=[("memory/b.jsonl", ("3",))], after=2))
    await database.replace("memory/a.md", b"", 9, None)
    assert await database.read("memory/b.jsonl") == b"1\n2\n3\n"
    assert [name for name, _, _ in await database.names("memory")] == ["a.md", "b.jsonl"]
    assert [name for name, _, _ in await database.names("memory", "a.")] == ["a.md"]
    await database.remove(["memory/a.md", "memory/none.md", "memory/b.jsonl"])
    assert (await database.names("memory"), await database.read("memory/b.jsonl")) == ((), b"")


async def test_a_file_is_archived_once(database, node):
    await database.commit(step("1", lines=[("chats/x.jsonl", ("a", "b"))]))
    archive = partial(database.archive, path="chats/x.jsonl", at=5, lease=None)
    assert await archive(id="2", name="x-1.jsonl", content=b"c\n")
    assert await archive(id="2", name="x-1.jsonl", content=b"c\n")
    assert not await archive(id="3", name="x-1.jsonl", content=b"d\n")
    assert await database.read("chats/x-1.jsonl") == b"a\nb\n"
    assert await database.read("chats/x.jsonl") == b"c\n"
    await database.commit(step("4", lines=[("chats/x.jsonl", ("d",))], after=1))
    assert await database.read("chats/x.jsonl") == b"c\nd\n"


# ------------------------------------------------------------------ rows and budgets


async def test_rows_have_a_version_and_keep_their_order(database, node):
    assert await database.read_rows("jobs", "") == Rows(0, {})
    put = partial(database.put_rows, collection="jobs", owner="")
    assert await put(id="1", put={"b": "1", "a": "2"}, delete=(), version=0) == 1
    assert await put(id="1", put={"b": "1", "a": "2"}, delete=(), version=0) == 1
    with pytest.raises(Changed):
        await put(id="2", put={"c": "3"}, delete=("a",), version=0)
    assert await put(id="3", put={"c": "3", "b": "4"}, delete=("none",), version=1) == 2
    found = await database.read_rows("jobs", "")
    assert (found.version, list(found.rows.items())) == (2, [("b", "4"), ("a", "2"), ("c", "3")])
    assert await put(id="4", put={"b": "5"}, delete=("b", "c"), version=2) == 3
    assert list((await database.read_rows("jobs", "")).rows) == ["a", "b"]
    assert await database.put_rows("5", "jobs", "ann", {"x": "y"}, (), 0) == 1
    assert await database.versions([("jobs", ""), ("jobs", "ann"), ("jobs", "bob")]) == {
        ("jobs", ""): 3,
        ("jobs", "ann"): 1,
    }


async def test_a_budget_counts_over_all_nodes_and_a_reservation_once(server, database, node, other):
    reserve = database.reserve
    assert await reserve(node, "day", "1", 6, 10) is None
    assert await reserve(node, "day", "1", 6, 10) is None
    assert await reserve(other, "day", "2", 6, 10) == 0
    assert await reserve(other, "week", "2", 6, 10) is None
    await database.settle("day", "1", 2)
    await database.settle("day", "1", 2)
    assert await reserve(other, "day", "2", 8, 10) is None
    assert await reserve(node, "day", "3", 1, 10) == 2
    await server.end_lease(other)
    assert await reserve(node, "day", "3", 1, 10) is None


# ------------------------------------------------------------------ moving


async def test_all_that_it_holds_is_put_into_an_empty_database_and_read_from_it(database):
    done = attrs.evolve(item("1"), key="", message="")
    sent = '{"text":"hi","channel":{"type":"web","channelId":"c1"},"seq":2}'
    given = [
        Numbers(7),
        KnownAddress(C1.address, "bob"),
        InboxItem(3, done, 0),
        InboxItem(5, item("2"), None),
        ReplyNumbers(C1.address, 2, 1),
        PostedReply("k1", C1, 1, "", 0),
        PostedReply("k2", C1, 2, sent, 4),
        FileContents("chats/x.jsonl", b"a\nb\n", 6),
        FileContents("media/y.bin", b"\x00", 7),
        RowsContents("jobs", "", {"b": "1", "a": "2"}),
    ]

    async def contents():
        for each in given:
            yield each

    assert await database.fill("mark", contents)
    assert await database.fill("mark", contents)
    assert not await database.fill("other", contents)
    async with database.contents() as found:
        assert [each async for each in found] == given
    async with database.contents(["media/"]) as found:
        assert [each.path async for each in found] == ["media/y.bin"]
    assert await database.accept(1, item("1"), 9) == AcceptedItem(3, duplicate=True)
    assert (await database.accept(1, item("3", heard="bob"), 9)).n > 7
    assert [each.message.seq for each in await database.commit(step("1", posts=[reply("k1"), reply("k3")]))] == [1, 3]


async def test_contents_are_those_of_one_moment_whatever_is_taken_over_meanwhile(server, database, node, other):
    [n] = await accept(database, item("1"))
    await database.claim(node, CHAT)
    await database.commit(step("1", lines=[("chats/x.jsonl", ("a",))], posts=[reply("k1")]))
    link = await server.link("c")
    async with link.contents() as found:
        contents = [await anext(found), await anext(found)]
        await database.leave(node)
        lease = await database.claim(other, CHAT)
        await accept(database, item("2"), node=other)
        await database.note([(n, lease, 7)], {})
        await database.commit(
            step("2", node=other, leases=[lease], lines=[("chats/x.jsonl", ("b",))], posts=[reply("k2")])
        )
        contents += [each async for each in found]
    assert [(each.n, each.done_at) for each in contents if isinstance(each, InboxItem)] == [(n, None)]
    assert [each.key for each in contents if isinstance(each, PostedReply)] == ["k1"]
    assert [each.content for each in contents if isinstance(each, FileContents)] == [b"a\n"]


# ------------------------------------------------------------------ notices


async def test_others_hear_of_what_has_happened(server, database, node, other):
    link = await server.link("b")
    heard = []

    async def listen(*, task_status):
        task_status.started()
        while True:
            heard.extend(await link.next_notices())

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(listen)
            while not heard:  # until it listens, notices are not heard
                await database.notify(Notice("say", "{}"))
                await trio.sleep(0.01)
            await accept(database, item("1"), node=node)
            await database.connect(other, 7, [("web", "c1")], is_connected=True)
            await database.commit(step("1", node=node, posts=[reply("k")]))
            await database.put_rows("2", "jobs", "ann", {"a": "b"}, (), 0)
            await database.give_back(node, await database.take(node, ["chat"], 9))
            wanted = [f"due {CHAT}", "reply web:c1", "rows jobs/ann", f"due {CHAT}"]
            while [f"{each.kind} {each.payload}" for each in heard if each.kind != "say"] != wanted:  # noqa: ASYNC110
                await trio.sleep(0.01)  # a notice arrives at its own time
            nursery.cancel_scope.cancel()
