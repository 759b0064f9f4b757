"""Who the agent is: the persona and the system prompt that is built from it once, at start.

How it changes, with its owner's consent, is in `pegasus.identity.evolution`, imported where it is needed.
"""

from pegasus.identity.persona import BUILT_IN, Persona, PersonaError, load_persona, persona_at_start
from pegasus.identity.prompt import SILENCE, ChannelNote, main_prompt, task_prompt

__all__ = [
    "BUILT_IN",
    "SILENCE",
    "ChannelNote",
    "Persona",
    "PersonaError",
    "load_persona",
    "main_prompt",
    "persona_at_start",
    "task_prompt",
]
