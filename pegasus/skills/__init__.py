"""Skills: instructions in folders with a SKILL.md, called by name by people (`/name arguments`) and by the model.

The format is that of other agents. `skill` parses a SKILL.md and fills the arguments of a call into its body,
`foreign_tools` has the names of their tools, `catalog` finds skills in folders and notices changes, `acceptance` knows which skills
of the workspace count, `listing` describes them in the prompt and for people.
Nothing here runs a skill: the Main Agent puts its text into the conversation or hands it to a task.

A person or a model gives a name; what happens then, seen from here::

    catalog = SkillCatalog(BUILT_IN, home / "skills", accepted=AcceptedSkills(home / "accepted-skills.json", workspace / "skills"))
    await catalog.refresh()            # files that have changed are read again
    skill = catalog.get("review")      # None if there is none that counts
    text = expand(skill, "PR 12")      # its instructions, with the arguments filled in
"""

from pegasus.skills.acceptance import AcceptedSkills, NotAcceptable
from pegasus.skills.catalog import BUILT_IN, SkillCatalog
from pegasus.skills.listing import format_accepted, format_help, format_listing, format_proposed, skill_view
from pegasus.skills.skill import Skill, expand

__all__ = [
    "BUILT_IN",
    "AcceptedSkills",
    "NotAcceptable",
    "Skill",
    "SkillCatalog",
    "expand",
    "format_accepted",
    "format_help",
    "format_listing",
    "format_proposed",
    "skill_view",
]
