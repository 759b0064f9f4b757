"""A conversation with a model as it is kept on disk, repaired after a crash, and shown to a provider.

The Main Agent's session and the conversation of each task have this form:

    entry        one line of its log: something said, thought, called or returned; the form in which text from outside
                 enters it, cleaned, labelled, and between fences; and the repair of a log
    projection   the alternating turns that every provider accepts
    media        attached files: pictures the model can see, texts it can read, and the pictures that are in memory
    repetition   calls that are made again and again
    shortening   texts that are cut in the middle, for a provider that finds the whole too long

Except for `keep_media` and `Pictures.load`, which read and write files through the journal, everything here is pure.

The log is the truth, and the projection is made from it. A provider's own form of a conversation would not do as the log: it has no
times, no authors, no place for notes, and it differs between providers, while a session outlives the choice of one.

    entries = repair_log(entries, recorded, now).entries
    projection = Projection(entries, pictures)
    projection.append(Entry(now, "user", user_content("hello", channel)))
    request = ModelRequest(prompt, tuple(projection.turns), tools)
"""

from pegasus.conversation.entry import (
    BadEntry,
    Entry,
    OpenCall,
    cancelled_result,
    clean_text,
    decode,
    encode,
    escape_imitations,
    fence_of,
    is_well_formed,
    metadata_line,
    new_fence,
    open_calls,
    parse_metadata_line,
    plain_look,
    repair_log,
    sanitize_for_prompt,
    sanitize_name,
    to_json,
    user_content,
    with_content,
    with_unique_ids,
)
from pegasus.conversation.media import LONGEST_TEXT, LONGEST_TEXTS, KeptMedia, Pictures, keep_media
from pegasus.conversation.projection import Projection, shown_text, without_calls
from pegasus.conversation.repetition import (
    ERROR_LENGTH,
    MOST_CALLS,
    MOST_IN_A_ROW,
    NOT_REPEATED,
    RepetitionGuard,
    find_loop,
    first_surplus,
    is_repeatedly_truncated,
    surplus_note,
)
from pegasus.conversation.shortening import cut_middle, entry_tokens, estimate_tokens, shorten_entries

__all__ = [
    "ERROR_LENGTH",
    "LONGEST_TEXT",
    "LONGEST_TEXTS",
    "MOST_CALLS",
    "MOST_IN_A_ROW",
    "NOT_REPEATED",
    "BadEntry",
    "Entry",
    "KeptMedia",
    "OpenCall",
    "Pictures",
    "Projection",
    "RepetitionGuard",
    "cancelled_result",
    "clean_text",
    "cut_middle",
    "decode",
    "encode",
    "entry_tokens",
    "escape_imitations",
    "estimate_tokens",
    "fence_of",
    "find_loop",
    "first_surplus",
    "is_repeatedly_truncated",
    "is_well_formed",
    "keep_media",
    "metadata_line",
    "new_fence",
    "open_calls",
    "parse_metadata_line",
    "plain_look",
    "repair_log",
    "sanitize_for_prompt",
    "sanitize_name",
    "shorten_entries",
    "shown_text",
    "surplus_note",
    "to_json",
    "user_content",
    "with_content",
    "with_unique_ids",
    "without_calls",
]
