"""The composition root: the only package that knows all others.

Settings become an `Environment` (everything that comes from outside: disk, models, clock), an environment becomes `Services`
(finished objects), and services become the supervision tree. The daemon does this for the real world,
`pegasus.testing.world` in virtual time. The control plane, which programs reach through the gateway, is here too, since it
reaches into every part.

There are three stages because each can be replaced without the next one knowing. A test gives an environment of
its own and gets the same services; a test of the tree gives services of its own.

The package is imported by the command that starts the daemon, by `pegasus.embedding` and by the test kit only.

Read the files in this order; each uses only those before it:

    owner_notes          messages to owners about files that commands have changed
    waiting_room         answers over HTTP while the agent waits for its database
    node_talk            talk between nodes while they work
    shared_state         this process as one of several nodes
    environment          everything that comes from outside
    shared_services      what the Main Agent and the task system are both built from; the gate before each call of a tool
    other_agents         routes for other agents, the work behind them, and the tool that delegates to others
    task_services        services of the task system
    main_agent_services  services of the Main Agent: model, prompt, tools, compaction
    approval_texts       texts about approvals, and what an owner has written about one
    file_questions       texts of files that wait for an owner's answer
    approvals            calls of tasks that wait for an owner's answer
    control_plane        the methods that programs may call
    services             all services, built once from the environment
    undo                 the answer to /undo
    chat_commands        answers to commands in a chat that the Main Agent cannot give alone
    tree                 the supervision tree
    push                 notifications of browsers
    channels             gateway, HTTP server and adapters of chat services, as children of the tree
    reload               changing settings and the model while the daemon runs
    memory_embedder      vectors for the search of memory
    real_world           the environment of a real machine
    telemetry            traces and metrics over OTLP
    daemon               the process: from taking its home to the orderly stop
"""

from pegasus.app.channels import (
    open_intake,
    owner_channels,
    service_context,
)
from pegasus.app.chat_commands import ChatCommands
from pegasus.app.daemon import run_daemon
from pegasus.app.environment import ADAPTER, Environment
from pegasus.app.real_world import own_world
from pegasus.app.tree import CHILD_BACKOFF, ROOT_INTENSITY, AgentTree, start_channels, start_tree

__all__ = [
    "ADAPTER",
    "CHILD_BACKOFF",
    "ROOT_INTENSITY",
    "AgentTree",
    "ChatCommands",
    "Environment",
    "open_intake",
    "own_world",
    "owner_channels",
    "run_daemon",
    "service_context",
    "start_channels",
    "start_tree",
]
