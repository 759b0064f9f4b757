"""The control plane's methods about the persona: persona.list, persona.accept, persona.reject."""

from __future__ import annotations

import attrs

from pegasus.gateway import BadParams, Caller, Params
from pegasus.identity import Evolution, Persona, PersonaError, ProposalRefused, proposal_view, view_of
from pegasus.intake import is_owner
from pegasus.messages import ChannelInfo, Json


@attrs.frozen(eq=False)
class PersonaControl:
    """What a program may see and decide about who the agent is. in_force: who runs now. owners: `agent.owners`.

    The command line of this machine (type cli) may, since it holds the home itself; other callers must be an owner.
    """

    evolution: Evolution
    in_force: Persona
    owners: tuple[str, ...]

    async def list(self, caller: Caller, params: Params) -> Json:
        """The persona, and all proposals."""
        self._check(caller)
        try:
            return view_of(await self.evolution.standing(), self.in_force)
        except PersonaError as error:
            raise BadParams(str(error)) from None

    async def accept(self, caller: Caller, params: Params) -> Json:
        """Accept proposal n."""
        return await self._decide(caller, params, accept=True)

    async def reject(self, caller: Caller, params: Params) -> Json:
        """Reject proposal n, or take it back."""
        return await self._decide(caller, params, accept=False)

    async def _decide(self, caller: Caller, params: Params, *, accept: bool) -> Json:
        self._check(caller)
        n = params.get("n")
        if not isinstance(n, int) or isinstance(n, bool):
            raise BadParams(f"n: found {n!r:.40}, allowed: the number of a proposal")
        try:
            made = await self.evolution.decide(n, accept=accept, by=f"{caller.type}:{caller.channel_id or ''}")
            return proposal_view(made, (await self.evolution.standing()).persona)
        except (ProposalRefused, PersonaError) as error:
            raise BadParams(str(error)) from None

    def _check(self, caller: Caller) -> None:
        channel = ChannelInfo(caller.type, caller.channel_id or "", caller.user_id)
        if caller.type != "cli" and not is_owner(channel, self.owners):
            raise BadParams(
                "only an owner may see and decide what becomes of the persona (agent.owners of the settings)"
            )
