"""Text from outside cannot command a terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.terminal.tty import neutralise, repair_unicode


@pytest.mark.parametrize(
    ("harmful", "harmless"),
    [
        ("\x1b[2J\x1b[H", "␛[2J␛[H"),
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("\x9b31m", "\ufffd31m"),
        ("back\b\bspace", "back␈␈space"),
        ("\x7f", "␡"),
        ("over\rwritten", "over\nwritten"),
        ("two\r\nlines", "two\nlines"),
        ("line\u2028separator", "line\nseparator"),
        ("user\u202etxt.exe", "usertxt.exe"),
        ("\u2066isolate\u2069", "isolate"),
        ("hidden\U000e0041\U000e0042", "hidden"),
        ("half \ud83d of a pair", "half \ufffd of a pair"),
    ],
)
def test_what_a_terminal_would_obey_becomes_text(harmful, harmless):
    assert neutralise(harmful) == harmless


@pytest.mark.parametrize("text", ["tab\tand\nnewline", "中文 😀 é", "👩‍👩‍👧 family", "می‌خواهم", "❤️"])
def test_what_only_looks_good_stays(text):
    assert neutralise(text) == text


@given(st.text())
def test_nothing_that_controls_is_ever_left(text):
    left = {unicodedata.category(c) for c in neutralise(text) if c not in "\n\t"}
    assert not left & {"Cc", "Cs", "Zl", "Zp"}
    assert neutralise(neutralise(text)) == neutralise(text)


def test_bytes_that_were_no_utf8_are_replaced_before_sending():
    assert repair_unicode("caf\udce9") == "caf\ufffd"
    assert repair_unicode("中文") == "中文"
