"""Updates: another version of the program, tried before it takes over.

candidate           the other version, installed in an environment of its own
check               makes a copy of the home, and has the other version replay it in a process of its own
report              what came out differently

The rest is what that process runs (`python -m pegasus.update.replay COPY`). It calls no model, tool or service:

record              what a home has recorded, read with nothing but JSON, so that a defect cannot hide in what it is compared with
beginning           the home as it was when the replayed days began
recorded_answers    what models and tools have answered, by its place in the logs
outside_events      what else came from outside: messages, edits by hand, answers of owners, starts of the process
replay_world        the tree in virtual time, with these in place of the world
comparison          two records compared
replay              all of it, and the guard against calls
"""

from pegasus.update.candidate import Candidate, UpdateError, prepare
from pegasus.update.check import check_update
from pegasus.update.report import CheckReport, Difference, report_json, report_text

__all__ = [
    "Candidate",
    "CheckReport",
    "Difference",
    "UpdateError",
    "check_update",
    "prepare",
    "report_json",
    "report_text",
]
