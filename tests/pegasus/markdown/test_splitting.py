"""Splitting of Markdown into pieces for services with a limit."""

from __future__ import annotations

import re

import pytest
import wcwidth
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pegasus.markdown import split_markdown, utf16_length

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def shown(piece: str) -> str:
    """The text of a piece that a reader sees, without marks and addresses."""
    html = re.sub(r"<[^>]*>", "", MARKDOWN.render(piece))
    return html.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")


# ------------------------------------------------------------------ where it cuts


def test_a_text_that_fits_stays_as_it_is():
    text = "# A title\n\nSome *text*.\n\n\n- and a list"
    assert split_markdown(text, 100) == [text]


@pytest.mark.parametrize("text", ["", " ", "\n\n \n"])
def test_a_blank_text_gives_no_pieces(text: str):
    assert split_markdown(text, 10) == []


def test_paragraphs_that_fit_are_never_cut():
    text = "One two three.\n\nFour five six.\n\nSeven eight nine.\n\nTen."
    assert split_markdown(text, 32) == ["One two three.\n\nFour five six.", "Seven eight nine.\n\nTen."]


def test_a_long_paragraph_is_cut_between_lines_then_sentences_then_words():
    assert split_markdown("aaa bbb\nccc ddd\neee", 16) == ["aaa bbb\nccc ddd", "eee"]
    assert split_markdown("Aaa bbb. Ccc ddd. Eee fff ggg.", 20) == ["Aaa bbb. Ccc ddd.", "Eee fff ggg."]
    assert split_markdown("aaa bbb ccc ddd", 8) == ["aaa bbb", "ccc ddd"]


def test_a_long_word_is_cut_between_characters():
    assert split_markdown("abcdefghij", 4) == ["abcd", "efgh", "ij"]


def test_the_end_of_a_long_paragraph_shares_its_piece_with_the_next_paragraph():
    assert split_markdown("aaa bbb ccc ddd\n\nE.", 12) == ["aaa bbb ccc", "ddd\n\nE."]


FAMILY = "👩‍👩‍👧‍👦"


@pytest.mark.parametrize(
    "character", [FAMILY, "🇩🇪", "👍🏽", "e\u0301\u0323", "각", "क्षि", "\U0001f3f4\U000e0067\U000e0062\U000e007f"]
)
def test_no_character_is_cut(character: str):
    limit = 2 * utf16_length(character) + 1
    pieces = split_markdown(character * 9, limit, utf16_length)
    assert "".join(pieces) == character * 9
    assert all(piece == character * (len(piece) // len(character)) for piece in pieces)


def test_an_emoji_counts_as_the_service_counts_it():
    assert utf16_length("a😀ä") == 4
    assert split_markdown("😀" * 5, 5, utf16_length) == ["😀😀", "😀😀", "😀"]


def test_a_character_that_is_longer_than_a_message_is_the_only_one_that_is_cut():
    pieces = split_markdown("x" + "\u0301" * 25, 10)
    assert "".join(pieces) == "x" + "\u0301" * 25
    assert max(map(len, pieces)) <= 10


# ------------------------------------------------------------------ code


CODE = "```python\nfor x in range(3):\n    print(x)\n\n    print()\n```"


def test_a_code_block_that_fits_is_never_cut():
    pieces = split_markdown(f"Look at this:\n{CODE}\nand at that:\n\n{CODE}\n\nDone.", 80)
    assert [piece.count(CODE) for piece in pieces] == [1, 1]
    assert all(len(piece) <= 80 for piece in pieces)


def test_a_code_block_longer_than_a_message_is_cut_between_lines_into_blocks_with_its_language():
    lines = [f"    line {n:02}" for n in range(20)]
    pieces = split_markdown("Intro.\n\n```py title=x\n" + "\n".join(lines) + "\n```\n\nEnd.", 70)
    assert len(pieces) > 3
    bodies = []
    for piece in pieces:
        for token in MARKDOWN.parse(piece):
            if token.type == "fence":
                assert token.info.split()[0] == "py"
                assert piece.count("```") == 2
                bodies += token.content.rstrip("\n").split("\n")
    assert bodies == lines
    assert all(len(piece) <= 70 for piece in pieces)


def test_a_line_of_code_longer_than_a_message_is_cut_within_its_block():
    pieces = split_markdown("```\n" + "x" * 100 + "\n```", 40)
    assert all(piece.startswith("```\n") and piece.endswith("\n```") and len(piece) <= 40 for piece in pieces)
    assert "".join(re.findall("x", "".join(pieces))) == "x" * 100


def test_a_block_that_the_model_did_not_close_is_closed_where_it_is_cut():
    pieces = split_markdown("~~~~sh\n" + "echo hello\n" * 10, 50)
    assert all(piece.startswith("~~~~sh\n") for piece in pieces)
    assert all(piece.endswith("\n~~~~") for piece in pieces[:-1])


def test_a_code_block_in_a_list_is_cut_into_blocks_as_well():
    text = "- first\n\n  ```sh\n" + "".join(f"  echo {n}\n" for n in range(9)) + "  ```\n- second"
    pieces = split_markdown(text, 45)
    code = [token.content for piece in pieces for token in MARKDOWN.parse(piece) if token.type == "fence"]
    assert "".join(code) == "".join(f"echo {n}\n" for n in range(9))


# ------------------------------------------------------------------ other marks


def test_a_link_is_not_cut():
    link = "[a link with some words](https://example.com/a_(b))"
    pieces = split_markdown(f"Some words before {link} and some words behind it.", 56)
    assert sum(link in piece for piece in pieces) == 1


def test_a_link_longer_than_a_message_is_cut_between_words():
    pieces = split_markdown("[" + "word " * 20 + "](https://example.com)", 30)
    assert all(len(piece) <= 30 for piece in pieces)
    assert shown(" ".join(pieces)).count("word") == 20


def test_marks_are_closed_and_opened_again():
    pieces = split_markdown("Now **some bold words here** and *more of them* end", 20)
    assert pieces == ["Now **some bold**", "**words here** and", "*more of them* end"]


def test_inline_code_stays_whole():
    assert split_markdown("call `f (a, b)` now", 14) == ["call", "`f (a, b)` now"]


def test_a_table_gets_its_header_again():
    table = "| name | size |\n|---|---|\n" + "".join(f"| file{n} | {n} |\n" for n in range(6))
    pieces = split_markdown(table, 62)
    assert all(piece.startswith("| name | size |\n|---|---|\n| file") for piece in pieces)
    assert sum(piece.count("| file") for piece in pieces) == 6


def test_a_quotation_stays_one():
    pieces = split_markdown("> some words that are quoted from somebody", 20)
    assert all(piece.startswith("> ") for piece in pieces)


def test_nested_items_do_not_become_code():
    pieces = split_markdown("- aaaa\n    - bbbb\n    - cccc\n    - dddd", 26)
    assert not any(token.type == "code_block" for piece in pieces for token in MARKDOWN.parse(piece))


def test_the_limit_is_that_of_the_text_which_the_service_gets():
    text = "[one](https://example.com/one) [two](https://example.com/two) [three](https://example.com/three)"
    assert split_markdown(text, 20, lambda piece: len(shown(piece).strip())) == [text]


# ------------------------------------------------------------------ any text

WORDS = ["word", "a", "**bold", "text**", "[li", "nk](http://x.y)", "`co", "de`", FAMILY, "e\u0301", "end."]
LINES = ["- item", "  - sub", "    code", "1. x", "> quote", "| a | b |", "|---|---|", "# Title"]
BLOCKS = st.one_of(
    st.text(max_size=120),
    st.lists(st.sampled_from(WORDS)).map(" ".join),
    st.lists(st.sampled_from(LINES)).map("\n".join),
    st.lists(st.text("ab \t`", max_size=30), max_size=12).map(lambda lines: "```py\n" + "\n".join(lines) + "\n```"),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(BLOCKS, max_size=5).map("\n\n".join), st.integers(40, 90))
def test_every_piece_of_any_text_is_within_the_limit_and_nothing_is_lost(text: str, limit: int):
    pieces = split_markdown(text, limit)
    assert all(0 < len(piece) <= limit for piece in pieces)
    # Marks that are opened again are the only thing that is added, so the text is found in the pieces in its order.
    rest = iter("".join(pieces))
    assert all(character in rest for character in text.replace("\r", "\n") if not character.isspace())


@settings(max_examples=40, deadline=None)
@given(st.text("ab e\u0301\u200d👩👧🇩🇪각", max_size=200), st.integers(30, 60))
def test_pieces_of_any_text_begin_and_end_between_characters(text: str, limit: int):
    pieces = split_markdown(text, limit)
    whole = list(wcwidth.iter_graphemes(text))
    if max(map(len, whole), default=0) <= limit:
        assert [c for piece in pieces for c in wcwidth.iter_graphemes(piece) if not c.isspace()] == [
            c for c in whole if not c.isspace()
        ]


def work(text: str) -> int:
    """The number of characters that were measured to split the text."""
    measured = 0

    def measure(piece: str) -> int:
        nonlocal measured
        measured += len(piece)
        return len(piece)

    split_markdown(text, 1600, measure)
    return measured


@pytest.mark.parametrize(
    "unit",
    [
        "Some words of prose. ",
        "word\n\n",
        "x",
        "- item\n",
        "| a | b |\n",
        "**a ",
        "[a](",
        "`a``",
        "> ",
        "e\u0301",
        "    x\n",
    ],
)
def test_the_work_grows_in_proportion_to_the_text(unit: str):
    small, large = ("| a | b |\n|---|---|\n" + unit * (size // len(unit)) for size in (15_000, 60_000))
    assert work(large) <= 4.5 * work(small)
    assert work(large) <= 20 * len(large)


def test_pieces_are_as_long_as_they_can_be():
    pieces = split_markdown("word " * 2000, 1600)
    assert all(len(piece) + len(" word") > 1600 for piece in pieces[:-1])
