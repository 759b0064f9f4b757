"""`pegasus persona …`: who the agent is and what it proposes to become; with the running daemon, or from its files."""

from __future__ import annotations

from actors import Ref
from pegasus.cli.alone import Clock, with_journal
from pegasus.cli.asking import Node, json_line, show
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

COMMAND = "pegasus persona"


def run_list(home: Home, settings: Settings, *, as_json: bool) -> int:
    """The persona, what was proposed, what was decided."""

    def text(view: Node) -> str:
        return format_persona(view, COMMAND)

    def down() -> Node:
        return persona_view(read_persona_state(_base(home, settings), home.data))

    return show(home, settings, "persona.list", {}, json_line if as_json else text, down, PersonaError)


def run_decide(home: Home, settings: Settings, *, n: int, accept: bool) -> int:
    """Accept or reject a proposal. Without a daemon the home is held meanwhile, so that none begins."""

    async def decide(journal: Ref[JournalMessage], clock: Clock) -> Node:
        evolution = Evolution(journal, _base(home, settings), clock)
        made = await evolution.decide(n, accept=accept, by="the command line")
        return proposal_view(made, (await evolution.read_state()).persona)

    def down() -> Node:
        return with_journal(home, decide)

    method = "persona.accept" if accept else "persona.reject"
    return show(home, settings, method, {"n": n}, format_decision, down, ProposalRefused, PersonaError, StorageError)


def _base(home: Home, settings: Settings) -> Persona:
    return load_persona(home.resolve(settings.agent.persona)) if settings.agent.persona else BUILT_IN
