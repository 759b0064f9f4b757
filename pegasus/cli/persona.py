"""`pegasus persona …`: the agent's persona and proposed changes of it; from the running daemon, or from the files.

The agent may propose to change who it is, but only the owner accepts. A decision takes effect at the next start, because the
persona is part of the prompt that providers have cached: a change in the middle would make the next call of every conversation
pay for its whole prompt again.

Decisions are events in the journal and not edits of the persona's file, so that each can be taken back and it stays visible who
has decided what. Without a daemon the same event is written here, while the home is held.
"""

from __future__ import annotations

import click

from actors import Ref
from pegasus.cli.control import Answer, Clock, change_files, json_line, show
from pegasus.cli.options import JSON, CommandGroup, program_name
from pegasus.host import Home
from pegasus.identity import (
    BUILT_IN,
    Evolution,
    Persona,
    PersonaError,
    ProposalRefused,
    format_decision,
    format_persona,
    load_persona,
    persona_view,
    proposal_view,
    read_persona_state,
)
from pegasus.settings import Settings
from pegasus.storage import JournalMessage, StorageError

COMMANDS = CommandGroup()
PERSONA = COMMANDS.subgroup("persona", "Show the persona, and decide about its proposals.")

_NUMBER = click.Argument(["n"], type=click.IntRange(min=1), metavar="N")
"""Number of a proposal, as `persona list` shows it."""


@PERSONA.declare("list", JSON)
def run_list(home: Home, settings: Settings, *, as_json: bool) -> int:
    """Show the persona, open proposals, and the last decisions."""

    def text(view: Answer) -> str:
        return format_persona(view, f"{program_name()} persona")

    def offline() -> Answer:
        return persona_view(read_persona_state(_base(home, settings), home.data))

    return show(home, settings, "persona.list", {}, json_line if as_json else text, offline, PersonaError)


@PERSONA.declare("accept", _NUMBER)
def run_accept(home: Home, settings: Settings, *, n: int) -> int:
    """Accept proposal N, from the next start on."""
    return _decide(home, settings, n=n, accept=True)


@PERSONA.declare("reject", _NUMBER)
def run_reject(home: Home, settings: Settings, *, n: int) -> int:
    """Reject proposal N; one that was accepted is taken back."""
    return _decide(home, settings, n=n, accept=False)


def _decide(home: Home, settings: Settings, *, n: int, accept: bool) -> int:
    """Record the decision about a proposal, by the daemon or, with the home held, here; return the exit code.

    ProposalRefused, such as for a number that does not exist, is printed as one line.
    """

    async def decide(journal: Ref[JournalMessage], clock: Clock) -> Answer:
        evolution = Evolution(journal, _base(home, settings), clock)
        made = await evolution.decide(n, accept=accept, by="the command line")
        return proposal_view(made, (await evolution.read_state()).persona)

    def offline() -> Answer:
        return change_files(home, decide)

    method = "persona.accept" if accept else "persona.reject"
    return show(home, settings, method, {"n": n}, format_decision, offline, ProposalRefused, PersonaError, StorageError)


def _base(home: Home, settings: Settings) -> Persona:
    """Return the persona of the settings, before any accepted proposal. Raises PersonaError for a file with mistakes."""
    return load_persona(home.resolve(settings.agent.persona)) if settings.agent.persona else BUILT_IN
