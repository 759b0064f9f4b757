"""`pegasus persona …`: the persona, and decisions about its proposals.

The agent may propose to change who it is, but only the owner accepts. A decision takes effect at the next start, because the
persona is part of the prompt that providers have cached: a change in the middle would make the next call of every conversation
pay for its whole prompt again. Decisions are events in the journal and not edits of the persona's file, so that each can be
taken back and it stays visible who has decided what. Without a daemon the same event is written here, while the home is held.
"""

from __future__ import annotations

import click

from actors import Ref
from pegasus.cli.commands import JSON, WholeNumber, pegasus, program_name
from pegasus.cli.control import Answer, change_files, query
from pegasus.host import Home, wall_clock
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
from pegasus.settings import InForce, Settings
from pegasus.storage import JournalMessage, StorageError

PERSONA = pegasus.subgroup("persona", "Show the persona, and decide about its proposals.")


_NUMBER = click.Argument(["n"], type=WholeNumber(min=1), metavar="N")
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
    """Accept proposal N, from the next start or reload on."""
    return _decide(home, settings, n, accept=True)


@query(PERSONA, "reject", _NUMBER, method="persona.reject", text=format_decision, refusals=_REFUSALS)
def run_reject(home: Home, settings: Settings, *, n: int) -> Answer:
    """Reject proposal N; one that was accepted is taken back."""
    return _decide(home, settings, n, accept=False)


def _decide(home: Home, settings: Settings, n: int, *, accept: bool) -> Answer:
    """Record the decision about a proposal where no daemon runs, with the home held; return the proposal."""

    async def decide(journal: Ref[JournalMessage]) -> Answer:
        evolution = Evolution(journal, InForce(_base(home, settings)), wall_clock)
        return await evolution.decide_and_show(n, accept=accept, by="the command line")

    return change_files(home, decide)


def _base(home: Home, settings: Settings) -> Persona:
    """Return the persona of the settings, before any accepted proposal. Raises PersonaError for a file with mistakes."""
    return persona_of_settings(settings.agent.persona, home.resolve)
