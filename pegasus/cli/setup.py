"""`pegasus init`, `pegasus config …` and `pegasus persona …`: a home with its settings and its persona.

`init` writes only files that are used: the folders, a settings file that is all comments, the token. It is optional: the daemon
makes what it needs at its first start. It exists for people who want to see and change the settings before that, so that it
ends with the sentence about which model will be used and why, and with the command to go on with. It can be repeated: with --yes
it only adds what is missing, which is what an installation script wants. `config check` runs the same checks as the start of the
daemon, those of other packages among them, so that it cannot find less.

The agent may propose to change who it is, but only the owner accepts. A decision takes effect at the next start, because the
persona is part of the prompt that providers have cached: a change in the middle would make the next call of every conversation
pay for its whole prompt again. Decisions are events in the journal and not edits of the persona's file, so that each can be
taken back and it stays visible who has decided what. Without a daemon the same event is written here, while the home is held.
"""

from __future__ import annotations

from pathlib import Path

import click

from actors import Ref
from pegasus.cli.control import Answer, change_files, print_text, query
from pegasus.cli.program import JSON, Options, check_settings_in_use, pegasus, program_name
from pegasus.host import Home, ensure_token, wall_clock, write_private
from pegasus.identity import (
    Evolution,
    Persona,
    PersonaError,
    ProposalRefused,
    format_decision,
    format_persona,
    persona_of_settings,
    persona_view,
    read_persona_state,
)
from pegasus.models import OFFLINE, find_providers, role_spec
from pegasus.settings import Settings, commented_file, effective, load_settings
from pegasus.storage import JournalMessage, StorageError

CONFIG = pegasus.subgroup("config", "Check and show the settings.")
PERSONA = pegasus.subgroup("persona", "Show the persona, and decide about its proposals.")


# ------------------------------------------------------------------ init


@pegasus.declare(
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
    """Write a file, private to the user; one that is there only if it differs and the person agrees. Print what was done.

    The answer to the question is no by default. Ctrl-C and the end of stdin raise click.Abort.
    """
    if path.exists() and (
        path.read_bytes() == content.encode()
        or not (ask and click.confirm(f"{path} is there already. Overwrite it?", default=False))
    ):
        print_text(f"kept   {path}")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, content)
    print_text(f"wrote  {path}")


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


# ------------------------------------------------------------------ persona


_NUMBER = click.Argument(["n"], type=click.IntRange(min=1), metavar="N")
"""Number of a proposal, as `persona list` shows it."""
_REFUSALS = (ProposalRefused, PersonaError, StorageError)
"""Reasons for which a decision is not recorded, such as a number that does not exist."""


def persona_text(view: Answer) -> str:
    """Return the persona, open proposals and the last decisions, with the commands to decide."""
    return format_persona(view, f"{program_name()} persona")


@query(PERSONA, "list", JSON, method="persona.list", text=persona_text, refusals=(PersonaError,))
def run_list(home: Home, settings: Settings) -> Answer:
    """Show the persona, open proposals, and the last decisions."""
    return persona_view(read_persona_state(_base(home, settings), home.data))


@query(PERSONA, "accept", _NUMBER, method="persona.accept", text=format_decision, refusals=_REFUSALS)
def run_accept(home: Home, settings: Settings, *, n: int) -> Answer:
    """Accept proposal N, from the next start on."""
    return _decide(home, settings, n, accept=True)


@query(PERSONA, "reject", _NUMBER, method="persona.reject", text=format_decision, refusals=_REFUSALS)
def run_reject(home: Home, settings: Settings, *, n: int) -> Answer:
    """Reject proposal N; one that was accepted is taken back."""
    return _decide(home, settings, n, accept=False)


def _decide(home: Home, settings: Settings, n: int, *, accept: bool) -> Answer:
    """Record the decision about a proposal where no daemon runs, with the home held; return the proposal."""

    async def decide(journal: Ref[JournalMessage]) -> Answer:
        evolution = Evolution(journal, _base(home, settings), wall_clock)
        return await evolution.decide_and_show(n, accept=accept, by="the command line")

    return change_files(home, decide)


def _base(home: Home, settings: Settings) -> Persona:
    """Return the persona of the settings, before any accepted proposal. Raises PersonaError for a file with mistakes."""
    return persona_of_settings(settings.agent.persona, home.resolve)
