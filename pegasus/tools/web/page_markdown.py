"""Conversion of an HTML page to Markdown, as a program of its own: a hostile page can cost time and memory, but not the daemon's.

`page` runs `main` in a bare interpreter with an empty environment, gives it the address in the first line of its input and
the page behind that, and gets the title in the first line of the output and the Markdown behind that. It ends itself when it has
used up its seconds or its memory. Of Pegasus it imports `page_writer` only: the rest would take longer to load than most pages
to convert.

The main content comes first: `<main>`, the only `<article>` and the like, or what is left of the page without navigation, header and
footer. The rest follows behind a line. Tables, lists, quotations, code with its language, and links with their whole address are
kept. Scripts, styles, forms and what the page hides are left out.

The tree is walked without recursion, and every element is visited twice at most. Lexbor, the parser, takes quadratic time for elements
that are nested thousands of times. Only attackers write such a page; its tags are cut out of the text instead (`strip_tags`).

Two limits are needed because each covers what the other does not. The kernel's limits end whatever the program does,
but leave no result. The depth is counted before the parser sees the page, in linear time, so that a page that would run
into the limits still gives its text.
"""

from __future__ import annotations

import html
import re
import resource
import sys
from typing import Any, Final

from pegasus.tools.web.page_writer import BLOCKS, LONGEST, PageWriter, join_address, names

SECONDS: Final = 8
"""CPU seconds after which the kernel ends the program."""
MEMORY: Final = 1 << 30
"""Bytes of address space."""
DEEPEST: Final = 2000
"""Nested elements of a page that is parsed. Real pages have under a hundred."""
REST: Final = "---\n\n(Rest of the page: navigation, header, footer and the like.)"
"""Line between the main content and the rest."""

_FRAME: Final = names("nav footer aside ")
"""Elements beside the main content."""
_VOID: Final = names("area base br col embed hr img input link meta param source track wbr p li td th tr option dt dd ")
"""Elements without an end tag, or whose end tag is often left out: they do not count as nested."""
_MAIN: Final = (
    "main",
    "[role=main]",
    "article",
    ".markdown-body",
    "#main-content",
    "#content",
    "#main",
    "#mw-content-text",
    ".post-content",
)
"""Selectors of the main content, the best first. One that is found several times says nothing."""


def main() -> None:
    """Read address and page from the input, and write title and Markdown."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    # The program writes to its pipes only, and a crash leaves no file with the page in it.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    address, _, page = sys.stdin.buffer.read().decode("utf-8", "replace").partition("\n")
    title, text = strip_tags(page) if "--plain" in sys.argv else convert(page, address)
    sys.stdout.buffer.write(f"{' '.join(title.split())}\n{text[:LONGEST]}".encode("utf-8", "replace"))


def convert(page: str, address: str) -> tuple[str, str]:
    """Return title and Markdown of a page. address: where it was found, for its links."""
    # Before anything is parsed: the parser is what such a page attacks.
    if nesting(page) > DEEPEST:
        return strip_tags(page)
    from selectolax.lexbor import LexborHTMLParser

    document = LexborHTMLParser(page.replace("\0", ""))
    # Links are relative to it where a page has one, and it may be relative itself.
    base = document.css_first("base[href]")
    if base is not None:
        address = join_address(address, base.attributes.get("href") or "") or address
    body = document.body or document.root
    if body is None:
        return "", ""
    content = _find_main(document, body)
    writer = PageWriter(address)
    writer.write(content, leave=None if content.mem_id != body.mem_id else _is_frame)
    main_text = writer.take()
    if content.mem_id != body.mem_id:
        # The main content is left out, and everything else is visited, wherever in the page it stands.
        writer.write(body, leave=lambda node: node.mem_id == content.mem_id)
    else:
        for node in writer.left:
            writer.write(node)
    rest = writer.take()
    # The element that is named main may be empty until a script fills it.
    if not main_text:
        main_text, rest = rest, ""
    return _find_title(document), f"{main_text}\n\n{REST}\n\n{rest}" if rest else main_text


def nesting(page: str) -> int:
    """Return how deep the elements of a page are nested, roughly and never too low for a page that nests on purpose."""
    depth = deepest = 0
    for tag in re.finditer(r"<(/?)([a-zA-Z][a-zA-Z0-9]{0,20})", page):
        if tag[2].lower() not in _VOID:
            depth = max(0, depth - 1) if tag[1] else depth + 1
            deepest = max(deepest, depth)
    return deepest


def strip_tags(page: str) -> tuple[str, str]:
    """Return title and text of a page that cannot be parsed: everything between its tags, in linear time.

    The title is looked for by its tag alone. Entities are replaced at the end, so that an escaped tag stays text.
    """
    lowered = page.lower()
    begin, end = lowered.find("<title"), lowered.find("</title")
    title = re.sub(r"^[^<>]{0,200}>", "", page[begin + 6 : end][:1000]) if 0 <= begin < end else ""
    parts: list[str] = []
    at = 0
    for tag in re.finditer(r"<(/?[a-zA-Z!][a-zA-Z0-9]{0,20})[^<>]{0,4000}>", page):
        # This tag stands in a script or style that was skipped as a whole.
        if tag.start() < at:
            continue
        parts.append(page[at : tag.start()])
        at = tag.end()
        name = tag[1].lower()
        if name in ("script", "style", "title"):
            parts.append("\n")
            closing = lowered.find(f"</{name}", at)
            # A script without an end hides the rest, as browsers see it.
            at = len(page) if closing < 0 else closing
        elif name in BLOCKS or name == "br":
            parts.append("\n")
    text = html.unescape("".join([*parts, page[at:]]))[:LONGEST]
    lines = (" ".join(line.split()) for line in text.splitlines())
    return html.unescape(title), "\n".join(line for line in lines if line)


def _find_title(document: Any) -> str:
    """Return the title of a page: its own, else its first heading."""
    for selector in ("title", "h1"):
        node = document.css_first(selector)
        if node is not None and (text := node.text(strip=True)):
            return str(text)[:500]
    return ""


def _find_main(document: Any, body: Any) -> Any:
    """Return the element with the main content; the body if none is marked, or if it is a small part of the page."""
    whole = len(body.text(deep=True))
    for selector in _MAIN:
        found = document.css(selector)
        # A small "main" is often a teaser or an empty frame, so it must hold a fifth of the text.
        if len(found) == 1 and len(found[0].text(deep=True)) >= max(200, whole // 5):
            return found[0]
    return body


def _is_frame(node: Any) -> bool:
    """Return whether an element stands beside the main content: navigation, footer, margin, or the header of the page.

    A header within an article belongs to that: it holds its title and author.
    """
    parent = node.parent
    is_top = parent is not None and parent.tag == "body"
    return (
        node.tag in _FRAME
        or (node.tag == "header" and is_top)
        or (node.attributes.get("role") in ("navigation", "banner", "search"))
    )
