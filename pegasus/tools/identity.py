"""The tool by which the agent asks to become different: propose_persona_change. Its owner decides, never the agent."""

from __future__ import annotations

from typing import Any, Final

from pegasus.identity import FIELDS, LISTS, Evolution, PersonaError, ProposalRefused
from pegasus.messages import ChannelInfo, Json
from pegasus.models import ToolSpec
from pegasus.tools.base import Effect, Tool, ToolContext, ToolError, parameters

_SPEC: Final = ToolSpec(
    "propose_persona_change",
    "Propose to your owner a lasting change of who you are, when experience shows that one is due. Nothing changes until "
    "the owner accepts it; tell the owner about it yourself, on a channel of theirs. What holds for one user only is a fact "
    "for memory, not a change of persona.",
    parameters(
        {
            "field": {"type": "string", "enum": list(FIELDS)},
            "value": {
                "type": "string",
                "description": f"the whole new content of the field; for {' and '.join(LISTS)}: all items, with semicolons between",
            },
            "why": {"type": "string", "description": "what you have seen that speaks for it, for the owner to judge"},
        },
        *("field", "value", "why"),
    ),
)


def persona_tool(evolution: Evolution, owners: tuple[str, ...]) -> Tool:
    """The tool. owners: who decides (`agent.owners`)."""

    async def run(given: Any, context: ToolContext) -> Json:
        try:
            on = _place(context.origin)
            made = await evolution.propose(given["field"], given["value"], given["why"], on=on, key=context.key)
        except (ProposalRefused, PersonaError) as error:
            raise ToolError(str(error)) from None
        return {
            "proposal": made.n,
            "status": made.state,
            "owner": list(owners),
            "note": f"The owner can say /persona to see it, and /persona accept {made.n} or /persona reject {made.n}.",
        }

    return Tool(_SPEC, run, "custom", Effect.IDEMPOTENT)


def _place(channel: ChannelInfo | None) -> str:
    if channel is None:
        return ""
    who = f" ({channel.user_id})" if channel.user_id else ""
    return f"{channel.type}:{channel.channel_id}{who}"
