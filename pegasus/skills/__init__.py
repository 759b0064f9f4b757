"""Skills: instructions in folders with a SKILL.md, called by name by people (`/name arguments`) and by the model.

The format is that of other agents. `skill` parses a SKILL.md and fills the arguments of a call into its body,
`catalog` finds skills in folders and notices changes, `listing` describes them in the prompt and for people.
Nothing here runs a skill: the Main Agent puts its text into the conversation or hands it to a task.
"""

from pegasus.skills.catalog import BUILT_IN, SkillCatalog, SkillProblem
from pegasus.skills.listing import format_help, format_listing
from pegasus.skills.skill import NAME, Skill, expand, parse_skill, split_arguments

__all__ = [
    "BUILT_IN",
    "NAME",
    "Skill",
    "SkillCatalog",
    "SkillProblem",
    "expand",
    "format_help",
    "format_listing",
    "parse_skill",
    "split_arguments",
]
