"""Updates: another version of the program, tried before it takes over.

candidate           the other version, installed in an environment of its own
check               makes a copy of the home, and has the other version replay it in a process of its own
report              what came out differently
versions            the folder of versions, its locks, and what is undone when an update was not completed
switching           the switch to another version, and back by itself

The rest is what the process of the check runs (`python -m pegasus.update.replay COPY`). It calls no model, tool or service:

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
from pegasus.update.report import CheckReport, report_json, report_text
from pegasus.update.switching import MINUTE, UpdateWays, check_candidate, switch
from pegasus.update.versions import LastUpdate, free_folder, one_update, prepare_start, read_last

__all__ = [
    "MINUTE",
    "Candidate",
    "CheckReport",
    "LastUpdate",
    "UpdateError",
    "UpdateWays",
    "check_candidate",
    "check_update",
    "free_folder",
    "one_update",
    "prepare",
    "prepare_start",
    "read_last",
    "report_json",
    "report_text",
    "switch",
]
