"""Proposed changes of the persona: the state of `data/identity/proposals.jsonl`, and the rules for proposing and deciding.

Pure: bytes of the file in, values and lines to append out; `persona_changes` does the reading and
writing. Every step is a line, and no line is ever removed, so the history of what the agent was
asked to become is complete. The result of all decisions is `data/identity/persona.json`, which
holds the fields that differ from the persona of the settings. Lines:

    {"type":"proposed","n":1,"at":ms,"field":"style","value":"…","why":"…","on":"cli:main","key":"…"}
    {"type":"accepted","n":1,"at":ms,"by":"cli:main","before":null}    before: the field in persona.json at that moment
    {"type":"rejected","n":1,"at":ms,"by":"cli:main"}
    {"type":"withdrawn","n":1,"at":ms,"by":"cli:main"}                 rejected after it had been accepted
    {"type":"applied","n":1}                                           persona.json follows the decision now

A decision without `applied` is *unapplied*: it is durable and in force at the next start, but
persona.json does not show it yet.

A proposed text will stand in the prompt of every call, and a stranger may have talked the agent
into it. So it is short, on one line except for the background, and holds nothing that a reader
cannot see or that imitates a heading or a message.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

import attrs

from pegasus.formatting import quote, truncate
from pegasus.identity.persona import FIELDS, LISTS, FieldValue, Persona
from pegasus.messages import Json
from pegasus.wire import require_number, require_text

CHANGES: Final = "identity/persona.json"
"""The file of the accepted fields, below data/; written by the journal, and by people while no
daemon runs."""
MAX_OPEN: Final = 20
"""Proposals that may wait for a decision; more would be noise for the owner."""
OPEN, ACCEPTED, REJECTED, WITHDRAWN = "open", "accepted", "rejected", "withdrawn"
"""States of a proposal, which are also the types of the lines that lead to them."""


class ProposalRefused(Exception):
    """A proposal or decision that is not possible. The text names the reason and a way that works.

    Raised when something is proposed or decided; nothing has changed then. The tool gives the text to the model, and `/persona`
    to the owner.

    Example: `parse_field_value("mood", "sunny")` raises it, since a persona has no such field.
    """


@attrs.frozen(eq=False, repr=False)
class Proposal:
    """One proposed change."""

    number: int
    """The number by which people refer to it; `n` in files and views."""
    field: str
    """Field of the persona, one of `FIELDS`."""
    value: FieldValue
    """Proposed content of the field."""
    why: str
    """Reason, for the owner."""
    at: int
    """Time of the proposal, ms since the epoch."""
    on: str = ""
    """The channel that the agent was listening to, which may be where the wish came from."""
    key: str = ""
    """The key of the tool call. A call that is repeated after a crash is recognised by it."""
    state: str = OPEN
    """open, accepted, rejected or withdrawn."""
    decided_by: str = ""
    """Person or channel of the decision; "" while it is open."""
    decided_at: int = 0
    """Time of the decision, ms since the epoch; 0 while it is open."""
    before: FieldValue | None = None
    """The field in persona.json when this was accepted, or None; a withdrawal restores it."""


@attrs.define(eq=False, repr=False)
class ProposalLog:
    """The content of the file: all proposals, and the decisions that persona.json does not follow yet.

    Example::

        log = ProposalLog()
        await LineStore("persona-proposals", journal).read(log.apply)
        [proposal.number for proposal in log.open]  # [3]
    """

    proposals: dict[int, Proposal] = attrs.field(factory=dict)
    """All proposals by number, oldest first."""
    unapplied: dict[int, tuple[str, FieldValue | None]] = attrs.field(factory=dict)
    """Field and new value of each unapplied decision, oldest first; None removes the field from
    persona.json."""

    @property
    def open(self) -> list[Proposal]:
        """Proposals that wait for a decision, oldest first."""
        return [proposal for proposal in self.proposals.values() if proposal.state == OPEN]

    def apply(self, record: Mapping[str, Any]) -> None:
        """Apply one record. Raises KeyError, TypeError or ValueError if it is not valid; then nothing has changed."""
        number = require_number(record["n"])
        match record["type"]:
            case "proposed":
                self.proposals[number] = _parse_proposal(number, record)
            case "applied":
                self.unapplied.pop(number, None)
            case "accepted" | "rejected" | "withdrawn" as state:
                proposal = self.proposals[number]
                before = proposal.before
                if state == ACCEPTED:
                    before = None if record["before"] is None else _parse_stored_value(proposal.field, record["before"])
                by, at = require_text(record["by"]), require_number(record["at"])
                decided = attrs.evolve(proposal, state=state, before=before, decided_by=by, decided_at=at)
                self.proposals[number] = decided
                if state != REJECTED:  # a rejection of an open proposal does not change persona.json
                    self.unapplied.pop(number, None)  # the latest decision has to come last
                    self.unapplied[number] = (proposal.field, decided.value if state == ACCEPTED else before)
            case _:
                raise ValueError("unknown type of record")


def merge_changes(changes: Mapping[str, FieldValue], log: ProposalLog) -> dict[str, FieldValue]:
    """Return the fields that persona.json should have: those it has, changed by the unapplied decisions."""
    merged = {**changes, **dict(log.unapplied.values())}
    return {field: value for field, value in merged.items() if value is not None}


def next_persona(base: Persona, changes: Mapping[str, FieldValue], log: ProposalLog) -> Persona:
    """Return the persona from the next start on. base: the persona of the settings. changes: the content of persona.json."""
    fields: dict[str, Any] = merge_changes(changes, log)
    return attrs.evolve(base, **fields)


# ------------------------------------------------------------------ proposing and deciding


def make_proposal(log: ProposalLog, persona: Persona, wish: Proposal) -> Proposal:
    """Return the proposal that a wish becomes: a new one with the next number, or an existing one that is the same.

    persona: the one from the next start on. wish: a proposal with a checked value and reason, whose
    number does not count. The same call (by its key) and the same wish while it waits are the same
    proposal. Raises ProposalRefused.
    """
    same = [p for p in log.proposals.values() if (p.field, p.value) == (wish.field, wish.value)]
    for proposal in log.proposals.values():
        if (wish.key and proposal.key == wish.key) or (proposal in same and proposal.state == OPEN):
            return proposal
    if getattr(persona, wish.field) == wish.value:
        raise ProposalRefused(f"{wish.field} says just that already")
    for proposal in same:
        if proposal.state in (REJECTED, WITHDRAWN):
            declined = f"your owner has declined just this before (proposal {proposal.number})"
            raise ProposalRefused(f"{declined}; propose something else")
    if len(log.open) >= MAX_OPEN:
        raise ProposalRefused(f"{MAX_OPEN} proposals wait for your owner already; ask for a decision about those first")
    return attrs.evolve(wish, number=max(log.proposals, default=0) + 1)


def choose_state(
    log: ProposalLog, changes: Mapping[str, FieldValue], number: int, *, accept: bool
) -> tuple[str, FieldValue | None]:
    """Return the new state of a proposal, and its field in persona.json before the decision.

    The state is "" if the proposal is decided that way already. Rejecting an accepted proposal
    withdraws it, unless the field has been changed since: then nobody could tell which text to
    restore. Raises ProposalRefused.
    """
    proposal = log.proposals.get(number)
    if proposal is None:
        waiting = ", ".join(str(waiting.number) for waiting in log.open) or "none"
        raise ProposalRefused(f"there is no proposal {number}; waiting for a decision: {waiting}")
    current = merge_changes(changes, log).get(proposal.field)
    if accept:
        return "" if proposal.state == ACCEPTED else ACCEPTED, current
    if proposal.state != ACCEPTED:
        return REJECTED if proposal.state == OPEN else "", current
    if current != proposal.value:
        raise ProposalRefused(
            f"proposal {number} cannot be taken back: {proposal.field} was changed since; "
            f"take that back first, or edit data/{CHANGES}"
        )
    return WITHDRAWN, current


# ------------------------------------------------------------------ records


def proposal_record(proposal: Proposal) -> dict[str, Json]:
    """Return the record of a new proposal."""
    record: dict[str, Json] = {"type": "proposed", "n": proposal.number, "at": proposal.at, "field": proposal.field}
    record |= {"value": value_json(proposal.value), "why": proposal.why}
    return record | {name: text for name, text in (("on", proposal.on), ("key", proposal.key)) if text}


def decision_record(number: int, state: str, at: int, by: str, before: FieldValue | None) -> dict[str, Json]:
    """Return the record of a decision. before: used if the state is ACCEPTED."""
    record: dict[str, Json] = {"type": state, "n": number, "at": at, "by": by}
    if state == ACCEPTED:
        record["before"] = None if before is None else value_json(before)
    return record


def value_json(value: FieldValue) -> Json:
    """Return a value as it is in the files: a text, or a list of texts."""
    return value if isinstance(value, str) else list(value)


def _parse_proposal(number: int, record: Mapping[str, Any]) -> Proposal:
    """Return the proposal of a record. Raises KeyError, TypeError or ValueError if it is not valid."""
    field = require_text(record["field"])
    value, why, at = (
        _parse_stored_value(field, record["value"]),
        require_text(record["why"]),
        require_number(record["at"]),
    )
    return Proposal(
        number, field, value, why, at, require_text(record.get("on", "")), require_text(record.get("key", ""))
    )


def _parse_stored_value(field: str, value: object) -> FieldValue:
    """Return the value of a field in a record. Its text is not checked again: it was when it was proposed."""
    if field in LISTS and isinstance(value, list) and value:
        return tuple(map(require_text, value))
    if field in FIELDS and field not in LISTS:
        return require_text(value)
    raise ValueError(f"{value!r:.80} is nothing for the field {field!r:.40}")


# ------------------------------------------------------------------ texts

MAX_WHY: Final = 1_000
"""Characters of a reason; longer ones are cut."""
MAX_ITEMS: Final = 20
"""Items of a list."""
MAX_CHARACTERS: Final = {
    "name": 60,
    "role": 500,
    "personality": 100,
    "style": 1_000,
    "values": 100,
    "background": 4_000,
}
"""Characters of a field, or of one item if the field is a list."""

_FORBIDDEN_CATEGORIES: Final = ("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn")
"""Unicode categories of characters that nobody sees, or that end a line."""
_JOINERS: Final = "\u200c\u200d"
"""Invisible characters that some scripts and emoji need."""


def parse_field_value(field: str, text: str) -> FieldValue:
    """Return the value of a field as the model writes it, with semicolons between the items of a list.

    Raises ProposalRefused for an unknown field, and for a text that must not stand in a prompt.
    """
    if field not in FIELDS:
        raise ProposalRefused(f"there is no field {quote(field, 40)}; there are {', '.join(FIELDS)}")
    if field not in LISTS:
        return _check_text(field, text, many_lines=field == "background")
    items = tuple(_check_text(field, item) for item in re.split(r"[;\n]", text) if item.strip())
    if not 1 <= len(items) <= MAX_ITEMS:
        raise ProposalRefused(
            f"{field}: found {len(items)} items; 1 to {MAX_ITEMS} are allowed, with semicolons between"
        )
    return items


def parse_reason(why: str) -> str:
    """Return the reason on one line, without invisible characters. Raises ProposalRefused if nothing is left."""
    visible = "".join(c for c in why if c.isspace() or unicodedata.category(c) not in _FORBIDDEN_CATEGORIES)
    text = truncate(visible, MAX_WHY)
    if not text:
        raise ProposalRefused("why: found nothing; your owner must be told the reason")
    return text


def format_value(value: FieldValue) -> str:
    """Return a value as people read it; `parse_field_value` accepts it."""
    return value if isinstance(value, str) else "; ".join(value)


def _check_text(field: str, text: str, *, many_lines: bool = False) -> str:
    """Return a text without blanks at the ends of its lines. Raises ProposalRefused if it may not stand in a prompt."""
    text = "\n".join(line.rstrip() for line in text.strip().split("\n"))
    limit = MAX_CHARACTERS[field]
    if not text or len(text) > limit:
        raise ProposalRefused(f"{field}: found {len(text):,} characters; 1 to {limit:,} are allowed")
    for c in text:
        is_invisible = unicodedata.category(c) in _FORBIDDEN_CATEGORIES and c not in _JOINERS
        if is_invisible and not (many_lines and c == "\n"):
            raise ProposalRefused(f"{field}: U+{ord(c):04X} may not stand in it")
    if any(line.lstrip().startswith(("#", "[")) for line in text.split("\n")):
        raise ProposalRefused(f"{field}: no line may begin like a heading or a message")
    return text
