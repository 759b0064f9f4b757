"""Content of Slack's messages beside their text: blocks, and what a message shares. As values, without I/O.

Apps often write with blocks or attachments alone, and then `text` is empty. A message that somebody shares, and the preview of a link
to one, is an attachment with its author, its text and its files.

Fields of other types than documented are passed over: a text that can be read is worth more than a whole that is right.

Sources: https://docs.slack.dev/reference/block-kit/blocks, https://docs.slack.dev/legacy/legacy-messaging/legacy-secondary-message-attachments
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pegasus.channels.slack.markup import escape_mrkdwn
from pegasus.quotes import SHARES, Quote

MOST_NESTED: Final = 20
"""Elements within each other that are read."""
_LINES: Final = ("rich_text_section", "rich_text_preformatted", "rich_text_quote")


def text_of_blocks(blocks: Any) -> str:
    """Return what people read in some blocks, as mrkdwn; "" for nothing."""
    return "\n".join(line for block in _objects(blocks) if (line := _text_of_block(block).strip()))


def is_written_by_hand(blocks: Any) -> bool:
    """Return whether blocks are those that Slack's own apps make of what a person types: they say the same as the text."""
    return all(block.get("type") == "rich_text" for block in _objects(blocks))


def _text_of_block(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "rich_text":
            return "\n".join(filter(None, (_rich_text(each) for each in _objects(block.get("elements")))))
        case "table":
            rows = block.get("rows")
            cells = ([_cell(cell) for cell in _objects(row)] for row in rows) if isinstance(rows, list) else ()
            return "\n".join(" | ".join(row) for row in cells)
        case "context" | "actions":
            return " ".join(filter(None, (_said(element) for element in _objects(block.get("elements")))))
        case _:
            parts = [_said(block.get(key)) for key in ("title", "text", "description", "alt_text")]
            parts += [_said(field) for field in _objects(block.get("fields"))]
            return "\n".join(dict.fromkeys(filter(None, parts)))


def _cell(cell: Mapping[str, Any]) -> str:
    return _rich_text(cell) or _said(cell)


def _said(value: Any) -> str:
    """Return the text of a text object, a button, a picture or a plain string."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        return ""
    return next((said for key in ("text", "alt_text", "title") if (said := _said(value.get(key)))), "")


def _rich_text(element: Mapping[str, Any], depth: int = 0) -> str:
    """Return an element of rich text as mrkdwn, so that mentions in it are read like all others."""
    if depth > MOST_NESTED:
        return ""
    inner = [_rich_text(each, depth + 1) for each in _objects(element.get("elements"))]
    match element:
        case {"type": "rich_text_list"}:
            return "\n".join(f"- {each}" for each in inner)
        case {"type": str(kind)} if kind in _LINES or inner:
            return "".join(inner)
        case {"type": "user", "user_id": str(id)}:
            return f"<@{id}>"
        case {"type": "channel", "channel_id": str(id)}:
            return f"<#{id}>"
        case {"type": "broadcast", "range": str(name)}:
            return f"<!{name}>"
        case {"type": "emoji", "name": str(name)}:
            return f":{name}:"
        case {"type": "link", "url": str(url)}:
            text = element.get("text")
            return f"<{url}|{text}>" if isinstance(text, str) and text else f"<{url}>"
        case {"type": "text" | "raw_text" | "date" | "color"}:
            text = element.get("text") or element.get("fallback") or element.get("value")
            return escape_mrkdwn(text) if isinstance(text, str) else ""
    return ""


# ------------------------------------------------------------------ attachments


def shared_in(attachments: Any) -> Iterator[tuple[Quote, Sequence[Mapping[str, Any]]]]:
    """Yield what is attached to a message, each with its files. The author is a name, or the id of a user."""
    for attachment in _objects(attachments):
        title, link = _said(attachment.get("title")), attachment.get("title_link") or attachment.get("from_url")
        fields = [
            ": ".join(filter(None, (_said(field.get("title")), _said(field.get("value")))))
            for field in _objects(attachment.get("fields"))
        ]
        blocks = [each.get("message", each) for each in _objects(attachment.get("message_blocks"))]
        text = _said(attachment.get("text")) or text_of_blocks(attachment.get("blocks"))
        text = (
            text
            or "\n".join(text_of_blocks(each.get("blocks")) for each in blocks if isinstance(each, Mapping)).strip()
        )
        parts = [_said(attachment.get("pretext")), title, text, *fields]
        said = "\n".join(filter(None, parts)) or _said(attachment.get("fallback"))
        files = _objects(attachment.get("files"))
        notes = [f"at {link}" if isinstance(link, str) else ""]
        notes += [f"with the picture {attachment['image_url']}" if isinstance(attachment.get("image_url"), str) else ""]
        if files:
            notes.append("attached to it: " + ", ".join(_said(file.get("name")) or "file" for file in files))
        author = _said(attachment.get("author_name")) or _said(attachment.get("author_id"))
        author = author or _said(attachment.get("service_name"))
        if said or files or any(notes):
            yield Quote(SHARES, said, author, ", ".join(filter(None, notes))), files


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []
