"""A conversation with a model as it is kept: its lines on disk, their repair after a crash, and what a provider is shown of them.

Pure; shared by the Main Agent's session and by the tasks, which keep their messages in the same form.
"""

from pegasus.conversation.entry import BadEntry, Entry, decode, encode, to_json
from pegasus.conversation.media import Kept, Pictures, keep_media
from pegasus.conversation.projection import Projection
from pegasus.conversation.repair import OpenCall, is_well_formed, open_calls, repair, unique_ids
from pegasus.conversation.sanitize import escape_imitations, metadata_line, sanitize_for_prompt, user_content

__all__ = [
    "BadEntry",
    "Entry",
    "Kept",
    "OpenCall",
    "Pictures",
    "Projection",
    "decode",
    "encode",
    "escape_imitations",
    "is_well_formed",
    "keep_media",
    "metadata_line",
    "open_calls",
    "repair",
    "sanitize_for_prompt",
    "to_json",
    "unique_ids",
    "user_content",
]
