"""Markdown to the HTML that Telegram understands (https://core.telegram.org/bots/api#html-style).

Telegram has bold, italics, strikethrough, code, links and quotations, and refuses a text with any other tag, with tags that overlap,
or with one that is not closed. It has no headings, lists, tables or pictures; these become bold lines, bullets, code blocks and links.
HTML in the Markdown is shown as text, so that nothing that the agent quotes can become a tag.

    >>> render_telegram_html("**Done**: [log](https://example.org/?a=1&b=2) is < 5 kB")
    '<b>Done</b>: <a href="https://example.org/?a=1&amp;b=2">log</a> is &lt; 5 kB'

Within code there is no other markup, and quotations do not nest: an inner one is shown with a bar.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Final

from markdown_it.token import Token

from pegasus.channels.blocks import BlockRenderer, is_link
from pegasus.markdown import split_markdown, utf16_length

LONGEST_TEXT: Final = 4096
"""UTF-16 code units of a message, without markup, behind which an app splits it (https://core.telegram.org/bots/api#sendmessage)."""
_TAGS: Final = {"strong": "b", "em": "i", "s": "s"}
"""Telegram's tag for each mark of Markdown."""
_TAG: Final = re.compile(r"<[^>]*>")
"""A tag in Telegram's HTML. Text has no `<` of its own, since it is escaped."""
_LANGUAGE: Final = re.compile(r"[A-Za-z0-9+#_.-]{1,32}")
"""Name of a language that may stand in a tag."""


def split_for_telegram(markdown: str) -> list[str]:
    """Return a Markdown text as pieces of HTML, each of which fits into a message. [] if nothing can be seen of it.

    Only a text that is too long is split, since most are not: it is rendered once to be measured and is the
    result. A piece may be longer as HTML than LONGEST_TEXT, because tags do not count.
    """
    whole = render_telegram_html(markdown)
    if utf16_length(shown := plain_text(whole)) <= LONGEST_TEXT:
        return [whole] if shown.strip() else []
    # The Markdown is split and not the HTML, so that each piece is rendered with all its tags closed.
    pieces = split_markdown(markdown, LONGEST_TEXT, _visible_length)
    rendered = (render_telegram_html(piece) for piece in pieces)
    return [piece for piece in rendered if plain_text(piece).strip()]


def render_telegram_html(markdown: str) -> str:
    """Return a Markdown text as Telegram's HTML. Raises nothing."""
    return _HtmlBlocks(markdown).render().strip("\n")


def plain_text(rendered: str) -> str:
    """Return what people see of Telegram's HTML, for a message that Telegram cannot read."""
    return html.unescape(_TAG.sub("", rendered))


def _visible_length(markdown: str) -> int:
    return utf16_length(plain_text(render_telegram_html(markdown)))


class _HtmlBlocks(BlockRenderer):
    """The blocks of a document as Telegram's HTML."""

    def __init__(self, markdown: str) -> None:
        super().__init__(markdown)
        self._quotes = 0
        """Quotations around the present place."""

    def inline(self, tokens: Sequence[Token]) -> str:
        """Return the text of a paragraph."""
        return _inline(tokens)

    def cell(self, tokens: Sequence[Token]) -> str:
        """Return the text of a cell without tags."""
        return plain_text(_inline(tokens))

    def heading(self, text: str) -> str:
        """Return a heading as a bold line."""
        return f"<b>{text.replace('<b>', '').replace('</b>', '')}</b>" if text else ""

    def code(self, content: str, info: str) -> str:
        """Return a block of code with its language."""
        return _code_block(content, info.split()[0] if info.split() else "")

    def quotation(self, depth: int) -> str:
        """Return a quotation. Telegram has none within another one or a list."""
        self._quotes += 1
        text = self.render("blockquote_close", depth=depth)
        self._quotes -= 1
        # A block of code within a quotation stays as it is, since a bar before its lines would become part of
        # the code.
        if self._quotes or not text or depth:
            return "\n".join(f"┃ {line}" for line in text.split("\n")) if "<pre>" not in text else text
        return f"<blockquote>{text}</blockquote>"

    def item(self, sign: str, body: str, depth: int) -> str:
        """Return an item, indented by its depth."""
        return f"{'  ' * depth}{sign} {body}"


def _code_block(content: str, language: str) -> str:
    """Return a block of code; "" for an empty one, which Telegram refuses.

    A language with other characters is left out, because it becomes part of a tag.
    """
    text = html.escape(content.rstrip("\n"), quote=False)
    if not text.strip():
        return ""
    if _LANGUAGE.fullmatch(language):
        return f'<pre><code class="language-{language}">{text}</code></pre>'
    return f"<pre>{text}</pre>"


def _inline(tokens: Sequence[Token]) -> str:
    """Return the tokens of a line. Marks without text between them are left out: Telegram has no empty entities."""
    parts: list[str] = []
    links: list[bool] = []
    """True if each link that is open here has become a tag."""
    for token in tokens:
        match token.type:
            case "text":
                parts.append(html.escape(token.content, quote=False))
            case "code_inline":
                parts.append(f"<code>{html.escape(token.content, quote=False)}</code>")
            case "softbreak" | "hardbreak":
                parts.append("\n")
            case "link_open":
                address = str(token.attrGet("href") or "")
                links.append(is_link(address))
                parts.append(f'<a href="{html.escape(address)}">' if links[-1] else "")
            case "link_close":
                parts.append("</a>" if links.pop() else "")
            case "image":
                parts.append(_image(token))
            case kind:
                # Kinds that Telegram does not have are left out; their text comes as tokens of its own.
                tag = _TAGS.get(kind.rpartition("_")[0])
                parts.append("" if tag is None else f"<{'/' if kind.endswith('close') else ''}{tag}>")
    return _without_empty("".join(parts))


def _image(token: Token) -> str:
    """Return a picture as a link with its description."""
    address, shown = str(token.attrGet("src") or ""), token.content or "picture"
    if not is_link(address):
        return html.escape(shown, quote=False)
    return f'<a href="{html.escape(address)}">{html.escape(shown, quote=False)}</a>'


def _without_empty(text: str) -> str:
    """Return HTML without pairs of tags that hold nothing."""
    while (shorter := re.sub(r"<(b|i|s|a|code)(?: [^>]*)?></\1>", "", text)) != text:
        text = shorter
    return text
