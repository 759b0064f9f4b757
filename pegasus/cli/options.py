"""Declaration of commands: the global options, and groups of commands that all take them.

A command is declared once, above the function that carries it out::

    COMMANDS = CommandGroup()

    @COMMANDS.declare("send", click.Argument(["text"]), click.Option(["--wait"], default=60.0))
    def run_send(home: Home, settings: Settings, *, text: str, wait: float) -> int:
        '''Send TEXT to the running agent, and print its replies.'''

The docstring is the help, its first sentence the line in the list of commands. The function stays an ordinary function,
which tests and other commands call. Global options may stand before the command or after it; the last one counts, and
`--set` adds up.

click passes an option to the command that it stands behind, so that every command must know the global options. They are
declared for each (`_global_options`) and write their values into one `Options` object, which the whole command line shares
and which the command's callback reads when everything is parsed. The alternative, one group that takes all of them, would
refuse `pegasus status --profile work`, which is how people type it.

Home and settings are loaded by `declare`, so that no command can forget a check, and late: the help and `--version` must work
with a broken home or a settings file with mistakes. Errors are raised, not printed; `program` makes lines and exit codes of them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from pegasus import __version__
from pegasus.host import Home, resolve_home
from pegasus.settings import Settings, SettingsSource, load_settings

F = TypeVar("F", bound=Callable[..., int])

JSON: Final = click.Option(["--json", "as_json"], is_flag=True, help="One JSON object.")
"""Option of the commands that programs may call."""

_HELP: Final = {"help_option_names": ["-h", "--help"]}
"""click's context settings of every command: `-h` beside `--help`."""


# ------------------------------------------------------------------ global options


class Options:
    """Values of the global options. Nothing is read from disk before `load`, so that --help works with a broken home.

    Example::

        options = Options()
        options.profile = "work"
        home, settings = options.load()
    """

    def __init__(self) -> None:
        self.home_name: str | None = None
        """--home: a folder, as it was typed."""
        self.profile: str | None = None
        """--profile: short for a home beside the default one. It excludes --home."""
        self.config: str | None = None
        """--config: a settings file, which must exist then."""
        self.overrides: tuple[str, ...] = ()
        """--set: "section.key=value" each, in the order of the command line; a later one wins."""
        self.log_level: str | None = None
        """--log-level: short for --set log.level=…, and wins over it."""

    def home(self) -> Home:
        """Return the home directory that is meant. Raises HomeError."""
        return resolve_home(self.home_name, self.profile)

    def source(self, home: Home) -> SettingsSource:
        """Return the places that the settings are to be read from.

        The file of the home may be missing, then everything has its default. One that --config or PEGASUS_CONFIG names must
        exist: a misspelt name would otherwise start an agent with other settings than meant.
        """
        named = self.config or os.environ.get("PEGASUS_CONFIG")
        overrides = self.overrides + ((f"log.level={self.log_level}",) if self.log_level else ())
        return SettingsSource(Path(named).expanduser().absolute() if named else home.config, bool(named), overrides)

    def load(self) -> tuple[Home, Settings]:
        """Return home and settings. Raises HomeError, SettingsError."""
        home = self.home()
        return home, load_settings(self.source(home))

    def arguments(self) -> list[str]:
        """Return these options as arguments of another process, such as the daemon that a chat starts.

        Nothing is resolved: that process runs in the same folder with the same environment, and finds the same home.
        """
        named = {
            "--home": self.home_name,
            "--profile": self.profile,
            "--config": self.config,
            "--log-level": self.log_level,
        }
        arguments = [part for name, value in named.items() if value is not None for part in (name, value)]
        return arguments + [part for override in self.overrides for part in ("--set", override)]

    def shell_options(self) -> str:
        """Return the options that lead to this home again, for a command line that is shown to the person.

        Quoted for a shell and with a blank in front; "" for the default home.
        """
        if self.profile is not None:
            return f" --profile {self.profile}"
        return "" if self.home_name is None else f" --home {shlex.quote(self.home_name)}"


def program_name() -> str:
    """Return the command that starts Pegasus here, for hints: ./scripts/run passes its own name in PEGASUS_PROGRAM."""
    return os.environ.get("PEGASUS_PROGRAM") or "pegasus"


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Keep the value of a global option (click's callback of each).

    click calls it for options that were not given, too, with None or (): these must not replace a value that was given before
    the command. `--set` before and behind the command adds up. The checks of a value are click's, but for that of `--set`.
    """
    options = ctx.find_object(Options)
    if options is not None and value not in (None, ()):
        if param.name == "overrides":
            _check_overrides(value)
            value = options.overrides + tuple(value)
        setattr(options, str(param.name), value)
    return value


def _check_overrides(overrides: tuple[str, ...]) -> None:
    """Raise BadParameter for an override that has no key or no value."""
    for override in overrides:
        key, equals, _ = override.partition("=")
        if not equals or not all(part.strip() for part in key.split(".")):
            raise click.BadParameter(f'found "{key}"; allowed: section.key=value', param_hint="--set")


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """Print the version and end. `is_eager` makes click call this before it asks for a command or checks anything else."""
    if value:
        click.echo(f"pegasus {__version__}")
        ctx.exit()


def _option(*names: str, **attributes: Any) -> click.Option:
    """Return a global option: its value goes to `Options` instead of the command's function."""
    return click.Option(names, expose_value=False, callback=_remember, **attributes)


def _global_options(*, hidden: bool) -> list[click.Parameter]:
    """Return the options. hidden: not in the help, since those of the main command show them."""
    levels = click.Choice(["debug", "info", "warning", "error"])
    return [
        _option(
            "--home", "home_name", metavar="DIR", help="Home directory [$PEGASUS_HOME or ~/.pegasus].", hidden=hidden
        ),
        _option("--profile", metavar="NAME", help="Short for --home ~/.pegasus-NAME.", hidden=hidden),
        _option("--config", metavar="FILE", help="Settings [$PEGASUS_CONFIG or pegasus.toml].", hidden=hidden),
        _option(
            "--set",
            "overrides",
            metavar="KEY=VALUE",
            multiple=True,
            help="Change a setting; repeatable.",
            hidden=hidden,
        ),
        _option("--log-level", type=levels, metavar="LEVEL", help="debug, info, warning or error.", hidden=hidden),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Show the version and exit.",
            hidden=hidden,
        ),
    ]


# ------------------------------------------------------------------ commands


class CommandGroup(click.Group):
    """Commands under one name, in the order of their declaration; the global options apply to all of them.

    The help shows the commands before the options. Global options are listed in the help of the main command alone: repeated
    for each command they would push its own off the screen.

    Example::

        COMMANDS = CommandGroup()  # of a module; `commands` takes the entries from it
        TASKS = COMMANDS.subgroup("tasks", "List, show and end background tasks.")
    """

    def __init__(self, name: str | None = None, *, help: str = "", root: bool = False, **attributes: Any) -> None:
        epilog = None if root else "Global options (pegasus --help) may stand here too."
        super().__init__(name, help=help, epilog=epilog, context_settings=_HELP, **attributes)
        self.params += _global_options(hidden=not root)

    def declare(self, name: str, *params: click.Parameter, options_only: bool = False) -> Callable[[F], F]:
        """Declare a command that the decorated function carries out; its return value is the exit code.

        The function gets home and settings, which are loaded first, and the values of `params` by name. options_only:
        it gets the `Options` instead, for commands that must work when the settings are wrong.
        """

        def add(function: F) -> F:
            @click.pass_obj
            def callback(options: Options, /, **values: Any) -> int:
                return function(options, **values) if options_only else function(*options.load(), **values)

            command = click.Command(
                name,
                callback=callback,
                params=[*params, *_global_options(hidden=True)],
                help=function.__doc__,
                epilog="Global options (pegasus --help) may stand here too.",
                context_settings=_HELP,
            )
            self.add_command(command)
            return function

        return add

    def subgroup(self, name: str, help: str) -> CommandGroup:
        """Declare a group of commands."""
        group = CommandGroup(name, help=help)
        self.add_command(group)
        return group

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of declaration."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands before the options, so that they are on the first screen."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)
