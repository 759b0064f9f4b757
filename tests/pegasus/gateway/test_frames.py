import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pegasus.gateway.reply_feed import known_seqs
from pegasus.gateway.requests import read_frame, read_hello
from pegasus.intake import InvalidMessage, check_message
from pegasus.messages import Address, ChannelInfo, InboundMessage, Media, ReplyDraft
from pegasus.protocol import BadFrame, CallFrame, ClientChannel, HelloFrame, encode_frame
from pegasus.storage import Acknowledge
from pegasus.wire import to_wire

CLIENT = ClientChannel("web", "c1", user_id="u1")
BRIDGE = ClientChannel("irc")
MESSAGE = {"type": "message", "id": "m-1", "text": "hi"}
HELLO = {"type": "hello", "token": "t", "channel": {"type": "web", "channelId": "c1"}}


def test_half_a_surrogate_pair_of_a_draft_is_replaced():
    frame = json.loads(encode_frame(ReplyDraft(ChannelInfo("web", "c1"), "a\ud83d", "b\ud83d")))
    assert (frame["text"], frame["reasoning"]) == ("a?", "b?")


def test_a_draft_without_reasoning_does_not_name_it():
    assert "reasoning" not in encode_frame(ReplyDraft(ChannelInfo("web", "c1"), ""))


def understand(text, own=CLIENT):
    """What the gateway hands on: messages have passed the intake's checks, too."""
    value = read_frame(text, own)
    if isinstance(value, InboundMessage):
        try:
            check_message(value)
        except InvalidMessage as error:
            raise BadFrame("bad_frame", f"message.{error}") from None
    return value


def refused(frame, own=CLIENT):
    with pytest.raises(BadFrame) as caught:
        understand(frame if isinstance(frame, str) else json.dumps(frame), own)
    return caught.value


def refused_hello(frame):
    with pytest.raises(BadFrame) as caught:
        read_hello(frame if isinstance(frame, str) else json.dumps(frame))
    return caught.value


# ------------------------------------------------------------------ what is understood


def test_a_message_is_from_the_channel_of_hello():
    assert read_frame(json.dumps(MESSAGE), CLIENT) == InboundMessage("hi", CLIENT.info, "m-1")


def test_a_message_may_name_a_thread_and_another_user_of_its_own_channel():
    frame = MESSAGE | {"channel": {"type": "web", "channelId": "c1", "userId": "u2", "replyTo": "t9"}}
    assert read_frame(json.dumps(frame), CLIENT).channel == ChannelInfo("web", "c1", "u2", "t9")


def test_a_message_that_names_its_channel_without_user_keeps_the_user_of_hello():
    frame = MESSAGE | {"channel": {"type": "web", "channelId": "c1"}}
    assert read_frame(json.dumps(frame), CLIENT).channel.user_id == "u1"


def test_metadata_and_media_come_along():
    frame = MESSAGE | {"metadata": {"a": [1, {"b": None}]}, "media": [{"name": "n", "mime": "m/x", "data": "aGk="}]}
    message = read_frame(json.dumps(frame), CLIENT)
    assert (message.metadata, message.media) == ({"a": [1, {"b": None}]}, (Media("n", "m/x", "aGk="),))


def test_null_is_the_same_as_absent_for_what_is_optional():
    frame = MESSAGE | {"channel": None, "metadata": None, "media": None}
    assert read_frame(json.dumps(frame), CLIENT) == InboundMessage("hi", CLIENT.info, "m-1")


def test_unknown_fields_are_ignored():
    assert read_frame(json.dumps(MESSAGE | {"later": 1}), CLIENT).text == "hi"


def test_a_bridge_names_the_channel_of_each_message():
    frame = MESSAGE | {"channel": {"type": "irc", "channelId": "#a", "userId": "joe"}}
    assert read_frame(json.dumps(frame), BRIDGE).channel == ChannelInfo("irc", "#a", "joe")


def test_ack_is_for_the_own_address():
    assert read_frame('{"type":"ack","seq":3}', CLIENT) == Acknowledge(Address("web", "c1"), 3)


def test_ack_of_a_bridge_names_the_address():
    frame = {"type": "ack", "seq": 3, "channel": {"type": "irc", "channelId": "#a"}}
    assert read_frame(json.dumps(frame), BRIDGE) == Acknowledge(Address("irc", "#a"), 3)


def test_a_call_has_no_params_unless_it_gives_some():
    assert read_frame('{"type":"call","id":"7","method":"tree"}', CLIENT) == CallFrame("7", "tree", {})


def test_hello_of_a_client():
    frame = HELLO | {"lastSeq": 7}
    hello = read_hello(json.dumps(frame))
    assert hello == HelloFrame(ClientChannel("web", "c1"), "t", 7)
    assert known_seqs(hello) == {"c1": 7}


def test_hello_of_a_bridge():
    frame = {"type": "hello", "channel": {"type": "irc"}, "lastSeqs": {"#a": 2, "#b": 0}}
    hello = read_hello(json.dumps(frame))
    assert hello == HelloFrame(ClientChannel("irc"), last_seqs={"#a": 2, "#b": 0})
    assert known_seqs(hello) == {"#a": 2, "#b": 0}


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ("", "no JSON"),
        ("nonsense", "no JSON"),
        ("[1]", "a list"),
        ('"text"', '"text"'),
        ("5", "the number 5"),
        ("null", "null"),
        ('{"type":"message","id":"m","text":NaN}', "NaN"),
        ('{"type":"message","id":"m","text":"x","metadata":{"n":-Infinity}}', "-Infinity"),
        ('{"type":"message","id":"m","text":"x","metadata":{"n":1e999}}', "beyond all floats"),
        ('{"type":"message","id":"m","text":"x","metadata":{"n":' + "9" * 30 + "}}", "64 bits"),
        ('{"type":"message","id":"m","text":"x","metadata":{"n":' + "9" * 5000 + "}}", "no JSON"),
        ("[" * 100_000, "deep"),
        ('{"a":' * 100_000, "deep"),
        ('{"type":"message","id":"m","text":"x","metadata":' + '{"a":' * 40 + "1" + "}" * 40 + "}", "32 levels"),
        ('{"type":"message","id":"m","text":"\\ud800"}', "surrogate"),
        ('{"type":"message","id":"m","text":"x","metadata":{"\\udfff":1}}', "surrogate"),
        (
            MESSAGE | {"channel": {"type": "web", "channelId": "\ud800"}},
            "message.channel.channelId: found half a surrogate",
        ),
        ({}, "type: found null"),
        ({"type": 5}, "type: found the number 5"),
        ({"type": ["message"]}, "type: found a list"),
        (MESSAGE | {"id": 5}, "message.id: found the number 5, allowed: a string"),
        (MESSAGE | {"id": ""}, 'message.id: found ""'),
        (MESSAGE | {"id": "x" * 257}, "message.id: found"),
        (MESSAGE | {"id": "a\nb"}, "control characters"),
        (MESSAGE | {"id": "\ud800"}, "message.id"),
        (MESSAGE | {"text": None}, "message.text: missing"),
        (MESSAGE | {"text": ["hi"]}, "message.text: found a list, allowed: a string"),
        (MESSAGE | {"channel": "web"}, 'message.channel: found "web", allowed: an object'),
        (MESSAGE | {"channel": {"type": "web"}}, "message.channel.channelId: missing"),
        (MESSAGE | {"channel": {"type": "web", "channelId": "c2"}}, 'found "web:c2", allowed: "web:c1"'),
        (MESSAGE | {"channel": {"type": "web", "channelId": "c1", "userId": True}}, "userId: found true"),
        (MESSAGE | {"metadata": []}, "message.metadata: found a list, allowed: an object"),
        (MESSAGE | {"media": {}}, "message.media: found an object, allowed: a list"),
        (MESSAGE | {"media": [1]}, "message.media[0]: found the number 1"),
        (MESSAGE | {"media": [{"name": "n", "mime": "m", "data": "%%"}]}, 'message.media[0].data: found "%%"'),
        (MESSAGE | {"media": [{"name": "n", "mime": "m"}]}, "message.media[0].data: missing"),
        ({"type": "ack"}, "ack.seq: missing"),
        ({"type": "ack", "seq": True}, "ack.seq: found true"),
        ({"type": "ack", "seq": 1.0}, "ack.seq: found the number 1.0"),
        ({"type": "ack", "seq": -1}, "ack.seq: found the number -1"),
        ({"type": "ack", "seq": 10**40}, "ack.seq: found the number 1000"),
        ({"type": "call", "id": "7"}, "call.method: missing"),
        ({"type": "call", "id": "7", "method": "m", "params": [1]}, "call.params: found a list"),
        (HELLO, "hello was said already"),
    ],
)
def test_the_error_of_a_bad_frame_says_what_was_found_and_what_is_allowed(frame, words):
    error = refused(frame)
    assert error.code == "bad_frame"
    assert words in error.message


def test_the_error_of_an_unknown_type_lists_the_known_ones():
    error = refused({"type": "massage", "id": "m-1"})
    assert (error.code, error.id) == ("unknown_type", "m-1")
    assert error.message == 'type: found "massage", allowed: message, ack, call'


def test_the_id_is_given_back_when_it_could_be_read():
    assert refused(MESSAGE | {"text": 5}).id == "m-1"


@pytest.mark.parametrize("id", [5, "", "a\x00b", ["m"], "\ud800", "x" * 300])
def test_an_id_that_is_none_is_not_given_back(id):
    assert refused(MESSAGE | {"id": id}).id is None


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (MESSAGE, "message.channel: missing"),
        (
            MESSAGE | {"channel": {"type": "web", "channelId": "#a"}},
            'message.channel.type: found "web", allowed: "irc"',
        ),
        ({"type": "ack", "seq": 1}, "ack.channel: missing"),
        ({"type": "ack", "seq": 1, "channel": {"type": "web", "channelId": "c"}}, 'found "web", allowed: "irc"'),
    ],
)
def test_a_bridge_must_name_a_channel_of_its_own_type(frame, words):
    assert words in refused(frame, BRIDGE).message


@pytest.mark.parametrize("frame", ["", "{}", "[]", '{"type":"message"}', '{"type":7}', '{"type":"hello"', "[" * 9999])
def test_a_first_frame_that_is_no_hello_is_unauthorized(frame):
    assert refused_hello(frame).code == "unauthorized"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"channel": None}, "hello.channel: missing"),
        ({"channel": []}, "hello.channel: found a list"),
        ({"channel": {}}, "hello.channel.type: missing"),
        ({"channel": {"type": "a\tb"}}, "hello.channel.type"),
        ({"channel": {"type": "a:b"}}, 'hello.channel.type: found "a:b", allowed: a name without a colon'),
        ({"channel": {"type": "web", "channelId": 5}}, "hello.channel.channelId"),
        ({"channel": {"type": "web", "channelId": "c", "replyTo": {}}}, "hello.channel.replyTo"),
        ({"token": 5}, "hello.token"),
        ({"lastSeq": "7"}, "hello.lastSeq"),
        ({"lastSeq": -1}, "hello.lastSeq"),
        ({"lastSeq": True}, "hello.lastSeq"),
        ({"channel": {"type": "web"}, "lastSeqs": [1]}, "hello.lastSeqs"),
        ({"channel": {"type": "web"}, "lastSeqs": {"a": None}}, 'hello.lastSeqs["a"]'),
        ({"channel": {"type": "web"}, "lastSeqs": {"": 1}}, 'hello.lastSeqs: found the channelId ""'),
    ],
)
def test_a_hello_with_a_bad_field_is_a_bad_frame(change, words):
    error = refused_hello(HELLO | change)
    assert error.code == "bad_frame"
    assert words in error.message


# ------------------------------------------------------------------ whatever comes

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.sampled_from(["message", "ack", "call", "hello", "web", "irc", "c1"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["type", "id", "text", "channel", "channelId", "userId", "seq", "metadata", "media", "params"]
            )
            | st.text(st.characters(), max_size=5),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)
frames = anything.map(json.dumps) | st.text(max_size=60)
shaped = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "ack", "call", "hello"])},
    optional=dict.fromkeys(
        ("id", "text", "channel", "metadata", "media", "seq", "method", "params", "token", "lastSeq"), anything
    ),
).map(json.dumps)


def read(reader, *arguments):
    """The value, or the BadFrame itself; anything else is raised."""
    try:
        return reader(*arguments)
    except BadFrame as error:
        return error


@given(frames | shaped, st.sampled_from([CLIENT, BRIDGE]))
@example('{"type":"message","id":"\\udc00","text":""}', CLIENT)
def test_any_text_gives_a_value_that_can_be_stored_or_a_frame_error_that_can_be_sent(text, hello):
    value = read(understand, text, hello)
    if isinstance(value, BadFrame):
        assert value.code in ("bad_frame", "unknown_type")
        assert len(value.message) < 500
        value.message.encode()
        (value.id or "").encode()
    elif isinstance(value, InboundMessage):
        json.dumps(to_wire(value), allow_nan=False, ensure_ascii=False).encode()


@given(frames | shaped)
def test_any_first_text_gives_a_hello_or_a_frame_error(text):
    value = read(read_hello, text)
    if isinstance(value, BadFrame):
        assert value.code in ("bad_frame", "unauthorized")
        value.message.encode()
    else:
        assert value.channel.type
