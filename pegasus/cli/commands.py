"""The main command, and the table of the others.

A command's module is imported when the command is run or its help is shown. So the daemon never imports the chat, the chat
never imports the daemon, and `pegasus --version` imports neither. That matters twice: a daemon without prompt_toolkit and rich
takes less memory and starts sooner, and a chat is at its prompt before a process that imports both could be.

To add a command, declare it in a module of this package (`options` has the form) and enter the module's name below. The help
of the main command imports every module to show its first sentence; a test fails for an entry that does not exist.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Final

import click

from pegasus.cli.options import CommandGroup, Options

MODULES: Final[Mapping[str, str]] = {
    "chat": "chat",
    "send": "send",
    "init": "setup",
    "status": "status",
    "tree": "status",
    "tasks": "tasks",
    "config": "setup",
    "memory": "memory",
    "skills": "skills",
    "sessions": "sessions",
    "persona": "persona",
}
"""Module of `pegasus.cli` that declares each command, in the order of the help."""


class _MainGroup(CommandGroup):
    """The commands of `MODULES`, behind those that are declared here."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names without importing anything."""
        return [*self.commands, *MODULES]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command and return the command, None for a name that is none."""
        if cmd_name not in MODULES:
            return super().get_command(ctx, cmd_name)
        declared: CommandGroup = import_module(f"pegasus.cli.{MODULES[cmd_name]}").COMMANDS
        return declared.commands[cmd_name]


pegasus = _MainGroup(
    "pegasus",
    root=True,
    invoke_without_command=True,
    help="Pegasus, an always-on agent. Without a command: run, and chat on a terminal.",
)


@pegasus.declare(
    "run", click.Option(["--no-cli"], is_flag=True, help="No chat, also if this is a terminal."), options_only=True
)
def run_agent(options: Options, *, no_cli: bool = False) -> int:
    """Run the agent until it is stopped; with a chat, on a terminal."""
    # The settings are checked in this process first: a mistake is reported on the terminal, not in the log of a child.
    home, settings = options.load()
    from pegasus.cli.setup import check_settings_in_use

    check_settings_in_use(home, settings)
    if not no_cli and settings.channels.cli.enabled and os.isatty(0):
        from pegasus.cli.chat import run_with_chat

        return run_with_chat(home, settings, options.arguments())
    from pegasus.app import run_daemon

    return run_daemon(home, settings)


@click.pass_context
def _run_without_command(ctx: click.Context) -> int | None:
    """Run the agent for `pegasus` alone; click calls this before every command, too."""
    return run_agent(ctx.ensure_object(Options)) if ctx.invoked_subcommand is None else None


pegasus.callback = _run_without_command
