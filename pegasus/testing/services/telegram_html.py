"""Reader of the HTML in texts, as strict as Telegram (https://core.telegram.org/bots/api#html-style). For the fake Telegram.

Only some tags exist, they must be closed in order, `code` and `pre` hold no others (but `pre` one `code` with a language), and of
named entities only four are known.

Telegram answers a text that it cannot read with an error, and the message is not sent. A bot that writes HTML by itself
must therefore never make a mistake; with this reader a test notices the first one. `read_html` returns what people would
see: the text without tags, and the ranges that are formatted (entities).

Offsets and lengths count UTF-16 code units, as everywhere in the Bot API. An emoji is two of them.
"""

from __future__ import annotations

import html
import re
from typing import Any, Final

# A tag, a "<" that begins none, or an entity. Text between the matches is taken as it is; a lone "&" is text.
_TOKEN: Final = re.compile(
    r"<(/?)([a-z-]+)((?:\s+[a-z-]+(?:=\"[^\"<>]*\")?)*)\s*>|(<)|&([a-zA-Z]+|#\d+|#x[0-9a-fA-F]+);"
)
_ATTRIBUTE: Final = re.compile(r"([a-z-]+)(?:=\"([^\"]*)\")?")
_KINDS: Final = {
    "b": "bold",
    "strong": "bold",
    "i": "italic",
    "em": "italic",
    "u": "underline",
    "ins": "underline",
    "s": "strikethrough",
    "strike": "strikethrough",
    "del": "strikethrough",
    "tg-spoiler": "spoiler",
    "code": "code",
    "pre": "pre",
    "a": "text_link",
    "blockquote": "blockquote",
}
"""Entity of each tag."""
_ENTITIES: Final = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}


class MarkupError(ValueError):
    """Telegram cannot read the text. str() is the end of its description.

    Example::

        read_html("<b>bold")  # MarkupError: Can't find end tag corresponding to start tag "b"
    """


def read_html(source: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the text and its entities. Raises MarkupError.

    Entities are sorted as Telegram gives them: by their beginning, and the longer one first. Empty ones are left out.

    Example::

        read_html("<b>hi</b> &amp; bye")  # ("hi & bye", [{"type": "bold", "offset": 0, "length": 2}])
    """
    text, entities, position = "", [], 0
    stack: list[tuple[str, int, dict[str, Any]]] = []
    for found in _TOKEN.finditer(source):
        text += source[position : found.start()]
        position = found.end()
        closing, tag, attributes, stray, entity = found.groups()
        if stray:
            raise MarkupError(f'Unsupported start tag "{source[found.start() : found.start() + 12]}" at byte offset')
        if entity:
            # Unknown named entities stay as they are; numeric ones are all known.
            text += html.unescape(found[0]) if entity.startswith("#") else _ENTITIES.get(entity, found[0])
        elif not closing:
            _check_start(tag, [open_tag for open_tag, _, _ in stack])
            stack.append((tag, units(text), _entity(tag, attributes)))
        else:
            # Tags must be closed in the order in which they were opened, unlike in a browser.
            if not stack or stack[-1][0] != tag:
                expected = stack[-1][0] if stack else "nothing"
                raise MarkupError(f'Unmatched end tag, expected "</{expected}>", found "</{tag}>"')
            _, start, made = stack.pop()
            if units(text) > start:
                entities.append({**made, "offset": start, "length": units(text) - start})
    if stack:
        raise MarkupError(f'Can\'t find end tag corresponding to start tag "{stack[-1][0]}"')
    return text + source[position:], sorted(entities, key=lambda made: (made["offset"], -made["length"]))


def units(text: str) -> int:
    """Return the length of a text as Telegram counts it: in UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _check_start(tag: str, open_tags: list[str]) -> None:
    """Raise MarkupError for a tag that does not exist or may not stand here. open_tags: those around it, the innermost last."""
    if tag not in _KINDS:
        raise MarkupError(f'Unsupported start tag "{tag}" at byte offset')
    if "code" in open_tags or ("pre" in open_tags and tag != "code"):
        raise MarkupError(f'Tag "{tag}" inside of "{open_tags[-1]}"')
    if tag == "blockquote" and "blockquote" in open_tags:
        raise MarkupError("Nested blockquote")


def _entity(tag: str, attributes: str) -> dict[str, Any]:
    """Return the entity of a tag, without its place. Raises MarkupError for a link without an address."""
    given = dict(_ATTRIBUTE.findall(attributes or ""))
    made: dict[str, Any] = {"type": _KINDS[tag]}
    if tag == "a":
        if not given.get("href"):
            raise MarkupError("a link without address")
        made["url"] = html.unescape(given["href"])
    return made
