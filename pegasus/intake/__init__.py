"""The one way in."""

from pegasus.intake.commands import CONTROL, command_of
from pegasus.intake.priority import TASKS, is_owner
from pegasus.intake.submission import (
    JOURNAL_TIMEOUT,
    NAME_RULE,
    Access,
    hand_in,
    is_name,
    permits,
    report_undelivered,
    submit,
)
from pegasus.intake.undelivered import OWN_ID, UNDELIVERED

__all__ = [
    "CONTROL",
    "JOURNAL_TIMEOUT",
    "NAME_RULE",
    "OWN_ID",
    "TASKS",
    "UNDELIVERED",
    "Access",
    "command_of",
    "hand_in",
    "is_name",
    "is_owner",
    "permits",
    "report_undelivered",
    "submit",
]
