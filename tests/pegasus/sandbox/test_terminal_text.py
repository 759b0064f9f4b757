"""The text of what a program writes to a terminal."""

import random
from time import process_time

import pytest

from pegasus.sandbox import TerminalText
from pegasus.sandbox.terminal_text import shown_text


def shown(*parts):
    text = TerminalText()
    return "".join(text.read(part if isinstance(part, bytes) else part.encode()) for part in parts)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("one\r\ntwo\r\n", "one\ntwo"),
        ("one\r\n\r\ntwo  \r\r\n", "one\n\ntwo"),
        ("10 %\r50 %\r100 %\r\n", "100 %"),
        ("10 %\r100 %\r", "100 %"),
        ("secre\b\b\b\b\bwrong\b \bg\r\n", "wrong"),
        ("b\bbo\bol\bld\bd", "bold"),
        ("a\tb", "a\tb"),
        ("\x1b[1;31mred\x1b[0m and \x1b[4mnot\x1b[m", "red and not"),
        ("\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link", "textlink"),
        ("\x1bP1$r0m\x1b\\after", "after"),
        ("wrong\r\x1b[Kright", "right"),
        ("\x1b[2J\x1b[Hone\x1b[2;1Htwo", "\none\ntwo"),
        ("\x1b(Bplain", "plain"),
        ("日本", "日本"),
        ("a\x07\x00b\x1b=c\x1b>", "abc"),
        ("bad \x1b[\x1b[1mgood", "bad good"),
        ("\x1b[31m", ""),
    ],
)
def test_control_sequences(written, text):
    assert shown(written) == text


def test_only_what_has_changed_since_the_last_reading():
    text = TerminalText()
    assert text.read(b"hello\r\n>>> ") == "hello\n>>>"
    assert text.read(b"") == ""
    assert text.read(b"1+1\r\n2\r\n>>> ") == ">>> 1+1\n2\n>>>"
    assert text.read(b"\r\n") == ""
    assert text.read(b"\r\nnext") == "\nnext"


def test_the_pieces_in_which_it_comes_make_no_difference():
    written = "a日\x1b[31mb\x1b]0;t\x1b\\c\x1b[?1049hx\x1b(B 10 %\r100 %".encode()
    text = TerminalText()
    last = [text.read(written[n : n + 1]) for n in range(len(written))][-1]
    assert last == shown(written) == "100 %"


def test_any_bytes_are_read_in_time_that_grows_with_their_length():
    chance = random.Random(3)
    pieces = [
        b"\x1b[",
        b"\x1b",
        b";",
        b"?1049h",
        b"\n",
        b"\r",
        b"\b",
        b"abc",
        "日".encode(),
        b"999999",
        b"\x1b]",
        b"\x9c",
    ]
    hostile = [b"".join(chance.choice(pieces) for _ in range(50_000)), *(piece * 100_000 for piece in pieces)]
    begun = process_time()
    for written in hostile:
        text = shown(written)
        assert "\x1b" not in text
        assert "\r" not in text
    assert process_time() - begun < 10


def test_text_for_the_terminal_itself_that_never_ends_does_not_hide_the_rest():
    assert "visible" in shown("\x1b]" + "x" * 20_000 + "\r\nvisible")


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("a: 10%\r\nb: 10%\r\n\x1b[2A\x1b[2Ka: 90%\r\n\x1b[2Kb: 95%\r\n", "a: 90%\nb: 95%"),  # as docker writes
        ("one\ntwo\n\x1b[2Adone\x1b[K\r\n", "done\ntwo"),
        ("before\n\x1b[?1049h\x1b[H~ editor\x1b[2;1H~\x1b[?1049lafter\n", "before\nafter"),
        ("\x1b[?1049hstill open", "still open"),
        ("\x1b[1;1Hframe 1\x1b[1;1Hframe 2", "\nframe 2"),
        ("⠙ idle\x1b[1G\x1b[0K⠹ busy\x1b[1G\x1b[0Kdone\n", "done"),
        ("abc\r\x1b[K", ""),
        ("kept\x1b7\x1b[99;1Hbar\x1b8 on", "kept on\nbar"),
        ("one\ntwo\nthree\x1b[2A\x1b[J", ""),
        ("\x1b[9999999999Aa\x1b[B\x1b[uB", "B"),
    ],
)
def test_what_stands_there_in_the_end(written, text):
    assert shown(written) == text


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("plain  \n\n", "plain  \n\n"),
        ("lines of DOS\r\nstay\r\n", "lines of DOS\r\nstay\r\n"),
        ("\x1b[32mgreen\x1b[0m\n", "green\n"),
        ("10 %\r20 %\r100 %\ndone", "100 %\ndone"),
        ("日本\x1b[1m語\x1b[0m 🎉\n", "日本語 🎉\n"),
        ("\x1b]0;title without an end\nnext line\n", "0;title without an end\nnext line\n"),
        ("\x1b[31m\n", ""),
    ],
)
def test_output_that_was_not_written_to_a_terminal(written, text):
    assert shown_text(written) == text
