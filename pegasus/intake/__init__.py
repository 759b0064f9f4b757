"""The one way in: every message that somebody sends to the agent passes here, and then waits in the journal's inbox.

The gateway, the adapters of services and the HTTP API call `Intake.send` for each message; `Intake.submit` also waits for the
answer, for adapters of one's own (docs/channels.md). Scheduled jobs and hooks are work that an owner has set up; they put their items
into the journal themselves. The package decides, in this order:

1. Are all names usable (`check_message`)? Ids and channel names are echoed in frames, shown to the model and stored.
2. May this sender talk to the agent (`Access`, from `[channels.<type>]` of the settings; `PairingBook`, people whom the owner let in)?
3. Which lane: is the text a command that must not wait behind other messages (`command_of`, `lane_of`)?
4. Which priority: does the owner write, or somebody else (`Priority`)?

It stands above `storage`, to which it hands the message, and below `main_agent`, which shares the list of commands and the
priorities for the queue items that it makes itself.
"""

from pegasus.intake.access import (
    GROUP,
    MENTIONED,
    Access,
    ChannelRules,
    Denied,
    GuestLimits,
    Priority,
    SenderRates,
    TooManyMessages,
    Unknown,
    is_group,
    rules_of,
)
from pegasus.intake.guest_disk import DiskLimits, GuestDisk, QuotaReached
from pegasus.intake.pairing import PAIRING, PairingBook, PairingRefused, PeopleUnreadable, access_text, access_view
from pegasus.intake.submission import (
    CONTROL_COMMANDS,
    JOURNAL_TIMEOUT,
    LEAVING_COMMANDS,
    NAME_RULE,
    Intake,
    InvalidMessage,
    add_token,
    check_message,
    command_of,
    describe_unknown,
    find_unknown,
    is_attachment_label,
    is_name,
    lane_of,
    report_undelivered,
)

__all__ = [
    "CONTROL_COMMANDS",
    "GROUP",
    "JOURNAL_TIMEOUT",
    "LEAVING_COMMANDS",
    "MENTIONED",
    "NAME_RULE",
    "PAIRING",
    "Access",
    "ChannelRules",
    "Denied",
    "DiskLimits",
    "GuestDisk",
    "GuestLimits",
    "Intake",
    "InvalidMessage",
    "PairingBook",
    "PairingRefused",
    "PeopleUnreadable",
    "Priority",
    "QuotaReached",
    "SenderRates",
    "TooManyMessages",
    "Unknown",
    "access_text",
    "access_view",
    "add_token",
    "check_message",
    "command_of",
    "describe_unknown",
    "find_unknown",
    "is_attachment_label",
    "is_group",
    "is_name",
    "lane_of",
    "report_undelivered",
    "rules_of",
]
