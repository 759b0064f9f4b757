"""The text of a memory file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.memory.pages import LONGEST_SUMMARY, appended, summary_of, title_for


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("# User\n\n> Summary: who the user is\n\n- Name: Ann\n", "who the user is"),
        ("# User\r\n\r\n> Summary: who the user is\r\n", "who the user is"),
        (">summary:   any case  \n", "any case"),
        ("# Only a heading\n\ntext", "Only a heading"),
        ("> Summary:\n# Heading\n", "Heading"),
        ("no heading\nat all", "no heading at all"),
        ("", "(empty)"),
        ("   \n\n", "(empty)"),
        ("# T\n\n> Summary: " + "x" * 500, "x" * (LONGEST_SUMMARY - 1) + "…"),
    ],
)
def test_what_a_file_says_about_itself(text, summary):
    assert summary_of(text) == summary


def test_the_first_entry_gets_a_heading_and_a_summary():
    assert (
        appended("", "- Name: Ann", "who the user is", "User")
        == "# User\n\n> Summary: who the user is\n\n- Name: Ann\n"
    )
    assert appended("", "- Name: Ann", None, "User") == "# User\n\n> Summary: User\n\n- Name: Ann\n"


def test_a_list_goes_on_and_other_blocks_stand_apart():
    text = appended("# T\n\n> Summary: s\n\n- a: 1", "- b: 2", None, "T")
    assert text == "# T\n\n> Summary: s\n\n- a: 1\n- b: 2\n"
    text = appended(text, "## Title\n- Summary: x", None, "T")
    assert text.endswith("- b: 2\n\n## Title\n- Summary: x\n")
    assert appended(text, "## Next\n\n", None, "T").endswith("- Summary: x\n\n## Next\n")


def test_the_summary_is_replaced_in_its_place():
    text = "# T\n\n> Summary: old\n\nbody\n"
    assert appended(text, "more", "new", "T") == "# T\n\n> Summary: new\n\nbody\n\nmore\n"
    assert appended(text, "more", None, "T") == "# T\n\n> Summary: old\n\nbody\n\nmore\n"


def test_a_file_without_heading_gets_one_and_the_summary_is_not_lost():
    """A file without a heading must not lose its summary silently."""
    assert appended("body\n", "more", "new", "T") == "# T\n\n> Summary: new\n\nbody\n\nmore\n"
    assert appended("# Mine\nbody\n", "more", "new", "T") == "# Mine\n\n> Summary: new\n\nbody\n\nmore\n"
    assert appended("> Summary: old\n\nbody", "more", "new", "T") == "# T\n\n> Summary: new\n\nbody\n\nmore\n"


@pytest.mark.parametrize("summary", ["$&", "$'", r"\1", r"\g<0>", "$$"])
def test_a_summary_is_taken_literally(summary):
    """Text is taken literally."""
    assert f"> Summary: {summary}\n" in appended("# T\n\n> Summary: old\n\nbody", "x", summary, "T")


def test_a_summary_of_many_lines_is_one_line():
    assert "> Summary: a b # c\n" in appended("", "x", "a\nb\n# c", "T")


def test_a_quotation_far_down_is_no_summary():
    text = "# T\n\n" + "word " * 2000 + "\n> Summary: quoted\n"
    assert appended(text, "x", "new", "T").startswith("# T\n\n> Summary: new\n\nword ")
    assert "> Summary: quoted\n" in appended(text, "x", "new", "T")


@given(st.text(), st.text(), st.one_of(st.none(), st.text()))
def test_nothing_that_stood_there_is_lost(text, entry, summary):
    """Of any file and any entry, every line of the body is still there, and the entry is the end."""
    result = appended(text, entry, summary, "T")
    assert result.endswith("\n")
    assert entry.strip("\n").rstrip() in result
    kept = [
        line for line in text.replace("\r\n", "\n").split("\n") if line.strip() and not line.lower().startswith(">")
    ]
    assert all(line.strip() in result for line in kept)
    assert summary_of(result) != "(empty)"


@pytest.mark.parametrize(
    ("path", "title"),
    [("facts/user.md", "User"), ("facts/my-project_x.md", "My project x"), ("episodes/2026-02.md", "2026-02")],
)
def test_headings_for_new_files(path, title):
    assert title_for(path) == title
