"""Changing the persona: the agent proposes, its owner decides, and the next start applies the decision.

A running agent never changes, because its prompt is built once. A decision is one durable line in
the file of proposals; persona.json is written after it, and then a line which records that. A crash
between the first and the second leaves a decision that persona.json does not show. The next start
reads both files and is as decided; the next change writes persona.json again.

Both files are read anew for each operation, so a change made by hand counts, and no state is held
between operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import trio

from actors import Ref
from pegasus.identity.persona import FieldValue, Persona, load_changes, parse_changes
from pegasus.identity.proposals import (
    CHANGES,
    PROPOSALS,
    Proposal,
    ProposalLog,
    applied_lines,
    choose_state,
    decision_record,
    make_proposal,
    merge_changes,
    next_persona,
    parse_log,
    parse_reason,
    parse_value,
    proposal_record,
    to_json,
)
from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.storage import Commit, JournalMessage, ReadFile, ReplaceFile, StorageError
from pegasus.wire import encode_json, encode_line

_log = get_logger("identity")


@attrs.frozen
class PersonaState:
    """The persona with its history of proposals."""

    base: Persona
    """The persona of the settings."""
    persona: Persona
    """The persona from the next start on."""
    proposals: tuple[Proposal, ...]
    """All proposals, oldest first."""


def read_persona_state(base: Persona, data: Path) -> PersonaState:
    """Return the state from the files, without a journal: at the start, or while no daemon runs.

    data: the folder of the journal. Blocks. Raises PersonaError if persona.json has a mistake, and
    OSError.
    """
    changes, file = load_changes(data / CHANGES), data / PROPOSALS
    log = parse_log(file.read_bytes()) if file.exists() else ProposalLog()
    return _state(base, changes, log)


def persona_at_start(base: Persona, data: Path) -> Persona:
    """Return the persona of a daemon that starts now: that of the settings, with the changes the owner has accepted.

    data: the folder of the journal. Raises PersonaError if persona.json has a mistake, and OSError.
    """
    return read_persona_state(base, data).persona if (data / "identity").is_dir() else base


def _state(base: Persona, changes: Mapping[str, FieldValue], log: ProposalLog) -> PersonaState:
    """Return the state for the content of both files."""
    return PersonaState(base, next_persona(base, changes, log), tuple(log.proposals.values()))


class Evolution:
    """Proposes and decides changes of the persona, with the journal as the only writer of the files.

        proposal = await evolution.propose("style", "warm and short", "People thank me for it", on="cli:main")
        await evolution.decide(proposal.number, accept=True, by="cli:main")

    All operations raise StorageError (nothing was changed) and PersonaError (persona.json has a
    mistake). An operation that is cancelled is either done as a whole, or what is missing is done
    at the next start or change.
    """

    def __init__(self, journal: Ref[JournalMessage], base: Persona, clock: Callable[[], int]) -> None:
        """base: the persona of the settings. clock: returns the wall clock in ms."""
        self._journal = journal
        self._base = base
        self._clock = clock
        self._changing = trio.Lock()
        """Held during a change, because the number and the checks of a proposal depend on all
        earlier ones."""

    async def read_state(self) -> PersonaState:
        """Return the current state of the files."""
        return _state(self._base, *await self._read())

    async def propose(self, field: str, value: str, why: str, *, on: str = "", key: str = "") -> Proposal:
        """Record a proposal and return it. The same wish again returns the same proposal.

        value: the new text, with semicolons between the items of a list. why: the reason, for the
        owner. on: the channel that the agent is listening to. key: the same for a call that is
        repeated after a crash. Raises ProposalRefused.
        """
        async with self._changing:
            changes, log = await self._read()
            persona = next_persona(self._base, changes, log)
            wish = Proposal(0, field, parse_value(field, value), parse_reason(why), self._clock(), on, key)
            proposal = make_proposal(log, persona, wish)
            if proposal.number not in log.proposals:
                await self._append(encode_line(proposal_record(proposal)), log)
            return proposal

    async def decide(self, number: int, *, accept: bool, by: str) -> Proposal:
        """Accept or reject a proposal, and return it as it is then. Rejecting an accepted one takes it back.

        by: the channel of the owner, for the record; the caller checks that it may decide. The
        decision takes effect at the next start. Repeating it changes nothing. Raises
        ProposalRefused.
        """
        async with self._changing:
            changes, log = await self._read()
            state, before = choose_state(log, changes, number, accept=accept)
            if state:
                record = decision_record(number, state, self._clock(), by, before)
                await self._append(encode_line(record), log)
                log.apply(record)
            await self._write_changes(changes, log)
            return log.proposals[number]

    # ------------------------------------------------------------------ files

    async def _read(self) -> tuple[Mapping[str, FieldValue], ProposalLog]:
        """Return the content of both files."""
        content = await self._journal.ask(ReadFile, CHANGES)
        changes = parse_changes(f"data/{CHANGES}", content) if content else {}
        log = parse_log(await self._journal.ask(ReadFile, PROPOSALS))
        if log.problems:
            _log.warning(
                "invalid lines in the file of proposals are skipped", file=PROPOSALS, problems=log.problems[:5]
            )
        return changes, log

    async def _append(self, lines: bytes, log: ProposalLog) -> None:
        """Append lines to the file of proposals, after moving away an incomplete last line. Returns when they are on disk."""
        if log.torn:
            await self._set_torn_line_aside(log)
        await self._journal.ask(Commit, ((PROPOSALS, lines),))

    async def _set_torn_line_aside(self, log: ProposalLog) -> None:
        """Move an incomplete last line into a file of its own, so that the next line is not appended to it.

        It was never acknowledged, since a crash cut it short. It is kept for people to look at.
        """
        number = 1
        while await self._journal.ask(ReadFile, f"{PROPOSALS}.torn-{number}"):
            number += 1
        await self._journal.ask(ReplaceFile, f"{PROPOSALS}.torn-{number}", log.torn)
        content = await self._journal.ask(ReadFile, PROPOSALS)
        await self._journal.ask(ReplaceFile, PROPOSALS, content.removesuffix(log.torn))
        log.torn = b""

    async def _write_changes(self, changes: Mapping[str, FieldValue], log: ProposalLog) -> None:
        """Write the decisions into persona.json. If the disk refuses it, the decision stands: the next start reads the lines."""
        if not log.unapplied:
            return
        fields: dict[str, Json] = {name: to_json(value) for name, value in merge_changes(changes, log).items()}
        try:
            await self._journal.ask(ReplaceFile, CHANGES, f"{encode_json(fields, indent=2)}\n".encode())
            await self._append(applied_lines(log.unapplied), log)
        except StorageError as error:
            _log.warning(
                "decision about the persona stored, persona.json not written yet", file=CHANGES, error=str(error)
            )
