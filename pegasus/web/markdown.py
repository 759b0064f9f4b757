"""Markdown to HTML that a page may insert: parsed by markdown-it-py, then cleaned by nh3.

The text comes from models, people and files, so it may be an attack on whoever reads it. There are two walls. The parser is run with
HTML switched off, so that tags in the text are shown as they were typed. The cleaner (ammonia, which parses as browsers do) then lets
only the elements in `_TAGS` through, without any attribute that could run something, load something or look like the interface: no
`style`, no `id`, no `class` but those that are made here.

A page that shows the text of others has three further dangers, which a cleaner does not know:

* An image in the text is loaded when it is shown, and its address can carry away what the model has read. Images therefore become
  links, which somebody has to follow.
* A link whose text is an address of another host than it leads to. The host that it leads to is written behind it.
* Characters that change the direction of writing (Unicode's embeddings, overrides and isolates) make text look different from what
  it is. They are removed. Each block gets `dir="auto"` instead, so that Arabic and Hebrew are laid out as they should.

The changes to the text are made between the parser and the renderer, by rules on its tokens, in this order: addresses become links;
blocks get their direction; boxes are ticked; hosts are named. The last one must see the links that the first one has made. What the
rules write passes the cleaner like everything else, so a mistake in one of them cannot let anything through.

Example: `render_markdown("**hi** <script>")` gives `<p dir="auto"><strong>hi</strong> &lt;script&gt;</p>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping, Sequence
from html import escape
from typing import Any, Final
from urllib.parse import urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from pegasus.wire import to_unicode

MAX_LENGTH: Final = 100_000
"""Characters of a text that is parsed. A longer one is shown as it was written: parsing 100,000 takes a fifth of a second."""
MAX_NESTING: Final = 60
"""Levels of quotes and lists within each other. The parser leaves out what is nested deeper, and nothing that somebody wrote may be
lost, so a text with more is shown as it was written."""

_INLINE: Final = {"a", "br", "code", "em", "s", "span", "strong"}
"""Elements within a line."""
_BLOCK: Final = {"blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "ul"}
"""Elements that stand by themselves."""
_TABLE: Final = {"table", "tbody", "td", "th", "thead", "tr"}
"""Elements of tables."""
_TAGS: Final = _INLINE | _BLOCK | _TABLE
"""Elements that are let through."""
_BLOCKS: Final = ("paragraph_open", "heading_open", "list_item_open", "th_open", "td_open", "blockquote_open")
"""Tokens of blocks that get a direction of their own."""
_SCHEMES: Final = {"http", "https", "mailto"}
"""Beginnings of addresses that a link may have. Relative ones are removed as well."""
_LANGUAGE: Final = re.compile(r"language-[\w+#.-]{1,30}")
"""Class of a code block, by which the page shows the language."""
_CLASSES: Final = {"span": ("host",), "td": ("right", "middle"), "th": ("right", "middle")}
"""Classes that an element may have beside the language of a code block. The rules below write them; nobody else
can, since HTML in the text is shown as text."""
_ALIGNED: Final = {"text-align:right": "right", "text-align:center": "middle"}
"""Class of a cell by what the parser says about it as a style, which the page does not allow."""
_TICK: Final = re.compile(r"\[([ xX])\] (?=\S)")
"""Begins an item of a list of things to do."""
_OVERRIDES: Final = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])
"""Characters that change the direction of writing, for `str.translate`."""
_ADDRESS: Final = re.compile(r"\bhttps?://[^\s<>\"'`]+[^\s<>\"'`.,;:!?)\]}*_]")
"""A web address in a text, without the punctuation that ends its sentence."""
_HOST: Final = re.compile(r"(?:\w+://(?:[^/@\s]*@)?|(?<![\w./-]))([\w-]+(?:\.[\w-]+)+)")
"""Something in the text of a link that looks like the name of a host."""


def render_markdown(text: str) -> str:
    """Return the HTML of a Markdown text. It is safe to insert into a page. Never raises; blocks while it parses."""
    # Half of a surrogate pair cannot be encoded, and would make the cleaner raise; it becomes "?".
    text = to_unicode(text.translate(_OVERRIDES))
    tokens = _PARSER.parse(text) if len(text) <= MAX_LENGTH else None
    if tokens is None or max((token.level for token in _all_tokens(tokens)), default=0) >= MAX_NESTING - 1:
        return f'<pre dir="auto">{escape(text, quote=False)}</pre>'
    # The cleaner comes last, behind everything that the rules have written. `clean_content_tags` is empty
    # because no element is to vanish with its text: what somebody wrote stays readable.
    return nh3.clean(
        _PARSER.renderer.render(tokens, _PARSER.options, {}),
        tags=_TAGS,
        clean_content_tags=set(),
        attributes={
            "*": {"dir"},
            "a": {"href"},
            "ol": {"start"},
            **{tag: {"class"} for tag in ("code", "span", "td", "th")},
        },
        attribute_filter=_keep_attribute,
        url_schemes=_SCHEMES,
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
        url_relative="deny",
    )


def _all_tokens(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the blocks and what is in them."""
    for token in tokens:
        yield token
        yield from token.children or ()


def _keep_attribute(tag: str, name: str, value: str) -> str | None:
    """Return the value of an attribute that stays, None for one that is removed."""
    if name == "class":
        return value if value in _CLASSES.get(tag, ()) or (tag == "code" and _LANGUAGE.fullmatch(value)) else None
    if name == "dir":
        return "auto"
    return value


# ------------------------------------------------------------------ parsing


def _make_parser() -> MarkdownIt:
    """Return CommonMark with tables and strikethrough; a line break in the text is one on the page, as in chats."""
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": MAX_NESTING}).enable(
        ["table", "strikethrough"]
    )
    # The order counts; see the top of this file.
    parser.core.ruler.push("addresses", _link_addresses)
    parser.core.ruler.push("directions", _set_directions)
    parser.core.ruler.push("boxes", _tick_boxes)
    parser.core.ruler.push("hosts", _name_hosts)
    for name in ("image", "fence"):
        parser.add_render_rule(name, {"image": _render_image, "fence": _render_fence}[name])
    return parser


def _link_addresses(state: Any) -> None:
    """Make links of web addresses that stand in the text as they are."""
    for block in state.tokens:
        if block.type != "inline":
            continue
        children: list[Token] = []
        links = 0
        for token in block.children or ():
            # Within a link an address stays text: HTML has no links within links.
            links += {"link_open": 1, "link_close": -1}.get(token.type, 0)
            children += [token] if token.type != "text" or links else _linked(token.content)
        block.children = children


def _linked(text: str) -> list[Token]:
    tokens: list[Token] = []
    end = 0
    for found in _ADDRESS.finditer(text):
        tokens += [_text(text[end : found.start()])] if found.start() > end else []
        tokens += [Token("link_open", "a", 1, attrs={"href": found[0]}), _text(found[0]), Token("link_close", "a", -1)]
        end = found.end()
    return [*tokens, _text(text[end:])] if end < len(text) or not tokens else tokens


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _set_directions(state: Any) -> None:
    """Give each block a direction of its own, and each aligned cell a class.

    The alignment comes from the parser as a style, which the page's policy forbids. The class is one of the page's own style sheet.
    """
    for token in state.tokens:
        if token.type in _BLOCKS:
            token.attrSet("dir", "auto")
        if place := _ALIGNED.get(str(token.attrs.pop("style", ""))):
            token.attrSet("class", place)


def _tick_boxes(state: Any) -> None:
    """Show `[x]` and `[ ]` at the beginning of an item of a list as boxes.

    The list is walked in windows of three, because an item that has text begins with three tokens: the item,
    its paragraph, the text.
    """
    for item, _, block in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        if item.type == "list_item_open" and block.type == "inline" and block.children[0].type == "text":
            first = block.children[0]
            if found := _TICK.match(first.content):
                first.content = f"{'☐' if found[1] == ' ' else '☑'} {first.content[found.end() :]}"


def _name_hosts(state: Any) -> None:
    """Write the host behind a link whose text looks like an address, if it leads to another host.

    A host that only leaves out "www." is the same one. The note is inserted behind the link, where its text
    cannot imitate it: everything before it is written by a stranger.
    """
    for block in state.tokens:
        if block.type != "inline":
            continue
        children: list[Token] = []
        href, shown = "", ""
        for token in block.children or ():
            children.append(token)
            if token.type == "link_open":
                href, shown = str(token.attrs.get("href", "")), ""
            elif token.type == "link_close":
                children += _host_note(href, shown)
            else:
                shown += token.content
        block.children = children


def _host_note(href: str, shown: str) -> list[Token]:
    """Return the tokens behind a link: the host that it leads to, if its text names another one."""
    host = _host_of(href)
    named = (found.casefold().removeprefix("www.") for found in _HOST.findall(shown))
    # Each name in the text is compared: a text may name the right host first and a wrong one behind it.
    if not host or all(name == host.removeprefix("www.") for name in named):
        return []
    return [
        Token("span_open", "span", 1, attrs={"class": "host"}),
        _text(f" ({host})"),
        Token("span_close", "span", -1),
    ]


def _host_of(address: str) -> str:
    try:
        return (urlsplit(address.strip()).hostname or "").casefold()
    except ValueError:
        return ""


def _render_image(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: MutableMapping[str, Any]
) -> str:
    """Return a link to an image: whoever follows it decides about loading it.

    A picture without a host, such as a data URL or a relative path, leads nowhere, so only its description
    stays. A data URL could also be of any size.
    """
    token = tokens[index]
    source = str(token.attrs.get("src", ""))
    name = self.renderInlineAsText(token.children or [], options, env) or "image"
    host = _host_of(source)
    if not host:
        return escape(name)
    return f'<a href="{escape(source)}">{escape(name)}</a><span class="host"> ({escape(host)})</span>'


def _render_fence(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: MutableMapping[str, Any]
) -> str:
    """Return a code block with its language as a class, if the language is a single word."""
    token = tokens[index]
    words = token.info.split()
    language = f"language-{words[0]}" if words else ""
    attribute = f' class="{language}"' if _LANGUAGE.fullmatch(language) else ""
    return f"<pre><code{attribute}>{escape(token.content, quote=False)}</code></pre>\n"


_PARSER: Final = _make_parser()
