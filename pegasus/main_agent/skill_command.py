"""The chat command /skills: the skills there are, and the acceptance of those in the workspace by an owner."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from pegasus.messages import InboundMessage
from pegasus.policy import sender_of
from pegasus.skills import NotAcceptable, SkillCatalog, format_accepted, format_help, format_proposed

SKILLS: Final = "/skills"
"""Command that lists skills, and accepts one of the workspace."""
_USAGE: Final = f"{SKILLS}, or {SKILLS} accept NAME, where NAME is the folder of a skill in the workspace."


async def skills_answer(
    catalog: SkillCatalog, owners: Collection[str], clock: Callable[[], int], message: InboundMessage
) -> str:
    """Return the answer to /skills: a line for each skill, or what an owner has accepted.

    owners: setting `agent.owners`; others see the skills that people may call, and accept nothing. clock: returns the wall clock, ms.
    Never raises. Cancelled: the acceptance is on disk or not, and /skills shows which.
    """
    is_by_owner = sender_of(message, owners).is_owner
    match message.text.split()[1:]:
        case []:
            await catalog.refresh()
            lines = [format_help(catalog.all()) or "There are no skills."]
            if is_by_owner:
                lines += [
                    format_proposed(each.name, each.problem, was_accepted=each.was_accepted)
                    for each in catalog.proposed()
                ]
            return "\n".join(lines)
        case ["accept", name]:
            if not is_by_owner:
                return "Only my owner can accept a skill."
            try:
                return format_accepted(await catalog.accept(name, clock()))
            except (NotAcceptable, OSError) as error:
                return f"{SKILLS} did not work: {error}"
    return _USAGE
