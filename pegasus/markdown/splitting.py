r"""Splitting of a Markdown text into pieces that a service takes as one message each.

A cut falls at the coarsest place that is possible: between paragraphs. If a paragraph is too long for a message, it is cut between
its lines, then between sentences, then between words. The last resort is a cut between characters as people see them (grapheme
clusters of Unicode's UAX #29), so that accents, flags and families of emoji stay whole. What fits into a message by itself is never
cut: a code block, a link, a word.

The pieces are Markdown again, each complete in itself. A code block that is cut is closed and opened again with its language,
a table gets its header again, a quotation its `>`, and bold, italic, struck and code text their marks.

The length of a piece is whatever the service counts, as a function of the piece: usually the length of the text that the
adapter makes of it. The function is called some times for each piece, with texts not much longer than a piece, so the whole
costs time in proportion to the text. The rules of Markdown are those of markdown-it for blocks; marks within a line are found
by patterns, because the parser does not tell where they stand.

How it works: `_Outline` finds all places where the text may be cut (`Break`), each with a rank, and all parts that must be closed and
opened again at a cut (`Region`). `_Splitter` then takes one piece after the other. It finds the last break up to which the text fits,
and goes back from there to a better one: to the end of a paragraph, if the paragraph behind it fits into a message of its own. A
paragraph that is too long for any message begins in this piece, so that no piece is left half empty for it. The same rule
is applied to lines, sentences and words in turn. A text without any break that fits is cut between characters.

    >>> split_markdown("First.\n\nSecond.", 10)
    ['First.', 'Second.']
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import cache
from typing import Final, NamedTuple

import wcwidth
from markdown_it import MarkdownIt
from markdown_it.token import Token

SENTENCE_END: Final = re.compile(r"[.!?…]+[\"'”’»)\]*_]*[ \t]+|[。！？]+[”’」』]*[ \t]*")
"""End of a sentence with the quotation marks and brackets behind it. Chinese and Japanese have no space there."""
WORD_END: Final = re.compile(r"[ \t]+")
"""Space between two words."""
LINK: Final = re.compile(
    r"!?\[(?:[^\[\]\\]|\\.|\[[^\[\]]*\])*\]"  # [text], with pairs of brackets in it
    r"\((?:[^()\s\\]|\\.|\([^()\s]*\))*(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)"  # (address "title")
    r"|<[A-Za-z][A-Za-z0-9+.-]*:[^\s<>]*>"
)
"""A link or picture with its address, or an address in angle brackets. It is not cut if it fits into a piece."""
MARKED: Final = re.compile(
    r"(?<!`)(?P<code>`+)(?!`)[^`]+(?P=code)(?!`)"
    r"|(?P<bold>\*\*)(?=\S)(?:[^*]|\*(?!\*))+(?<=\S)\*\*"
    r"|(?P<struck>~~)(?=\S)[^~]+(?<=\S)~~"
    r"|(?P<italic>\*)(?=[^\s*])[^*]+(?<=\S)\*"
    r"|(?<!\w)(?P<underlined>__?)(?=[^\s_])[^_]+(?<=\S)(?P=underlined)(?!\w)"
)
"""Text within marks that must be closed at a cut and opened again. No alternative can scan a text more than a few times."""
FENCE_LINE: Final = re.compile(r"(?P<prefix>.*?)(?P<marks>`{3,}|~{3,})[ \t]*(?P<language>[^\s`]{0,40})")
"""First or last line of a code block: what stands before the fence (a list marker, `>`), the fence, the language.
"""
QUOTE_MARK: Final = re.compile(r" {0,3}(?:> ?)+")
"""Marks of a quotation at the beginning of a line, several for one within another."""
MOST_SOURCE: Final = 8
"""Characters of Markdown that a piece may have for each one that the service counts: addresses of links do not count everywhere."""
BISECT_AFTER: Final = 6
"""Guesses by proportion after which the search for the longest piece halves its range instead."""


class Rank(IntEnum):
    """Kinds of places where a text may be cut, from the best to the worst.

    Example: `Rank.PARAGRAPH < Rank.WORD`; a smaller one is the better place for a cut.
    """

    PARAGRAPH = 0
    """Between paragraphs, or beside a code block that stands by itself."""
    LINE = 1
    """Between two lines of a paragraph, a list or a table."""
    CODE_LINE = 2
    """Between two lines of a code block, which is closed and opened again."""
    SENTENCE = 3
    """Behind a sentence."""
    WORD = 4
    """Between two words."""
    INSIDE = 5
    """Between the words of a link, of inline code or of a line of code."""


class Break(NamedTuple):
    r"""A place where the text may be cut. What is between `end` and `start` is white space, and is dropped there.

    Example: in "One.\n\nTwo." there is `Break(4, 6, Rank.PARAGRAPH)`, and the end of the text is `Break(10, 10,
    Rank.PARAGRAPH)`.
    """

    end: int
    """End of the piece before it."""
    start: int
    """Beginning of the piece behind it."""
    rank: Rank


class Region(NamedTuple):
    """A part of the text that is closed and opened again when it is cut.

    Example: `Region(5, 20, "**", "**")` for bold text. A piece that ends inside gets the closing mark, and the
    next piece the opening one.
    """

    start: int
    """Index behind which a cut is inside."""
    end: int
    """A cut is inside if it is at `end` or before it, and behind `start`."""
    opening: str
    """Text that the next piece begins with."""
    closing: str
    """Text that a piece ends with that is cut inside."""
    keeps_indent: bool = False
    """Its lines begin with spaces that count."""


def split_markdown(text: str, limit: int, measure: Callable[[str], int] = len) -> list[str]:
    """Return the text as pieces, none of them empty, whose `measure` is at most `limit`.

    A text that fits is returned as it is, but for white space at its ends. An empty text gives no pieces. `limit` is at least
    1; where it is so small that not even a character with its accents fits, a character is cut, and one code point may be
    longer than the limit.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n").rstrip()
    if not text.strip():
        return []
    if len(text) <= limit * MOST_SOURCE and measure(text) <= limit:
        return [text]
    return list(_Splitter(text, limit, measure).pieces())


def utf16_length(text: str) -> int:
    """Return the number of UTF-16 code units, in which Telegram and Twilio count: 2 for an emoji."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class _Splitter:
    """The places where one text may be cut, and the search for the cuts."""

    def __init__(self, text: str, limit: int, measure: Callable[[str], int]) -> None:
        self._limit = limit
        self._measure = measure
        outline = _Outline(text)
        self._text = outline.text
        self._breaks = outline.breaks
        self._ends = [place.end for place in self._breaks]
        self._by_rank = [[i for i, place in enumerate(self._breaks) if place.rank <= rank] for rank in Rank]
        """By rank, the indexes of the breaks of this rank or a better one."""
        self._regions = outline.regions
        """Layers of regions from the outer to the inner. Those of a layer do not overlap."""
        self._starts = [[region.start for region in layer] for layer in self._regions]
        self._short: dict[tuple[str, str], bool] = {}
        """By what opens and closes a region, whether there is room for it in each piece."""

    def pieces(self) -> Iterator[str]:
        """Yield the pieces from the beginning of the text to its end.

        Each step begins behind the white space at the last cut and advances by at least one character, so it
        comes to an end.
        """
        start = 0
        while start < len(self._text):
            end, following = self._next_cut(start)
            piece = self._piece(start, end)
            if piece.strip():
                yield piece
            start = following

    def _may_repeat(self, region: Region) -> bool:
        """Tell whether enough room is left in a piece when this region is opened again in it."""
        around = region.opening, region.closing
        if around not in self._short:
            self._short[around] = self._measure("x".join(around)) <= max(self._limit // 2, 1)
        return self._short[around]

    def _next_cut(self, start: int) -> tuple[int, int]:
        """Return the end of the piece that begins at `start`, and the beginning of the next one.

        A break of a better rank is taken if all up to the next break of that rank fits into one piece.
        """
        first = bisect_right(self._ends, start)
        last = self._longest(start, first)
        # Not even the first stretch without a break fits.
        if last < first:
            cut = self._cut_characters(start, self._ends[first])
            return cut, cut
        # The rest fits into one piece.
        if last == len(self._breaks) - 1:
            return len(self._text), len(self._text)
        # From the best rank on: a cut between paragraphs is taken if the paragraph behind it fits into a piece
        # of its own. Otherwise that paragraph begins in this piece, and the next rank is tried.
        for indexes in self._by_rank:
            at = bisect_right(indexes, last) - 1
            if at < 0 or indexes[at] < first:
                continue
            before, behind = self._breaks[indexes[at]], self._breaks[indexes[at + 1]]
            if self._used(before.start, behind.end) <= self._limit:
                return before.end, before.start
        return self._breaks[last].end, self._breaks[last].start

    def _longest(self, start: int, first: int) -> int:
        """Return the index of the last break, from `first` on, up to which the text fits; `first` - 1 if none does.

        Measuring is what costs time, so the place is guessed by proportion: if so many characters of the text count so much, how many
        count as much as the limit? Texts whose parts count very differently would take many guesses; after some, the range is halved.
        """
        fits, too_long = first - 1, len(self._breaks)
        size, guesses = float(self._limit), 0
        while too_long - fits > 1:
            guess = bisect_right(self._ends, start + int(size)) - 1
            if guesses >= BISECT_AFTER and too_long < len(self._breaks):
                guess = (fits + too_long) // 2
            guess = min(max(guess, fits + 1), too_long - 1)
            end = self._ends[guess]
            used = self._used(start, end)
            # A jump is at most fourfold. A stretch that hardly counts, such as one long address, says little
            # about what follows.
            size = (end - start) * min(self._limit / max(used, 1), 4.0)
            if used <= self._limit:
                fits = guess
                size += 1
            else:
                too_long = guess
            guesses += 1
        return fits

    def _cut_characters(self, start: int, end: int) -> int:
        """Return the last place before `end` where the text fits and no character is cut; at least one code point further."""
        fits, too_long = start, end
        while too_long - fits > 1:
            guess = (fits + min(too_long, fits + 2 * self._limit)) // 2
            if self._used(start, guess) <= self._limit:
                fits = guess
            else:
                too_long = guess
        whole = wcwidth.grapheme_boundary_before(self._text, fits + 1)
        return whole if whole > start else max(fits, start + 1)

    def _used(self, start: int, end: int) -> int:
        """Return the length of this part as the service counts it. A huge part counts as too long without being looked at."""
        # Measuring means rendering, so a part that cannot fit is not rendered at all.
        if end - start > MOST_SOURCE * self._limit:
            return end - start
        return self._measure(self._piece(start, end))

    def _piece(self, start: int, end: int) -> str:
        """Return a part of the text as Markdown that is complete in itself."""
        opened, closed = self._around(start), self._around(end)
        body = self._text[start:end]
        piece = "".join(region.opening for region in opened) + body
        piece = piece.rstrip() + "".join(region.closing for region in reversed(closed))
        indent = len(piece) - len(piece.lstrip(" "))
        # A piece that begins within a list has lost its marker. Its indentation would make it a code block for
        # the reader.
        if indent and not any(region.keeps_indent for region in opened):
            piece = re.sub(rf"^ {{1,{indent}}}", "", piece, flags=re.MULTILINE)
        return piece

    def _around(self, cut: int) -> list[Region]:
        """Return the regions that a cut at this place is inside of."""
        found = []
        for layer, starts in zip(self._regions, self._starts, strict=True):
            at = bisect_left(starts, cut) - 1
            if at >= 0 and cut <= layer[at].end and self._may_repeat(layer[at]):
                found.append(layer[at])
        return found


class _Outline:
    """The breaks and regions of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.breaks: list[Break] = []
        """Sorted; the last one is the end of the text."""
        self._blocks: list[Region] = []
        self._quotes: list[Region] = []
        self._marks: list[Region] = []
        self._lines = text.split("\n")
        self._offsets = [0]
        for line in self._lines:
            self._offsets.append(self._offsets[-1] + len(line) + 1)
        self._code: dict[int, tuple[int, int]] = {}
        """By the number of a line in a code block, the first and the last line of code."""
        self._joined: set[int] = set()
        """Lines that are not separated from the line behind them."""
        self._edges: set[int] = set()
        """Lines behind which a code block begins or ends that stands by itself."""
        for token in _block_parser().parse(text):
            if token.map is not None:
                self._add_block(token, token.map[0], min(token.map[1], len(self._lines)))
        self._add_lines()
        self.breaks.append(Break(len(self.text), len(self.text), Rank.PARAGRAPH))

    @property
    def regions(self) -> tuple[list[Region], ...]:
        """Return the layers of regions, from the outer to the inner.

        A quotation is opened before the marks of the text in it, and closed behind them.
        """
        return self._blocks, self._quotes, self._marks

    def _add_block(self, token: Token, first: int, behind: int) -> None:
        """Note a block of the parser. first: number of its first line. behind: number of the line behind its last one."""
        match token.type:
            case "fence":
                self._add_fence(token, first, behind)
            case "code_block":
                self._blocks.append(Region(self._offsets[first], self._end(behind - 1) - 1, "", "", keeps_indent=True))
                self._add_code(first, behind - 1, first, behind, token)
            case "table_open":
                header = self.text[self._offsets[first] : self._offsets[first + 2]]
                # The header and the line below it are repeated in each piece, so a cut between them is no cut
                # within the table.
                start = self._offsets[min(first + 2, len(self._lines))] - 1
                self._blocks.append(Region(start, self._end(behind - 1) - 1, header, ""))
                self._joined.update((first, first + 1))
            case "heading_open":
                self._joined.update(range(first, behind - 1))

    def _add_fence(self, token: Token, first: int, behind: int) -> None:
        """Note a code block between fences. One in a list or quotation is opened again with the same prefix, without list markers."""
        opening = FENCE_LINE.match(self._lines[first])
        if opening is None:
            return
        closing = FENCE_LINE.fullmatch(self._lines[behind - 1]) if behind - 1 > first else None
        # A fence that is never closed reaches to the end of the text or of its list.
        is_closed = closing is not None and closing["marks"].startswith(token.markup)
        last = behind - 2 if is_closed else behind - 1
        prefix = re.sub(r"[^> ]", " ", opening["prefix"])
        if last > first:
            # The opening is written again without what may stand behind the language, such as a file name.
            again = f"{prefix}{opening['marks']}{opening['language']}\n"
            region = Region(self._end(first), self._end(last) - is_closed, again, f"\n{prefix}{opening['marks']}")
            self._blocks.append(region)
        self._add_code(first + 1, last, first, behind, token)

    def _add_code(self, first: int, last: int, above: int, behind: int, token: Token) -> None:
        """Note the lines of a code block: `first` to `last` hold code, `above` to before `behind` also its fences."""
        for number in range(above, behind):
            self._code[number] = first, last
        if not token.level:
            self._edges.update((above - 1, behind - 1))

    def _add_lines(self) -> None:
        """Add the breaks between and within all lines, from the top. Blocks are known by then."""
        number, above = 0, -1
        while number < len(self._lines):
            line = self._lines[number]
            in_code = number in self._code
            if line.strip() or in_code:
                if above >= 0:
                    self._add_break(above, number)
                if in_code:
                    self._add_code_words(number)
                else:
                    number = self._add_text(number)
                above = number
            number += 1

    def _add_break(self, above: int, below: int) -> None:
        """Add the break between two lines, if there is one. Lines between the two are blank."""
        if above in self._code and self._code.get(below) == self._code[above]:
            first, last = self._code[above]
            if first <= above < last:
                self.breaks.append(Break(self._end(above), self._offsets[below], Rank.CODE_LINE))
        elif above not in self._joined:
            is_wide = below - above > 1 or above in self._edges
            rank = Rank.PARAGRAPH if is_wide else Rank.LINE
            self.breaks.append(Break(self._end(above), self._offsets[below], rank))

    def _add_code_words(self, number: int) -> None:
        start, line = self._offsets[number], self._lines[number]
        body = len(line) - len(line.lstrip())
        first, last = self._code[number]
        if first <= number <= last:
            for gap in WORD_END.finditer(line, body):
                if gap.end() < len(line):
                    self.breaks.append(Break(start + gap.end(), start + gap.end(), Rank.INSIDE))

    def _add_text(self, number: int) -> int:
        """Add the breaks and regions of the lines of text from this one to the next blank line; return the last line's number."""
        last = number
        while last + 1 < len(self._lines) and self._lines[last + 1].strip() and last + 1 not in self._code:
            last += 1
        start, end = self._offsets[number], self._end(last)
        links = [found.span() for found in LINK.finditer(self.text, start, end)]
        whole = links.copy()
        for found in MARKED.finditer(self.text, start, end):
            mark = found[found.lastgroup or 0]
            self._marks.append(Region(found.start() + len(mark), found.end() - len(mark) - 1, mark, mark))
            if found.lastgroup == "code":
                whole.append(found.span())
        whole.sort()
        for line in range(number, last + 1):
            if line > number:
                self._add_break(line - 1, line)
            self._add_words(line, whole)
        return last

    def _add_words(self, number: int, whole: list[tuple[int, int]]) -> None:
        """Add the breaks between the words of a line. `whole`: sorted spans that are only cut if they are too long."""
        line, offset = self._lines[number], self._offsets[number]
        quote = QUOTE_MARK.match(line)
        body = quote.end() if quote else len(line) - len(line.lstrip())
        if quote:
            self._quotes.append(Region(offset + body, offset + len(line) - 1, quote[0], ""))
        gaps = {found.end(): (found.start(), Rank.WORD) for found in WORD_END.finditer(line, body)}
        for found in SENTENCE_END.finditer(line, body):
            gaps[found.end()] = found.start() + len(found[0].rstrip()), Rank.SENTENCE
        for end, (stop, rank) in sorted(gaps.items()):
            if body < stop and end < len(line):
                at = bisect_right(whole, (offset + stop, len(self.text))) - 1
                is_inside = at >= 0 and offset + stop < whole[at][1]
                self.breaks.append(Break(offset + stop, offset + end, Rank.INSIDE if is_inside else rank))

    def _end(self, number: int) -> int:
        return self._offsets[number + 1] - 1


@cache
def _block_parser() -> MarkdownIt:
    """Return a parser of blocks, which leaves the text within lines alone."""
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser
