"""Skills: instructions in folders with a SKILL.md, called by name by people (`/name arguments`) and by the model.

`skill` defines and parses one. `catalog` finds them in folders and notices changes. `arguments`
fills the arguments of a call into the body. `listing` lists skills for the prompt and for people.
Carrying a skill out is the work of `pegasus.main_agent`.
"""

from pegasus.skills.arguments import expand, split_arguments
from pegasus.skills.catalog import BUILT_IN, SkillCatalog, SkillProblem
from pegasus.skills.listing import format_help, format_listing
from pegasus.skills.skill import NAME, Skill, parse_skill

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
