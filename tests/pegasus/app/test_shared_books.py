"""Books of two nodes over one database: what one changes the other knows, and nothing is decided by what is not there any more."""

import json
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from actors import Child, Mailbox, Restart, open_supervisor
from pegasus.access import Credentials, PairingBook, TokenBook, WebSessions
from pegasus.access.tokens import TokenRefused
from pegasus.app.shared_state import SharedState
from pegasus.identity import BUILT_IN, PersonaChanges
from pegasus.intake import DiskLimits, GuestDisk, QuotaReached
from pegasus.messages import Address, ChannelInfo, InboundMessage
from pegasus.models import TraitStore
from pegasus.models.chat_choices import ChatChoices
from pegasus.settings import LiveValue, Settings
from pegasus.storage.database import NodeFacts, run_database_journal
from pegasus.testing.memory_database import MemoryDatabase
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.web.deliveries import HookDeliveries

NOW = 1_772_029_800_000
ANN = ChannelInfo("telegram", "42", "42")


def clock():
    return NOW + int(trio.current_time() * 1000)


@asynccontextmanager
async def journals(*names, database=None):
    """The journals of nodes over one database."""
    database = database or MemoryDatabase(latency=lambda: 0.001)

    def child(name):
        link = database.link(name)

        async def journal(inbox):
            await run_database_journal(inbox, link, facts=NodeFacts(name), clock=clock)

        return Child(name, journal, restart=Restart.TEMPORARY, mailbox=Mailbox(1024))

    async with open_supervisor([child(name) for name in names]) as root, trio.open_nursery() as nursery:
        yield [root.ref(name) for name in names], nursery
        nursery.cancel_scope.cancel()


async def opened(make, refs, nursery, *args):
    """The same book at each node, each following the others."""
    books = [make() for _ in refs]
    for book, ref in zip(books, refs, strict=True):
        await book.load(ref, *args)
        nursery.start_soon(book.follow)
    return books


async def test_a_token_counts_everywhere_at_once_and_ends_everywhere(autojump_clock):
    async with journals("a", "b") as (refs, nursery):
        a, b = await opened(TokenBook, refs, nursery, clock)
        token = await a.add("phone")
        grant = await b.find_read(token)
        assert grant.name == "phone"
        with pytest.raises(TokenRefused, match="already"):
            await b.add("phone")
        assert await b.find_read("no token") is None
        await a.revoke("phone")
        with trio.fail_after(1):
            await grant.revoked.wait()
        assert await b.find_read(token) is None


async def test_a_node_forgets_what_the_database_has_lost_in_a_failover(autojump_clock):
    """The replica that has taken over lags: its version is older than what the nodes have read."""
    database = MemoryDatabase(latency=lambda: 0.001)
    async with journals("a", database=database) as (refs, nursery):
        [a] = await opened(TokenBook, refs, nursery, clock)
        await a.add("phone")
        replica = database.tables.read_rows("tokens", "")
        await a.add("tablet")
        database.tables._rows["tokens", ""] = replica
        await trio.sleep(1)
        assert [token.name for token in a.view()] == ["phone"]
        made = database.calls
        await trio.sleep(10)
        assert database.calls - made < 100, "it looks each half second, and not as often as it may"


async def test_of_two_nodes_that_make_a_token_of_one_name_one_does(autojump_clock):
    async with journals("a", "b") as (refs, nursery):
        outcomes = []

        async def add(book):
            try:
                outcomes.append(await book.add("phone"))
            except Exception as error:
                outcomes.append(error)

        books = await opened(TokenBook, refs, nursery, clock)
        async with trio.open_nursery() as both:
            for book in books:
                both.start_soon(add, book)
        [made] = [each for each in outcomes if isinstance(each, str)]
        await trio.sleep(1)
        assert [(await book.find_read(made)).name for book in books] == ["phone", "phone"]


async def test_a_browser_is_signed_in_and_out_everywhere(autojump_clock):
    async with journals("a", "b") as (refs, nursery):
        credentials = LiveValue(Credentials(token="home"))
        a, b = await opened(lambda: WebSessions(credentials), refs, nursery, clock)
        id = await a.open(await credentials.now.find_grant("home"))
        assert (await b.find_read(id)).is_home
        ended = trio.Event()

        async def wait():
            await b.until_ended(id)
            ended.set()

        nursery.start_soon(wait)
        await trio.sleep(1)
        assert not ended.is_set()
        await a.close(id)
        with trio.fail_after(1):
            await ended.wait()


async def test_who_is_let_in_at_one_node_is_known_at_the_others(autojump_clock):
    async with journals("a", "b") as (refs, nursery):
        a, b = await opened(PairingBook, refs, nursery, clock)
        await a.request(ANN)
        [request] = await b.waiting() or (await trio.sleep(1) or await b.waiting())
        await b.answer(request.id, is_allowed=True, by="cli:main")
        await trio.sleep(1)
        assert await a.is_let_in(ANN)


async def test_choices_and_traits_are_those_of_all(autojump_clock):
    async with journals("a", "b") as (refs, nursery):
        chat = Address("web", "c1")
        choices = await opened(ChatChoices, refs, nursery)
        traits = await opened(TraitStore, refs, nursery)
        await choices[0].choose(chat, "lab/x")
        await traits[1].learn("lab/x", writes_text=True)
        await trio.sleep(1)
        assert choices[1].get(chat) == "lab/x"
        assert traits[0].get("lab/x").writes_text


async def test_a_delivery_that_comes_to_two_nodes_is_new_at_one(autojump_clock):
    async with journals("a", "b") as (refs, nursery):
        a, b = await opened(HookDeliveries, refs, nursery, clock)
        first, is_new = await a.note("ci", "d" * 64, "")
        again, is_again_new = await b.note("ci", "d" * 64, "")
        assert (is_new, is_again_new) == (True, False)
        assert again.stored.key == first.stored.key


async def test_what_a_guest_sends_to_two_nodes_counts_together(autojump_clock):
    async with journals("a", "b") as (refs, _):
        limits = LiveValue(DiskLimits(most=300_000))
        disks = [GuestDisk(ref, clock, limits, is_shared=True) for ref in refs]
        for n in range(4):
            message = InboundMessage("x" * 70_000, ANN, f"m{n}")
            await disks[n % 2].admit(message)
        with pytest.raises(QuotaReached):
            await disks[0].admit(InboundMessage("x" * 70_000, ANN, "m4"))


async def test_a_home_gets_what_was_decided_about_the_persona_at_any_node(autojump_clock):
    async with journals("a", "b") as (refs, nursery):
        changes, disk, reloads = PersonaChanges(refs[0], LiveValue(BUILT_IN), clock), MemoryDisk(), []
        first = await changes.propose("style", "short", "why")
        await changes.decide(first.number, accept=True, by="cli:main")
        state = SharedState(None, NodeFacts("b"), LiveValue(Settings()), 5.0, "chat", Path("unused"))
        nursery.start_soon(state.keep_persona, refs[1], disk, lambda: reloads.append(True))
        await trio.sleep(1)
        assert json.loads(disk.survivor().content("identity/persona.json")) == {"style": "short"}
        second = await changes.propose("style", "shorter", "why")
        await changes.decide(second.number, accept=True, by="cli:main")
        await trio.sleep(1)
        assert json.loads(disk.survivor().content("identity/persona.json")) == {"style": "shorter"}
        assert disk.survivor().content("identity/proposals.jsonl").count(b"accepted") == 2
        assert reloads == [True]  # the start did not know; later decisions wait for the next one
