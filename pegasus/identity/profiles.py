"""The Main Agent's prompt in all its variants: by way of speaking, by size of the model's window, with and without tools.

Which variant a thought needs depends on the model that is asked at that moment, which `/model`, a reload or a lesson about the model
may change while the process runs. Every variant is the same text at every call, until the owner changes a file of the workspace that
is part of it, so a provider finds it in its cache again when the model is changed back. The owner's files come last: what
stands before them stays in the cache when they change.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from pegasus.identity.lean import lean_main_prompt
from pegasus.identity.persona import Persona
from pegasus.identity.prompt import ChannelNote, main_prompt
from pegasus.identity.workspace_files import WORKSPACE_FILES, WorkspaceFiles


@attrs.frozen(eq=False, repr=False)
class MainPrompts:
    """Everything that the Main Agent's prompt is made of.

    Example: `MainPrompts(BUILT_IN, ("reply", "current_time")).text(direct=True, lean=False, tools=("reply",))`.
    """

    persona: Persona
    channels: tuple[ChannelNote, ...] = ()
    """The configured channels."""
    subagents: Mapping[str, str] = attrs.field(factory=dict)
    """Description of each type of task, by name."""
    skills: str = ""
    """The listing of skills for the full prompt, one a line."""
    skill_names: tuple[str, ...] = ()
    """Names of the skills that the model may call, for the lean prompt."""
    files: WorkspaceFiles | None = None
    """The owner's files in the workspace; None: there are none."""
    file_names: tuple[str, ...] = WORKSPACE_FILES
    """Names of those that are part of this prompt."""

    def text(self, *, direct: bool, lean: bool, tools: tuple[str, ...]) -> str:
        """Return the prompt for a model that is offered these tools.

        direct: whether plain text is the reply; always so without tools. lean: whether the window is small.
        """
        direct = direct or not tools
        if lean:
            text = lean_main_prompt(self.persona, tools=tools, skills=self.skill_names, direct=direct)
        else:
            text = main_prompt(
                self.persona,
                tools=tools,
                channels=self.channels,
                subagents=self.subagents,
                skills=self.skills,
                direct=direct,
            )
        notes = self.files.section(self.file_names, lean=lean) if self.files is not None else ""
        return f"{text}\n\n{notes}" if notes else text
