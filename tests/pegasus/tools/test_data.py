"""json_parse, json_stringify, base64_encode, base64_decode."""

import json

import pytest


@pytest.mark.parametrize("data", [None, True, 0, -1.5, "é\u2028", [], {"a": [1, {"b": None}]}, 10**30])
async def test_json_there_and_back(work, data):
    text = (await work("json_stringify", data=data))["text"]
    assert json.loads(text) == data
    assert (await work("json_parse", text=text))["data"] == data


async def test_json_can_be_indented(work):
    assert (await work("json_stringify", data={"a": 1}, pretty=True))["text"] == '{\n  "a": 1\n}'


@pytest.mark.parametrize("text", ["", "{", "{'a':1}", "NaN", "[1,]", "Infinity", "1 2", "\x00"])
async def test_what_is_no_json_is_said_with_its_place(work, text):
    assert "not JSON" in await work.refused("json_parse", text=text)


async def test_json_nested_without_end_is_refused(work):
    assert "nested too deep" in await work.refused("json_parse", text="[" * 100_000)


@pytest.mark.parametrize("text", ["", "a", "é🙂", "x" * 1000, "a\nb"])
async def test_base64_there_and_back(work, text):
    encoded = (await work("base64_encode", text=text))["encoded"]
    assert (await work("base64_decode", encoded=encoded))["decoded"] == text


@pytest.mark.parametrize("encoded", ["Pz8_Pj4-", "Pz8/Pj4+", "Pz8/\nPj4+ ", "aA", "aA=="])
async def test_the_url_alphabet_white_space_and_missing_padding_are_taken(work, encoded):
    assert (await work("base64_decode", encoded=encoded))["decoded"] in ("???>>>", "h")


async def test_what_is_no_base64_or_no_text_is_said(work):
    assert "not base64" in await work.refused("base64_decode", encoded="a*b")
    assert "2 bytes that are not UTF-8" in await work.refused("base64_decode", encoded="//4=")
    assert "half of a surrogate pair" in await work.refused("base64_encode", text="\ud800")
