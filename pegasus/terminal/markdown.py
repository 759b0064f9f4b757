"""Layout of Markdown as lines for a terminal, by rich, in the terminal's own colours.

Three things differ from rich's own rendering, because a chat is not a document: a line break that the agent wrote stays
one, HTML is shown as text instead of being swallowed, and the target of a link is always shown, so that it cannot say one
thing and lead to another.

Text is neutralised twice. Before parsing, because the parser copies most of it as it is; and after the layout, because the
parser decodes entities: `&#27;[31m` passes the first time and would be an escape sequence afterwards.

Lines have no trailing blanks. rich fills each line up to the width, and in a window that is made narrower later such lines
would wrap into empty ones.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import box
from rich import markdown as rich_markdown
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment, Segments
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from pegasus.terminal.tty import neutralise

PLAIN_ABOVE = 100_000
"""Characters above which a reply is shown as it is: laying out more would delay the keys for seconds."""
MARKS_LAID_OUT = 8000
"""Marks above which a reply is shown as it is. The layout takes up to 0.1 ms for each, and usual text has one in ten characters or
fewer; a long list of one letter each has one in two."""
COLOURED = 5000
"""Characters of code in a reply that are coloured by their language; blocks beyond have none. Usual code takes 20 ms for as many.
Some languages' patterns take time that grows with the square of the text: 20,000 characters in a line took one of them 18 seconds."""

DRAFT_LAID_OUT = 4000
"""Characters of the end of a draft that are laid out, more only in a large window: they fill any usual one, and take some
hundredths of a second."""
REASONING_LINES = 5
"""Lines of reasoning that are shown above a draft."""

CUT_MARK = "(ended here)"
"""Shown below a reply that a person has ended."""

ECHOED = 40
"""Lines of a sent message that stay on the screen: a pasted document would push the conversation out of sight."""
ECHOED_WIDTH = 2000
"""Characters that are echoed of each of these lines."""

_BLOCK = 4
"""Columns by which a code block of a question is indented."""
_DEEPER = 2
"""Further columns of a wrapped line in it."""
_MEASURE = Console(width=80, file=io.StringIO())
"""Console for wrapping; nothing is printed on it."""

_MARK = re.compile(r"[!-/:-@\[-`{-~\n]")
"""Line break or ASCII punctuation, of which all of Markdown's syntax consists."""

_THEME = Theme(
    {
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold dim",
        "markdown.h5": "dim",
        "markdown.h6": "dim",
        "markdown.code": "cyan",
        "markdown.code_block": "none",
        "markdown.block_quote": "dim",
        "markdown.hr": "dim",
        "markdown.item.bullet": "dim",
        "markdown.item.number": "dim",
        "markdown.link": "underline",
        "markdown.link_url": "dim",
        "markdown.table.header": "bold",
        "markdown.table.border": "dim",
        "agent": "bold cyan",
        "notice": "dim",
    }
)

# Only colours of the terminal's own sixteen, and of these the ones that are legible on dark and on light backgrounds.
_CODE_THEME = ANSISyntaxTheme(
    {
        ("Comment",): Style(dim=True, italic=True),
        ("Keyword",): Style(color="magenta"),
        ("Literal", "String"): Style(color="green"),
        ("Literal", "Number"): Style(color="cyan"),
        ("Name", "Function"): Style(bold=True),
        ("Name", "Class"): Style(bold=True),
        ("Name", "Tag"): Style(color="magenta"),
    }
)


class ReplyLayout:
    """Layout of replies, notices and sent messages as text to print.

    colour: without it the text has no escape sequence at all. The width is given for each text, since the window may change. The
    result ends with a line break and may contain rich's colour sequences, which are the only ones that reach the terminal.
    """

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour

    def reply(self, agent: str, text: str, width: int) -> str:
        """Return the agent's name on its own line, its text below, a blank line after. width: in columns."""
        return self._print(width, Text(neutralise(agent), style="agent")) + self._body(text, width) + "\n"

    def cut(self, agent: str, text: str, width: int) -> str:
        """Return a reply that nobody goes on with, marked as such."""
        return self.reply(agent, text, width).removesuffix("\n") + self.notice(CUT_MARK, width)

    def draft(self, agent: str, text: str, reasoning: str, width: int, height: int) -> list[str]:
        """Return the newest lines of a reply that is being written, at most `height`; "…" stands for those above.

        Only the end of the text is laid out, so that a reply of any length costs the same.
        """
        # A window of usual size shows less than that; the factor leaves room for marks that are not shown.
        room = max(DRAFT_LAID_OUT, 2 * width * height)
        shown = self._print(width, Text(neutralise(reasoning[-room:]).strip(), style="notice")) if reasoning else ""
        lines = shown.splitlines()[-REASONING_LINES:]
        if text:
            tail = _end_of(text, room)
            body = self._print(width, Text(neutralise(agent), style="agent")) + self._body(tail, width)
            lines += ["", *body.splitlines()] if lines else body.splitlines()
            if len(tail) < len(text) and len(lines) <= height:  # short lines: their beginning is missing all the same
                lines.insert(0, "…")
        lines.append("")  # the same distance to the prompt as a reply's
        return lines if len(lines) <= height else ["…", *lines[-(height - 1) :]]

    def notice(self, text: str, width: int) -> str:
        """Return a remark of the terminal itself."""
        return self._print(width, Text(_wrapped(neutralise(text), width), style="notice")) + "\n"

    def question(self, text: str, width: int) -> str:
        """Return a question to the owner: its first line stands out, and what it is about is indented."""
        shown = Text(_wrapped(neutralise(text), width))
        shown.stylize("bold", 0, shown.plain.find("\n"))
        return self._print(width, shown) + "\n"

    def sent(self, prompt: str, text: str) -> str:
        """Return a sent message as it looked on the prompt; the window wraps it. A very long one is shortened."""
        lines = _plain(text).split("\n")
        if len(lines) > ECHOED:
            half = ECHOED // 2
            lines[half:-half] = [f"… {len(lines) - 2 * half} more lines …"]
        lines = [line if len(line) <= ECHOED_WIDTH else line[:ECHOED_WIDTH] + " …" for line in lines]
        mark = f"\x1b[1;36m{prompt}\x1b[0m" if self._colour else prompt
        return mark + ("\n" + " " * len(prompt)).join(lines) + "\n\n"

    def _body(self, text: str, width: int) -> str:
        """Return the laid-out text of a reply, or the plain one if the layout would take too long or fails."""
        if len(text) > PLAIN_ABOVE or sum(1 for _ in _MARK.finditer(text)) > MARKS_LAID_OUT:
            return _plain(text) + "\n"
        try:
            return self._print(width, ChatMarkdown(text)).lstrip("\n")  # rich begins a table with a blank line
        except Exception:  # the layout of hostile Markdown may fail; the words must arrive all the same
            return _plain(text) + "\n"

    def _print(self, width: int, what: RenderableType) -> str:
        """Return what rich prints for `what`, without control segments and trailing blanks.

        A console is made for each text, because its width is that of the window at this moment.
        """
        file = io.StringIO()
        console = Console(
            file=file,
            width=max(width, 10),
            force_terminal=self._colour,
            color_system="standard" if self._colour else None,
            no_color=not self._colour,
            theme=_THEME,
        )
        lines = console.render_lines(what, pad=False)
        # Not cropped: `render_lines` has wrapped everything to the width already.
        console.print(Segments(segment for line in lines for segment in _tidy(line)), end="", crop=False)
        return file.getvalue()


def _wrapped(text: str, width: int) -> str:
    """Return a text with its lines wrapped at the width, so that each goes on below its own indentation.

    Code blocks are indented and lose their fences. What goes on in them stands deeper than its first line, since a line that begins
    where the names of arguments do would look like another argument.
    """
    lines: list[str] = []
    fence = ""
    for line in text.expandtabs(4).split("\n"):
        if line.startswith("```") and not line.strip("`") and fence in ("", line):
            fence = "" if fence else line
            continue
        words = line.lstrip(" ")
        indent = len(line) - len(words) + (_BLOCK if fence else 0)
        deeper = min(indent + (_DEEPER if fence else 0), width // 2)
        pieces = Text(words).wrap(_MEASURE, max(width - deeper, 8))
        first, *more = [piece.plain for piece in pieces] or [""]
        lines += [f"{' ' * min(indent, width // 2)}{first}", *(f"{' ' * deeper}{piece}" for piece in more)]
    return "\n".join(lines)


class ChatMarkdown(rich_markdown.Markdown):
    """Markdown of one reply, parsed with the rules of a chat.

    rich parses in its constructor, with its own parser; that one gets an empty text, and the tokens are replaced.
    """

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)
        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
        # HTML is off in the parser, so that tags arrive as text.
        self.parsed = parser.parse(neutralise(text))
        code = 0
        for token in self.parsed:
            token.children = token.children and list(_inline(token.children))
            if token.type == "fence":
                code += len(token.content)
                # Without a language the block is laid out all the same, in one colour.
                token.info = token.info if code <= COLOURED else ""


def _inline(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens of a paragraph with line breaks kept, images as text, and links without a second copy of their target.

    CommonMark turns a single line break into a blank, which suits text that is wrapped by hand. Models write lines that are
    meant as lines.
    """
    bare = _bare_links(tokens)
    for n, token in enumerate(tokens):
        match token.type:
            case "link_open" | "link_close" if n in bare:
                continue
            case "softbreak":
                yield Token("hardbreak", "br", 0)
            case "image":
                content = f"[image: {token.content or 'no description'}] ({token.attrs.get('src', '')})"
                yield Token("text", "", 0, content=content)
            case _:
                yield token


def _bare_links(tokens: Sequence[Token]) -> set[int]:
    """Return the positions of the marks around links whose text is their target, which would be shown twice."""
    found: set[int] = set()
    for n, (before, inner, after) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False)):
        if (before.type, inner.type, after.type) == ("link_open", "text", "link_close"):
            target = str(before.attrs.get("href", ""))
            if inner.content in (target, target.removeprefix("mailto:")):
                found |= {n, n + 2}
    return found


_FENCE = re.compile(r"^ {0,3}(?:```|~~~).*$", re.MULTILINE)
"""Line that opens or closes a block of code."""


def _end_of(text: str, room: int) -> str:
    """Return about `room` characters of the end of a Markdown text, from the beginning of a paragraph where there is one.

    If the cut lies within a block of code, the line that opens the block is put in front, so that the rest stays code.
    """
    if len(text) <= room:
        return text
    start = len(text) - room
    for mark in ("\n\n", "\n"):
        # At most half of the text is given up to begin with a paragraph; otherwise the cut is in the middle of one.
        if (found := text.find(mark, start, start + room // 2)) >= 0:
            start = found + len(mark)
            break
    fences = _FENCE.findall(text, 0, start)
    return (fences[-1] + "\n" if len(fences) % 2 else "") + text[start:]


def _plain(text: str) -> str:
    """Return the text as it is, neutralised, for replies that are not laid out."""
    return neutralise(text).expandtabs(4)


def _tidy(line: list[Segment]) -> list[Segment]:
    """Neutralise a line, and drop the blanks that rich fills it with, which would wrap in a narrowed window.

    rich's own control segments are dropped as well; the colours are no part of a segment's text and stay.
    """
    kept = [Segment(neutralise(text), style) for text, style, control in line if not control]
    while kept and not (text := kept[-1].text.rstrip(" ")):
        kept.pop()
    if kept:
        kept[-1] = Segment(text, kept[-1].style)
    return [*kept, Segment.line()]


class _Heading(rich_markdown.Heading):
    """Headings at the left margin; rich centres the first level."""

    LEVEL_ALIGN = dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), "left")


class _CodeBlock(rich_markdown.CodeBlock):
    """Code at the left margin, on the terminal's own background, so that it is copied as it was written."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        syntax = Syntax(code, self.lexer_name, theme=_CODE_THEME, background_color="default", word_wrap=True)
        yield syntax


class _Table(rich_markdown.TableElement):
    """Tables with one line below their head and no frame; long cells are folded instead of cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, style="markdown.table.border")
        for cell in self.header.row.cells if self.header and self.header.row else ():
            heading = cell.content.copy()
            heading.stylize("markdown.table.header")
            table.add_column(heading, justify=cell.justify, overflow="fold")
        for row in self.body.rows if self.body else ():
            table.add_row(*(cell.content for cell in row.cells))
        yield table


ChatMarkdown.elements = {
    **rich_markdown.Markdown.elements,
    "heading_open": _Heading,
    "fence": _CodeBlock,
    "code_block": _CodeBlock,
    "table_open": _Table,
}
