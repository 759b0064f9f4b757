"""Policy: the pure rules about calls and texts, which know no people. `pegasus.access` decides by them who may do what.

`value_rules` has the kinds of tools of other programs, and the calls of them that need no question, `owner_values`
the arguments that an owner has typed, and `dictation` the sentences that one wants remembered. `bare_commands` tells which command
lines a rule may allow by their text. `forms` has the forms of a server's questions, and `shown_text` what must not be hidden in a text
that an owner decides about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names
from pegasus.policy.bare_commands import is_bare_code, is_bare_line
from pegasus.policy.forms import FormError, describe_form, fill_form, parse_answer
from pegasus.policy.owner_values import (
    MOST_MESSAGES,
    OWNER_MESSAGES,
    OwnerMessage,
    owner_metadata,
    parse_owner_messages,
)
from pegasus.policy.shown_text import host_notes, make_visible, texts_of
from pegasus.policy.value_rules import MOST_OPEN, REACHES_OUT, ToolKind, ValueCall, doubt_about

if TYPE_CHECKING:
    from pegasus.policy.dictation import is_dictated
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "MOST_MESSAGES",
    "MOST_OPEN",
    "OWNER_MESSAGES",
    "REACHES_OUT",
    "FormError",
    "OwnerMessage",
    "ToolKind",
    "ValueCall",
    "describe_form",
    "doubt_about",
    "fill_form",
    "host_notes",
    "is_bare_code",
    "is_bare_line",
    "is_dictated",
    "make_visible",
    "owner_metadata",
    "parse_answer",
    "parse_owner_messages",
    "texts_of",
]
