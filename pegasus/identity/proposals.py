"""Changes to the persona that the agent proposes and its owner decides about: the state of `identity/proposals.jsonl`.

Pure: bytes in, values and bytes to be appended out. Every step is a line, so that nothing of what the agent was and was asked to
become is lost; what is in force is `identity/persona.json`, the fields that differ from the persona of the settings.

    {"type":"proposed","n":1,"at":ms,"field":"style","value":"…","why":"…","on":"cli:main","key":"…"}
    {"type":"accepted","n":1,"at":ms,"by":"cli:main","before":null}    before: what persona.json said of the field
    {"type":"rejected","n":1,"at":ms,"by":"cli:main"}
    {"type":"withdrawn","n":1,"at":ms,"by":"cli:main"}                 taken back after it was accepted
    {"type":"applied","n":1}                                           persona.json says so now
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from pegasus.identity.fields import ProposalRefused, reason, value_of
from pegasus.identity.persona import FIELDS, LISTS, FieldValue, Persona, with_changes
from pegasus.messages import Json
from pegasus.storage import encode_line, read_lines, text_of

PROPOSALS: Final = "identity/proposals.jsonl"
CHANGES: Final = "identity/persona.json"
"""Below data/; both written by the journal."""
MOST_OPEN: Final = 20
"""Proposals that may wait for a decision."""
OPEN, ACCEPTED, REJECTED, WITHDRAWN = "open", "accepted", "rejected", "withdrawn"


@attrs.frozen
class Proposal:
    """One proposed change. at, decided_at: ms since the epoch. on: the channel that was listened to when it was proposed.

    before: what persona.json said of the field when this was accepted; None: nothing.
    """

    n: int
    field: str
    value: FieldValue
    why: str
    at: int
    on: str = ""
    key: str = ""
    state: str = OPEN
    decided_by: str = ""
    decided_at: int = 0
    before: FieldValue | None = None


@attrs.define
class Ledger:
    """All proposals by number, and the fields of which persona.json does not say yet what was decided.

    problems: lines that are no records, in words. torn: what a crash has left behind the last whole line.
    """

    proposals: dict[int, Proposal] = attrs.field(factory=dict)
    unapplied: dict[int, tuple[str, FieldValue | None]] = attrs.field(factory=dict)
    problems: list[str] = attrs.field(factory=list)
    torn: bytes = b""

    @property
    def open(self) -> list[Proposal]:
        """Those that wait for a decision, oldest first."""
        return [proposal for proposal in self.proposals.values() if proposal.state == OPEN]

    def take(self, record: Mapping[str, Any]) -> None:
        """Take over one record. Raises KeyError, TypeError, ValueError, OverflowError where it is none."""
        n = int(record["n"])
        match record["type"]:
            case "proposed":
                field = text_of(record["field"])
                self.proposals[n] = Proposal(
                    *(n, field, _value_in(field, record["value"]), text_of(record["why"]), int(record["at"])),
                    on=text_of(record.get("on", "")),
                    key=text_of(record.get("key", "")),
                )
            case "applied":
                self.unapplied.pop(n, None)
            case "accepted" | "rejected" | "withdrawn" as state:
                self._decided(n, state, record)
            case _:
                raise ValueError("unknown type of record")

    def _decided(self, n: int, state: str, record: Mapping[str, Any]) -> None:
        proposal = self.proposals[n]
        before = proposal.before
        if state == ACCEPTED:
            before = None if record["before"] is None else _value_in(proposal.field, record["before"])
        decided = attrs.evolve(
            proposal, state=state, before=before, decided_by=text_of(record["by"]), decided_at=int(record["at"])
        )
        self.proposals[n] = decided
        if state != REJECTED:
            self.unapplied.pop(n, None)
            self.unapplied[n] = (proposal.field, decided.value if state == ACCEPTED else before)


def ledger_of(content: bytes) -> Ledger:
    """What a file says; what is no record hides nothing around it, and is named in `problems`."""
    ledger = Ledger()
    lines = read_lines(content)
    ledger.problems += [str(bad) for bad in lines.bad]
    ledger.torn = b"".join(bad.raw for bad in lines.bad if bad.torn)
    for number, record in lines.good:
        try:
            ledger.take(record)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            ledger.problems.append(f"line {number}: not a record of its type ({type(error).__name__}: {error})")
    return ledger


def settled(changes: Mapping[str, FieldValue], ledger: Ledger) -> dict[str, FieldValue]:
    """What persona.json is to say: what it says, and what was decided since."""
    result = dict(changes)
    for field, value in ledger.unapplied.values():
        result.pop(field, None)
        if value is not None:
            result[field] = value
    return result


def standing(base: Persona, changes: Mapping[str, FieldValue], ledger: Ledger) -> Persona:
    """Who the agent is from the next start on. base: the persona of the settings."""
    return with_changes(base, settled(changes, ledger))


# ------------------------------------------------------------------ steps


@attrs.frozen
class Wish:
    """What somebody would like to propose. value: as `fields.value_of` takes it. The rest: see Proposal."""

    field: str
    value: str
    why: str
    at: int
    on: str = ""
    key: str = ""


def proposed(ledger: Ledger, persona: Persona, wish: Wish) -> Proposal:
    """The proposal; one that is in the ledger if the same call has made it, or if it waits and wants the same.

    persona: see `standing`. Raises ProposalRefused.
    """
    wanted = value_of(wish.field, wish.value)
    same = [one for one in ledger.proposals.values() if (one.field, one.value) == (wish.field, wanted)]
    for one in ledger.proposals.values():
        if (wish.key and one.key == wish.key) or (one in same and one.state == OPEN):
            return one
    if getattr(persona, wish.field) == wanted:
        raise ProposalRefused(f"{wish.field} says just that already")
    for one in same:
        if one.state in (REJECTED, WITHDRAWN):
            raise ProposalRefused(
                f"your owner has declined just this before (proposal {one.n}); propose something else"
            )
    if len(ledger.open) >= MOST_OPEN:
        raise ProposalRefused(
            f"{MOST_OPEN} proposals wait for your owner already; ask for a decision about those first"
        )
    number = max(ledger.proposals, default=0) + 1
    return Proposal(number, wish.field, wanted, reason(wish.why), wish.at, wish.on, wish.key)


def decision(
    ledger: Ledger, changes: Mapping[str, FieldValue], n: int, *, accept: bool
) -> tuple[str, FieldValue | None]:
    """The new state of a proposal ("" if it is decided so already), and what its field is before. Raises ProposalRefused."""
    proposal = ledger.proposals.get(n)
    if proposal is None:
        waiting = ", ".join(str(one.n) for one in ledger.open) or "none"
        raise ProposalRefused(f"there is no proposal {n}; waiting for a decision: {waiting}")
    stands = settled(changes, ledger).get(proposal.field)
    if accept:
        return "" if proposal.state == ACCEPTED else ACCEPTED, stands
    if proposal.state != ACCEPTED:
        return REJECTED if proposal.state == OPEN else "", stands
    if stands != proposal.value:
        raise ProposalRefused(
            f"proposal {n} cannot be taken back: {proposal.field} was changed since; take that back first, or edit data/{CHANGES}"
        )
    return WITHDRAWN, stands


# ------------------------------------------------------------------ lines


def line_of(proposal: Proposal) -> bytes:
    """The record of a new proposal."""
    record: dict[str, Json] = {"type": "proposed", "n": proposal.n, "at": proposal.at, "field": proposal.field}
    record |= {"value": _json(proposal.value), "why": proposal.why}
    record |= {name: text for name, text in (("on", proposal.on), ("key", proposal.key)) if text}
    return encode_line(record)


def decision_line(n: int, state: str, at: int, by: str, before: FieldValue | None) -> bytes:
    """The record of a decision."""
    record: dict[str, Json] = {"type": state, "n": n, "at": at, "by": by}
    if state == ACCEPTED:
        record["before"] = None if before is None else _json(before)
    return encode_line(record)


def applied_lines(numbers: Iterable[int]) -> bytes:
    """The records that say that persona.json is as decided."""
    return b"".join(encode_line({"type": "applied", "n": n}) for n in numbers)


def _json(value: FieldValue) -> Json:
    return value if isinstance(value, str) else list(value)


def _value_in(field: str, value: object) -> FieldValue:
    if field in LISTS and isinstance(value, list) and value:
        return tuple(map(text_of, value))
    if field in FIELDS and field not in LISTS:
        return text_of(value)
    raise ValueError(f"{value!r:.80} is nothing for the field {field!r:.40}")
