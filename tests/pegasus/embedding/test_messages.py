"""Messages of the library: their shape, and the mapping to those of the product, which loses nothing either way."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.embedding import InboundMessage, OutboundMessage, attachment, content_of, session_key
from pegasus.messages import Address, ChannelInfo, Media, StoredFile
from pegasus.messages import InboundMessage as CoreInbound
from pegasus.messages import OutboundMessage as CoreOutbound

names = st.text(min_size=1, max_size=8)
json = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=4)
metadata = st.dictionaries(st.sampled_from(["timestamp", "title", "replyTo", "é"]) | names, json, max_size=3)
media = st.builds(Media, names, names, names)
channels = st.builds(ChannelInfo, names, names, st.none() | names, st.none() | names)
inbound = st.builds(CoreInbound, st.text(), channels, names, metadata, st.lists(media, max_size=2).map(tuple))
files = st.builds(StoredFile, names, names, names, st.integers(min_value=0))
outbound = st.builds(
    CoreOutbound,
    st.text(),
    channels,
    st.integers(min_value=1),
    metadata,
    st.lists(media, max_size=2).map(tuple),
    st.lists(files, max_size=2).map(tuple),
)


@given(inbound)
def test_a_message_of_the_product_survives_the_way_there_and_back(message):
    assert InboundMessage.from_core(message).to_core() == message


@given(inbound)
def test_a_message_of_the_library_survives_the_way_there_and_back(message):
    ours = InboundMessage.from_core(message)
    assert InboundMessage.from_core(ours.to_core()) == ours


@given(outbound)
def test_a_reply_survives_the_way_there_and_back(reply):
    ours = OutboundMessage.from_core(reply)
    assert ours.to_core() == reply
    assert OutboundMessage.from_core(ours.to_core()) == ours


def test_each_field_has_its_place():
    message = InboundMessage(
        "telegram", "u1", "c1", "Hello", timestamp=1_772_020_800_000, metadata={"title": "x"}, id="m1", reply_to="t1"
    )
    assert message.to_core() == CoreInbound(
        "Hello",
        ChannelInfo("telegram", "c1", "u1", "t1"),
        "m1",
        {"title": "x", "timestamp": 1_772_020_800_000},
    )
    assert InboundMessage("cli", "", "main", "Hello").to_core().channel.user_id is None


def test_the_time_has_a_field_and_no_key():
    with pytest.raises(ValueError, match='found the key "timestamp"'):
        InboundMessage("cli", "me", "main", "Hello", metadata={"timestamp": 1})


def test_a_message_without_id_gets_one_of_its_own():
    first, second = (InboundMessage("cli", "me", "main", "Hello") for _ in range(2))
    assert first.id != second.id


@pytest.mark.parametrize("channel", ["cli", "slack"])
def test_the_session_key_names_channel_and_chat(channel):
    message = InboundMessage(channel, "me", "a:b", "Hello")
    assert session_key(message) == message.session_key == f"{channel}:a:b"
    assert str(Address(channel, "a:b")) == OutboundMessage(channel, "a:b", "Hi").session_key


def test_a_file_becomes_an_attachment_by_its_content(tmp_path):
    path = tmp_path / "photo.txt"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    media = attachment(path)
    assert (media.name, media.mime, content_of(media)) == ("photo.txt", "image/png", path.read_bytes())


def test_messages_cannot_be_changed():
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        InboundMessage("cli", "me", "main", "Hello").content = "Bye"
