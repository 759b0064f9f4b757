"""Who the agent is: the persona and the system prompt that is built from it once, at start.

How it changes, with its owner's consent, is in `pegasus.identity.evolution`, imported where it is needed.
"""

from pegasus.identity.evolution import Evolution, read_standing
from pegasus.identity.fields import ProposalRefused
from pegasus.identity.persona import BUILT_IN, FIELDS, LISTS, Persona, PersonaError, load_persona, persona_at_start
from pegasus.identity.prompt import SILENCE, ChannelNote, main_prompt, task_prompt
from pegasus.identity.view import decided_text, proposal_view, text_of_view, view_of

__all__ = [
    "BUILT_IN",
    "FIELDS",
    "LISTS",
    "SILENCE",
    "ChannelNote",
    "Evolution",
    "Persona",
    "PersonaError",
    "ProposalRefused",
    "decided_text",
    "load_persona",
    "main_prompt",
    "persona_at_start",
    "proposal_view",
    "read_standing",
    "task_prompt",
    "text_of_view",
    "view_of",
]
