"""Markdown as plain text, for services that know no markup: SMS, and e-mail of bridges.

Nothing that a reader needs is lost: a link becomes `text (URL)`, code keeps its lines, a list its marks and
numbers, a table becomes lines of `a | b`. Marks that only decorate are left out. HTML is shown as it was
written.

Nothing is added that an SMS can only send in the larger alphabet: all marks are ASCII.

The text is parsed by markdown-it and walked as a tree, since lists and quotations put something before each
line of what is in them. Every function yields lines and not texts, so that nobody has to split again what
another has joined. The walk is recursive; MOST_NESTED keeps a text that was made for that from exhausting the
stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode

COLUMN: Final = " | "
"""Between the cells of a table."""
MOST_NESTED: Final = 40
"""Levels of lists, quotations and marks that are read. The parser drops lists that are deeper, so such a text is shown as it is."""


def to_plain_text(markdown: str) -> str:
    """Return a Markdown text as plain text. One that would show nothing, such as the definition of a link, is returned as it is.

    >>> to_plain_text("See **[the docs](https://example.com)**.")
    'See the docs (https://example.com).'
    """
    tokens = _parser().parse(markdown)
    if _is_deep(tokens):
        return markdown.strip()
    return "\n".join(_blocks(SyntaxTreeNode(tokens).children)).strip("\n") or markdown.strip()


def _is_deep(tokens: Sequence[Token]) -> bool:
    """Return whether the levels of some tokens, or of what is in them, reach what the parser drops, or would exhaust the stack."""
    return any(token.level >= MOST_NESTED - 1 or _is_deep(token.children or ()) for token in tokens)


def _blocks(nodes: Sequence[SyntaxTreeNode], *, is_tight: bool = False) -> Iterator[str]:
    """Yield the lines of some blocks, with an empty line between two unless they belong to a list without such lines."""
    for number, node in enumerate(nodes):
        if number and not is_tight:
            yield ""
        yield from _lines(node)


def _lines(node: SyntaxTreeNode) -> Iterator[str]:
    match node.type:
        case "fence" | "code_block":
            yield from node.content.rstrip("\n").split("\n")
        case "hr":
            yield "---"
        case "bullet_list" | "ordered_list":
            yield from _list(node)
        case "blockquote":
            yield from (f"> {line}".rstrip() for line in _blocks(node.children))
        case "table":
            for row in node.walk():
                if row.type == "tr":
                    yield COLUMN.join("".join(map(_inline, cell.children)) for cell in row.children)
        case _:
            yield from "".join(map(_inline, node.children)).split("\n")


def _list(node: SyntaxTreeNode) -> Iterator[str]:
    """Yield the lines of a list. Items that are apart in the text (with empty lines) stay apart.

    Further lines of an item are indented by the width of its mark, so that a nested list or code is seen to belong to it.
    """
    first = int(node.attrs.get("start", 1))
    is_tight = all(child.hidden for item in node.children for child in item.children if child.type == "paragraph")
    for number, item in enumerate(node.children):
        if number and not is_tight:
            yield ""
        mark = f"{first + number}. " if node.type == "ordered_list" else "- "
        lines = list(_blocks(item.children, is_tight=is_tight)) or [""]
        yield (mark + lines[0]).rstrip()
        for line in lines[1:]:
            yield (" " * len(mark) + line).rstrip()


def _inline(node: SyntaxTreeNode) -> str:
    """Return the text of a node within a line, without marks. Links and pictures keep their addresses."""
    match node.type:
        case "softbreak" | "hardbreak":
            return "\n"
        case "link":
            return _with_address("".join(map(_inline, node.children)), str(node.attrs["href"]))
        case "image":
            return _with_address("".join(map(_inline, node.children)), str(node.attrs["src"]))
        case _:
            return "".join(map(_inline, node.children)) if node.children else node.content


def _with_address(text: str, address: str) -> str:
    """Return a text with an address behind it; the address alone where the text is the same or empty."""
    if not text:
        return address
    return text if address in (text, f"mailto:{text}") else f"{text} ({address})"


class _PlainParser(MarkdownIt):
    """A parser that leaves addresses as they were written: they are shown to people, who neither click nor encode them."""

    def normalizeLink(self, url: str) -> str:
        """Return the address as it was written; the base class would encode it."""
        return url

    def normalizeLinkText(self, link: str) -> str:
        """Return the text of an address as it was written; the base class would decode it."""
        return link

    def validateLink(self, url: str) -> bool:
        """Return True: an address is only shown here, so none of them is dangerous."""
        return True


@cache
def _parser() -> MarkdownIt:
    parser = _PlainParser("commonmark", {"maxNesting": MOST_NESTED}).enable(["table", "strikethrough"])
    return parser.disable(["html_block", "html_inline"])  # then HTML is text like any other
