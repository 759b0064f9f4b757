"""Walk over the blocks of a Markdown document, for the markup of a service.

What a heading, a list or a table consists of is the same for every service; how each is written is the
service's. A subclass says the latter. Containers (lists, quotations) render what is in them first. What counts
as Markdown, and as an address that a service takes in a link, is the same for every service, too.

The parser gives a flat list of tokens. `render` walks through it once with a single place (`_at`) and calls
itself for a container up to its closing token. So the nesting of the calls is that of the document, and no tree
is built. The parser bounds the nesting, and with it the depth of the calls.

Two things are switched off in the parser. HTML is text, because no service shows it, and nothing that the agent
quotes may become markup. Definitions of links (`[1]: https://…`) are text as well: services have none, and a
definition without a use would vanish.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

LINK_SCHEMES: Final = ("http", "https", "mailto", "tel")
"""Schemes of addresses that become links."""
BULLETS: Final = "•◦▪"
"""Signs of the items of a list, by its depth."""


class BlockRenderer(ABC):
    """Renderer of one document: `Subclass(markdown).render()`. HTML in it is text like any other.

    Example::

        class Plain(BlockRenderer):
            def heading(self, text: str) -> str:
                return text.upper()
            …                                   # and the other abstract methods

        Plain("# Hello").render()               # "HELLO"
    """

    def __init__(self, markdown: str) -> None:
        self._tokens = _parser().parse(markdown)
        self._at = 0

    def render(self, closing: str = "", *, depth: int = 0, is_tight: bool = False) -> str:
        """Return the blocks up to a token of type `closing`, which is passed. depth: of the list around them."""
        parts: list[str] = []
        while self._at < len(self._tokens):
            token = self._next()
            if token.type == closing:
                break
            parts.append(self._block(token, depth))
        return ("\n" if is_tight else "\n\n").join(part for part in parts if part)

    @abstractmethod
    def inline(self, tokens: Sequence[Token]) -> str:
        """Return the text of a paragraph."""

    @abstractmethod
    def cell(self, tokens: Sequence[Token]) -> str:
        """Return the text of a table's cell, as people see it."""

    @abstractmethod
    def heading(self, text: str) -> str:
        """Return a heading, in the way in which the service can show one. text: its content, as `inline` has made it."""

    @abstractmethod
    def code(self, content: str, info: str) -> str:
        """Return a block of code. info: what stands behind its fence, the language first."""

    @abstractmethod
    def quotation(self, depth: int) -> str:
        """Return a quotation, whose tokens are the next ones up to "blockquote_close"."""

    @abstractmethod
    def item(self, sign: str, body: str, depth: int) -> str:
        """Return an item of a list. sign: its bullet or number. depth: of the list, 0 for the outermost."""

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _block(self, token: Token, depth: int) -> str:
        """Return a block that begins with this token.

        Paragraphs have no method of their own: their text is an "inline" token between two that render to nothing.
        """
        match token.type:
            case "inline":
                return self.inline(token.children or [])
            case "heading_open":
                return self.heading(self.render("heading_close"))
            case "fence" | "code_block":
                return self.code(token.content, token.info)
            case "blockquote_open":
                return self.quotation(depth)
            case "bullet_list_open" | "ordered_list_open":
                return self._list(token, depth)
            case "table_open":
                return self._table()
            case "hr":
                return "———"
            case _:  # the opening and closing of paragraphs
                return ""

    def _list(self, opening: Token, depth: int) -> str:
        """Return a list, each item in a line of its own: chats are too narrow for empty lines between them.

        The first number of an ordered list is that of the text. The others are counted from there, as Markdown does it.
        """
        is_ordered = opening.type == "ordered_list_open"
        number = int(opening.attrGet("start") or 1) if is_ordered else 0
        items = []
        while (token := self._next()).type != opening.type.replace("open", "close"):
            if token.type == "list_item_open":
                sign = f"{number}." if is_ordered else BULLETS[min(depth, len(BULLETS) - 1)]
                body = self.render("list_item_close", depth=depth + 1, is_tight=True)
                items.append(self.item(sign, body, depth).rstrip())
                number += 1
        return "\n".join(items)

    def _table(self) -> str:
        """Return a table as a block of code with aligned columns."""
        # Rows may have fewer cells than the header; the columns are as many as the longest row has.
        rows: list[list[str]] = []
        while (token := self._next()).type != "table_close":
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline":
                rows[-1].append(self.cell(token.children or []))
        columns = max(map(len, rows), default=0)
        widths = [max(len(row[n]) for row in rows if n < len(row)) for n in range(columns)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) for row in rows]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return self.code("\n".join(line.rstrip() for line in lines), "")


def is_link(address: str) -> bool:
    """Return whether a service takes an address as that of a link."""
    try:
        return urlsplit(address).scheme in LINK_SCHEMES
    except ValueError:
        return False


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable(["strikethrough", "table"])
    return parser.disable(["html_block", "html_inline", "reference"])  # a definition that no link uses would disappear
