"""/persona: who the agent is, what it proposes to become, and the owner's word on that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pegasus.identity import (
    Evolution,
    Persona,
    PersonaError,
    ProposalRefused,
    format_decision,
    format_persona,
    persona_view,
    proposal_view,
)
from pegasus.intake import is_owner
from pegasus.messages import ChannelInfo
from pegasus.storage import StorageError

PERSONA: Final = "/persona"
_USAGE: Final = f"{PERSONA}, {PERSONA} accept N, or {PERSONA} reject N, where N is the number of a proposal."
_NOT_YOURS: Final = "Only my owner can see and decide what becomes of me."


async def persona_answer(
    evolution: Evolution, in_force: Persona, owners: Iterable[str], text: str, channel: ChannelInfo
) -> str:
    """The answer to the command. in_force: who the running agent is. owners: `agent.owners`; others are told nothing."""
    if not is_owner(channel, owners):
        return _NOT_YOURS
    try:
        match text.split()[1:]:
            case [] | ["list"]:
                return format_persona(persona_view(await evolution.read_state(), in_force), PERSONA)
            case ["accept" | "reject" as word, number] if number.isdecimal() and len(number) < 10:
                return await _decide(evolution, int(number), word == "accept", channel)
    except (ProposalRefused, PersonaError, StorageError) as error:
        return f"That did not work: {error}"
    return _USAGE


async def _decide(evolution: Evolution, n: int, accept: bool, channel: ChannelInfo) -> str:
    who = f" ({channel.user_id})" if channel.user_id else ""
    made = await evolution.decide(n, accept=accept, by=f"{channel.type}:{channel.channel_id}{who}")
    return format_decision(proposal_view(made, (await evolution.read_state()).persona))
