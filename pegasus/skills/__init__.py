"""Skills: instructions in folders with a SKILL.md, called by name by people (`/name arguments`) and by the model.

`skill` defines and parses one. `catalog` finds them in folders and notices changes. `arguments`
fills the arguments of a call into the body. `listing` lists skills for the prompt and for people.
Carrying a skill out is the work of `pegasus.main_agent`.

A skill is a folder with a SKILL.md, in the format that other agents use too. `skill` parses one, `catalog`
finds and refreshes them, `listing` describes them in the prompt, `arguments` fills in what a call has given.
Nothing here runs a skill: the Main Agent puts its text into the conversation or hands it to a task.
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
