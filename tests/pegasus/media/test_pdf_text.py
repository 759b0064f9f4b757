"""A PDF as text: what it says, and in words what cannot be read, whatever the file does to its reader."""

import pytest
import trio

from pegasus.media.pdf_text import read_pdf
from tests.pegasus.media.pdfs import bomb, pdf


async def test_pages_are_marked():
    found = await read_pdf(pdf("Hello", "", "World"), 1_000)
    assert found.text == "[page 1]\nHello\n[page 2]\n(no text on this page)\n[page 3]\nWorld"
    assert (found.note, found.left_out) == ("3 pages", "")


async def test_what_does_not_fit_is_left_out_and_told():
    found = await read_pdf(pdf(*(f"{number} " * 20 for number in range(9))), 150)
    assert len(found.text) <= 150
    assert found.left_out == "only 3 of its 9 pages are shown whole; the rest is left out"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pdf("secret", password="x"), "protected by a password"),
        (b"%PDF-1.7\nnothing of the kind", "damaged"),
        (pdf("one")[:300], "damaged"),
        (pdf("", ""), "its pages are pictures"),
    ],
    ids=["password", "garbage", "cut", "scan"],
)
async def test_what_has_no_text_says_why(content, words):
    found = await read_pdf(content, 1_000)
    assert found.text == ""
    assert words in found.note


async def test_a_page_that_inflates_without_end_is_given_up():
    content = bomb()
    assert len(content) < 2 << 20
    with trio.fail_after(60):
        found = await read_pdf(content, 1_000)
    assert found.text == ""
    assert found.note


async def test_a_reader_that_takes_too_long_is_killed():
    with trio.fail_after(20):
        found = await read_pdf(pdf("one"), 1_000, patience=0.01)
    assert "too long" in found.note


async def test_a_cancel_ends_the_reader():
    with trio.fail_after(20), trio.move_on_after(0.05) as scope:
        await read_pdf(pdf("one"), 1_000)
    assert scope.cancelled_caught
