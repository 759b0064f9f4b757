"""The tool propose_persona_change, by which the agent proposes a change of its persona. The owner decides, never the agent.

The tool records a proposal and nothing else. Whether and when it takes effect is in
`pegasus.identity.persona_changes`. The text of a proposal is checked there too, since a stranger may have
talked the agent into it. The result tells the agent how its owner can decide, so that it can say so.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from pegasus.access import RequestRefused
from pegasus.identity import FIELDS, LISTS, PersonaChanges, PersonaError
from pegasus.messages import Json
from pegasus.models import ToolSpec
from pegasus.settings import LiveValue
from pegasus.tools.base import Effect, Reach, Tool, ToolContext, as_tool_error, parameters

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
"""Says that nothing changes at once, as models otherwise announce the change as done."""


def persona_tool(persona_changes: PersonaChanges, owners: LiveValue[Collection[str]]) -> Tool:
    """Return the tool.

    owners: the setting `agent.owners`; the result names them, so that the model knows whom to ask.
    A call that is repeated with the same key is the same proposal, so the tool is idempotent.

    persona_changes: records the proposal through the journal, so it survives a crash as soon as the tool has
    returned. The result has the number of the proposal and its state.

        tool = persona_tool(persona_changes, owners=LiveValue(("telegram:42",)))
    """

    async def run(arguments: Any, context: ToolContext) -> Json:
        """Record the proposal. Refusals are failures with a reason, such as a text that is too long."""
        channel = context.origin.written_by if context.origin else ""  # who may have wished for the change
        field, value, why = arguments["field"], arguments["value"], arguments["why"]
        if context.outside and why.strip():  # said by the program: a page may have chosen both texts
            why = f"(After reading text from outside: {', '.join(context.outside)}.) {why}"
        with as_tool_error(RequestRefused, PersonaError):
            proposal = await persona_changes.propose(field, value, why, on=channel, key=context.key)
        commands = f"/persona accept {proposal.number} or /persona reject {proposal.number}"
        return {
            "proposal": proposal.number,
            "status": proposal.state,
            "owner": list(owners.now),
            "note": f"The owner can say /persona to see it, and {commands}.",
        }

    return Tool(_SPEC, run, "custom", Effect.IDEMPOTENT, reach=Reach.INSIDE)
