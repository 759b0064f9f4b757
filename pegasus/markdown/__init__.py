"""Markdown for messengers: in pieces that fit into a message, and as plain text.

* `splitting`: cuts a text between paragraphs, lines, sentences or words; each piece is complete Markdown.
* `plain_text`: the same text for services that know no markup.
"""

from __future__ import annotations

from pegasus.markdown.plain_text import to_plain_text
from pegasus.markdown.splitting import split_markdown, utf16_length

__all__ = ["split_markdown", "to_plain_text", "utf16_length"]
