"""Changing the persona: the agent proposes, its owner decides, and the next start applies the decision.

A running agent never changes, because its prompt is built once. A decision is one durable line in
the file of proposals; persona.json is written after it, and then a line which records that. A crash
between the first and the second leaves a decision that persona.json does not show. The next start
reads both files and is as decided; the next change writes persona.json again.

Both files are read anew for each operation, so a change made by hand counts, and no state is held
between operations.

The persona and its proposals are shown as JSON for programs (`persona_view`: the answer of the control methods persona.list,
persona.accept and persona.reject, so its keys must not change) and as text for people. The text is made from the JSON, because the
command line receives nothing else from the daemon, and so it and the chat command `/persona` show the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from actors import Ref
from pegasus.formatting import format_day
from pegasus.identity.persona import FIELDS, FieldValue, Persona, load_changes, parse_fields
from pegasus.identity.proposals import (
    ACCEPTED,
    CHANGES,
    OPEN,
    REJECTED,
    WITHDRAWN,
    Proposal,
    ProposalLog,
    ProposalRefused,
    choose_state,
    decision_record,
    format_value,
    make_proposal,
    merge_changes,
    next_persona,
    parse_field_value,
    parse_reason,
    proposal_record,
    value_json,
)
from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.settings import LiveValue
from pegasus.storage import JournalMessage, LineStore, ReadFile, ReplaceFile, StorageError, stored_lines
from pegasus.wire import encode_json

_log = get_logger("identity")

SHOWN_DECISIONS: Final = 5
"""Decided proposals in the text; all are in the JSON."""

_STATE_WORDS: Final = {ACCEPTED: "accepted", REJECTED: "rejected", WITHDRAWN: "accepted, and taken back later"}
"""States of decided proposals, for the list."""
_DECISION_WORDS: Final = {
    ACCEPTED: "Accepted; it takes effect at the next start or reload of the settings",
    WITHDRAWN: "Taken back; it takes effect at the next start or reload of the settings",
}
"""Consequences of decisions; all others are rejections."""


@attrs.frozen(eq=False, repr=False)
class PersonaState:
    """The persona with its history of proposals.

    Example: `(await persona_changes.read_state()).persona.style` is the style from the next start on.
    """

    base: Persona
    """The persona of the settings."""
    persona: Persona
    """The persona from the next start on."""
    proposals: tuple[Proposal, ...]
    """All proposals, oldest first."""

    @property
    def open(self) -> list[Proposal]:
        """Proposals that wait for a decision."""
        return [proposal for proposal in self.proposals if proposal.state == OPEN]


def read_persona_state(base: Persona, data: Path) -> PersonaState:
    """Return the state from the files, without a journal: at the start, or while no daemon runs.

    data: the folder of the journal. Blocks. Raises PersonaError if persona.json has a mistake, and
    OSError.
    """
    changes, log = load_changes(data / CHANGES), ProposalLog()
    stored_lines(data, "persona-proposals", log.apply)
    return _state(base, changes, log)


def persona_at_start(base: Persona, data: Path) -> Persona:
    """Return the persona of a daemon that starts now: that of the settings, with the changes the owner has accepted.

    data: the folder of the journal. Raises PersonaError if persona.json has a mistake, and OSError.
    """
    return read_persona_state(base, data).persona if (data / "identity").is_dir() else base


def _state(base: Persona, changes: Mapping[str, FieldValue], log: ProposalLog) -> PersonaState:
    """Return the state for the content of both files."""
    return PersonaState(base, next_persona(base, changes, log), tuple(log.proposals.values()))


class PersonaChanges:
    """Proposes and decides changes of the persona, with the journal as the only writer of the files.

    Example::

        proposal = await persona_changes.propose("style", "warm and short", "People thank me for it", on="cli:main")
        await persona_changes.decide(proposal.number, accept=True, by="cli:main")

    All operations raise StorageError (nothing was changed) and PersonaError (persona.json has a
    mistake). An operation that is cancelled is either done as a whole, or what is missing is done
    at the next start or change.
    """

    def __init__(self, journal: Ref[JournalMessage], base: LiveValue[Persona], clock: Callable[[], int]) -> None:
        """base: the persona of the settings. clock: returns the wall clock in ms."""
        self._journal = journal
        """The only writer of the changed persona."""
        self._store = LineStore("persona-proposals", journal)
        self._base = base
        """The persona of the settings, over which the accepted changes lie."""
        self._clock = clock
        """Wall clock, ms."""
        self._changing = trio.Lock()
        """Held during a change, because the number and the checks of a proposal depend on all
        earlier ones."""

    async def read_state(self) -> PersonaState:
        """Return the current state of the files."""
        return _state(self._base.now, *await self._read())

    async def propose(self, field: str, value: str, why: str, *, on: str = "", key: str = "") -> Proposal:
        """Record a proposal and return it. The same wish again returns the same proposal.

        value: the new text, with semicolons between the items of a list. why: the reason, for the
        owner. on: the channel that the agent is listening to. key: the same for a call that is
        repeated after a crash. Raises ProposalRefused.
        """
        async with self._changing:
            changes, log = await self._read()
            persona = next_persona(self._base.now, changes, log)
            wish = Proposal(0, field, parse_field_value(field, value), parse_reason(why), self._clock(), on, key)
            proposal = make_proposal(log, persona, wish)
            if proposal.number not in log.proposals:
                await self._store.append(proposal_record(proposal))
            return proposal

    async def decide(self, number: int, *, accept: bool, by: str, only_open: bool = False) -> Proposal:
        """Accept or reject a proposal, and return it as it is then. Rejecting an accepted one takes it back.

        by: the channel of the owner, for the record; the caller checks that it may decide. The
        decision takes effect at the next start. Repeating it changes nothing. only_open: refuse it
        for a proposal that was decided before. Raises ProposalRefused.
        """
        async with self._changing:
            changes, log = await self._read()
            state, before = choose_state(log, changes, number, accept=accept)
            if only_open and log.proposals[number].state != OPEN:
                raise ProposalRefused(f"proposal {number} is {log.proposals[number].state} already")
            if state:
                record = decision_record(number, state, self._clock(), by, before)
                await self._store.append(record)
                log.apply(record)
            await self._write_changes(changes, log)
            return log.proposals[number]

    async def decide_and_show(self, number: int, *, accept: bool, by: str, only_open: bool = False) -> dict[str, Json]:
        """Decide as `decide` does, and return the proposal as `proposal_view` shows it after that."""
        proposal = await self.decide(number, accept=accept, by=by, only_open=only_open)
        return proposal_view(proposal, (await self.read_state()).persona)

    # ------------------------------------------------------------------ files

    async def _read(self) -> tuple[Mapping[str, FieldValue], ProposalLog]:
        """Return the content of both files."""
        content = await self._journal.ask(ReadFile, CHANGES)
        changes = parse_fields(f"data/{CHANGES}", content) if content else {}
        log = ProposalLog()
        await self._store.read(log.apply)
        return changes, log

    async def _write_changes(self, changes: Mapping[str, FieldValue], log: ProposalLog) -> None:
        """Write the decisions into persona.json. If the disk refuses it, the decision stands: the next start reads the lines."""
        if not log.unapplied:
            return
        fields: dict[str, Json] = {name: value_json(value) for name, value in merge_changes(changes, log).items()}
        try:
            await self._journal.ask(ReplaceFile, CHANGES, f"{encode_json(fields, indent=2)}\n".encode())
            applied: list[dict[str, Json]] = [{"type": "applied", "n": number} for number in log.unapplied]
            await self._store.append(*applied)
        except StorageError as error:
            _log.warning(
                "decision about the persona stored, persona.json not written yet", file=CHANGES, error=str(error)
            )


# ------------------------------------------------------------------ as JSON and as text


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
        return "  (from the next start or reload on)"
    return "  (changed by a proposal)" if field in view["evolved"] else ""


def _open_lines(proposal: Mapping[str, Any]) -> list[str]:
    """Return the lines about a proposal that waits for a decision."""
    channel = f", on {proposal['on']}" if proposal["on"] else ""
    return [
        f"{proposal['n']}. {proposal['field']}: “{proposal['value']}”",
        f"   now: “{proposal['now']}”",
        f"   why: {proposal['why']} ({format_day(proposal['at'])}{channel})",
    ]


def _decided_line(proposal: Mapping[str, Any]) -> str:
    words, day = _STATE_WORDS[proposal["state"]], format_day(proposal["decidedAt"])
    return f"{proposal['n']}. {proposal['field']}: “{proposal['value']}”: {words} ({day})"
