"""Reading lines that a crash may have damaged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.json_lines import Line, scan_lines
from pegasus.wire import encode_line

GOOD = b'{"n":1}\n{"n":2}\n'


class Read:
    """The good lines as (number, value), and the bad ones."""

    def __init__(self, data):
        lines = list(scan_lines(data))
        self.good = tuple((line.number, line.value) for line in lines if isinstance(line, Line))
        self.bad = tuple(line for line in lines if not isinstance(line, Line))


def values(data):
    return [value for _, value in Read(data).good]


def problems(data):
    return [(line.number, line.torn) for line in Read(data).bad]


def test_an_empty_file_has_no_lines():
    assert list(scan_lines(b"")) == list(scan_lines(b"\n \n\r\n")) == []


def test_good_lines_come_with_their_numbers():
    assert Read(GOOD).good == ((1, {"n": 1}), (2, {"n": 2}))
    assert Read(b'\n{"n":1}\n\n{"n":2}\n').good == ((2, {"n": 1}), (4, {"n": 2}))


def test_lines_may_end_as_on_windows():
    assert values(b'{"n":1}\r\n{"n":2}\r\n') == [{"n": 1}, {"n": 2}]


def test_a_last_line_without_newline_is_torn_even_if_it_looks_whole():
    lines = Read(GOOD + b'{"n":3}')
    assert len(lines.good) == 2
    [torn] = lines.bad
    assert (torn.number, torn.offset, torn.raw, torn.torn) == (3, len(GOOD), b'{"n":3}', True)


def test_a_last_line_that_is_no_json_is_torn():
    assert problems(GOOD + b'{"n":\n') == [(3, True)]


@pytest.mark.parametrize(
    "bad",
    [
        b"not json",
        b'{"n":',
        b"\xff\xfe{}",
        b"[1]",
        b"5",
        b"null",
        b'"text"',
        b'{"n":1}{"n":2}',
        b"\0\0\0\0",
        b"[" * 100_000,
        b"1" * 10_000,
    ],
    ids=range(11),
)
def test_a_bad_line_hides_nothing_around_it(bad):
    lines = Read(b'{"n":1}\n' + bad + b'\n{"n":2}\n')
    assert lines.good == ((1, {"n": 1}), (3, {"n": 2}))
    [line] = lines.bad
    assert (line.number, line.offset, line.torn) == (2, 8, False)
    assert line.raw == bad + b"\n"
    assert str(line).startswith("line 2: ")


def test_a_record_behind_a_run_of_nul_bytes_is_good():
    lines = list(scan_lines(b'{"n":1}\n' + b"\0" * 512 + b'{"n":2}\n{"n":3}\n'))
    assert [line.value["n"] for line in lines if isinstance(line, Line)] == [1, 2, 3]
    assert lines[1].problem == "512 NUL bytes before the record"
    assert (lines[2].offset, lines[2].length) == (8 + 512, 8)


def test_nul_bytes_at_the_end_are_torn():
    assert problems(GOOD + b"\0" * 100) == [(3, True)]
    assert problems(GOOD + b"\0" * 100 + b"\n") == [(3, True)]


def test_offsets_and_lengths_give_the_lines_bytes():
    data = b'{"n":1}\n\nbad\n{"text":"\xc3\xa4"}\n'
    lines = [line for line in scan_lines(data) if isinstance(line, Line)]
    assert [json.loads(data[line.offset : line.offset + line.length]) for line in lines] == [
        line.value for line in lines
    ]


json_objects = st.dictionaries(
    st.text(),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=5,
    ),
)


@given(json_objects)
def test_a_record_is_one_line_and_comes_back(value):
    line = encode_line(value)
    assert line.count(b"\n") == 1
    assert values(line) == [value]


def test_a_lone_surrogate_survives():
    assert values(encode_line({"text": "a\ud800ä"})) == [{"text": "a\ud800ä"}]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"bytes", object()])
def test_what_is_no_json_is_refused(value):
    with pytest.raises((TypeError, ValueError)):
        encode_line({"value": value})


def test_nesting_without_end_is_refused():
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="Circular"):
        encode_line({"value": endless})


flat_objects = st.dictionaries(st.text(), st.none() | st.integers() | st.text(), max_size=3)
"""Enough for where lines begin and end; what a line may hold is tested above."""


@given(st.lists(flat_objects, max_size=5), st.data())
def test_any_prefix_of_a_file_gives_its_whole_lines_and_a_torn_rest(objects, data):
    encoded = [encode_line(value) for value in objects]
    whole = b"".join(encoded)
    cut = data.draw(st.integers(0, len(whole)))
    prefix = whole[:cut]
    lines = Read(prefix)
    count = prefix.count(b"\n")
    assert [value for _, value in lines.good] == objects[:count]
    rest = prefix[prefix.rfind(b"\n") + 1 :]
    assert b"".join(line.raw for line in lines.bad) == rest
    assert all(line.torn and line.offset == cut - len(rest) for line in lines.bad)


@given(st.binary())
def test_any_bytes_can_be_read(data):
    for line in scan_lines(data):
        assert 0 <= line.offset < len(data)


def test_endless_nesting_in_a_line_hides_nothing_around_it():
    lines = Read(b"{}\n" + b"[" * 200_000 + b"\n{}\n")
    assert [number for number, _ in lines.good] == [1, 3]
    assert len(lines.bad) == 1
