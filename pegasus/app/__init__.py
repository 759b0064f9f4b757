"""The composition root: the only package that knows all others.

Settings become an `Environment` (everything that comes from outside: disk, models, clock), an environment becomes `Services`
(finished objects), and services become the supervision tree. The daemon does this for the real world,
`pegasus.testing.world` in virtual time. The control plane, which programs reach through the gateway, is here too, since it
reaches into every part.

There are three stages because each can be replaced without the next one knowing. A test gives an environment of
its own and gets the same services; a test of the tree gives services of its own.

The package is imported by the command that starts the daemon, by `pegasus.embedding` and by the test kit only.

Read the files in this order; each uses only those before it:

    environment          everything that comes from outside
    tools                the tools that the settings allow, and the gate before each call
    task_services        services of the task system
    main_agent_services  services of the Main Agent: model, prompt, tools, compaction
    params               reading the params of calls of the control plane
    approvals            calls of tasks that wait for an owner's answer
    services             all services, built once from the environment
    chat_commands        answers to commands in a chat that the Main Agent cannot give alone
    changing_group       an actor whose children a reload adds, replaces and removes
    tree                 the supervision tree
    http                 the HTTP server as a child of the channels
    service_channels     adapters of chat services as children of the tree
    task_control         methods of the control plane about tasks, events and conversations
    control              the control plane; its further methods are in the next three
    access_control       who may come in: tokens, people who are not known yet
    schedule             scheduled jobs
    views                what a person may look at beside the work itself
    reload               changing settings and the model while the daemon runs
    real_world           the environment of a real machine
    daemon               the process: from taking its home to the orderly stop
"""

from pegasus.app.approvals import ApprovalDesk
from pegasus.app.chat_commands import chat_commands
from pegasus.app.control import ControlPlane, MemoryMethods, PersonaMethods, actor_json
from pegasus.app.daemon import run_daemon
from pegasus.app.environment import ADAPTER, TASK_AGENT, Environment
from pegasus.app.real_world import EmbeddedWorld, own_world
from pegasus.app.reload import follow_models
from pegasus.app.service_channels import (
    ServiceChannels,
    make_intake,
    owner_channels,
    service_context,
)
from pegasus.app.services import build_services
from pegasus.app.task_control import ConversationMethod, EventMethods, TaskMethods
from pegasus.app.tree import (
    CHILD_BACKOFF,
    ROOT_INTENSITY,
    AgentTree,
    start_channels,
    start_tree,
    task_system_child,
)

__all__ = [
    "ADAPTER",
    "CHILD_BACKOFF",
    "ROOT_INTENSITY",
    "TASK_AGENT",
    "AgentTree",
    "ApprovalDesk",
    "ControlPlane",
    "ConversationMethod",
    "EmbeddedWorld",
    "Environment",
    "EventMethods",
    "MemoryMethods",
    "PersonaMethods",
    "ServiceChannels",
    "TaskMethods",
    "actor_json",
    "build_services",
    "chat_commands",
    "follow_models",
    "make_intake",
    "own_world",
    "owner_channels",
    "run_daemon",
    "service_context",
    "start_channels",
    "start_tree",
    "task_system_child",
]
