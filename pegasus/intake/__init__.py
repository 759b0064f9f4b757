"""The one way in: every message that somebody sends to the agent passes here, and then waits in the journal's inbox.

The gateway, the adapters of services and the HTTP API call `Intake.send` for each message; `Intake.submit` also waits for the
answer, for adapters of one's own (docs/channels.md). Scheduled jobs and hooks are work that an owner has set up; they put their items
into the journal themselves. The package decides, in this order:

1. Are all names usable (`check_message`)? Ids and channel names are echoed in frames, shown to the model and stored.
2. May this sender talk to the agent? `pegasus.access` says so, by the settings `[channels.<type>]` and the people let in.
3. Which lane: is the text a command that must not wait behind other messages (`command_of`, `lane_of`)?
4. Which priority: does the owner write, or somebody else (`Priority`)?

It stands above `storage`, to which it hands the message, and below `main_agent`, which shares the list of commands and the
priorities for the queue items that it makes itself.
"""

from pegasus.intake.commands import (
    COMMAND_ALIASES,
    COMMAND_WITHIN,
    COMMANDS,
    CONTROL_COMMANDS,
    CONVERSATION_COMMANDS,
    COPY,
    LEAVING_COMMANDS,
    alias_note,
    command_of,
    describe_unknown,
    find_unknown,
    lane_of,
)
from pegasus.intake.guest_disk import DiskLimits, GuestDisk, QuotaReached
from pegasus.intake.limits import AdmitGuest, GuestLimits, Priority, TooManyMessages, run_guest_limits
from pegasus.intake.submission import (
    JOURNAL_TIMEOUT,
    NAME_RULE,
    Intake,
    InvalidMessage,
    add_token,
    check_message,
    is_attachment_label,
    is_name,
    report_undelivered,
)

__all__ = [
    "COMMANDS",
    "COMMAND_ALIASES",
    "COMMAND_WITHIN",
    "CONTROL_COMMANDS",
    "CONVERSATION_COMMANDS",
    "COPY",
    "JOURNAL_TIMEOUT",
    "LEAVING_COMMANDS",
    "NAME_RULE",
    "AdmitGuest",
    "DiskLimits",
    "GuestDisk",
    "GuestLimits",
    "Intake",
    "InvalidMessage",
    "Priority",
    "QuotaReached",
    "TooManyMessages",
    "add_token",
    "alias_note",
    "check_message",
    "command_of",
    "describe_unknown",
    "find_unknown",
    "is_attachment_label",
    "is_name",
    "lane_of",
    "report_undelivered",
    "run_guest_limits",
]
