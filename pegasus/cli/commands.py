"""The declaration of commands: the main command, groups of commands, and the global options that all of them know.

A command is declared once, above the function that carries it out::

    @pegasus.declare("send", click.Argument(["text"]), click.Option(["--wait"], default=60.0))
    def run_send(home: Home, settings: Settings, *, text: str, wait: float) -> int:
        '''Send TEXT to the running agent, and print its replies.'''

The docstring is the help, its first sentence the line in the list of commands. The function stays an ordinary function,
which tests and other commands call. `control.answering_command` declares commands that only show an answer.

A command's module is imported when the command is run or its help is shown; importing it adds the command to `pegasus`. So the
daemon never imports the chat, the chat never imports the daemon, and `pegasus --version` imports neither. That matters twice: a
daemon without prompt_toolkit and rich takes less memory and starts sooner, and a chat is at its prompt before a process that
imports both could be. To add a command, enter its module in `USUAL` or `SELDOM`; the help of the main command imports every module to
show its first sentence, and a test fails for an entry that does not exist.

Global options may stand before the command or after it; the last one counts, and `--set` adds up. click passes an option to the
command that it stands behind, so that every command must know the global options. They are declared for each
(`_global_options`) and write their values into one `Options` object, which the whole command line shares and which the command's
callback reads when everything is parsed. The alternative, one group that takes all of them, would refuse
`pegasus status --profile work`, which is how people type it.

Home and settings are loaded by `declare`, so that no command can forget a check, and late: the help and `--version` must work
with a broken home or a settings file with mistakes.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import click

from pegasus import __version__
from pegasus.cli.other_names import MEANT, say_instead
from pegasus.formatting import quote
from pegasus.host import Home, print_error, read_daemon, resolve_home
from pegasus.settings import Settings, SettingsError, SettingsSource, load_settings

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., int])

USUAL: Final[Mapping[str, str]] = {
    "chat": "chat",
    "send": "send",
    "open": "access",
    "init": "init",
    "status": "status",
    "tree": "status",
    "doctor": "doctor",
    "tasks": "work",
    "config": "config",
    "memory": "knowledge",
    "skills": "skills",
    "sessions": "sessions",
    "cron": "work",
    "pair": "access",
    "mcp": "mcp",
    "approvals": "access",
}
"""Module of `pegasus.cli` that declares each command, in the order of the help."""

SELDOM: Final[Mapping[str, str]] = {
    "trace": "trace",
    "import": "importing",
    "backup": "backup",
    "restore": "backup",
    "move": "backup",
    "migrate": "moving",
    "export": "moving",
    "update": "update",
    "acp": "acp",
    "persona": "knowledge",
    "token": "access",
    "service": "service",
    "reload": "config",
    "logs": "logs",
    "nodes": "nodes",
    "drain": "nodes",
    "completion": "completion",
}
"""The same of commands that people need seldom. The help names them in one line, so that the others are on the first screen, and does
not import what they need."""
MODULES: Final = {**USUAL, **SELDOM}

COMPLETE_VARIABLE: Final = "_PEGASUS_COMPLETE"
"""Variable by which the script of `pegasus completion` asks what may stand at the cursor."""
JSON: Final = click.Option(["--json", "as_json"], is_flag=True, help="One JSON object.")
"""Option of the commands that programs may call."""


class WholeNumber(click.IntRange):
    """Type of a parameter that is a whole number. Both ends belong to it.

    Example::

        click.Option(["--limit"], default=20, type=WholeNumber(1, 200))
        # "--limit 0" ends with exit code 2: found "0"; allowed: a whole number from 1 to 200
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. Raises BadParameter, which says what is allowed in the words of all other messages."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            end = "" if self.max is None else f" to {self.max}"
            self.fail(f"found {quote(value)}; allowed: a whole number from {self.min}{end}", param, ctx)


class Number(click.types.FloatParamType):
    """Type of a parameter that is a number. Infinity and NaN are refused, which click's own type lets through.

    Example::

        click.Option(["--wait"], type=Number(), metavar="SECONDS")
        # "--wait soon" ends with exit code 2: found "soon"; allowed: a number
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. Raises BadParameter, which says what is allowed."""
        try:
            number = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"found {quote(value)}; allowed: a number", param, ctx)
        return number


class OneOf(click.Choice[str]):
    """Type of a parameter with a few allowed values.

    Example::

        click.Option(["--missed"], type=OneOf(["once", "skip"]))
        # "--missed never" ends with exit code 2: found "never"; allowed: once, skip
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value. Raises BadParameter, which says what is allowed in the words of all other messages."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"found {quote(value)}; allowed: {', '.join(self.choices)}", param, ctx)

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """Return the sentence behind "Missing option …": the allowed values, on the same line."""
        return f"Allowed: {', '.join(self.choices)}"


_HELP: Final = {"help_option_names": ["-h", "--help"]}
"""click's context settings of every command: `-h` beside `--help`."""

MISTAKES_WITH_AGENT: Final = (
    "pegasus: the running agent goes on with the settings it has; "
    "until this is corrected it refuses to reload, and cannot start again"
)
"""Warning behind mistakes in the settings file while an agent runs."""

# ------------------------------------------------------------------ global options


@attrs.define
class Options:
    """Values of the global options. Nothing is read from disk before `load`, so that --help works with a broken home.

    Example::

        options = Options()
        options.profile = "work"
        home, settings = options.load()
    """

    home_name: str | None = None
    """--home: a folder, as it was typed."""
    profile: str | None = None
    """--profile: short for a home beside the default one. It excludes --home."""
    config: str | None = None
    """--config: a settings file, which must exist then."""
    overrides: tuple[str, ...] = ()
    """--set: "section.key=value" each, in the order of the command line; a later one wins."""
    log_level: str | None = None
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

    def load_as_client(self) -> tuple[Home, Settings]:
        """Return home and settings for a command that talks with the agent of the home. Raises HomeError, SettingsError.

        An agent that runs is found by its own file and the token. So a mistake in the settings file, which that agent does not use,
        is a warning: the file is then left out. What the command line or the environment has wrong stays an error.
        """
        home = self.home()
        source = self.source(home)
        try:
            return home, load_settings(source)
        except SettingsError as error:
            if read_daemon(home) is None:
                raise
            settings = load_settings(attrs.evolve(source, file=None))
            print_error(f"{error}\n{MISTAKES_WITH_AGENT}")
            return home, settings

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

    def lasting_arguments(self) -> list[str]:
        """Return these options for a process in another folder: with folders in full, and those that the environment stands for."""
        config = self.config or os.environ.get("PEGASUS_CONFIG")
        named = self.home_name or (os.environ.get("PEGASUS_HOME") if self.profile is None else None)
        lasting = attrs.evolve(
            self,
            home_name=str(Path(named).expanduser().absolute()) if named else None,
            config=str(Path(config).expanduser().absolute()) if config else None,
        )
        return lasting.arguments()

    def shell_options(self) -> str:
        """Return the options that lead to this home again, for a command line that is shown to the person.

        Quoted for a shell and with a blank in front; "" for the default home. A folder is written in full, since the person may
        type the command in another one.
        """
        if self.profile is not None:
            return f" --profile {self.profile}"
        if self.home_name is None:
            return ""
        return f" --home {shlex.quote(str(Path(self.home_name).expanduser().absolute()))}"


def program_name() -> str:
    """Return the command that leads to this home again, for hints, with the options of this command line that name the home.

    ./scripts/run passes its own name in PEGASUS_PROGRAM. Outside of a command, where the options are not known, only the name.

    Example: `pegasus --profile work`.
    """
    context = click.get_current_context(silent=True)
    options = context.find_object(Options) if context is not None else None
    name = os.environ.get("PEGASUS_PROGRAM") or "pegasus"
    return name if options is None else f"{name}{options.shell_options()}"


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
    return click.Option(names, expose_value=False, **{"callback": _remember, **attributes})


def _global_options(*, hidden: bool) -> list[click.Option]:
    """Return the options. hidden: not in the help, since those of the main command show them."""
    levels = OneOf(["debug", "info", "warning", "error"])
    options = [
        _option("--home", "home_name", metavar="DIR", help="Home directory [$PEGASUS_HOME or ~/.pegasus]."),
        _option("--profile", metavar="NAME", help="Short for --home ~/.pegasus-NAME."),
        _option("--config", metavar="FILE", help="Settings [$PEGASUS_CONFIG or pegasus.toml]."),
        _option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Change a setting; repeatable."),
        _option("--log-level", type=levels, metavar="LEVEL", help="debug, info, warning or error."),
        _option("--version", is_flag=True, is_eager=True, callback=_show_version, help="Show the version and exit."),
    ]
    for option in options:
        option.hidden = hidden
    return options


# ------------------------------------------------------------------ commands


def _words_of(ctx: click.Context) -> list[str]:
    """Return the names of the commands that a context is in, without that of the program."""
    return [] if ctx.parent is None else [*_words_of(ctx.parent), str(ctx.info_name)]


class _Command(click.Command):
    """A command whose help names the global options at its end: listed in each help they would push its own off the screen."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options. Raises NoSuchOption, or UsageError with what other programs mean by the option."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if instead := say_instead([*_words_of(ctx), error.option_name]):
                raise click.UsageError(f"{error.message} {instead}", ctx) from None
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the last line of the help; the main command lists the options and has none."""
        if ctx.parent is not None:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(f"Global options ({ctx.find_root().info_name} --help) may stand here too.")


class CommandGroup(_Command, click.Group):
    """Commands under one name, in the order of their declaration; the global options apply to all of them.

    The help shows the commands before the options. Global options are listed in the help of the main command alone.

    Example::

        TASKS = pegasus.subgroup("tasks", "List, show and end background tasks.")
    """

    def __init__(self, name: str, *, help: str, root: bool = False, **attributes: Any) -> None:
        super().__init__(name, help=help, context_settings=_HELP, **attributes)
        self.params += _global_options(hidden=not root)

    def declare(
        self,
        name: str,
        *params: click.Parameter,
        options_only: bool = False,
        is_client: bool = False,
        takes_dashes: bool = False,
    ) -> Callable[[F], F]:
        """Declare a command that the decorated function carries out; its return value is the exit code.

        The function gets home and settings, which are loaded first, and the values of `params` by name. options_only:
        it gets the `Options` instead, for commands that must work when the settings are wrong. is_client: it talks with an agent that
        runs, and works with mistakes in the settings file then (`Options.load_as_client`). takes_dashes: an unknown option is an
        argument, such as -1.
        """

        def add(function: F) -> F:
            """Add the command to the group, and return the function as it is, for tests and other commands."""

            @click.pass_obj
            def callback(options: Options, /, **values: Any) -> int:
                """Load what the function needs, and carry it out; click returns its exit code to `main`."""
                if options_only:
                    return function(options, **values)
                return function(*(options.load_as_client() if is_client else options.load()), **values)

            command = _Command(
                name,
                callback=callback,
                params=[*params, *_global_options(hidden=True)],
                help=function.__doc__,
                context_settings=_HELP | {"ignore_unknown_options": takes_dashes},
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
        """Return the names in the order of declaration, without second names of a command."""
        return [name for name, command in self.commands.items() if name == command.name]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is meant. Raises NoSuchCommand, which suggests one of a similar name or purpose.

        click knows only the commands whose module has been imported.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            groups = _words_of(ctx)
            instead = say_instead([*groups, *args[:2]]) or say_instead([*groups, *args[:1]])
            if not instead and ctx.parent is None and " " in error.command_name:
                instead = "`send` sends a text"
            if instead:
                raise click.UsageError(f"{error.message} {instead}", ctx) from None
            known, meant = self.list_commands(ctx), MEANT.get(error.command_name, "")
            if meant in known or (meant.startswith("-") and ctx.parent is None):
                raise click.UsageError(f"{error.message} Did you mean {meant!r}?", ctx) from None
            raise click.NoSuchCommand(error.command_name, error.message, known, ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands before the options, so that they are on the first screen."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)


# ------------------------------------------------------------------ the main command


class _MainGroup(CommandGroup):
    """`run`, which the program declares, and the commands of `MODULES`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names without importing anything."""
        return ["run", *MODULES]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help without blank lines around the list of commands, so that all of them are on the first screen."""
        whole = ctx.make_formatter()
        super().format_help(ctx, whole)
        above, heading, rest = whole.getvalue().partition("Commands:\n")
        rest = rest.replace("\n\nOptions:", "\nOptions:", 1)
        formatter.write("\n".join(filter(None, above.splitlines())) + "\n" + heading + rest)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each command, and one for those that are needed seldom."""
        names = ["run", *USUAL]
        room = formatter.width - 6 - max(map(len, names))
        commands = [(name, self.get_command(ctx, name)) for name in names]
        rows = [(name, command.get_short_help_str(room)) for name, command in commands if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl([*rows, ("also", f"{', '.join(SELDOM)} (each with --help).")])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin so, or the options.

        The commands are without their help, for which every module would be imported at each Tab.
        """
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        # Only a shell that completes needs it; a daemon that starts does not.
        from click import shell_completion

        return [
            shell_completion.CompletionItem(name) for name in self.list_commands(ctx) if name.startswith(incomplete)
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options before the command. Raises NoSuchOption, which suggests what other programs have it for."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if meant := MEANT.get(error.option_name):
                raise click.UsageError(f"{error.message} Did you mean {meant!r}?", ctx) from None
            raise

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command, which declares it, and return the command; None for a name that is none."""
        if cmd_name in MODULES:
            import_module(f"pegasus.cli.{MODULES[cmd_name]}")
        return super().get_command(ctx, cmd_name)


pegasus = _MainGroup(
    "pegasus",
    root=True,
    invoke_without_command=True,
    help="Pegasus, an always-on agent. Without a command: run, and chat on a terminal.",
)
