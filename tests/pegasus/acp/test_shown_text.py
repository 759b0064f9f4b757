"""Drafts and replies for a client that can only append."""

from __future__ import annotations

import pytest

from pegasus.acp.shown_text import ShownText


def shown(*steps):
    """What an editor has at the end, by message: steps are drafts, and replies in a tuple."""
    text = ShownText("m")
    messages: dict[str, str] = {}
    for step in steps:
        chunk = text.reply(step[0]) if isinstance(step, tuple) else text.draft(step)
        if chunk is not None:
            messages[chunk[0]] = messages.get(chunk[0], "") + chunk[1]
    return list(messages.values())


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([("whole",)], ["whole"]),
        (["He", "Hello", ("Hello there",)], ["Hello there"]),
        (["Hello", "Hello", ("Hello",), ("Bye",)], ["Hello", "Bye"]),
        (["One\n\nTw", ("One",), "Two", ("Two",)], ["One\n\nTwo"]),
        (["I thi", "No", ("No, it is not",)], ["I thi", "No, it is not"]),
        (["Grüß", "Grüße 🦦", ("Grüße 🦦",)], ["Grüße 🦦"]),
    ],
)
def test_the_editor_has_each_reply_once(steps, expected):
    assert shown(*steps) == expected
