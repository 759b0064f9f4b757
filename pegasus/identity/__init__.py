"""Who the agent is: the persona and the system prompt that is built from it once, at start.

Everything here is plain functions over values.
"""

from pegasus.identity.persona import BUILT_IN, Persona, PersonaError, load_persona
from pegasus.identity.prompt import SILENCE, ChannelNote, main_prompt, task_prompt

__all__ = [
    "BUILT_IN",
    "SILENCE",
    "ChannelNote",
    "Persona",
    "PersonaError",
    "load_persona",
    "main_prompt",
    "task_prompt",
]
