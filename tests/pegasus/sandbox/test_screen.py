"""The text that a terminal shows."""

import random

import pytest

from pegasus.sandbox import ScreenText, TerminalSize

SMALL = TerminalSize(4, 10)


def shown(*parts, size=SMALL):
    screen = ScreenText(size)
    for part in parts:
        screen.feed(part if isinstance(part, bytes) else part.encode())
    return screen.take_new()


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("one\r\ntwo\r\n", "one\ntwo"),
        ("10 %\r50 %\r100 %\r\n", "100 %"),
        ("secre\b\b\bn\r\n", "senre"),
        ("a\tb", "a       b"),
        ("\x1b[1;31mred\x1b[0m and \x1b[4mnot\x1b[m", "red and not"),
        ("\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link", "textlink"),
        ("\x1bP1$r0m\x1b\\after", "after"),
        ("wrong\r\x1b[Kright", "right"),
        ("abcdef\x1b[3D\x1b[K", "abc"),
        ("abcdef\r\x1b[2P", "cdef"),
        ("abc\r\x1b[2@", "  abc"),
        ("abc\r\x1b[2X", "  c"),
        ("one\r\ntwo\x1b[A\rONE", "ONE\ntwo"),
        ("\x1b[3;4Hhere", "\n\n   here"),
        ("old\x1b[2J\x1b[Hnew", "new"),
        ("\x1b(0lqk\x1b(B lqk", "┌─┐ lqk"),
        ("日本\b\b語", "日語"),
        ("e\u0301te\u0301", "e\u0301te\u0301"),
        ("a\x07\x00b\x1b=c\x1b>", "abc"),
        ("x\x1b7yz\x1b8Y", "xYz"),
        ("1\r\n2\r\n3\x1b[1;1H\x1b[L0", "0\n1\n2\n3"),
        ("1\r\n2\r\n3\x1b[1;1H\x1b[M", "2\n3"),
        ("1\r\n2\r\n3\x1b[1;1H\x1bM0", "0\n1\n2\n3"),
        ("\x1b[2;3r\x1b[2;1Ha\r\nb\r\nc", "\nb\nc"),
        ("before\x1b[?1049hpage\x1b[?1049l after", "before after"),
        ("before\r\n\x1b[?1049hpage", "page"),
        ("bad \x1b[\x1b[1mgood", "bad good"),
    ],
)
def test_control_sequences(written, text):
    assert shown(written) == text


def test_a_long_line_is_one_line():
    assert shown("0123456789" * 3 + "end\r\nnext") == "0123456789" * 3 + "end\nnext"


def test_lines_that_have_left_the_screen_are_not_lost():
    assert shown("".join(f"line {n}\r\n" for n in range(100))) == "\n".join(f"line {n}" for n in range(100))


def test_only_what_has_changed_since_the_last_look():
    screen = ScreenText(SMALL)
    screen.feed(b"hello\r\n>>> ")
    assert screen.take_new() == "hello\n>>>"
    assert screen.take_new() == ""
    screen.feed(b"1+1\r\n2\r\n>>> ")
    assert screen.take_new() == ">>> 1+1\n2\n>>>"


def test_the_pieces_in_which_it_comes_make_no_difference():
    written = "a日\x1b[31mb\x1b]0;t\x1b\\c\r\n\x1b[?1049hx\x1b[?1049l\x1b(0q\x1b(B".encode()
    assert shown(*[written[n : n + 1] for n in range(len(written))]) == shown(written)


def test_any_bytes_keep_it_within_its_size():
    chance = random.Random(3)
    pieces = [
        b"\x1b[",
        b"\x1b",
        b";",
        b"?1049h",
        b"?1049l",
        b"\n",
        b"\r",
        b"\b",
        b"\t",
        b"abc",
        "日".encode(),
        b"999999",
        b"\x1b]",
    ]
    pieces += [bytes([final]) for final in b"@ABCDEFGHJKLMPXSTrsudfe`"]
    for _ in range(60):
        size = TerminalSize(chance.randint(1, 6), chance.randint(2, 12))
        screen = ScreenText(size)
        for _ in range(300):
            screen.feed(chance.choice(pieces) if chance.random() < 0.8 else chance.randbytes(3))
        assert max(map(len, screen._screen)) <= size.columns
        assert len(screen._screen) == len(screen._wrapped) == size.rows


def test_text_for_the_terminal_itself_that_never_ends_is_dropped():
    assert "visible" in shown("\x1b]" + "x" * 20_000 + "\r\nvisible")


def test_lines_above_the_screen_are_bounded():
    assert shown("x\r\n" * 50_000).count("x") < 2_100
