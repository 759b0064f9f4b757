"""The one way in."""

from pegasus.intake.commands import CONTROL_COMMANDS, command_of
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
from pegasus.intake.undelivered import INTERNAL_ID_PREFIX, UNDELIVERED_REPLY

__all__ = [
    "CONTROL_COMMANDS",
    "INTERNAL_ID_PREFIX",
    "JOURNAL_TIMEOUT",
    "NAME_RULE",
    "TASKS",
    "UNDELIVERED_REPLY",
    "Access",
    "command_of",
    "hand_in",
    "is_name",
    "is_owner",
    "permits",
    "report_undelivered",
    "submit",
]
