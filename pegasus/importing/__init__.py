"""Import of memory, sessions and jobs from the homes of other agents.

`read_foreign_home` reads a foreign home and returns what there is, without changing anything: notes, sessions, jobs, and what is left
out with the reason. `carry_out_import` brings it into a home of Pegasus through a journal, and says line by line what became of each.

* `importer`: the steps of an import.
* `openclaw`, `nanobot`, `hermes`: the kinds of homes; `openclaw_store`: the databases of the first.
* `rest`: what is left in a home, named with the reason.
* `conversion`: texts, times, messages and jobs in the form of Pegasus.
* `databases`: a database that nobody vouches for.
* `foreign_home`: files of a folder that nobody vouches for, and what was found in it.

docs/user/import.md is the page for people.
"""

from pegasus.importing.foreign_home import ImportLine, UnknownLayout
from pegasus.importing.importer import HOMES, ImportTarget, carry_out_import, plan_import, read_foreign_home

__all__ = [
    "HOMES",
    "ImportLine",
    "ImportTarget",
    "UnknownLayout",
    "carry_out_import",
    "plan_import",
    "read_foreign_home",
]
