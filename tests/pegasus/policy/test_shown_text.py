"""Texts in questions: nothing is hidden in them, and addresses that look like others are named."""

import pytest

from pegasus.messages import ApprovalNotice
from pegasus.policy import host_notes, make_visible, question_text, shown_arguments, shown_subject


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("git push", "git push"),
        ("Grüße 你好 🙂\n\tx", "Grüße 你好 🙂\n\tx"),
        ("echo ok\rrm -rf x", "echo ok⟨U+000D⟩rm -rf x"),
        ("a\x1b[2Kb\x85c\x7f", "a⟨U+001B⟩[2Kb⟨U+0085⟩c⟨U+007F⟩"),
        ("pay \u202e001\u202c now", "pay ⟨U+202E⟩001⟨U+202C⟩ now"),
        ("r\u200bm\ufeff\u2060", "r⟨U+200B⟩m⟨U+FEFF⟩⟨U+2060⟩"),
        ("tag\U000e0041 \u3164\ufe0f\U000e0101", "tag⟨U+E0041⟩ ⟨U+3164⟩⟨U+FE0F⟩⟨U+E0101⟩"),
        ("a\u2028b\ud800", "a⟨U+2028⟩b⟨U+D800⟩"),
    ],
)
def test_what_cannot_be_seen_is_shown_as_its_code(text, shown):
    assert make_visible(text) == shown


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("curl https://paypal．com/login", "paypal．com leads to paypal.com"),
        ("open paypal。com", "paypal。com leads to paypal.com"),
        ("https://paypal.com@pay.example/x", "paypal.com@pay.example leads to pay.example"),
        ("https:\\\\paypal.com@pay.example", "paypal.com@pay.example leads to pay.example"),
        ("http://good.example\\@bad.example/", None),
        (
            "https://p\u0430ypal.com/",
            "p\u0430ypal.com is written xn--pypal-4ve.com and has letters of another alphabet",
        ),
        (
            "mail bob@p\u0430ypal.com",
            "p\u0430ypal.com is written xn--pypal-4ve.com and has letters of another alphabet",
        ),
        ("https://xn--pypal-4ve.com", "xn--pypal-4ve.com stands for p\u0430ypal.com"),
        ("https://xn--.com", "xn--.com stands for .com"),
        ("https://example.com:8080/a?b=c@d", None),
        ("git clone git@github.com:x/y and read notes.txt", None),
        ("Ende.Übung im Café.", None),
    ],
)
def test_an_address_that_looks_like_another_one_is_named(text, note):
    assert host_notes(text) == ([] if note is None else [note])


def test_notes_about_hosts_are_few_whatever_a_text_holds():
    assert len(host_notes(" ".join(f"https://a{n}@b{n}.example/" for n in range(1000)))) == 10


def test_each_argument_has_its_name_and_no_value_looks_like_one():
    shown = shown_arguments({"command": "ls\ncwd: /etc", "timeout": 5, "cwd": "/", "odd\nname": True})
    assert shown.splitlines() == ["command:", "  ls", "  cwd: /etc", "timeout: 5", "cwd: /", '"odd\\nname": true']


def test_a_question_shows_what_is_hidden_and_warns_of_a_host():
    call = {"to": "x@p\u0430ypal.com", "text": "\u202eabc"}
    notice = ApprovalNotice("a-1", "mail__send", call, "why", "owner", 60_000, "open", task_id="t1")
    text = question_text(notice, shown_subject(notice), "1", 0)
    assert "text: ⟨U+202E⟩abc" in text
    assert "Look twice: p\u0430ypal.com is written xn--pypal-4ve.com" in text
