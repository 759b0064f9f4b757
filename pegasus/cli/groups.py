"""Commands and groups of commands that all take the global options."""

from __future__ import annotations

from typing import Any, Final

import click

from pegasus.cli.options import GLOBAL_OPTIONS

HELP: Final = {"help_option_names": ["-h", "--help"]}


class Command(click.Command):
    """A command that takes the global options too, wherever they stand."""

    def __init__(self, name: str | None, **attributes: Any) -> None:
        super().__init__(name, context_settings=HELP, **attributes)
        self.params += GLOBAL_OPTIONS


class Group(click.Group):
    """Commands under one name, in the order of their definition."""

    command_class = Command
    group_class = type

    def __init__(self, name: str | None, **attributes: Any) -> None:
        super().__init__(name, context_settings=HELP, **attributes)
        self.params += GLOBAL_OPTIONS

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of definition
