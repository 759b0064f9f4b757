"""Conversion of an HTML page to Markdown, as a program of its own: a hostile page can cost time and memory, but not the daemon's.

`page` runs this file in a bare interpreter with an empty environment, gives it the address in the first line of its input and
the page behind that, and gets the title in the first line of the output and the Markdown behind that. Whoever runs it limits its
seconds, its memory and its output. It imports nothing of Pegasus: that would take longer to load than most pages to convert.

The main content comes first: `<main>`, the only `<article>` and the like, or what is left of the page without navigation, header and
footer. The rest follows behind a line. Tables, lists, quotations, code with its language, and links with their whole address are
kept. Scripts, styles, forms and what the page hides are left out.

The tree is walked without recursion, and every element is visited twice at most. Lexbor, the parser, takes quadratic time for elements
that are nested thousands of times. Only attackers write such a page; its tags are cut out of the text instead (`strip_tags`).

The limits from outside end whatever the program does, but leave no result. So the depth is counted before the parser sees the page,
in linear time, and a page that would run into the limits still gives its text.

Elements are visited in the order of the page, without recursion. What stands within a line is collected in pieces; where a block
begins or ends, they become a paragraph, a heading, an item, or a cell. A table without headings whose cells hold paragraphs is there
for the layout, and is written as paragraphs.

The nodes are those of selectolax's Lexbor parser: `tag` ("-text" for a text, another "-…" for what is no element), `attributes`,
`text`, `first_child`, `next`, `parent`, and `mem_id`, by which nodes are compared, since each access makes another Python object of
the same node.

How a text is put together:

    a text, a picture, a line break    a piece in `_inline`
    a mark or link begins              its name and the index of its first piece go onto `_open`
    it ends                            the pieces since then become one piece with the marks around it
    a block begins or ends             `_flush` makes the pieces one paragraph and gives it to `_emit`
    a quotation or list item           adds to `_prefixes`, which `_emit` puts before each line
    a cell                             its pieces go to the table, which is written when it ends

Within a cell or a link there can be no blocks in Markdown, so those that a page has there become blanks and code within the line.

A small page must not become a huge text. So nesting deeper than 40 has no further prefix, the columns and rows that a cell may span
are bounded, and beyond LONGEST characters elements are skipped.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

LONGEST: Final = 2_000_000
"""Characters of Markdown."""
DEEPEST: Final = 2000
"""Nested elements of a page that is parsed. Real pages have under a hundred."""
REST: Final = "---\n\n(Rest of the page: navigation, header, footer and the like.)"
"""Line between the main content and the rest."""


def names(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


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
_HIDDEN: Final = names(
    "script style template svg iframe object embed select option datalist textarea input canvas audio video map head "
    "noscript dialog "
)
"""Elements without text for readers."""
BLOCKS: Final = names(
    "address article aside blockquote body center dd details dir div dl dt fieldset figcaption figure footer form h1 "
    "h2 h3 h4 h5 h6 header hgroup hr html li main menu nav ol p pre section summary table tbody td tfoot th thead tr "
    "ul caption "
)
"""Elements that begin on a line of their own."""
_MARKS: Final = {
    "b": "**",
    "strong": "**",
    "i": "*",
    "em": "*",
    "code": "`",
    "kbd": "`",
    "samp": "`",
    "del": "~~",
    "s": "~~",
}
"""Elements within a line, with their marks."""
_WHITE: Final = re.compile(r"[ \t\n\r\f]+")
"""White space as HTML has it."""
_LONGEST_ADDRESS: Final = 1000
"""Characters of a link's address; longer ones carry data, not a place."""
_MOST_COLUMNS: Final = 60
"""Columns of a table, and rows or columns that one cell may span."""


def main() -> None:
    """Read address and page from the input, and write title and Markdown."""
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


def _is_hidden(node: Any) -> bool:
    """Return whether readers do not see an element."""
    if node.tag in _HIDDEN:
        return True
    attributes = node.attributes
    if not attributes:
        return False
    style = "".join((attributes.get("style") or "")[:500].lower().split())
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden") == "true"
        or "display:none" in style
        or "visibility:hidden" in style
    )


def join_address(base: str, target: str) -> str:
    """Return the whole address of a link, "" for one that leads nowhere a reader could go."""
    target = target.strip()
    if not target or target.startswith("#") or len(target) > _LONGEST_ADDRESS:
        return ""
    try:
        address = urljoin(base, target)
        scheme = urlsplit(address).scheme
    except ValueError:
        return ""
    return (
        address.replace(" ", "%20").replace("(", "%28").replace(")", "%29")
        if scheme in ("http", "https", "mailto", "tel")
        else ""
    )


# ------------------------------------------------------------------ walking


def _walk(root: Any, enters: Callable[[Any], bool]) -> Iterator[tuple[Any, bool]]:
    """Yield each element and text below a root, with True when it begins and False when it ends, without recursion.

    enters: returns whether what is in an element is visited. It is asked after the element was yielded.
    """
    node, is_begin = root, True
    while True:
        yield node, is_begin
        child = node.first_child if is_begin and enters(node) else None
        if is_begin and child is not None:
            node = child
            continue
        if is_begin:
            yield node, False
        # The siblings of the root are not part of it.
        if node.mem_id == root.mem_id:
            return
        if node.next is not None:
            node, is_begin = node.next, True
        else:
            node, is_begin = node.parent, False


class PageWriter:
    """Writer of Markdown. Example: `writer.write(node)`, then `writer.take()` for the text."""

    def __init__(self, address: str) -> None:
        self._address = address
        """Address of the page, which its links are relative to."""
        self.left: list[Any] = []
        """Elements that `leave` has left out."""
        self._start()

    def _start(self) -> None:
        """Begin an empty text: outside of lists, quotations and links, with no paragraph open."""
        self._lines: list[str] = []
        """Finished lines."""
        self._size = 0
        """Characters of them."""
        self._inline: list[str] = []
        """Pieces of the present paragraph, heading or cell."""
        self._open: list[tuple[str, int]] = []
        """Open marks and links: name of the element, and index of its first piece."""
        self._prefixes: list[str] = []
        """Prefixes of lines: of quotations and lists."""
        self._marker = ""
        """Marker of a list item that has no line yet."""
        self._is_tight = False
        """The last line is an item of a list, with no empty line behind it."""
        self._lists: list[int] = []
        """Number of the next item of each open list; 0 in a list without numbers."""
        self._tables: list[_PageTable] = []
        """The open table, at most one: a table within a cell becomes text of the cell."""
        self._flat_tables = 0
        """Open tables that are only there for the layout."""
        self._is_in_cell = False

    def take(self) -> str:
        """Return the text so far, and begin a new one."""
        self._flush()
        text = "\n".join(self._lines)
        self._start()
        return re.sub(r"\n{3,}", "\n\n", text).strip()

    def write(self, root: Any, leave: Callable[[Any], bool] | None = None) -> None:
        """Write an element with all in it. leave: returns whether an element is left out."""
        skipped = {0}

        def enters(node: Any) -> bool:
            """Return whether what is in an element is visited. Code blocks are written as a whole by `_add_code`."""
            return node.mem_id not in skipped and node.tag != "pre"

        for node, is_begin in _walk(root, enters):
            tag = node.tag
            if tag == "-text":
                if is_begin:
                    self._add_text(node.text_content or "")
            elif tag.startswith("-") or node.mem_id in skipped:
                continue
            elif is_begin:
                if self._size > LONGEST or _is_hidden(node):
                    skipped.add(node.mem_id)
                elif leave is not None and node.mem_id != root.mem_id and leave(node):
                    skipped.add(node.mem_id)
                    self.left.append(node)
                else:
                    self._begin(node, tag)
            else:
                self._end(node, tag)
        self._flush()

    # -------------------------------------------------------------- elements

    def _begin(self, node: Any, tag: str) -> None:
        """Prepare for the content of an element: begin a block, or remember where a mark or a link begins. Pictures have none."""
        if tag in BLOCKS:
            self._begin_block(node, tag)
        elif tag == "br":
            self._inline.append(" " if self._is_in_cell or self._is_open("a") else "\n")
        elif tag == "img":
            self._add_image(node)
        elif tag in _MARKS or tag == "a":
            # Bold in bold would write the mark twice, which ends it. Within code marks are plain characters.
            is_nested = any(_MARKS.get(name, name) == _MARKS.get(tag, tag) for name, _ in self._open)
            if not is_nested and not (self._is_open("code") or self._is_open("kbd") or self._is_open("samp")):
                self._open.append((tag, len(self._inline)))

    def _begin_block(self, node: Any, tag: str) -> None:
        """Begin an element that stands on lines of its own."""
        # A cell is one line, so a block in it is only a blank, and an item a dash.
        if self._is_in_cell and tag not in ("table", "tbody", "thead", "tfoot", "tr", "td", "th"):
            self._inline.append(" - " if tag == "li" else " ")
            if tag == "pre":
                self._inline.append(_code(" ".join(str(node.text(deep=True)).split())))
            return
        if self._is_open("a"):
            self._inline.append(" ")
            if tag == "pre":
                self._add_text(str(node.text(deep=True)))
            return
        if tag == "table":
            self._begin_table(node)
        elif self._tables and tag in ("tr", "td", "th"):
            self._begin_cell(node, tag)
        else:
            self._flush()
            if tag in ("ul", "ol", "menu"):
                self._lists.append(_number(node.attributes.get("start")) if tag == "ol" else 0)
            elif tag == "li":
                self._begin_item()
            elif tag == "blockquote":
                self._prefixes.append("> ")
            elif tag == "dd":
                self._prefixes.append("  ")
            elif tag == "hr":
                self._emit("---")
            elif tag == "pre":
                self._add_code(node)

    def _begin_item(self) -> None:
        """Begin an item of a list. Its marker stands before its first line, blanks of the same width before the others."""
        number = self._lists[-1] if self._lists else 0
        if number:
            self._lists[-1] += 1
        self._marker = f"{number}. " if number else "- "
        self._prefixes.append(" " * len(self._marker))

    def _end(self, node: Any, tag: str) -> None:
        """Write what the end of an element means: the marks around its text, or the end of its block."""
        if tag in _MARKS or tag == "a":
            # Tags may end in the wrong order. An element that was not opened as the last one has no mark to close.
            if self._open and self._open[-1][0] == tag:
                self._close_mark(node)
        elif tag not in BLOCKS:
            return
        elif self._tables and tag in ("table", "tr", "td", "th"):
            self._end_table_part(tag)
        elif tag == "table":
            self._flush()
            self._flat_tables = max(0, self._flat_tables - 1)
        elif self._is_in_cell or self._is_open("a"):
            self._inline.append(" ")
        elif tag[0] == "h" and tag[1:].isdigit():
            text = " ".join("".join(self._inline).split())
            self._inline, self._open = [f"{'#' * int(tag[1:])} {text}"] if text else [], []
            self._flush()
        else:
            self._end_block(tag)

    def _end_block(self, tag: str) -> None:
        """End a paragraph, a list, or a block with a mark before its lines."""
        if tag == "dt" and (text := " ".join("".join(self._inline).split())):
            self._inline, self._open = [f"**{text}**"], []
        self._flush()
        if tag in ("ul", "ol", "menu") and self._lists:
            self._lists.pop()
            if not self._lists and self._is_tight:
                self._is_tight = False
                self._lines.append(self._prefix.rstrip())
        elif tag in ("li", "blockquote", "dd") and self._prefixes:
            self._prefixes.pop()
            self._marker = "" if tag == "li" else self._marker
            if self._lines and self._lines[-1].strip(" >") == "":
                self._lines[-1] = self._prefix.rstrip()

    # -------------------------------------------------------------- within a line

    def _is_open(self, name: str) -> bool:
        """Return whether a mark or link of this element is open."""
        return any(name == tag for tag, _ in self._open)

    def _add_text(self, text: str) -> None:
        """Add text; white space becomes a blank."""
        self._inline.append(_WHITE.sub(" ", text))

    def _close_mark(self, node: Any) -> None:
        """Put the marks around what stands in the element that ends, or make it a link."""
        tag, begin = self._open.pop()
        whole = "".join(self._inline[begin:])
        text = " ".join(whole.split())
        if not text:
            self._inline[begin:] = [" "] if whole else []
            return
        if tag == "a":
            target = join_address(self._address, node.attributes.get("href") or "")
            shown = f"[{text}]({target})" if target else text
        elif _MARKS[tag] == "`":
            shown = _code(text)
        else:
            shown = f"{_MARKS[tag]}{text}{_MARKS[tag]}"
        # Marks must touch the text, so blanks at its edges go outside of them.
        self._inline[begin:] = [" " if whole[0].isspace() else "", shown, " " if whole[-1].isspace() else ""]

    def _add_image(self, node: Any) -> None:
        """Add a picture that has a description; others say nothing to a reader of text."""
        description = " ".join((node.attributes.get("alt") or "").split())[:300]
        source = join_address(self._address, node.attributes.get("src") or "")
        if description:
            is_linked = self._is_open("a")
            self._inline.append(f"![{description}]({source})" if source and not is_linked else description)

    # -------------------------------------------------------------- blocks

    def _add_code(self, node: Any) -> None:
        """Write a block of code, with the language if its class names one."""
        code = str(node.text(deep=True)).strip("\n").replace("\r", "")
        inner, parent = node.css_first("code"), node.parent
        classes = " ".join(
            str(found.attributes.get("class") or "")[:500]
            for found in (node, inner, parent)
            if found is not None and found.attributes
        )
        language = re.search(r"(?:language|lang|highlight-source|brush:)[- ]?([A-Za-z0-9+#]{1,20})", classes)
        # A fence longer than any run of backticks in the code, which would end it.
        ticks = max((len(run) for run in re.findall(r"`{3,}", code)), default=2) + 1
        self._emit("`" * ticks + (language[1] if language else ""), *code.split("\n"), "`" * ticks)

    def _flush(self) -> None:
        """End the present paragraph: its text becomes lines, with the marks of the blocks that it stands in."""
        text = "".join(self._inline)
        self._inline, self._open = [], []
        lines = [" ".join(line.split()) for line in text.split("\n")]
        if any(lines):
            self._emit(*(line for line in lines if line))

    def _emit(self, *lines: str) -> None:
        """Write lines and an empty one behind them. The first one of a list item gets its marker."""
        prefix, is_item = self._prefix, bool(self._marker)
        if self._is_tight and not is_item:
            self._lines.append(prefix.rstrip())
        for line in lines:
            if self._marker:
                # The prefix of the item has the width of its marker, which takes its place in the first line.
                first = prefix[: -len(self._marker)] + self._marker
                self._marker = ""
                self._lines.append((first + line).rstrip())
            else:
                self._lines.append((prefix + line).rstrip())
            self._size += len(self._lines[-1]) + 1
        # Items of one line follow each other without empty lines between.
        self._is_tight = is_item and len(lines) == 1 and bool(self._lists)
        if not self._is_tight:
            self._lines.append(prefix.rstrip())

    @property
    def _prefix(self) -> str:
        """Text before each line. Deeper nesting than people write is not shown."""
        return "".join(self._prefixes[:40])

    # -------------------------------------------------------------- tables

    def _begin_table(self, node: Any) -> None:
        """Begin a table. One that is only there for the layout is written as paragraphs."""
        # A table in a cell cannot be written in Markdown, so its cells become text of the outer one.
        is_inner = bool(self._tables) or self._flat_tables >= 10
        is_layout = not is_inner and (
            node.css_first("table table") is not None
            or (
                node.css_first("th") is None
                and node.css_first("td p, td ul, td ol, td h1, td h2, td h3, td pre, td form") is not None
            )
        )
        if self._tables or is_layout or is_inner:
            self._flat_tables += 1
            if not self._is_in_cell:
                self._flush()
            return
        self._flush()
        self._tables.append(_PageTable())

    def _begin_cell(self, node: Any, tag: str) -> None:
        if self._flat_tables and self._is_in_cell:
            self._inline.append(" ")
            return
        self._inline, self._open = [], []
        if tag == "tr":
            self._tables[-1].begin_row()
        else:
            self._is_in_cell = True
            spans = (_number(node.attributes.get(name)) for name in ("colspan", "rowspan"))
            self._tables[-1].begin_cell(*spans)

    def _end_table_part(self, tag: str) -> None:
        """End a cell, a row or a table."""
        if self._is_in_cell and tag in ("td", "th") and not self._flat_tables:
            self._tables[-1].end_cell(" ".join("".join(self._inline).split()))
            self._inline, self._open, self._is_in_cell = [], [], False
        elif tag == "table" and self._flat_tables:
            self._flat_tables -= 1
        elif tag == "table":
            self._inline, self._open, self._is_in_cell = [], [], False
            self._emit(*self._tables.pop().lines())
        elif self._is_in_cell:
            self._inline.append(" ")


def _code(text: str) -> str:
    """Return text as code within a line."""
    ticks = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if "`" in text else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _number(text: str | None) -> int:
    """Return a small number of an attribute, 1 for anything else."""
    return min(int(text), 10_000) if text and text.isascii() and text.isdigit() and len(text) < 6 else 1


class _PageTable:
    """A table whose cells are collected. Example: `begin_row()`, `begin_cell(1, 1)`, `end_cell("a")`, then `lines()`.

    Markdown knows no spans, so each row gets the empty cells that make all rows equally wide.
    """

    def __init__(self) -> None:
        self._rows: list[list[str]] = []
        self._spans: dict[int, int] = {}
        """Rows that a cell of a row above still takes, by column."""
        self._next = (1, 1)
        """Columns and rows of the cell that was begun last."""

    def begin_row(self) -> None:
        """Begin a row, to which the cells that follow belong."""
        self._rows.append([])

    def begin_cell(self, columns: int, rows: int) -> None:
        """Begin a cell that takes this many columns and rows."""
        # A page may name a span of thousands, which would make a huge table of one cell.
        self._next = min(columns, _MOST_COLUMNS), min(rows, 1000)

    def end_cell(self, text: str) -> None:
        """Add a cell. Columns that it takes beside its first one are empty, and so are those that a cell above takes."""
        if not self._rows:
            self._rows.append([])
        row = self._rows[-1]
        self._fill(row)
        columns, rows = self._next
        for column in range(len(row), len(row) + max(1, columns)):
            if rows > 1:
                self._spans[column] = rows - 1
        row += [text.replace("|", "\\|"), *[""] * (max(1, columns) - 1)]

    def _fill(self, row: list[str]) -> None:
        """Add empty cells where cells of rows above reach down."""
        while self._spans.get(len(row), 0) > 0 and len(row) < _MOST_COLUMNS:
            self._spans[len(row)] -= 1
            row.append("")

    def lines(self) -> list[str]:
        """Return the table as lines; a table of one column as a list of its cells."""
        rows = [row[:_MOST_COLUMNS] for row in self._rows if any(row)]
        width = max(map(len, rows), default=0)
        if width <= 1:
            return [row[0].replace("\\|", "|") for row in rows]
        full = [row + [""] * (width - len(row)) for row in rows]
        head, *others = ("| " + " | ".join(row) + " |" for row in full)
        return [head, "|" + " --- |" * width, *others]


if __name__ == "__main__":
    main()
