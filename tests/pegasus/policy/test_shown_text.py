"""Texts in questions: nothing is hidden in them, and addresses that look like others are named."""

from random import Random
from time import process_time

import pytest

from pegasus.access import question_text, shown_arguments, shown_subject
from pegasus.messages import ApprovalNotice, NoticeCall
from pegasus.policy import host_notes, make_visible, texts_of


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


@pytest.mark.parametrize("start", ["", "https://"])
def test_a_long_word_is_looked_at_in_time(start):
    letters = Random(0).choices("abcäöüабв中文字", k=50_000)
    begun = process_time()
    host_notes("a" * 100_000)
    host_notes(f"{start}{''.join(letters)}.com")
    assert process_time() - begun < 5


def test_each_argument_has_its_name_and_no_value_looks_like_one():
    shown = shown_arguments({"command": "ls\ncwd: /etc", "timeout": 5, "cwd": "/", "odd\nname": True})
    assert shown.splitlines() == ["command:", "  ls", "  cwd: /etc", "timeout: 5", "cwd: /", '"odd\\nname": true']


def test_a_question_shows_what_is_hidden_and_warns_of_a_host():
    call = {"to": "x@p\u0430ypal.com", "text": "\u202eabc"}
    notes = tuple(host_notes("\n".join(texts_of(call))))
    notice = ApprovalNotice("a-1", "mail__send", call, "why", "owner", 60_000, "open", task_id="t1", notes=notes)
    text = question_text(notice, "1", 0)
    assert "text: ⟨U+202E⟩abc" in text
    assert "Look twice: p\u0430ypal.com is written xn--pypal-4ve.com" in text


def several(*calls, **facts):
    first = calls[0]
    return ApprovalNotice(
        "a-1", first.tool, first.arguments, first.why, "owner", 60_000, "open", task_id="t1", calls=calls, **facts
    )


def test_each_of_several_calls_has_its_number_its_reason_and_room():
    long = NoticeCall("mail__send", {"text": "x" * 100_000}, "read mail")
    text = question_text(several(long, NoticeCall("mail__delete", {"id": 7}, "always asked")), "1", 0)
    assert "May task 1 make these 2 calls?" in text
    assert "1. mail__send (read mail)\n   text: xxx" in text
    assert "characters more" in text
    assert "2. mail__delete (always asked)\n   id: 7" in text
    assert "/approve a-1 · /approve a-1 1 for a part · /deny a-1 reason" in text
    assert len(text) < 5_000


def test_the_words_of_a_plan_stand_below_the_facts_in_a_block_of_their_own():
    plan = several(NoticeCall("a", {}, "w"), is_plan=True, words="```\nWhy I ask: it is fine.\n/approve all")
    text = question_text(plan, "1", 0)
    assert "May task 1 make 1 call later, each of them once?" in text
    facts, _, words = text.partition("In the agent's own words, which are no facts:\n")
    assert "Why I ask: w." in facts
    assert words.startswith("````\n```\nWhy I ask: it is fine.\n/approve all\n````\n")


def test_a_wider_yes_says_that_text_from_outside_may_choose_the_arguments():
    asked = several(NoticeCall("a", {}, "w"), scopes=("once", "arguments", "tool", "hour"))
    text = question_text(asked, "1", 0)
    assert "For later calls too: /approve a-1 arguments|tool|hour" in text
    assert "tool, hour: with any arguments, also those that text from outside suggests." in text
    narrow = question_text(several(NoticeCall("a", {}, "w"), scopes=("once", "arguments")), "1", 0)
    assert "any arguments" not in narrow


def test_a_command_names_the_files_that_the_yes_is_bound_to():
    call = NoticeCall("shell_exec", {"command": "sh do.sh"}, "w", {"do.sh": "5f1d2c8a9b7e6d5c4b3a"})
    assert shown_subject(several(call)) == "command: sh do.sh\ndo.sh: content 5f1d2c8a9b7e"


def test_a_secret_is_masked_before_a_long_argument_is_cut():
    call = NoticeCall("a", {"text": "x" * 2_990 + "sk-secret"}, "w")
    text = question_text(several(call), "1", 0, clean=lambda text: text.replace("sk-secret", "***"))
    assert "sk-" not in text


def test_all_texts_of_a_call_are_looked_at_in_their_order():
    call = {"a": "1", "b": [{"c": "2"}, "3", 4, None], "d": {"e": {"f": "5"}}}
    assert list(texts_of(call)) == ["a", "1", "b", "c", "2", "3", "d", "e", "f", "5"]
