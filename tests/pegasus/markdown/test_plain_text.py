"""Markdown as plain text for SMS."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegasus.markdown import to_plain_text


@pytest.mark.parametrize(
    ("markdown", "plain"),
    [
        ("", ""),
        ("plain *it* **b** ~~s~~ `c  d`", "plain it b s c  d"),
        ("# Title\ntext", "Title\n\ntext"),
        ("[text](https://example.com/ä?a=1&b=2)", "text (https://example.com/ä?a=1&b=2)"),
        ("[**bold** text](https://a.b 'title')", "bold text (https://a.b)"),
        ("[https://a.b](https://a.b) <https://c.d> <me@example.com>", "https://a.b https://c.d me@example.com"),
        ("[x](javascript:alert(1))", "x (javascript:alert(1))"),
        ("![chart](https://a.b/c.png)", "chart (https://a.b/c.png)"),
        ("[1]: https://a.b", "[1]: https://a.b"),
        ("see [1]\n\n[1]: https://a.b", "see 1 (https://a.b)"),
        ("line\nnext  \nthird", "line\nnext\nthird"),
        ("- a\n- b\n  - c\n\n7. x\n8. y", "- a\n- b\n  - c\n\n7. x\n8. y"),
        ("- a\n\n- b", "- a\n\n- b"),
        ("> a\n> b\n>\n> c", "> a\n> b\n>\n> c"),
        ("```py\ndef f():\n\n    return '*'\n```", "def f():\n\n    return '*'"),
        ("    indented\n      more", "indented\n  more"),
        ("| a | **b** |\n|---|--:|\n| 1 | `2` |", "a | b\n1 | 2"),
        ("a\n\n---\n\nb", "a\n\n---\n\nb"),
        ("2 &lt; 3 \\* 4 <b>x</b>", "2 < 3 * 4 <b>x</b>"),
    ],
)
def test_markdown_becomes_plain_text(markdown: str, plain: str):
    assert to_plain_text(markdown) == plain


def test_deep_nesting_is_no_error():
    assert "a" in to_plain_text("> " * 3000 + "a")
    assert isinstance(to_plain_text("- " * 3000 + "a"), str)


@pytest.mark.parametrize("mark", ["*", "**", "~~"])
@pytest.mark.parametrize("around", ["{}", "![{}](https://a.b)"])
def test_deep_nesting_of_marks_is_no_error(mark: str, around: str):
    assert "middle" in to_plain_text(around.format(f"{mark}a " * 1500 + "middle" + f" b{mark}" * 1500))


@settings(max_examples=40, deadline=None)
@given(st.text("abc \n*_#>-()!1.<&\\"))
def test_every_word_survives(text: str):
    plain = to_plain_text(text)
    assert [c for c in plain if c in "abc"] == [c for c in text if c in "abc"]
