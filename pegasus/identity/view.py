"""The persona and its proposals as JSON for programs, and as text for people.

The JSON is the answer of the control methods persona.list, persona.accept and persona.reject, so its
keys must not change.

The text is made from the JSON, because the command line receives the JSON from the daemon.

`format_persona` and `format_decision` therefore take parsed JSON. They are used by the command line, which has
nothing else, and by the chat command `/persona`, so that both show the same text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pegasus.formatting import format_time
from pegasus.identity.evolution import PersonaState
from pegasus.identity.persona import FIELDS, Persona
from pegasus.identity.proposals import ACCEPTED, OPEN, REJECTED, WITHDRAWN, Proposal, format_value
from pegasus.messages import Json

SHOWN_DECISIONS: Final = 5
"""Decided proposals in the text; all are in the JSON."""

_STATE_WORDS: Final = {ACCEPTED: "accepted", REJECTED: "rejected", WITHDRAWN: "accepted, and taken back later"}
"""States of decided proposals, for the list."""
_DECISION_WORDS: Final = {
    ACCEPTED: "Accepted; it takes effect at the next start",
    WITHDRAWN: "Taken back; it takes effect at the next start",
}
"""Consequences of decisions; all others are rejections."""


def persona_view(state: PersonaState, running: Persona | None = None) -> dict[str, Json]:
    """Return the persona and all proposals as JSON.

    running: the persona of the running agent, or None if there is none. `evolved` names the fields
    that differ from the settings, `atNextStart` those that differ from the running agent.

    Keys: persona {field: text}, evolved [field], atNextStart [field], proposals [see `proposal_view`].
    """
    return {
        "persona": {field: format_value(getattr(state.persona, field)) for field in FIELDS},
        "evolved": _differing_fields(state.persona, state.base),
        "atNextStart": _differing_fields(state.persona, running or state.persona),
        "proposals": [proposal_view(proposal, state.persona) for proposal in state.proposals],
    }


def _differing_fields(persona: Persona, other: Persona) -> list[Json]:
    """Return the names of the fields in which two personas differ."""
    return [field for field in FIELDS if getattr(persona, field) != getattr(other, field)]


def proposal_view(proposal: Proposal, persona: Persona) -> dict[str, Json]:
    """Return one proposal as JSON. `now` is the text of the field in `persona`, which it would replace.

    Times are in ms since the epoch. The keys `decidedBy` and `decidedAt` exist once it was decided.
    """
    view: dict[str, Json] = {
        "n": proposal.number,
        "field": proposal.field,
        "why": proposal.why,
        "at": proposal.at,
        "on": proposal.on,
        "state": proposal.state,
        "value": format_value(proposal.value),
        "now": format_value(getattr(persona, proposal.field)),
    }
    if proposal.state != OPEN:
        view |= {"decidedBy": proposal.decided_by, "decidedAt": proposal.decided_at}
    return view


# ------------------------------------------------------------------ text


def format_persona(view: Mapping[str, Any], command: str) -> str:
    """Return a `persona_view` as text. command: the command that takes "accept N" and "reject N".

    Empty fields are left out. Open proposals are shown with what they would replace.
    """
    persona = view["persona"]
    lines = [f"{field}: {persona[field]}{_mark(view, field)}" for field in FIELDS if persona[field]]
    waiting = [proposal for proposal in view["proposals"] if proposal["state"] == OPEN]
    if waiting:
        lines += ["", f"Proposed ({command} accept N, or {command} reject N):"]
        lines += [line for proposal in waiting for line in _open_lines(proposal)]
    decided = [proposal for proposal in view["proposals"] if proposal["state"] != OPEN]
    if decided:
        # The file has them in the order in which they were made.
        decided.sort(key=lambda proposal: proposal["decidedAt"])
        lines += ["", "Decided lately:", *map(_decided_line, decided[-SHOWN_DECISIONS:])]
    return "\n".join(lines)


def format_decision(proposal: Mapping[str, Any]) -> str:
    """Return the consequence of a decision as text. proposal: a `proposal_view`."""
    words = _DECISION_WORDS.get(proposal["state"], "Rejected")
    return f"{words}: {proposal['field']}: “{proposal['value']}”"


def _mark(view: Mapping[str, Any], field: str) -> str:
    """Return a remark behind a field that a proposal has changed."""
    if field in view["atNextStart"]:
        return "  (from the next start on)"
    return "  (changed by a proposal)" if field in view["evolved"] else ""


def _open_lines(proposal: Mapping[str, Any]) -> list[str]:
    """Return the lines about a proposal that waits for a decision."""
    channel = f", on {proposal['on']}" if proposal["on"] else ""
    return [
        f"{proposal['n']}. {proposal['field']}: “{proposal['value']}”",
        f"   now: “{proposal['now']}”",
        f"   why: {proposal['why']} ({_format_day(proposal['at'])}{channel})",
    ]


def _decided_line(proposal: Mapping[str, Any]) -> str:
    """Return the line about a decided proposal."""
    words, day = _STATE_WORDS[proposal["state"]], _format_day(proposal["decidedAt"])
    return f"{proposal['n']}. {proposal['field']}: “{proposal['value']}”: {words} ({day})"


def _format_day(ms: int) -> str:
    """Return the day of a time, UTC. Times beyond the calendar, written by hand, do not raise."""
    return format_time(ms, "%Y-%m-%d")
