"""Identity: the persona of the agent, the system prompt made from it, and the way it changes.

`persona` loads it from a file and checks it. `prompt` and `lean` turn it into the system prompts of the Main Agent and of tasks, for
large and for small models, and `workspace_files` adds what the owner wrote into the workspace.
`persona_changes` lets the agent propose changes, which take effect only when an owner has accepted them, and only at the next start,
so that the prompt stays the same within a run; it also shows persona and proposals.

Example::

    prompts = MainPrompts(persona_of_settings(settings.agent.persona, home.resolve), files=workspace_files)
    prompts.text(direct=False, lean=False, tools=("reply", "spawn_subagent"))   # the system prompt

    proposal = await persona_changes.propose("style", "warm and short", "People thank me for it")
    await persona_changes.decide(proposal.number, accept=True, by="cli:main")         # takes effect at the next start
"""

from pegasus.identity.lean import SMALL_WINDOW, lean_task_prompt
from pegasus.identity.persona import BUILT_IN, FIELDS, LISTS, Persona, PersonaError, persona_of_settings
from pegasus.identity.persona_changes import CHANGES as PERSONA_CHANGES
from pegasus.identity.persona_changes import (
    PersonaChanges,
    format_decision,
    format_persona,
    persona_view,
    read_persona_state,
)
from pegasus.identity.prompt import SILENCE, ChannelNote, MainPrompts, task_prompt
from pegasus.identity.workspace_files import (
    ABOUT_OWNER,
    HEARTBEAT_FILE,
    MAX_LEAN_TEXT,
    MAX_TEXT,
    NOTES_FILE,
    OWNER_FILES,
    SHARED_FILES,
    TASK_FILES,
    WORKSPACE_FILES,
    OwnerFile,
    WorkspaceFiles,
    parse_owner_file,
)

__all__ = [
    "ABOUT_OWNER",
    "BUILT_IN",
    "FIELDS",
    "HEARTBEAT_FILE",
    "LISTS",
    "MAX_LEAN_TEXT",
    "MAX_TEXT",
    "NOTES_FILE",
    "OWNER_FILES",
    "PERSONA_CHANGES",
    "SHARED_FILES",
    "SILENCE",
    "SMALL_WINDOW",
    "TASK_FILES",
    "WORKSPACE_FILES",
    "ChannelNote",
    "MainPrompts",
    "OwnerFile",
    "Persona",
    "PersonaChanges",
    "PersonaError",
    "WorkspaceFiles",
    "format_decision",
    "format_persona",
    "lean_task_prompt",
    "parse_owner_file",
    "persona_of_settings",
    "persona_view",
    "read_persona_state",
    "task_prompt",
]
