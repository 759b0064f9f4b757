"""Reader of the HTML in texts, as strict as Telegram (https://core.telegram.org/bots/api#html-style). For the fake Telegram.

Only some tags exist, they must be closed in order, `code` and `pre` hold no others (but `pre` one `code` with a language), and of
named entities only four are known.
"""

from __future__ import annotations

import html
import re
from typing import Any, Final

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
    """Telegram cannot read the text. str() is the end of its description."""


def read_html(source: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the text and its entities. Raises MarkupError."""
    text, entities, position = "", [], 0
    stack: list[tuple[str, int, dict[str, Any]]] = []
    for found in _TOKEN.finditer(source):
        text += source[position : found.start()]
        position = found.end()
        closing, tag, attributes, stray, entity = found.groups()
        if stray:
            raise MarkupError(f'Unsupported start tag "{source[found.start() : found.start() + 12]}" at byte offset')
        if entity:
            text += html.unescape(found[0]) if entity.startswith("#") else _ENTITIES.get(entity, found[0])
        elif not closing:
            _check_start(tag, [open_tag for open_tag, _, _ in stack])
            stack.append((tag, units(text), _entity(tag, attributes)))
        else:
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
    if tag not in _KINDS:
        raise MarkupError(f'Unsupported start tag "{tag}" at byte offset')
    if "code" in open_tags or ("pre" in open_tags and tag != "code"):
        raise MarkupError(f'Tag "{tag}" inside of "{open_tags[-1]}"')
    if tag == "blockquote" and "blockquote" in open_tags:
        raise MarkupError("Nested blockquote")


def _entity(tag: str, attributes: str) -> dict[str, Any]:
    given = dict(_ATTRIBUTE.findall(attributes or ""))
    made: dict[str, Any] = {"type": _KINDS[tag]}
    if tag == "a":
        if not given.get("href"):
            raise MarkupError("a link without address")
        made["url"] = html.unescape(given["href"])
    return made
