"""The converter: camelCase on the wire, nothing coerced, and errors that name the field."""

from __future__ import annotations

import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.messages import Address, ChannelInfo, InboundMessage, Media, OutboundMessage
from pegasus.wire import WireError, camel, from_wire, to_wire, use_functions, writable_object

CHANNEL = {"type": "web", "channelId": "c1"}


@attrs.frozen
class Sample:
    name: str
    count: int = 1
    ratio: float = 0.5
    enabled: bool = False
    dotted_keys: tuple[str, ...] = ()


texts = st.text(max_size=20)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts
)
metadata = st.dictionaries(
    texts, st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=5)
)
channels = st.builds(ChannelInfo, texts, texts, st.none() | texts, st.none() | texts)
media = st.lists(st.builds(Media, texts, texts, texts), max_size=3).map(tuple)
inbound = st.builds(InboundMessage, texts, channels, texts, metadata, media)


@given(inbound)
def test_a_message_survives_the_way_over_the_wire(message):
    assert from_wire(json.loads(json.dumps(to_wire(message))), InboundMessage) == message


def test_names_are_camel_case_and_defaults_are_absent():
    message = OutboundMessage("hi", ChannelInfo("slack", "#a", reply_to="thread:1"), 3)
    assert to_wire(message) == {
        "text": "hi",
        "channel": {"type": "slack", "channelId": "#a", "replyTo": "thread:1"},
        "seq": 3,
    }


def test_what_is_not_default_is_present():
    message = InboundMessage(
        "hi", ChannelInfo("web", "c1", "u1"), "m-1", {"k": [1]}, (Media("a.png", "image/png", "AA=="),)
    )
    assert to_wire(message) == {
        "text": "hi",
        "id": "m-1",
        "channel": {"type": "web", "channelId": "c1", "userId": "u1"},
        "metadata": {"k": [1]},
        "media": [{"name": "a.png", "mime": "image/png", "data": "AA=="}],
    }


def test_required_fields_are_present_even_when_empty():
    assert to_wire(Address("", "")) == {"type": "", "channelId": ""}


def test_unknown_keys_are_ignored():
    assert from_wire({"type": "web", "channelId": "c1", "later": 1}, ChannelInfo) == ChannelInfo("web", "c1")


def test_null_is_allowed_only_where_the_field_may_be_absent():
    assert from_wire({**CHANNEL, "userId": None}, ChannelInfo) == ChannelInfo("web", "c1")
    with pytest.raises(WireError, match=r"^channelId: found null, allowed: a string$"):
        from_wire({"type": "web", "channelId": None}, ChannelInfo)


@pytest.mark.parametrize(
    ("wire", "path", "problem"),
    [
        ([], "", "found a list, allowed: an object"),
        (None, "", "found null, allowed: an object"),
        ("text", "", 'found "text", allowed: an object'),
        ({"id": "1", "channel": CHANNEL}, "text", "missing; this field is required"),
        ({"text": 5, "id": "1", "channel": CHANNEL}, "text", "found the number 5, allowed: a string"),
        ({"text": "", "id": "1", "channel": 5}, "channel", "found the number 5, allowed: an object"),
        ({"text": "", "id": "1", "channel": {"type": "web"}}, "channel.channelId", "missing; this field is required"),
        (
            {"text": "", "id": "1", "channel": {**CHANNEL, "replyTo": []}},
            "channel.replyTo",
            "found a list, allowed: a string",
        ),
        ({"text": "", "id": "1", "channel": CHANNEL, "metadata": []}, "metadata", "found a list, allowed: an object"),
        (
            {"text": "", "id": "1", "channel": CHANNEL, "metadata": {"a": float("nan")}},
            "metadata",
            "found NaN, Infinity or a number too large for a float, allowed: finite numbers",
        ),
        ({"text": "", "id": "1", "channel": CHANNEL, "media": "abc"}, "media", 'found "abc", allowed: a list'),
        ({"text": "", "id": "1", "channel": CHANNEL, "media": {}}, "media", "found an object, allowed: a list"),
        ({"text": "", "id": "1", "channel": CHANNEL, "media": ["x"]}, "media[0]", 'found "x", allowed: an object'),
        (
            {
                "text": "",
                "id": "1",
                "channel": CHANNEL,
                "media": [{"name": "", "mime": "", "data": ""}, {"name": "", "mime": True, "data": ""}],
            },
            "media[1].mime",
            "found true, allowed: a string",
        ),
    ],
)
def test_an_error_names_the_path_and_what_was_found(wire, path, problem):
    with pytest.raises(WireError) as caught:
        from_wire(wire, InboundMessage)
    assert (caught.value.path, caught.value.problem) == (path, problem)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("count", True),
        ("count", "1"),
        ("count", 1.0),
        ("ratio", "0.5"),
        ("ratio", True),
        ("enabled", 1),
        ("name", 1),
        ("dottedKeys", [1]),
    ],
)
def test_nothing_is_coerced(field, value):
    with pytest.raises(WireError):
        from_wire({"name": "x", field: value}, Sample)


def test_a_whole_number_is_a_number():
    assert from_wire({"name": "x", "ratio": 2}, Sample).ratio == 2


def test_metadata_that_nests_without_end_is_refused():
    deep = json.loads('{"a":' * 500 + "1" + "}" * 500)
    with pytest.raises(WireError, match="metadata: nested deeper"):
        from_wire({"text": "", "id": "1", "channel": CHANNEL, "metadata": deep}, InboundMessage)


def test_huge_values_do_not_enter_the_error():
    with pytest.raises(WireError) as caught:
        from_wire({"text": ["x" * 100_000], "id": "1", "channel": CHANNEL}, InboundMessage)
    assert len(str(caught.value)) < 100


def test_camel():
    assert [camel(name) for name in ("text", "channel_id", "last_seq_no")] == ["text", "channelId", "lastSeqNo"]


@attrs.frozen
class Celsius:
    """A value whose JSON is written by functions, as text with its unit."""

    degrees: int


@attrs.frozen
class Weather:
    place: str
    days: tuple[Celsius, ...] = ()


def test_a_class_with_functions_is_converted_by_them_wherever_it_stands():
    def read(value: object) -> Celsius:
        if not isinstance(value, dict) or value.get("unit") != "C":
            raise ValueError("a temperature in C is wanted")
        return Celsius(int(value["is"]))

    use_functions(Celsius, lambda value: {"is": str(value.degrees), "unit": "C"}, read)
    weather = Weather("Kiel", (Celsius(7), Celsius(9)))
    wire = {"place": "Kiel", "days": [{"is": "7", "unit": "C"}, {"is": "9", "unit": "C"}]}
    assert to_wire(weather) == wire
    assert from_wire(wire, Weather) == weather
    with pytest.raises(WireError) as caught:
        from_wire({"place": "Kiel", "days": [{"is": "7", "unit": "C"}, {"is": "280", "unit": "K"}]}, Weather)
    assert str(caught.value) == "days[1]: a temperature in C is wanted"


def test_what_json_cannot_hold_is_replaced():
    deep = []
    deep.append(deep)
    found = writable_object({"a": (float("nan"), b"x", {7: True})} | {"b": deep}, levels=2)
    assert found == {"a": [None, "b'x'", {"7": True}], "b": [["(nested too deep)"]]}


ITEMS_READ = []


@attrs.frozen
class Item:
    n: int = attrs.field(validator=lambda _, __, value: ITEMS_READ.append(value))


@attrs.frozen
class Box:
    items: tuple[Item, ...]


def test_the_first_item_that_does_not_fit_ends_the_reading():
    ITEMS_READ.clear()
    wrong = [{"n": 1}, {"n": "two"}, *[{"n": 3}] * 1000, {"n": "four"}]
    with pytest.raises(WireError, match=r'items\[1\]\.n: found "two"'):
        from_wire({"items": wrong}, Box)
    assert ITEMS_READ == [1]


def test_a_stranger_sends_no_list_that_takes_seconds_to_read():
    ITEMS_READ.clear()
    with pytest.raises(WireError, match="items: found a list of 10,001, allowed: 10,000 items"):
        from_wire({"items": [{"n": 1}] * 10_001}, Box, is_foreign=True)
    assert ITEMS_READ == []
    assert len(from_wire({"items": [{"n": 1}] * 10_001}, Box).items) == 10_001
