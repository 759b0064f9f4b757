"""Changing the persona: the agent proposes, its owner decides, and the next start applies the decision.

A running agent never changes, because its prompt is built once. Every step is a line of `data/identity/proposals.jsonl`, and no line
is ever removed, so the history of what the agent was asked to become is complete:

    {"type":"proposed","n":1,"at":ms,"field":"style","value":"…","why":"…","on":"cli:main","key":"…"}
    {"type":"accepted","n":1,"at":ms,"by":"cli:main","before":null}    before: the field in persona.json at that moment
    {"type":"rejected","n":1,"at":ms,"by":"cli:main"}
    {"type":"withdrawn","n":1,"at":ms,"by":"cli:main"}                 rejected after it had been accepted
    {"type":"applied","n":1}                                           persona.json follows the decision now

The result of all decisions is `data/identity/persona.json`, which holds the fields that differ from the persona of the settings. It is
written after the line of a decision. A crash in between leaves a decision that is *unapplied*: durable and in force at the next start,
which reads both files, and written to persona.json with the next decision. Both files are read anew for each operation, so a change
made by hand counts.

A proposed text will stand in the prompt of every call, and a stranger may have talked the agent into it. So it is short, on one line
except for the background, and holds nothing that a reader cannot see or that imitates a heading or a message.

Persona and proposals are shown as JSON for programs (`persona_view`, whose keys must not change) and as text for people, which is made
from the JSON: the command line receives nothing else from the daemon, and so it and the chat command `/persona` show the same text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from actors import Ref
from pegasus.access import OwnerRequest, RequestRefused
from pegasus.formatting import format_day, quote, truncate
from pegasus.identity.persona import FIELDS, LISTS, FieldValue, Persona, PersonaError, load_changes, parse_fields
from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.settings import LiveValue
from pegasus.storage import Changed, JournalMessage, LineStore, ReadFile, ReplaceFile, StorageError, stored_lines
from pegasus.wire import encode_json, require_number, require_text

CHANGES: Final = "identity/persona.json"
"""The file of the accepted fields, below data/; written by the journal, and by people while no daemon runs."""
MAX_OPEN: Final = 20
"""Proposals that may wait for a decision; more would be noise for the owner."""
SHOWN_DECISIONS: Final = 5
"""Decided proposals in the text; all are in the JSON."""
OPEN, ACCEPTED, REJECTED, WITHDRAWN = "open", "accepted", "rejected", "withdrawn"
"""States of a proposal, which are also the types of the lines that lead to them."""

_PROPOSALS: Final = "persona-proposals"
"""Collection of the lines."""
_KIND: Final = "persona"
"""Kind of these requests in the list of what waits for an owner."""
_ID: Final = re.compile(r"p-[0-9]{1,9}", re.IGNORECASE)
"""Id of a proposal in that list. Those of approvals begin with "a-", which people may leave out, with four characters behind it."""
_STATE_WORDS: Final = {ACCEPTED: "accepted", REJECTED: "rejected", WITHDRAWN: "accepted, and taken back later"}
"""States of decided proposals, for the list."""
_DECISION_WORDS: Final = {
    ACCEPTED: "Accepted; it takes effect at the next start or reload of the settings",
    REJECTED: "Rejected",
    WITHDRAWN: "Taken back; it takes effect at the next start or reload of the settings",
}
"""Consequences of decisions."""

_log = get_logger("identity")


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
class PersonaState:
    """The content of both files: the persona and all proposals. Pure.

    Example: `(await persona_changes.read_state()).persona.style` is the style from the next start on.
    """

    base: Persona
    """The persona of the settings."""
    changes: Mapping[str, FieldValue]
    """The fields in persona.json."""
    proposals: dict[int, Proposal] = attrs.field(factory=dict)
    """All proposals by number, oldest first."""
    unapplied: dict[int, tuple[str, FieldValue | None]] = attrs.field(factory=dict)
    """Field and new value of each unapplied decision, oldest first; None removes the field from persona.json."""
    lines: int = 0
    """Lines that say all this."""

    @property
    def open(self) -> list[Proposal]:
        """Proposals that wait for a decision, oldest first."""
        return [proposal for proposal in self.proposals.values() if proposal.state == OPEN]

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that persona.json should have: those it has, changed by the unapplied decisions."""
        merged = {**self.changes, **dict(self.unapplied.values())}
        return {field: value for field, value in merged.items() if value is not None}

    @property
    def persona(self) -> Persona:
        """The persona from the next start on."""
        return attrs.evolve(self.base, **self.fields)

    def apply(self, record: Mapping[str, Any]) -> None:
        """Apply the record of a line. Raises LookupError, TypeError or ValueError if it is not valid; then nothing has changed."""
        number = require_number(record["n"])
        match record["type"]:
            case "proposed":
                field, why, at = (
                    require_text(record["field"]),
                    require_text(record["why"]),
                    require_number(record["at"]),
                )
                value = _parse_stored_value(field, record["value"])
                on, key = (require_text(record.get(name, "")) for name in ("on", "key"))
                self.proposals[number] = Proposal(number, field, value, why, at, on, key)
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

    def find_same(self, field: str, value: FieldValue, key: str) -> Proposal | None:
        """Return the proposal that a wish is already: of the same call, or the same one while it waits; None if it is new.

        Raises RequestRefused for a new one that may not be made.
        """
        same = [p for p in self.proposals.values() if (p.field, p.value) == (field, value)]
        for proposal in self.proposals.values():
            if (key and proposal.key == key) or (proposal in same and proposal.state == OPEN):
                return proposal
        if getattr(self.persona, field) == value:
            raise RequestRefused(f"{field} says just that already")
        for proposal in same:
            if proposal.state in (REJECTED, WITHDRAWN):
                declined = f"your owner has declined just this before (proposal {proposal.number})"
                raise RequestRefused(f"{declined}; propose something else")
        if len(self.open) >= MAX_OPEN:
            raise RequestRefused(
                f"{MAX_OPEN} proposals wait for your owner already; ask for a decision about those first"
            )
        return None

    def next_state(self, number: int, *, accept: bool) -> str:
        """Return the state that a decision leads to, "" if the proposal is decided that way already. Raises RequestRefused.

        Rejecting an accepted proposal withdraws it, unless the field has been changed since: then nobody could tell which text to
        restore.
        """
        proposal = self.proposals.get(number)
        if proposal is None:
            waiting = ", ".join(str(waiting.number) for waiting in self.open) or "none"
            raise RequestRefused(f"there is no proposal {number}; waiting for a decision: {waiting}")
        if accept:
            return "" if proposal.state == ACCEPTED else ACCEPTED
        if proposal.state != ACCEPTED:
            return REJECTED if proposal.state == OPEN else ""
        if self.fields.get(proposal.field) != proposal.value:
            raise RequestRefused(
                f"proposal {number} cannot be taken back: {proposal.field} was changed since; "
                f"take that back first, or edit data/{CHANGES}"
            )
        return WITHDRAWN


def read_persona_state(base: Persona, data: Path) -> PersonaState:
    """Return the state from the files, without a journal: at the start, or while no daemon runs.

    base: the persona of the settings. data: the folder of the journal. Blocks. Raises PersonaError if persona.json has a mistake, and
    OSError.
    """
    state = PersonaState(base, load_changes(data / CHANGES))
    stored_lines(data, _PROPOSALS, state.apply)
    return state


@attrs.define(eq=False, repr=False)
class PersonaChanges:
    """Proposes and decides changes of the persona, with the journal as the only writer of the files.

    Example::

        proposal = await persona_changes.propose("style", "warm and short", "People thank me for it", on="cli:main")
        await persona_changes.decide(proposal.number, accept=True, by="cli:main")

    All operations raise StorageError (nothing was changed) and PersonaError (persona.json has a mistake). An operation that is
    cancelled is either done as a whole, or what is missing is done at the next start or change.
    """

    _journal: Ref[JournalMessage]
    _base: LiveValue[Persona]
    """The persona of the settings."""
    _clock: Callable[[], int]
    """Wall clock, ms."""
    _store: LineStore = attrs.field(init=False)
    _changing: trio.Lock = attrs.field(init=False, factory=trio.Lock)
    """Held during a change, because the number and the checks of a proposal depend on all earlier ones."""

    @_store.default
    def _open_store(self) -> LineStore:
        return LineStore(_PROPOSALS, self._journal)

    async def read_state(self) -> PersonaState:
        """Return the current state of the files."""
        content = await self._journal.ask(ReadFile, CHANGES)
        state = PersonaState(self._base.now, parse_fields(f"data/{CHANGES}", content) if content else {})
        await self._store.read(state.apply)
        state.lines = self._store.length
        return state

    async def _append(self, state: PersonaState, *records: dict[str, Json]) -> None:
        """Append records that were decided by this state, and apply them to it. Raises StorageError."""
        try:
            await self._store.append(*records, after=state.lines)
        except Changed:
            raise StorageError("somebody else has changed the proposals; try again") from None
        state.lines += len(records)
        for record in records:
            state.apply(record)

    async def propose(self, field: str, value: str, why: str, *, on: str = "", key: str = "") -> Proposal:
        """Record a proposal and return it. The same wish again returns the same proposal.

        value: the new text, with semicolons between the items of a list. why: the reason, for the owner. on: the channel that the
        agent is listening to. key: the same for a call that is repeated after a crash. Raises RequestRefused.
        """
        async with self._changing:
            state = await self.read_state()
            wanted, reason = parse_field_value(field, value), parse_reason(why)
            if known := state.find_same(field, wanted, key):
                return known
            number = max(state.proposals, default=0) + 1
            record: dict[str, Json] = {"type": "proposed", "n": number, "at": self._clock(), "field": field}
            record |= {"value": _value_json(wanted), "why": reason}
            record |= {name: text for name, text in (("on", on), ("key", key)) if text}
            await self._append(state, record)
            return state.proposals[number]

    async def decide(self, number: int, *, accept: bool, by: str, only_open: bool = False) -> dict[str, Json]:
        """Accept or reject a proposal, and return it as `persona_view` shows it then. Rejecting an accepted one takes it back.

        by: the channel of the owner, for the record; the caller checks that it may decide. The decision takes effect at the next
        start. Repeating it changes nothing. only_open: refuse it for a proposal that was decided before. Raises RequestRefused.
        """
        async with self._changing:
            state = await self.read_state()
            decision = state.next_state(number, accept=accept)
            proposal = state.proposals[number]
            if only_open and proposal.state != OPEN:
                raise RequestRefused(f"proposal {number} is {proposal.state} already")
            if decision:
                record: dict[str, Json] = {"type": decision, "n": number, "at": self._clock(), "by": by}
                if decision == ACCEPTED:
                    record["before"] = _value_json(state.fields.get(proposal.field))
                await self._append(state, record)
            await self._write_changes(state)
            return _proposal_view(state.proposals[number], state.persona)

    # ------------------------------------------------------------------ in the list of what waits for an owner

    async def waiting(self) -> Sequence[OwnerRequest]:
        """Return the open proposals; none while persona.json has a mistake, which the commands about the persona report."""
        try:
            state = await self.read_state()
        except PersonaError:
            return ()
        return [
            OwnerRequest(
                f"p-{proposal.number}",
                _KIND,
                f"persona {proposal.field}: “{format_value(proposal.value)}” "
                f"(now: “{format_value(getattr(state.persona, proposal.field))}”; why: {proposal.why})",
            )
            for proposal in state.open
        ]

    def has_request(self, id: str) -> bool:
        """Return whether this is the id of a proposal."""
        return _ID.fullmatch(id) is not None

    async def answer(self, id: str, *, is_allowed: bool, by: str) -> OwnerRequest:
        """Decide about an open proposal."""
        number = int(id[2:])
        try:
            decided = await self.decide(number, accept=is_allowed, by=by, only_open=True)
        except PersonaError as error:
            raise RequestRefused(str(error)) from error
        return OwnerRequest(f"p-{number}", _KIND, format_decision(decided))

    async def _write_changes(self, state: PersonaState) -> None:
        """Write the decisions into persona.json. If the disk refuses it, the decision stands: the next start reads the lines."""
        if not state.unapplied:
            return
        fields = {name: _value_json(value) for name, value in state.fields.items()}
        try:
            await self._journal.ask(ReplaceFile, CHANGES, f"{encode_json(fields, indent=2)}\n".encode())
            applied: list[dict[str, Json]] = [{"type": "applied", "n": number} for number in state.unapplied]
            await self._append(state, *applied)
        except StorageError as error:
            _log.warning(
                "decision about the persona stored, persona.json not written yet", file=CHANGES, error=str(error)
            )


# ------------------------------------------------------------------ as JSON and as text


def persona_view(state: PersonaState, running: Persona | None = None) -> dict[str, Json]:
    """Return the persona and all proposals as JSON.

    running: the persona of the running agent, or None if there is none. `evolved` names the fields
    that differ from the settings, `atNextStart` those that differ from the running agent.

    Keys: persona {field: text}, evolved [field], atNextStart [field], proposals [{n, field, why, at, on, state, value, now}]. `now` of
    a proposal is the text that it would replace. Times are in ms since the epoch. A decided one has `decidedBy` and `decidedAt`, too.
    """
    persona = state.persona
    return {
        "persona": {field: format_value(getattr(persona, field)) for field in FIELDS},
        "evolved": _differing_fields(persona, state.base),
        "atNextStart": _differing_fields(persona, running or persona),
        "proposals": [_proposal_view(proposal, persona) for proposal in state.proposals.values()],
    }


def _differing_fields(persona: Persona, other: Persona) -> list[Json]:
    """Return the names of the fields in which two personas differ."""
    return [field for field in FIELDS if getattr(persona, field) != getattr(other, field)]


def _proposal_view(proposal: Proposal, persona: Persona) -> dict[str, Json]:
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
    """Return the consequence of a decision as text. proposal: one of a `persona_view`."""
    return f"{_DECISION_WORDS[proposal['state']]}: {proposal['field']}: “{proposal['value']}”"


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


# ------------------------------------------------------------------ values

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


def _value_json(value: FieldValue | None) -> Json:
    """Return a value as it is in the files: a text, a list of texts, or null."""
    return list(value) if isinstance(value, tuple) else value


def _parse_stored_value(field: str, value: object) -> FieldValue:
    """Return the value of a field in a record. Its text is not checked again: it was when it was proposed."""
    if field in LISTS and isinstance(value, list) and value:
        return tuple(map(require_text, value))
    if field in FIELDS and field not in LISTS:
        return require_text(value)
    raise ValueError(f"{value!r:.80} is nothing for the field {field!r:.40}")


def parse_field_value(field: str, text: str) -> FieldValue:
    """Return the value of a field as the model writes it, with semicolons between the items of a list.

    Raises RequestRefused for an unknown field, and for a text that must not stand in a prompt.
    """
    if field not in FIELDS:
        raise RequestRefused(f"there is no field {quote(field, 40)}; there are {', '.join(FIELDS)}")
    if field not in LISTS:
        return _check_text(field, text, many_lines=field == "background")
    items = tuple(_check_text(field, item) for item in re.split(r"[;\n]", text) if item.strip())
    if not 1 <= len(items) <= MAX_ITEMS:
        raise RequestRefused(
            f"{field}: found {len(items)} items; 1 to {MAX_ITEMS} are allowed, with semicolons between"
        )
    return items


def parse_reason(why: str) -> str:
    """Return the reason on one line, without invisible characters. Raises RequestRefused if nothing is left."""
    visible = "".join(c for c in why if c.isspace() or unicodedata.category(c) not in _FORBIDDEN_CATEGORIES)
    text = truncate(visible, MAX_WHY)
    if not text:
        raise RequestRefused("why: found nothing; your owner must be told the reason")
    return text


def format_value(value: FieldValue) -> str:
    """Return a value as people read it; `parse_field_value` accepts it."""
    return value if isinstance(value, str) else "; ".join(value)


def _check_text(field: str, text: str, *, many_lines: bool = False) -> str:
    """Return a text without blanks at the ends of its lines. Raises RequestRefused if it may not stand in a prompt."""
    text = "\n".join(line.rstrip() for line in text.strip().split("\n"))
    limit = MAX_CHARACTERS[field]
    if not text or len(text) > limit:
        raise RequestRefused(f"{field}: found {len(text):,} characters; 1 to {limit:,} are allowed")
    for c in text:
        is_invisible = unicodedata.category(c) in _FORBIDDEN_CATEGORIES and c not in _JOINERS
        if is_invisible and not (many_lines and c == "\n"):
            raise RequestRefused(f"{field}: U+{ord(c):04X} may not stand in it")
    if any(line.lstrip().startswith(("#", "[")) for line in text.split("\n")):
        raise RequestRefused(f"{field}: no line may begin like a heading or a message")
    return text
