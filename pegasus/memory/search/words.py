"""Words of any language, as the index stores them and as queries ask for them. Pure functions.

SQLite's tokenizer finds words between spaces, folds case and accents, and stems English. Chinese, Japanese, Thai and others
have no spaces, so runs of their characters are given to it as pairs of neighbours, one pair beginning with each character:

    北京天气  →  北京 京天 天气 气

A run in a query is a phrase of its pairs, so it finds exactly the texts that contain it. A single character finds every
pair that begins with it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MOST_TERMS: Final = 24
"""Terms of a query that are used; further ones are ignored."""

_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts that are indexed as pairs: Thai, Lao, Burmese, Khmer, kana, Han, and Hangul, whose particles cling to
the words."""
_RUN: Final = re.compile(f"[{_UNSPACED}]+")
"""Run of characters without spaces between words."""
_QUOTED: Final = re.compile(r'"([^"]*)"|“([^”]*)”|「([^」]*)」')
"""Words in quotes, which must follow each other."""
_PIECE: Final = re.compile(r"[^\s,;!?()\[\]{}\"，。、；！？（）「」『』【】]+")
"""Characters between blanks and punctuation, in a query."""


def folded(text: str) -> str:
    """Return the text NFKC-normalised and case-folded.

    The tokenizer folds case itself; this does what it does not, such as full-width letters.
    """
    return text if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def indexed(text: str) -> str:
    """Return the text as it is given to the tokenizer."""
    return text if text.isascii() else _RUN.sub(lambda run: f" {_pairs(run[0])} ", folded(text))


def _pairs(run: str) -> str:
    """Return the pairs of a run for the index, with its last character as a pair of its own."""
    return " ".join([*(run[n : n + 2] for n in range(len(run) - 1)), run[-1]])


def terms_of(query: str) -> tuple[str, ...]:
    """Return the terms of an FTS5 query; words in quotes are one term. () if the query has no word.

    For example:

        terms_of('tea "green cup"') == ('"green cup"', '"tea"')

    Everything is quoted, so that no operator of FTS5 in the text of a query has an effect or causes a syntax
    error.
    """
    phrases = [next(filter(None, found), "") for found in _QUOTED.findall(query)]
    pieces = _PIECE.findall(_QUOTED.sub(" ", query))
    terms = [term for phrase in phrases if (term := _term(folded(phrase)))]
    for piece in pieces:
        terms += _terms_of_piece(folded(piece))
    return tuple(dict.fromkeys(terms))[:MOST_TERMS]


def _terms_of_piece(piece: str) -> list[str]:
    """Return the terms of a piece without spaces. `GPU显存` is two terms."""
    parts, done = [], 0
    for run in _RUN.finditer(piece):
        parts += [piece[done : run.start()], run[0]]
        done = run.end()
    return [term for part in (*parts, piece[done:]) if (term := _term(part))]


def _term(phrase: str) -> str:
    """Return a phrase in the syntax of FTS5, "" if there is no word in it.

    Punctuation alone is no word: FTS5 would refuse the empty phrase.
    """
    if not any(map(str.isalnum, phrase)):
        return ""
    if len(phrase) == 1 and _RUN.fullmatch(phrase):
        # A prefix search finds all pairs that begin with the character.
        return f'"{phrase}"*'
    text = _RUN.sub(lambda run: f" {_pairs_alone(run[0])} ", phrase).replace('"', " ").strip()
    return f'"{text}"'


def _pairs_alone(run: str) -> str:
    """Return the pairs of a run for a query, or the run itself if it has one character."""
    return " ".join(run[n : n + 2] for n in range(len(run) - 1)) or run


def needles_of(query: str) -> tuple[str, ...]:
    """Return pieces of the query as they may occur in a text that was found, longest first. They choose the snippet."""
    found: dict[str, None] = {}
    for piece in _PIECE.findall(query.replace('"', " ")):
        for part in (piece, *_RUN.findall(piece)):
            low = part.lower()
            found[low] = None
            if len(low) > 5 and low.isascii():
                found[low[: max(4, len(low) - 3)]] = None  # other endings
            if _RUN.fullmatch(part):
                found.update(dict.fromkeys(low[n : n + 2] for n in range(len(low) - 1)))
    return tuple(sorted(found, key=len, reverse=True))


def snippet(text: str, needles: tuple[str, ...], room: int = 240) -> str:
    """Return the part of the text with the most needles, on one line.

    needles: from `needles_of`. room: characters. The window with the most needles is chosen among those that
    begin at one; numbers of needles and places are bounded, since texts have thousands of characters and
    queries hundreds.
    """
    low = text.lower()
    if len(low) != len(text):
        low = text  # a letter whose small form is longer
    places = sorted(at for needle in needles[:40] for at in _first_places(low, needle))
    best, most = 0, 0
    for n, at in enumerate(places):
        count = sum(1 for other in places[n : n + 60] if other < at + room)
        if count > most:
            best, most = at, count
    start = max(0, min(best - room // 6, len(text) - room))
    if start:
        start = _word_start(text, start)
    shown = " ".join(text[start : start + room].split())
    return f"{'…' if start else ''}{shown}{'…' if start + room < len(text) else ''}"


def _first_places(text: str, needle: str, most: int = 8) -> list[int]:
    """Return the first positions of a needle, at most `most`, without overlaps."""
    places: list[int] = []
    at = text.find(needle)
    while at >= 0 and len(places) < most:
        places.append(at)
        at = text.find(needle, at + len(needle))
    return places


def _word_start(text: str, start: int) -> int:
    """Return the start of the next word, if there is one near."""
    space = text.find(" ", start, start + 20)
    return space + 1 if space >= 0 else start
