"""JSON text: compact, UTF-8, no NaN, and every failure is a ValueError when reading."""

from __future__ import annotations

import pytest

from pegasus.wire import decode_json, decode_object, encode_json


def test_text_is_compact_and_not_escaped():
    assert encode_json({"a": [1, "ä"], "b": None}) == '{"a":[1,"ä"],"b":null}'


def test_text_for_people_is_indented():
    assert encode_json({"a": 1}, indent=2) == '{\n  "a": 1\n}'


def test_a_lone_surrogate_is_escaped_and_comes_back():
    text = encode_json({"text": "a\ud800ä"})
    assert text.encode() == b'{"text":"a\\ud800\\u00e4"}'
    assert decode_json(text) == {"text": "a\ud800ä"}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"bytes", object()])
def test_values_that_are_not_json_are_refused(value):
    with pytest.raises((TypeError, ValueError)):
        encode_json(value)


def test_nesting_that_is_too_deep_is_refused():
    deep = []
    for _ in range(200_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deep"):
        encode_json(deep)


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"a":Infinity}', b"\xff", "[" * 200_000, "1" * 10_000])
def test_text_that_is_not_json_is_a_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011
        decode_json(text)


def test_bytes_and_text_are_read_alike():
    assert decode_json("[1]") == decode_json(b"[1]") == decode_json(bytearray(b"[1]")) == [1]


@pytest.mark.parametrize("text", ["[1]", "5", "null", '"text"'])
def test_an_object_is_an_object(text):
    assert decode_object('{"a":1}') == {"a": 1}
    with pytest.raises(ValueError, match="not a JSON object"):
        decode_object(text)


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_nesting_that_is_too_deep_is_not_read(opening):
    """Also where the parser could follow: what handles the value afterwards could not."""
    closing = {"[": "]", '{"a":': "}", '[{"a":': "}]"}[opening]
    with pytest.raises(ValueError, match="nested too deep"):
        decode_json(opening * 1000 + "1" + closing * 1000)
    with pytest.raises(ValueError, match="nested too deep"):
        decode_json(opening * 100_000)


def test_many_brackets_that_are_not_nested_are_read():
    assert decode_json("[" + "[]," * 5000 + "[]]") == [[]] * 5001
    assert decode_json('{"a":"' + "[{" * 5000 + '\\"["}') == {"a": "[{" * 5000 + '"['}
    deep = decode_json("[" * 300 + '"]"' + "]" * 300)
    for _ in range(299):
        [deep] = deep
    assert deep == ["]"]
