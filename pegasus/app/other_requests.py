"""Requests to the owner beside approvals: somebody wants to be let in, and the agent has proposed a change of its persona.

An owner sees all that waits in one list, with the approvals of calls and texts, and answers all of it with the same commands: by the
id of an approval, by the code of a person, or by the number of a proposal, as `p-3`. Each kind keeps its own store and its own
commands (`pair`, `persona`), which know more than what waits: who was let in, and what was decided before.

As with an approval, the first answer counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import attrs

from pegasus.access import CODE_LENGTH, ApprovalError, PairingBook, PairingRefused
from pegasus.formatting import quote, truncate
from pegasus.identity import PersonaChanges, PersonaError, ProposalRefused, format_decision, format_value
from pegasus.messages import Json

_PROPOSAL: Final = re.compile(r"p-[0-9]{1,9}", re.IGNORECASE)
"""Id of a proposal. Those of approvals begin with "a-", which people may leave out, and have four characters behind it."""


@attrs.frozen
class OtherRequest:
    """A request that waits for an owner, or was answered now."""

    id: str
    """The id by which it is answered: "p-" and the number of a proposal, or the code of a person."""
    kind: str
    """The kind of request: "persona" or "pairing"."""
    text: str
    """One line for people: what is asked or, of an answered one, what became of it."""


@attrs.frozen(eq=False, repr=False)
class OtherRequests:
    """Lists and answers the requests that are no approvals. Callers have checked that an owner asks.

    Example::

        requests = OtherRequests(pairing, persona_changes)
        [request.id for request in await requests.waiting()]  # ["7KQ2MX4P", "p-3"]
        await requests.answer("p-3", is_allowed=True, by="cli:main")
    """

    pairing: PairingBook
    persona_changes: PersonaChanges

    async def waiting(self) -> Sequence[OtherRequest]:
        """Return what waits, oldest first within its kind. Raises StorageError, ActorError."""
        await self.pairing.ensure_read()
        _, codes = self.pairing.view()
        waiting = [OtherRequest(code.code, "pairing", f"{code.who} wants to write to me") for code in codes]
        try:
            state = await self.persona_changes.read_state()
        except PersonaError:  # a mistake in persona.json, which the commands about the persona report
            return waiting
        for proposal in state.open:
            now = format_value(getattr(state.persona, proposal.field))
            text = f"persona {proposal.field}: “{format_value(proposal.value)}” (now: “{now}”; why: {proposal.why})"
            waiting.append(OtherRequest(f"p-{proposal.number}", "persona", text))
        return waiting

    async def answer(self, id: str, *, is_allowed: bool, by: str, more: str = "") -> OtherRequest | None:
        """Answer the request with this id and return it as it is then; None for an id of no such request.

        more: what stands behind a yes, which such a request does not take. Raises ApprovalError for a request that does not wait,
        StorageError, ActorError. Cancelled: the answer is on disk or not, and the list shows which.
        """
        try:
            if _PROPOSAL.fullmatch(id):
                _refuse_more(id, more)
                return await self._decide(id.lower(), accept=is_allowed, by=by)
            if len(id) != CODE_LENGTH:  # an approval must be answered also while nobody can read who was let in
                return None
            await self.pairing.ensure_read()
            if self.pairing.open_code(id) is None:
                return None
            _refuse_more(id, more)
            if is_allowed:
                return OtherRequest(
                    id.upper(), "pairing", f"{await self.pairing.approve(id, by)} may write to me from now on."
                )
            who = await self.pairing.refuse(id)
            return OtherRequest(id.upper(), "pairing", f"{who} is not let in.")
        except (PairingRefused, ProposalRefused, PersonaError) as error:
            text = str(error)
            raise ApprovalError(f"{text[:1].upper()}{text[1:]}.") from error

    async def _decide(self, id: str, *, accept: bool, by: str) -> OtherRequest:
        """Decide about a proposal. Raises ProposalRefused, PersonaError, StorageError."""
        number = int(id.removeprefix("p-"))
        decided = await self.persona_changes.decide_and_show(number, accept=accept, by=by, only_open=True)
        return OtherRequest(id, "persona", format_decision(decided))


def _refuse_more(id: str, more: str) -> None:
    """Raise ApprovalError if something stands behind the id of a request that is answered with yes or no alone."""
    if more:
        raise ApprovalError(f"{id} takes a yes or a no alone; found behind the id: {quote(truncate(more, 40))}.")


def waiting_request(request: OtherRequest) -> str:
    """Return a request that waits in one line: `p-3  persona style: “…”`."""
    return f"{request.id}  {truncate(request.text, 600)}"


def request_json(request: OtherRequest) -> dict[str, Json]:
    """Return a request as the control plane shows it."""
    return {"id": request.id, "kind": request.kind, "text": request.text}
