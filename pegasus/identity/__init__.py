"""Identity: the persona of the agent, the system prompt made from it, and the way it changes.

`persona` loads it from a file and checks it. `prompt` turns it into the system prompts of the Main Agent and of tasks, once at the
start. `evolution` lets the agent propose changes, which take effect only when an owner has accepted them, and only at the next start,
so that the prompt stays the same within a run; it also shows persona and proposals. `proposals` is the pure state behind that.
"""

from pegasus.identity.evolution import (
    Evolution,
    PersonaState,
    format_decision,
    format_persona,
    persona_at_start,
    persona_view,
    read_persona_state,
)
from pegasus.identity.persona import BUILT_IN, FIELDS, LISTS, Persona, PersonaError, persona_of_settings
from pegasus.identity.prompt import SILENCE, ChannelNote, main_prompt, task_prompt
from pegasus.identity.proposals import ProposalRefused

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
    "main_prompt",
    "persona_at_start",
    "persona_of_settings",
    "persona_view",
    "read_persona_state",
    "task_prompt",
]
