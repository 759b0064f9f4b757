"""Skills: instructions kept in folders with a SKILL.md, called by name by people (`/name args`) and by the model.

What a skill is, where they lie, how arguments are filled in and how they are listed; who carries them out is `pegasus.main_agent`.
"""

from pegasus.skills.arguments import expand, split_arguments
from pegasus.skills.catalog import BUILT_IN, Problem, Skills
from pegasus.skills.listing import help_text, listing, shortened
from pegasus.skills.skill import NAME, Skill, parse

__all__ = [
    "BUILT_IN",
    "NAME",
    "Problem",
    "Skill",
    "Skills",
    "expand",
    "help_text",
    "listing",
    "parse",
    "shortened",
    "split_arguments",
]
