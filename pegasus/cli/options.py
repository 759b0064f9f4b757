"""The global options. They may stand before the command or after it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import click

from pegasus import __version__
from pegasus.host import Home, resolve_home
from pegasus.settings import Settings, SettingsSource, load_settings


class Options:
    """What the global options said; nothing is read before it is asked for."""

    def __init__(self) -> None:
        self.home_name: str | None = None
        self.profile: str | None = None
        self.config: str | None = None
        self.overrides: tuple[str, ...] = ()
        self.log_level: str | None = None

    def home(self) -> Home:
        """The home directory that is meant. Raises HomeError."""
        return resolve_home(self.home_name, self.profile)

    def source(self, home: Home) -> SettingsSource:
        """Where the settings are to be read from."""
        named = self.config or os.environ.get("PEGASUS_CONFIG")
        overrides = self.overrides + ((f"log.level={self.log_level}",) if self.log_level else ())
        return SettingsSource(Path(named).expanduser().absolute() if named else home.config, bool(named), overrides)

    def load(self) -> tuple[Home, Settings]:
        """Home and settings. Raises HomeError, SettingsError."""
        home = self.home()
        return home, load_settings(self.source(home))

    def arguments(self) -> list[str]:
        """Return these options as arguments of another process."""
        named = {
            "--home": self.home_name,
            "--profile": self.profile,
            "--config": self.config,
            "--log-level": self.log_level,
        }
        arguments = [part for name, value in named.items() if value is not None for part in (name, value)]
        return arguments + [part for override in self.overrides for part in ("--set", override)]

    def spelled(self) -> str:
        """Return the options that lead to this home again, for a command line that is shown to the person."""
        if self.profile is not None:
            return f" --profile {self.profile}"
        return "" if self.home_name is None else f" --home {shlex.quote(self.home_name)}"


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    options = ctx.find_object(Options)
    if options is not None and value not in (None, ()):
        if param.name == "overrides":
            _check_overrides(value)
            value = options.overrides + tuple(value)
        setattr(options, str(param.name), value)
    return value


def _check_overrides(overrides: tuple[str, ...]) -> None:
    for override in overrides:
        key, equals, _ = override.partition("=")
        if not equals or not all(part.strip() for part in key.split(".")):
            raise click.BadParameter(f'found "{key}"; allowed: section.key=value', param_hint="--set")


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"pegasus {__version__}")
        ctx.exit()


def _option(*names: str, **attributes: Any) -> click.Option:
    return click.Option(names, expose_value=False, callback=_remember, **attributes)


GLOBAL_OPTIONS: list[click.Parameter] = [
    _option("--home", "home_name", metavar="DIR", help="The home directory. Default: $PEGASUS_HOME, else ~/.pegasus."),
    _option("--profile", metavar="NAME", help="Short for --home ~/.pegasus-NAME."),
    _option("--config", metavar="FILE", help="Settings. Default: $PEGASUS_CONFIG, else pegasus.toml in the home."),
    _option("--set", "overrides", metavar="SECTION.KEY=VALUE", multiple=True, help="Change one setting; repeatable."),
    _option(
        "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Short for --set log.level=…"
    ),
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        help="Show the version and exit.",
    ),
]
