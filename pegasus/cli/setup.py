"""`pegasus init` and `pegasus config …`: a home with its settings, and checks of them.

`init` writes only files that are used: the folders, a settings file that is all comments, the token. `config check`
runs the same checks as the start of the daemon, those of other packages among them, so that it cannot find less.

`init` is optional: the daemon makes what it needs at its first start. It exists for people who want to see and change the
settings before that, so that it ends with the sentence about which model will be used and why, and with the command to go on
with. It can be repeated: with --yes it only adds what is missing, which is what an installation script wants.
"""

from __future__ import annotations

from pathlib import Path

import click

from pegasus.cli.control import print_text
from pegasus.cli.options import CommandGroup, Options, program_name
from pegasus.host import Home, ensure_token, write_private
from pegasus.identity import PersonaError, load_persona
from pegasus.models import OFFLINE, find_providers, role_spec
from pegasus.models import problems as model_problems
from pegasus.settings import Settings, SettingsError, commented_file, effective, load_settings

COMMANDS = CommandGroup()
CONFIG = COMMANDS.subgroup("config", "Check and show the settings.")


# ------------------------------------------------------------------ init


@COMMANDS.declare(
    "init",
    click.Option(["--yes"], is_flag=True, help="Ask nothing: add what is missing, overwrite nothing."),
    options_only=True,
)
def run_init(options: Options, *, yes: bool) -> int:
    """Set up a home: folders, a commented settings file, the token.

    Asks about each file that is there already whether to overwrite it. The token is never overwritten: every client that
    has it would be locked out.
    """
    home = options.home()
    settings_file = options.source(home).file or home.config
    home.prepare(everything=True)
    _write(settings_file, commented_file(), ask=not yes)
    new = not home.token.exists()
    ensure_token(home)
    print_text(f"{'wrote' if new else 'kept '}  {home.token}")
    print_text(_describe_model(load_settings(options.source(home))))
    start = f"{program_name()}{options.shell_options()}"
    print_text(f"Next: {start}    (starts it and opens a chat; edit {settings_file} for more)")
    return 0


def _write(path: Path, content: str, *, ask: bool) -> None:
    """Write a file, private to the user; one that is there only if it differs and the person agrees. Print what was done."""
    if path.exists() and (path.read_bytes() == content.encode() or not (ask and _confirm(path))):
        print_text(f"kept   {path}")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, content)
    print_text(f"wrote  {path}")


def _confirm(path: Path) -> bool:
    """Ask whether to overwrite a file; the default is no. Ctrl-C and the end of stdin raise click.Abort."""
    return click.confirm(f"{path} is there already. Overwrite it?", default=False)


def _describe_model(settings: Settings) -> str:
    """Return a sentence about which model will be used, and why.

    A stand-in answers without any key, so that a first start always works; the sentence says so, since its answers are not
    those of a model.
    """
    model = role_spec("default", settings.models, find_providers(settings.providers))
    if settings.models.default:
        return f"Model: {model}, as models.default says."
    if model == OFFLINE:
        return (
            "Model: a stand-in, since neither ANTHROPIC_API_KEY nor OPENAI_API_KEY is set. "
            "Set one of them, or models.default, for a real one."
        )
    variable = f"{model.partition('/')[0].upper()}_API_KEY"
    return f"Model: {model}, since there is a key for it ({variable}). models.default names another."


# ------------------------------------------------------------------ config


@CONFIG.declare("check", options_only=True)
def run_check(options: Options) -> int:
    """Check the settings exactly as the daemon does.

    The exit code is 78 if something is wrong.
    """
    home, settings = options.load()
    check_settings_in_use(home, settings)
    file = settings.source.file
    print_text(f"{file}: ok" if file is not None and file.exists() else f"{file}: not there, so all defaults: ok")
    return 0


@CONFIG.declare("show")
def run_show(home: Home, settings: Settings) -> int:
    """Print the settings in effect and their origin, secrets masked."""
    print_text(effective(settings))
    return 0


def check_settings_in_use(home: Home, settings: Settings) -> None:
    """Check what only other packages can judge: models and their providers, the persona. Raises SettingsError.

    `pegasus.settings` knows the form of a key and not its meaning: it must not import the packages that use it. A line about a
    key begins with the key's path; the file, variable or option that has set it is put in front, as in its other messages.
    """
    found = []
    for line in model_problems(settings.models, settings.providers):
        key = line.partition(":")[0].partition("[")[0]
        found.append(f"{settings.origins.get(key, 'defaults')}: {line}")
    if settings.agent.persona:
        try:
            load_persona(home.resolve(settings.agent.persona))
        except PersonaError as error:
            origin = settings.origins["agent.persona"]
            found += [f"{origin}: agent.persona: {line}" for line in str(error).splitlines()]
    if found:
        raise SettingsError(found)
