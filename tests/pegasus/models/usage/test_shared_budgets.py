"""Budgets of several nodes over one database: all of them together stay below a limit."""

from contextlib import asynccontextmanager
from random import Random

import trio

from actors import Child, Mailbox, Restart, open_supervisor
from pegasus.models import ModelError, UsageTracker
from pegasus.models.usage import serve_usage
from pegasus.settings import BudgetSettings
from pegasus.storage.database import NodeFacts, run_database_journal
from pegasus.testing.memory_database import MemoryDatabase
from tests.pegasus.models.usage.test_budget import NOON, PRICES, model, small


@asynccontextmanager
async def node(database, name, **budget):
    """The tracker of a node."""
    link = database.link(name)

    async def journal(inbox):
        report = lambda *_, **__: None  # noqa: E731
        await run_database_journal(inbox, link, facts=NodeFacts(name), clock=lambda: NOON, report=report)

    kept = UsageTracker(lambda: NOON, Random(name), BudgetSettings(**budget), PRICES)
    child = Child("journal", journal, restart=Restart.TEMPORARY, mailbox=Mailbox(1024))
    async with open_supervisor([child]) as root:

        async def serve(inbox):
            await serve_usage(inbox, kept, root.ref("journal"), is_shared=True)

        await root.start_child(Child("usage", serve))
        yield kept


async def test_all_nodes_together_use_no_more_than_a_budget_allows(autojump_clock):
    database, outcomes = MemoryDatabase(latency=lambda: 0.01), []
    async with node(database, "a", daily_tokens=1000) as a, node(database, "b", daily_tokens=1000) as b:
        nodes = [model(kept, seconds=2.0)[0] for kept in (a, b)]

        async def ask(which):
            try:
                await nodes[which].generate(small())
            except ModelError as error:
                outcomes.append(str(error))
            else:
                outcomes.append("answered")

        async with trio.open_nursery() as nursery:
            for n in range(12):
                nursery.start_soon(ask, n % 2)
        # A call reserves somewhat more than 200 tokens and uses 200.
        assert outcomes.count("answered") == 4
        [refusal] = set(outcomes) - {"answered"}
        assert "limit 1,000 tokens today, used 800, this call up to" in refusal
        assert len(a.ledger.days) == len(b.ledger.days) == 1


async def test_what_a_dead_node_has_reserved_ends_with_its_lease(autojump_clock):
    database = MemoryDatabase()
    nodes = node(database, "a", daily_tokens=300), node(database, "b", daily_tokens=300)
    async with nodes[0] as a, nodes[1] as b, trio.open_nursery() as nursery:
        nursery.start_soon(model(a, seconds=1000.0)[0].generate, small())
        await trio.sleep(1)
        database.cut("a")
        began = trio.current_time()
        await model(b)[0].generate(small())
        assert 3 < trio.current_time() - began < 7
        nursery.cancel_scope.cancel()


async def test_calls_that_wait_for_what_another_node_has_reserved_ask_once_a_second(autojump_clock):
    """Each call that is refused gives its room at this node to the others, for which there is none either."""
    database, asked = MemoryDatabase(latency=lambda: 0.01), []
    reserve = database.tables.reserve
    database.tables.reserve = lambda *args: asked.append(args) or reserve(*args)
    nodes = node(database, "a", daily_tokens=300), node(database, "b", daily_tokens=300)
    async with nodes[0] as a, nodes[1] as b, trio.open_nursery() as nursery:
        nursery.start_soon(model(a, seconds=1000.0)[0].generate, small())
        await trio.sleep(1)
        for _ in range(3):
            nursery.start_soon(model(b)[0].generate, small())
        await trio.sleep(20)
        assert 20 <= len(asked) <= 3 * 21
        nursery.cancel_scope.cancel()
