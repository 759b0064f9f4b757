"""Lines of a session, there and back."""

import pytest
from hypothesis import given

from pegasus.conversation.entry import BadEntry, Entry, decode, encode, to_json
from pegasus.json_lines import Line, scan_lines
from pegasus.models.base import ToolCall
from tests.pegasus.conversation.logs import logs


@given(logs())
def test_what_is_encoded_is_decoded_as_it_was(entries):
    lines = list(scan_lines(b"".join(map(encode, entries))))
    assert all(isinstance(line, Line) for line in lines)
    assert [decode(line.value) for line in lines] == entries


def test_half_a_surrogate_pair_is_written_as_it_was_read():
    """Another program may have put one into the file; who mends the file must not fail over it."""
    line = b'{"ts":1,"role":"user","content":"a\\ud800"}\n'
    [found] = scan_lines(line)
    assert encode(decode(found.value)) == line


def test_what_is_absent_is_empty():
    assert decode({"role": "user"}) == Entry(0, "user")
    assert decode({"role": "tool", "toolCallId": "c", "content": "x", "ts": 1.7, "new": 1}) == Entry(
        1, "tool", "x", call_id="c"
    )
    assert decode({"role": "user"}).metadata is not decode({"role": "user"}).metadata


def test_arguments_that_another_program_has_written_as_text_are_read():
    texts = {"c": '{"a":1}', "d": "{", "e": "[" * 100_000}
    calls = [{"id": key, "name": "n", "arguments": text} for key, text in texts.items()]
    assert decode({"role": "assistant", "toolCalls": calls}).calls == (
        ToolCall("c", "n", {"a": 1}),
        ToolCall("d", "n", {}),
        ToolCall("e", "n", {}),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        "user",
        {},
        {"role": None},
        {"role": "robot"},
        {"role": ["user"]},
        {"role": "user", "ts": "1"},
        {"role": "user", "ts": None},
        {"role": "user", "ts": float("nan")},
        {"role": "user", "ts": float("inf")},
        {"role": "user", "content": None},
        {"role": "user", "content": ["x"]},
        {"role": "user", "metadata": []},
        {"role": "user", "metadata": None},
        {"role": "user", "toolCallId": "c"},
        {"role": "tool"},
        {"role": "tool", "toolCallId": 1},
        {"role": "assistant", "toolCalls": {}},
        {"role": "assistant", "toolCalls": None},
        {"role": "assistant", "toolCalls": ["x"]},
        {"role": "assistant", "toolCalls": [{"id": 1, "name": "n"}]},
        {"role": "assistant", "toolCalls": [{"id": "c", "name": "n", "arguments": []}]},
    ],
)
def test_what_is_no_entry_says_so(wrong):
    with pytest.raises(BadEntry):
        decode(wrong)


def test_an_entry_as_json_has_nothing_empty():
    assert to_json(Entry(1, "user", "x")) == {"ts": 1, "role": "user", "content": "x"}


def test_the_item_and_the_failure_stand_in_the_metadata_on_disk():
    asked = Entry(1, "user", "x", item=7, metadata={"messageId": "m-1"})
    assert encode(asked) == (b'{"ts":1,"role":"user","content":"x","metadata":{"item":7,"messageId":"m-1"}}\n')
    failed = Entry(1, "tool", "Error: no", call_id="c", failed=True)
    assert to_json(failed)["metadata"] == {"error": True}
    assert decode(to_json(failed)) == failed


@pytest.mark.parametrize("item", ["7", 7.0, True, None])
def test_a_number_that_is_none_is_no_item(item):
    read = decode({"role": "user", "metadata": {"item": item}})
    assert read.item is None
    assert to_json(read)["metadata"] == {"item": item}
