"""Replies as a terminal shows them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from pegasus.terminal import markdown
from pegasus.terminal.markdown import COLOURED, ECHOED, MARKS_LAID_OUT, PLAIN_ABOVE, ReplyLayout

SGR = re.compile(r"\x1b\[[0-9;]*m")


def plain(text, width=60):
    return ReplyLayout(colour=False).reply("Pegasus", text, width)


def body(text, width=60):
    name, _, rest = plain(text, width).partition("\n")
    assert name == "Pegasus"
    return rest.rstrip("\n")


def test_the_agents_name_comes_first_and_a_blank_line_last():
    assert plain("Hello.") == "Pegasus\nHello.\n\n"


def test_without_colour_there_is_no_escape_sequence():
    text = "# Title\n**bold** `code` [link](http://x)\n```python\nx = 1\n```"
    assert "\x1b" not in plain(text)
    assert "\x1b" in ReplyLayout(colour=True).reply("Pegasus", text, 60)


def test_emphasis_is_shown_and_its_marks_are_not():
    assert "\x1b[1mbold\x1b[0m" in ReplyLayout(colour=True).reply("P", "**bold**", 60)
    assert body("**bold** and *soft*") == "bold and soft"


def test_a_line_break_the_agent_wrote_is_kept():
    assert body("roses are red\nviolets are blue") == "roses are red\nviolets are blue"


def test_long_lines_wrap_at_the_width():
    assert body("one two three four", width=10) == "one two\nthree four"


QUESTION = """May task 1 run shell_exec?
````
command: one two three four five six
  seven eight nine ten eleven twelve
```
cwd: 中文中文中文中文中文中文中文中文
````
Why I ask: rule 1 of the rules of policy."""


def test_a_question_keeps_its_indentation_and_shows_no_fences():
    lines = ReplyLayout(colour=False).question(QUESTION, 24).split("\n")
    assert lines == [
        "May task 1 run",
        "shell_exec?",
        "    command: one two",
        "      three four five",
        "      six",
        "      seven eight nine",
        "        ten eleven",
        "        twelve",
        "    ```",
        "    cwd:",
        "      中文中文中文中文中",
        "      文中文中文中文",
        "Why I ask: rule 1 of the",
        "rules of policy.",
        "",
        "",
    ]


def test_no_line_of_a_notice_is_wider_than_a_window_that_is_not_tiny():
    text = "  key     what it does, in many words that need more than a line\n" + " " * 100 + "far\n" + "x" * 90
    for width in (20, 33, 80):
        lines = ReplyLayout(colour=False).notice(text, width).split("\n")
        assert max(map(cell_len, lines)) <= width
    assert ReplyLayout(colour=False).notice("  one two three", 12).split("\n")[:2] == ["  one two", "  three"]


def test_wide_characters_are_counted_as_two_columns():
    lines = body("中文" * 20, width=20).split("\n")
    assert [cell_len(line) for line in lines] == [20, 20, 20, 20]


def test_table_columns_stand_under_each_other_with_wide_characters_too():
    lines = body("| a | b |\n|---|--:|\n| 中文 | 1 |\n| 😀 | 22 |").split("\n")
    assert {cell_len(line) for line in lines} == {cell_len(lines[0])}
    assert lines[2].startswith("中文")


def test_a_long_cell_is_folded_and_not_cut():
    text = body("| a |\n|---|\n| " + "x" * 50 + " |", width=30)
    assert text.count("x") == 50


def test_code_stands_as_it_was_written_so_that_it_can_be_copied():
    assert body("```python\nif x:\n    y()\n```") == "if x:\n    y()"


def test_code_of_an_unknown_language_is_shown():
    assert body("```nosuchlanguage\nx\n```") == "x"


def test_html_is_text():
    assert body("<b>hi</b>\n\n<div>block</div>") == "<b>hi</b>\n\n<div>block</div>"


def test_the_target_of_a_link_is_always_shown():
    assert body("[my bank](https://evil.example)") == "my bank (https://evil.example)"


def test_a_link_that_is_its_own_target_is_shown_once():
    assert body("<https://a.example/x> and <a@b.example>") == "https://a.example/x and a@b.example"


def test_an_image_is_named_with_its_address():
    assert body("![a cat](http://x/cat.png)") == "[image: a cat] (http://x/cat.png)"


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[2J\x1b]0;pwned\x07",
        "`\x1b[31m`",
        "```\n\x1b[31m\n```",
        "```\x1b[31m\nx\n```",
        "&#27;[31m &#x9b;31m &#x202e;",
        "[x](http://a/\x1b[31m)",
        "[x](<http://a/&#27;[31m>)",
        "| \x1b[31m |\n|---|\n| \x9b1m |",
        "![\x1b[31m](http://a)",
    ],
)
def test_the_agent_cannot_command_the_terminal(text):
    shown = SGR.sub("", ReplyLayout(colour=True).reply("Peg\x1b[31masus", text, 60))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    assert "\x1b" not in plain(text)


def test_lines_have_no_blanks_at_their_end():
    """A narrowed window would wrap them."""
    text = "- a\n- b\n\n> quote\n\n```\ncode\n```\n\n| a | b |\n|---|---|\n| 1 | |\n"
    assert not [line for line in plain(text).split("\n") if line != line.rstrip()]


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab \n#*_`|-[]()<>!&;\\~1.", max_size=80))
def test_any_markdown_is_shown_somehow(text):
    assert plain(text, width=20).startswith("Pegasus\n")


def test_a_reply_that_cannot_be_laid_out_is_shown_as_it_is(monkeypatch):
    monkeypatch.setattr(markdown, "ChatMarkdown", lambda text: 1 / 0)
    assert body("**raw**") == "**raw**"


def test_a_huge_reply_is_shown_as_it_is():
    text = "**a**\n" * (PLAIN_ABOVE // 5)
    assert body(text) == text.rstrip("\n")


def test_a_reply_of_very_many_marks_is_shown_as_it_is():
    text = "- a\n" * (MARKS_LAID_OUT // 2 + 1)
    assert body(text) == text.rstrip("\n")


def test_a_long_reply_of_few_marks_is_laid_out():
    text = "a **bold** word " + "and others " * (PLAIN_ABOVE // 12)
    assert "**" not in body(text)


def test_code_beyond_the_bound_of_a_reply_has_no_colours():
    """Colouring takes seconds for a long text that is unfortunate for its language."""
    short, long = "if x\n", "if y\n" * (COLOURED // 5)
    shown = ReplyLayout(colour=True).reply("Pegasus", f"```python\n{short}```\n```python\n{long}```\n", 80)
    assert re.search(r"\x1b\[35;49mif\x1b\S+ x", shown)
    assert re.search(r"\x1b\[49mif y", shown)


def test_what_was_said_stands_as_it_was_typed():
    assert ReplyLayout(colour=False).sent("> ", "one\n\ttwo") == "> one\n      two\n\n"


def test_of_a_long_paste_a_part_is_echoed():
    shown = ReplyLayout(colour=False).sent("> ", "\n".join(str(n) for n in range(100))).rstrip("\n").split("\n")
    assert len(shown) == ECHOED + 1
    assert shown[0] == "> 0"
    assert "60 more lines" in shown[ECHOED // 2]
    assert shown[-1] == "  99"


def test_of_an_endless_line_a_part_is_echoed():
    assert len(ReplyLayout(colour=False).sent("> ", "x" * 1_000_000)) < 3000
