"""Promises by their words."""

from hypothesis import example, given
from hypothesis import strategies as st

from pegasus.main_agent.compaction import words


@given(st.lists(st.from_regex(words._PROMISE, fullmatch=True) | st.text(max_size=5)))
@example(["melde mich"])
def test_the_quick_look_overlooks_no_promise(found):
    text = " ".join(found)
    assert words.promises(text) == (words._PROMISE.search(text) is not None)
