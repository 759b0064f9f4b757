"""The services that the actors of a tree work with, built once from its environment and passed to them.

Nothing here is an actor. `build_services` is called when the journal runs; what it makes is finished, so that no actor has to know how
its services are made, and nothing is looked up while a message is handled.

The services need addresses of actors that start later, such as the task system's agent for the Main Agent's
tools. An address is a name in the tree (`Ref`), valid before its actor runs and after it was restarted, so
there is no order to keep and no cycle to break. Where a message may come before its actor runs, the sender waits for
that first (`wait_until_running`).

When the journal crashes, the root restarts everything behind it; the services stay the same
objects and go on with the new journal behind the same address.

Problems with files of users (skills, task types) are logged and the rest is used: a mistake in one file must
not keep the agent from starting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import attrs

from actors import Ref
from pegasus.app.approvals import ApprovalFlow
from pegasus.app.environment import ADAPTER, APPROVALS, GATEWAY, SCHEDULE, TASK_AGENT, Environment
from pegasus.app.main_agent_services import main_agent_services
from pegasus.app.shared_services import SharedServices, tool_gate
from pegasus.channels import AdapterMessage
from pegasus.identity import PersonaChanges
from pegasus.main_agent import AgentServices
from pegasus.memory import Memory
from pegasus.messages import Address
from pegasus.observe import get_logger
from pegasus.schedule import cron_tool
from pegasus.settings import SERVICE_SECTIONS, Settings
from pegasus.storage import JournalMessage
from pegasus.tasks import BUILT_IN_TYPES, TaskAgentMessage, load_task_types

if TYPE_CHECKING:
    from pegasus.tasks import TaskDeps

_log = get_logger("services")


@attrs.frozen(eq=False, repr=False)
class Services:
    """The services of a running tree.

    For example:

        services = build_services(environment, journal, root.ref, await journal.ask(KnownAddresses))
        services.main_agent.model, services.tasks.limits, services.memory
    """

    environment: Environment
    """The environment that they were built from."""
    journal: Ref[JournalMessage]
    """The journal actor, which everything that is kept goes through."""
    memory: Memory
    """The memory of the agent, shared by the Main Agent, tasks and the control plane."""
    persona_changes: PersonaChanges
    """Changes of the persona."""
    main_agent: AgentServices
    """Services of the Main Agent."""
    make_tasks: Callable[[], TaskDeps]
    """Makes the services of the task system, when it begins; always returns the same."""
    approvals: ApprovalFlow
    """Shows calls that wait for an owner, and takes the answers."""

    @property
    def tasks(self) -> TaskDeps:
        """Services of the task system."""
        return self.make_tasks()


def build_services(
    environment: Environment,
    journal: Ref[JournalMessage],
    find: Callable[[str], Ref[Any]],
    known: Sequence[Address],
) -> Services:
    """Build everything that the actors need. Reads the files of skills, task types and the workspace.

    find: returns the address of an actor by its path in the tree; it need not run yet. known: addresses that wrote before this start.

    Blocks while it reads, some milliseconds at a start. Raises ModelConfigError if a model of the settings
    cannot work.
    """
    if environment.files is not None:
        environment.files.load()
    # The order follows from who needs whom: memory and types, then the gate, which both kinds of tools need, then the rest.
    memory = environment.open_memory(journal)
    persona_changes = PersonaChanges(journal, environment.base_persona, environment.clock)
    types, problems = load_task_types(BUILT_IN_TYPES, *environment.subagent_folders)
    for problem in problems:
        _log.warning("invalid SUBAGENT.md", problem=problem)
    task_agent: Ref[TaskAgentMessage] = find(TASK_AGENT)
    gate = tool_gate(environment, find(APPROVALS))
    shared = SharedServices(environment, journal, memory, types, task_agent, gate)
    approvals = ApprovalFlow(
        journal=journal,
        approvals=find(APPROVALS),
        tasks=task_agent,
        gateway=find(GATEWAY),
        clock=environment.clock,
        owners=environment.owners,
        policy=environment.in_force.follow(lambda settings: settings.policy, "policy."),
        adapters=environment.in_force.follow(partial(_adapter_refs, find), "channels."),
        secrets=environment.secrets,
        files=environment.files,
        shown_on=environment.shows_approvals,
        books=(environment.pairing, persona_changes),
    )

    environment.models.client("subagent")  # a model that cannot work ends the start, and not the task system later

    @cache
    def make_tasks() -> TaskDeps:
        from pegasus.app.task_services import task_deps

        return task_deps(shared, find)

    return Services(
        environment=environment,
        journal=journal,
        memory=memory,
        persona_changes=persona_changes,
        main_agent=main_agent_services(shared, persona_changes, cron_tool(find(SCHEDULE), environment.clock), known),
        make_tasks=make_tasks,
        approvals=approvals,
    )


def _adapter_refs(find: Callable[[str], Ref[Any]], settings: Settings) -> Sequence[Ref[AdapterMessage]]:
    """Return the addresses of the adapters that the settings enable."""
    sections = settings.channels.items()
    return [
        find(f"channels/{type}/{ADAPTER}") for type, section in sections if section.enabled and type in SERVICE_SECTIONS
    ]
