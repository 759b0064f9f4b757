"""The supervision tree: journal, tasks, Main Agent, channels (docs/architecture.md draws it)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import attrs

from actors import Child, Intensity, Mailbox, Ref, Restart, Supervisor, supervisor
from pegasus.app.agent import make_agent_services, make_answers
from pegasus.app.commons import BUS, PATIENCE, RETRY, commons_of
from pegasus.app.parts import Parts
from pegasus.app.tasks import courier_child, task_child
from pegasus.channels import AdapterMessage, run_switchboard
from pegasus.main_agent import AgentToolset, MainAgentMessage, main_agent, message_publisher
from pegasus.models import usage_keeper
from pegasus.storage import JournalMessage, KnownAddresses, run_journal

if TYPE_CHECKING:
    from pegasus.identity import Evolution
    from pegasus.memory import Memory

ROOT = Intensity(restarts=3, period=60.0)
"""When the root gives up: then the process ends with exit code 70, and whoever supervises it starts it again."""
BURST = Mailbox(1024)
"""What may wait for the journal: all of it shares one fdatasync."""


@attrs.frozen(eq=False)
class Grown:
    """What others talk to."""

    root: Supervisor
    journal: Ref[JournalMessage]
    main_agent: Ref[MainAgentMessage]
    toolset: AgentToolset
    memory: Callable[[], Memory]
    evolution: Callable[[], Evolution]
    parts: Parts


async def grow(root: Supervisor, parts: Parts) -> Grown:
    """Start journal, tasks and Main Agent, one after the other; the channels come last (see `open_channels`)."""
    clock = parts.clock
    storage = await root.start_child(Child("journal", partial(run_journal, clock=clock), parts.disk, mailbox=BURST))
    if parts.models is not None and parts.models.usage is not None:
        # Under a supervisor of its own: its crash is nobody else's.
        keeper = Child("keeper", usage_keeper, parts.models.usage, storage, backoff=RETRY)
        await root.start_child(Child("usage", supervisor([keeper], intensity=PATIENCE)))
    commons = commons_of(parts, storage, root.ref)
    await root.start_child(task_child(commons))
    services = make_agent_services(commons, await storage.ask(KnownAddresses))
    run = partial(
        main_agent,
        announce=root.ref("channels/switchboard"),
        publish=message_publisher(root.ref(BUS), clock, parts.workshop.random),
        answers=make_answers(commons),
    )
    agent = Child("global", run, storage, services, backoff=RETRY)
    await root.start_child(Child("main-agent", supervisor([agent, courier_child(storage)], intensity=PATIENCE)))
    return Grown(
        root, storage, root.ref("main-agent/global"), services.toolset, commons.memory, commons.evolution, parts
    )


async def open_channels(
    grown: Grown,
    gateway: Child[AdapterMessage],
    adapters: Mapping[str, Child[AdapterMessage]],
) -> None:
    """Start the switchboard, the gateway, and the rest by their names in the tree.

    adapters: each serves the channel type that is its name. One in a crash loop is parked: its own supervisor gives up,
    and is not started again.
    """
    routes: Mapping[str, Ref[AdapterMessage]] = {
        kind: grown.root.ref(f"channels/{kind}/{child.name}") for kind, child in adapters.items()
    }
    default: Ref[AdapterMessage] = grown.root.ref("channels/gateway")
    hub = Child("switchboard", run_switchboard, grown.journal, routes, default)
    parkable = [
        Child(name, supervisor([child], intensity=PATIENCE), restart=Restart.TEMPORARY)
        for name, child in adapters.items()
    ]
    await grown.root.start_child(Child("channels", supervisor([hub, gateway, *parkable], intensity=PATIENCE)))
