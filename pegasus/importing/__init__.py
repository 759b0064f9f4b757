"""Import of memory, sessions and jobs from the homes of other agents.

`find_everything` reads a foreign home and returns what there is, without changing anything: notes, sessions, jobs, and what is left
out with the reason (`findings`). `carry_out` (`carrying_out`) brings it into a home of Pegasus through a journal, and says line by
line what became of each. There is a module for each kind of home (`openclaw`, `nanobot`, `hermes`), and `homes` finds it by its
name; `shared` has what such homes have in common, `texts` their texts and times in the form of Pegasus, and `reading` opens files of a
folder that nobody vouches for.

docs/user/import.md is the page for people.
"""

from pegasus.importing.carrying_out import ImportTarget, carry_out, plan
from pegasus.importing.findings import Findings, ImportLine, NotAHome
from pegasus.importing.homes import HOMES, find_everything

__all__ = ["HOMES", "Findings", "ImportLine", "ImportTarget", "NotAHome", "carry_out", "find_everything", "plan"]
