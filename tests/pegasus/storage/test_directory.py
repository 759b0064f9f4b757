"""Where a reply goes: the rules at the top of `pegasus.storage.directory`, one by one."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.messages import Address, ChannelInfo, escape_field
from pegasus.storage.directory import Directory, own_channel, resolve
from pegasus.storage.messages import Post, Unroutable

CLI = ChannelInfo("cli", "main", "me")


def post(channel_id, channel_type=None, source=CLI, reply_to=None):
    return Post("k", "text", channel_id, source, channel_type, reply_to)


def directory(*addresses, bridges=()):
    known = Directory()
    for type, channel_id in addresses:
        known.add(Address(type, channel_id))
    for type in bridges:
        known.connected(type, None)
    return known


# ------------------------------------------------------------------ escaping


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("main", "main"),
        ("#general", "#general"),
        ("a|b", "a%7Cb"),
        ("[x]", "%5Bx%5D"),
        ("line\nbreak\r\t\x00", "linebreak"),
        ("a\u200bb\u2028c\u2029d", "abcd"),
        ("50%", "50%"),
        ("Ünïcode 日本", "Ünïcode 日本"),
        ("\ud800", ""),
    ],
)
def test_a_field_is_escaped_for_the_metadata_line(raw, shown):
    assert escape_field(raw) == shown


@given(st.text())
def test_an_escaped_field_cannot_leave_its_place_and_escapes_to_itself(text):
    shown = escape_field(text)
    assert not set(shown) & set("|[]\n\r\u2028\u2029")
    assert escape_field(shown) == shown


# ------------------------------------------------------------------ resolving


def test_a_known_id_of_the_given_type():
    known = directory(("cli", "main"), ("slack", "#general"))
    assert resolve(known, post("#general", "slack")) == ChannelInfo("slack", "#general")


def test_without_a_type_the_only_known_type_that_has_the_id_not_the_sources():
    """As when somebody asks in the terminal to have something said in Slack."""
    known = directory(("cli", "main"), ("slack", "#general"))
    assert resolve(known, post("#general")) == ChannelInfo("slack", "#general")


@given(
    st.sampled_from(["main", "a|b", "a%7Cb", "phone", ""]),
    st.sampled_from([None, "cli", "web", "sl|ck", "sl%7Cck"]),
    st.sampled_from([CLI, ChannelInfo("sl|ck", "a|b", "anna", "t")]),
    st.sampled_from([None, "t"]),
)
def test_a_reply_to_the_own_conversation_is_found_without_a_directory(channel_id, channel_type, source, reply_to):
    asked = post(channel_id, channel_type, source, reply_to)
    full = directory(("cli", "main"), ("web", "main"), ("sl|ck", "a|b"), ("cli", "phone"), bridges=("web",))
    found, own = resolve(full, asked), own_channel(asked)
    goes_home = isinstance(found, ChannelInfo) and found.address == source.address
    assert own == (found if goes_home else None)


def test_an_id_of_several_types_means_the_source_if_it_is_the_sources():
    known = directory(("cli", "main"), ("web", "main"))
    assert resolve(known, post("main")) == CLI


def test_an_id_of_several_types_that_is_not_the_sources_is_an_error_that_names_them():
    known = directory(("cli", "main"), ("web", "x"), ("slack", "x"))
    result = resolve(known, post("x"))
    assert isinstance(result, Unroutable)
    assert "slack, web" in result.reason
    assert set(result.known) == {Address("web", "x"), Address("slack", "x")}


def test_the_type_tells_apart_what_shares_an_id():
    known = directory(("cli", "main"), ("web", "x"), ("slack", "x"))
    assert resolve(known, post("x", "slack")) == ChannelInfo("slack", "x")


def test_the_source_is_known_even_if_the_directory_lost_it():
    assert resolve(directory(), post("main")) == CLI
    assert resolve(directory(), post("main", "cli")) == CLI


def test_a_reply_to_the_source_does_not_look_through_all_addresses(monkeypatch):
    """There may be 10,000, and the event loop waits."""
    known = directory(("cli", "main"), ("web", "main"))
    monkeypatch.setattr(known, "with_id", None)
    assert resolve(known, post("main")) == CLI
    assert resolve(known, post("main", "cli")) == CLI


def test_an_unknown_id_is_an_error_that_names_the_known_channels_newest_first():
    known = directory(("cli", "main"), ("slack", "#general"))
    result = resolve(known, post("#nowhere"))
    assert result == Unroutable(result.reason, (Address("slack", "#general"), Address("cli", "main")))
    assert "#nowhere" in result.reason


def test_at_most_twenty_are_named():
    known = directory(*(("web", f"c{n}") for n in range(50)))
    assert resolve(known, post("nobody")).known == tuple(Address("web", f"c{n}") for n in range(49, 29, -1))


def test_a_new_id_is_passed_on_where_a_bridge_serves_the_given_type():
    known = directory(("cli", "main"), bridges=["sms"])
    assert resolve(known, post("+4912345", "sms")) == ChannelInfo("sms", "+4912345")


def test_a_new_id_without_type_is_an_error_even_if_a_bridge_is_there():
    assert isinstance(resolve(directory(bridges=["sms"]), post("+4912345")), Unroutable)


def test_a_new_id_without_type_goes_to_the_sources_type_if_a_bridge_serves_it():
    source = ChannelInfo("slack", "#general", "U1", "thread:1")
    known = directory(("slack", "#general"), bridges=["slack"])
    assert resolve(known, post("@zhangsan", source=source)) == ChannelInfo("slack", "@zhangsan")


def test_a_new_id_without_type_is_an_error_if_nobody_serves_the_sources_type():
    known = directory(("slack", "#general"), ("web", "c1"), bridges=["sms"])
    assert isinstance(resolve(known, post("@zhangsan", source=ChannelInfo("slack", "#general"))), Unroutable)


def test_a_new_id_of_a_type_that_nobody_serves_is_an_error():
    result = resolve(directory(("cli", "main")), post("+4912345", "sms"))
    assert isinstance(result, Unroutable)
    assert "sms" in result.reason


def test_a_bridge_that_left_serves_nobody():
    known = directory(bridges=["sms", "sms"])
    known.disconnected("sms", None)
    assert isinstance(resolve(known, post("+49", "sms")), ChannelInfo)
    known.disconnected("sms", None)
    assert isinstance(resolve(known, post("+49", "sms")), Unroutable)
    known.disconnected("sms", None)


@pytest.mark.parametrize("given", ["cli", "web", "telegram"])
def test_a_type_that_was_given_is_never_left_for_another_one(given):
    """The address of that id may be a stranger's."""
    known = directory(("cli", "main"), ("slack", "#weather"))
    result = resolve(known, post("#weather", given))
    assert result == Unroutable(result.reason, (Address("slack", "#weather"), Address("cli", "main")))
    assert given in result.reason


def test_a_given_type_that_is_served_gets_the_id_as_a_new_one_of_its_own():
    known = directory(("cli", "main"), ("web", "x"), bridges=["sms"])
    assert resolve(known, post("x", "sms")) == ChannelInfo("sms", "x")


@pytest.mark.parametrize("type", ["cli", "web", "api"])
def test_nobody_new_is_found_from_a_terminal_a_page_or_an_http_client(type):
    known = directory(bridges=[type])
    assert isinstance(resolve(known, post("somebody", source=ChannelInfo(type, "main"))), Unroutable)


def test_a_post_that_was_routed_is_not_looked_up_again():
    known = directory(("cli", "main"), ("web", "x"))
    routed = attrs.evolve(post("x"), to=ChannelInfo("slack", "#general"))
    assert resolve(known, routed) == ChannelInfo("slack", "#general")


def test_a_missing_id_is_an_error():
    assert resolve(directory(("cli", "main")), post("")).reason == "channelId is missing"


def test_a_connected_client_is_known_while_it_is_there():
    known = directory()
    known.connected("web", "c1")
    known.connected("web", "c1")
    known.disconnected("web", "c1")
    assert resolve(known, post("c1")) == ChannelInfo("web", "c1")
    known.disconnected("web", "c1")
    assert isinstance(resolve(known, post("c1")), Unroutable)


def test_the_id_as_the_metadata_line_shows_it_finds_the_real_one():
    known = directory(("web", "a|[b]\n"))
    assert resolve(known, post("a%7C%5Bb%5D")) == ChannelInfo("web", "a|[b]\n")


def test_the_type_as_the_metadata_line_shows_it_finds_the_real_one():
    known = directory(("we|b", "c"))
    assert resolve(known, post("c", "we%7Cb")) == ChannelInfo("we|b", "c")


def test_of_two_ids_that_look_alike_the_sources_is_meant():
    source = ChannelInfo("web", "a|b")
    known = directory(("web", "a%7Cb"), ("web", "a|b"))
    assert resolve(known, post("a%7Cb", source=source)) == source


def test_of_two_ids_that_look_alike_the_exact_one_is_meant_if_none_is_the_sources():
    known = directory(("web", "a|b"), ("web", "a%7Cb"))
    assert resolve(known, post("a%7Cb")) == ChannelInfo("web", "a%7Cb")


# ------------------------------------------------------------------ user and thread


def test_the_user_is_kept_only_on_the_sources_address():
    known = directory(("cli", "main"), ("slack", "#general"))
    assert resolve(known, post("main")).user_id == "me"
    assert resolve(known, post("#general")).user_id is None


def test_the_thread_is_the_one_that_was_given():
    source = ChannelInfo("slack", "#a", "u", "thread:1")
    assert resolve(directory(), post("#a", source=source)).reply_to is None
    assert resolve(directory(), post("#a", source=source, reply_to="thread:2")).reply_to == "thread:2"


def test_the_sources_thread_as_the_metadata_line_shows_it_is_the_real_one():
    source = ChannelInfo("slack", "#a", None, "t|1")
    assert resolve(directory(), post("#a", source=source, reply_to="t%7C1")).reply_to == "t|1"


# ------------------------------------------------------------------ the directory


def test_only_the_newest_addresses_are_kept():
    known = Directory(limit=3)
    for channel_id in ("a", "b", "c", "a", "d"):
        known.add(Address("web", channel_id))
    assert [address.channel_id for address in known] == ["c", "a", "d"]
    assert known.with_id("b") == []


def test_an_address_that_was_forgotten_stays_known_while_connected():
    known = Directory(limit=1)
    known.connected("web", "a")
    known.add(Address("web", "a"))
    known.add(Address("web", "b"))
    assert known.with_id("a") == [Address("web", "a")]
    known.disconnected("web", "a")
    assert known.with_id("a") == []


def test_seeing_an_address_again_is_no_news():
    known = Directory()
    assert known.add(Address("web", "a"))
    assert not known.add(Address("web", "a"))
