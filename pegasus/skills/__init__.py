"""Skills: instructions in folders with a SKILL.md, called by name by people (`/name arguments`) and by the model.

The format is that of other agents. `skill` parses a SKILL.md and fills the arguments of a call into its body,
`foreign_tools` has the names of their tools, `catalog` finds skills in folders and notices changes, `acceptance` knows which skills
of the workspace count, `installed` keeps those that came from a source, `listing` describes them in the prompt and for people.
Nothing here runs a skill: the Main Agent puts its text into the conversation or hands it to a task.

A person or a model gives a name; what happens then, seen from here::

    catalog = SkillCatalog(BUILT_IN, home / "skills", accepted=AcceptedSkills(home / "accepted-skills.json", workspace / "skills"))
    await catalog.refresh()            # files that have changed are read again
    skill = catalog.get("review")      # None if there is none that counts
    text = expand(skill, "PR 12")      # its instructions, with the arguments filled in
"""

from pegasus.skills.acceptance import MOST_BYTES, MOST_FILES, AcceptedSkills, NotAcceptable, file_hash
from pegasus.skills.catalog import BUILT_IN, SkillCatalog
from pegasus.skills.installed import InstalledSkill, InstalledSkills
from pegasus.skills.listing import format_accepted, format_help, format_listing, format_proposed, skill_view
from pegasus.skills.skill import FILE, MAX_BYTES, NAME, Skill, expand, parse_skill, specification_problems

__all__ = [
    "BUILT_IN",
    "FILE",
    "MAX_BYTES",
    "MOST_BYTES",
    "MOST_FILES",
    "NAME",
    "AcceptedSkills",
    "InstalledSkill",
    "InstalledSkills",
    "NotAcceptable",
    "Skill",
    "SkillCatalog",
    "expand",
    "file_hash",
    "format_accepted",
    "format_help",
    "format_listing",
    "format_proposed",
    "parse_skill",
    "skill_view",
    "specification_problems",
]
