"""`pegasus nodes` and `pegasus drain`: the nodes that share a database, from the running agent or straight from the database.

Both work without an agent on this machine: who takes a node out of service may sit somewhere else.
"""

from __future__ import annotations

import click
import trio

from pegasus.cli.commands import JSON, pegasus
from pegasus.cli.control import Answer, answering_command
from pegasus.formatting import plural, quote
from pegasus.host import Home
from pegasus.settings import Settings
from pegasus.storage import StorageError


class NoSuchNode(Exception):
    """There is no node of this name that could be drained, or there are no nodes at all. str() says so."""


def nodes_text(answer: Answer) -> str:
    """Return a line for each node: `a  up, 12 chats, 3 tasks, schedule, channel/telegram (0.9.0, lease 4.2 s)`."""
    return (
        "\n".join(_line(node, is_here=node["name"] == answer["here"]) for node in answer["nodes"])
        or "No node runs over a database."
    )


def _line(node: Answer, *, is_here: bool) -> str:
    facts = [node["state"], plural(node["chats"], "chat"), plural(node["tasks"], "task"), *node["owns"]]
    lease = f"lease {node['leaseLeft']:g} s" if node["leaseLeft"] > 0 else "lease ended"
    mark = " (this one)" if is_here else ""
    return f"{node['name']}{mark}  {', '.join(facts)} ({node['version']}, {lease})"


def drain_text(answer: Answer) -> str:
    """Return what happens now, with a warning if no node is left that works."""
    text = f"{answer['name']} gives everything back, and takes nothing until it is started again."
    return text if answer.get("working", 1) else f"{text} No other node takes work: messages wait until one is started."


@answering_command(pegasus, "nodes", JSON, method="nodes.list", text=nodes_text, refusals=(NoSuchNode, StorageError))
def run_nodes(home: Home, settings: Settings) -> Answer:
    """Show the nodes that share the database: which runs what."""
    return trio.run(_ask_database, settings, None)


@answering_command(
    pegasus,
    "drain",
    click.Argument(["name"]),
    JSON,
    method="nodes.drain",
    text=drain_text,
    refusals=(NoSuchNode, StorageError),
)
def run_drain(home: Home, settings: Settings, *, name: str) -> Answer:
    """Let a node give everything back, so that it can be stopped without a wait."""
    return trio.run(_ask_database, settings, name)


async def _ask_database(settings: Settings, drained: str | None) -> Answer:
    """Return the nodes, or let the one of this name drain. Raises NoSuchNode, StorageError."""
    if not settings.storage.url:
        raise NoSuchNode("storage.url is not set: everything is in files, and there is one node")
    from pegasus.storage.database import NodeList, open_database

    database = open_database(settings.storage.url)
    nodes = NodeList(database)
    try:
        if drained is None:
            return await nodes.view()
        if (answer := await nodes.drain(drained)) is None:
            raise NoSuchNode(f"no node called {quote(drained)} runs")
        return answer
    finally:
        await database.aclose()
