"""The control call `completions`: what a person may type, for the menus of a chat.

    {"commands":[{"name":"/stop","description":"…"}],"skills":[{"name":"review","description":"…"}],"models":["anthropic/…"]}

A chat asks for it in the background when it connects and now and then later. So a command or a skill that this version of the
agent has is offered without the chat knowing it, and a skill that was just written is offered soon.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import attrs

from pegasus.gateway import Caller, Params
from pegasus.main_agent import SkillInvoker, describe_commands
from pegasus.messages import Json


@attrs.frozen(eq=False, repr=False)
class CompletionMethod:
    """The method `completions` of the control plane.

    For example:

        method = CompletionMethod(answered={"/usage", "/model"}, skills=toolset.skills, models=service.choices)
        await method.call(caller, {})
    """

    answered: Collection[str]
    """Commands that the composition root answers, beside those of the Main Agent itself."""
    skills: SkillInvoker | None
    """Knows the skills; None where there are none."""
    models: Callable[[], Sequence[str]]
    """Returns the models that can be chosen with `/model`."""

    async def call(self, caller: Caller, params: Params) -> Json:
        """Return commands, skills that people may call, and models. The folders of skills are read again before."""
        skills = await self.skills.by_people() if self.skills is not None else ()
        return {
            "commands": [
                {"name": name, "description": text} for name, text in describe_commands(self.answered).items()
            ],
            "skills": [{"name": skill.name, "description": skill.description} for skill in skills],
            "models": list(self.models()),
        }
