"""How the persona changes: the agent proposes, its owner decides, and the next start is another one (seed 003, "Evolution").

A decision is one durable line; persona.json follows it. If a crash comes in between, the next start reads both and is as
decided, and the next change catches up with the file. Nothing is ever changed in a running agent: its prompt is built once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import trio

from actors import Ref
from pegasus.identity import proposals
from pegasus.identity.persona import FieldValue, Persona, changes_in, load_changes
from pegasus.identity.proposals import CHANGES, PROPOSALS, Ledger, Proposal
from pegasus.observe import get_logger
from pegasus.storage import Commit, JournalMessage, ReadFile, ReplaceFile, StorageError

_log = get_logger("identity")


@attrs.frozen
class Standing:
    """base: the persona of the settings. persona: who the agent is from the next start on. proposals: all, oldest first."""

    base: Persona
    persona: Persona
    proposals: tuple[Proposal, ...]


def read_standing(base: Persona, data: Path) -> Standing:
    """How things stand, from the files: at the start, or while no daemon runs. data: the folder of the journal.

    Raises PersonaError, if persona.json has a mistake in it, and OSError.
    """
    changes, file = load_changes(data / CHANGES), data / PROPOSALS
    ledger = proposals.ledger_of(file.read_bytes()) if file.exists() else Ledger()
    return _standing(base, changes, ledger)


def _standing(base: Persona, changes: Mapping[str, FieldValue], ledger: Ledger) -> Standing:
    return Standing(base, proposals.standing(base, changes, ledger), tuple(ledger.proposals.values()))


class Evolution:
    """Proposes and decides. base: the persona of the settings. clock: wall clock, ms.

    Files are read anew for every question, so that what was changed by hand counts. Everything raises StorageError (nothing
    was changed) and PersonaError (persona.json has a mistake in it). Cancelled: done whole, or to be caught up with.
    """

    def __init__(self, journal: Ref[JournalMessage], base: Persona, clock: Callable[[], int]) -> None:
        self._journal = journal
        self._base = base
        self._clock = clock
        self._one_change = trio.Lock()

    async def standing(self) -> Standing:
        """Who the agent will be, and what was proposed."""
        return _standing(self._base, *await self._read())

    async def propose(self, field: str, value: str, why: str, *, on: str = "", key: str = "") -> Proposal:
        """Propose that a field become this; the same again is the same proposal. Raises ProposalRefused.

        value: items of a list stand between semicolons. on: the channel that was listened to. key: the same for the same call.
        """
        async with self._one_change:
            changes, ledger = await self._read()
            wish = proposals.Wish(field, value, why, self._clock(), on, key)
            proposal = proposals.proposed(ledger, proposals.standing(self._base, changes, ledger), wish)
            if proposal.n not in ledger.proposals:
                await self._append(proposals.line_of(proposal), ledger)
            return proposal

    async def decide(self, n: int, *, accept: bool, by: str) -> Proposal:
        """Accept a proposal, or reject it; one that was accepted is taken back by rejecting it. Raises ProposalRefused.

        Whether `by` may do that is the caller's to know. It takes effect at the next start.
        """
        async with self._one_change:
            changes, ledger = await self._read()
            state, before = proposals.decision(ledger, changes, n, accept=accept)
            if state:
                line = proposals.decision_line(n, state, self._clock(), by, before)
                await self._append(line, ledger)
                ledger.take(json.loads(line))
            await self._apply(changes, ledger)
            return ledger.proposals[n]

    # ------------------------------------------------------------------ files

    async def _read(self) -> tuple[Mapping[str, FieldValue], Ledger]:
        content = await self._journal.ask(ReadFile, CHANGES)
        changes = changes_in(f"data/{CHANGES}", content) if content else {}
        ledger = proposals.ledger_of(await self._journal.ask(ReadFile, PROPOSALS))
        if ledger.problems:
            _log.warning("lines that are no proposals were passed over", file=PROPOSALS, problems=ledger.problems[:5])
        return changes, ledger

    async def _append(self, lines: bytes, ledger: Ledger) -> None:
        if ledger.torn:
            await self._set_aside(ledger)
        await self._journal.ask(Commit, ((PROPOSALS, lines),))

    async def _set_aside(self, ledger: Ledger) -> None:
        """A crash has cut the last line short: nobody was told of it, and nothing must be glued to it."""
        n = 1
        while await self._journal.ask(ReadFile, f"{PROPOSALS}.torn-{n}"):
            n += 1
        await self._journal.ask(ReplaceFile, f"{PROPOSALS}.torn-{n}", ledger.torn)
        content = await self._journal.ask(ReadFile, PROPOSALS)
        await self._journal.ask(ReplaceFile, PROPOSALS, content.removesuffix(ledger.torn))
        ledger.torn = b""

    async def _apply(self, changes: Mapping[str, FieldValue], ledger: Ledger) -> None:
        """Let persona.json say what was decided. If the disk refuses it, the next start knows all the same."""
        if not ledger.unapplied:
            return
        text = json.dumps(proposals.settled(changes, ledger), ensure_ascii=False, indent=2)
        try:
            await self._journal.ask(ReplaceFile, CHANGES, f"{text}\n".encode())
            await self._append(proposals.applied_lines(ledger.unapplied), ledger)
        except StorageError as error:
            _log.warning(
                "a decision about the persona is kept, but not in its file yet", file=CHANGES, error=str(error)
            )
