"""The persona and its proposals as programs read them, and as people do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from pegasus.formatting import format_time
from pegasus.identity.evolution import Standing
from pegasus.identity.fields import shown
from pegasus.identity.persona import FIELDS, Persona
from pegasus.identity.proposals import ACCEPTED, OPEN, REJECTED, WITHDRAWN, Proposal
from pegasus.messages import Json

RECENT: Final = 5
"""Decided proposals that people are shown."""

_DECIDED: Final = {ACCEPTED: "accepted", REJECTED: "rejected", WITHDRAWN: "accepted, and taken back later"}


def view_of(standing: Standing, in_force: Persona | None = None) -> dict[str, Json]:
    """For programs. in_force: who the running agent is, if one runs; what differs from that comes with the next start."""
    now = standing.persona if in_force is None else in_force
    return {
        "persona": {field: shown(getattr(standing.persona, field)) for field in FIELDS},
        "evolved": _different(standing.persona, standing.base),
        "atNextStart": _different(standing.persona, now),
        "proposals": [proposal_view(one, standing.persona) for one in standing.proposals],
    }


def _different(one: Persona, other: Persona) -> list[Json]:
    return [field for field in FIELDS if getattr(one, field) != getattr(other, field)]


def proposal_view(proposal: Proposal, persona: Persona) -> dict[str, Json]:
    """One proposal. now: what stands in its place."""
    fields = attrs.asdict(proposal, filter=attrs.filters.include("n", "field", "why", "at", "on", "state"))
    decided = {"decidedBy": proposal.decided_by, "decidedAt": proposal.decided_at}
    return {
        **fields,
        "value": shown(proposal.value),
        "now": shown(getattr(persona, proposal.field)),
        **(decided if proposal.state != OPEN else {}),
    }


# ------------------------------------------------------------------ for people


def text_of_view(view: Mapping[str, Any], command: str) -> str:
    """All of it. command: what "accept N" and "reject N" are said to."""
    persona = view["persona"]
    lines = [f"{field}: {persona[field]}{_mark(view, field)}" for field in FIELDS if persona[field]]
    waiting = [one for one in view["proposals"] if one["state"] == OPEN]
    if waiting:
        lines += ["", f"Proposed ({command} accept N, or {command} reject N):"]
        lines += [line for one in waiting for line in _proposal(one)]
    decided = [one for one in view["proposals"] if one["state"] != OPEN]
    if decided:
        decided.sort(key=lambda one: one["decidedAt"])
        lines += ["", "Decided lately:", *map(_decided, decided[-RECENT:])]
    return "\n".join(lines)


def decided_text(one: Mapping[str, Any]) -> str:
    """What a decision means."""
    words = {
        ACCEPTED: "Accepted; it takes effect at the next start",
        WITHDRAWN: "Taken back; it takes effect at the next start",
    }
    return f"{words.get(one['state'], 'Rejected')}: {one['field']}: “{one['value']}”"


def _mark(view: Mapping[str, Any], field: str) -> str:
    if field in view["atNextStart"]:
        return "  (from the next start on)"
    return "  (changed by a proposal)" if field in view["evolved"] else ""


def _proposal(one: Mapping[str, Any]) -> list[str]:
    where = f", on {one['on']}" if one["on"] else ""
    return [
        f"{one['n']}. {one['field']}: “{one['value']}”",
        f"   now: “{one['now']}”",
        f"   why: {one['why']} ({_day(one['at'])}{where})",
    ]


def _decided(one: Mapping[str, Any]) -> str:
    return f"{one['n']}. {one['field']}: “{one['value']}”: {_DECIDED[one['state']]} ({_day(one['decidedAt'])})"


def _day(ms: int) -> str:
    return format_time(ms, "%Y-%m-%d")
