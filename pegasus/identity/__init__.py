"""Identity: the persona of the agent, the system prompt made from it, and the way it changes.

`persona` loads and checks it. `prompt` builds the system prompts, once at the start. `evolution`
handles changes: the agent proposes, the owner decides, and the next start applies it; `proposals`
is the pure state behind that, `view` its presentation.

`persona` reads who the agent is from a file. `proposals` and `evolution` let the agent propose changes, which
take effect only when an owner has accepted them, and only at the next start, so that the prompt stays the same
within a run. `view` shows both. `prompt` turns the persona into the system prompts of the Main Agent and of
tasks.
"""

from pegasus.identity.evolution import Evolution, PersonaState, persona_at_start, read_persona_state
from pegasus.identity.persona import BUILT_IN, FIELDS, LISTS, Persona, PersonaError, load_persona
from pegasus.identity.prompt import SILENCE, ChannelNote, main_prompt, task_prompt
from pegasus.identity.proposals import ProposalRefused
from pegasus.identity.view import format_decision, format_persona, persona_view, proposal_view

__all__ = [
    "BUILT_IN",
    "FIELDS",
    "LISTS",
    "SILENCE",
    "ChannelNote",
    "Evolution",
    "Persona",
    "PersonaError",
    "PersonaState",
    "ProposalRefused",
    "format_decision",
    "format_persona",
    "load_persona",
    "main_prompt",
    "persona_at_start",
    "persona_view",
    "proposal_view",
    "read_persona_state",
    "task_prompt",
]
