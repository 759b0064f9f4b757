"""Whose rights work has."""

import pytest

from pegasus.access import DOOR, NOBODY, ROLE, Principal, Role, is_owner, principal_of, with_role
from pegasus.messages import ChannelInfo, InboundMessage

ANN = ChannelInfo("telegram", "chat-7", "u1")


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        ([], False),
        (["telegram"], True),
        (["telegram:*"], True),
        (["telegram:chat-7"], True),
        (["telegram:u1"], True),
        (["cli", "telegram:u1"], True),
        (["telegram:u2"], False),
        (["slack:u1"], False),
        (["slack:*"], False),
        (["u1"], False),
        (["Telegram"], False),
    ],
)
def test_owners_are_named_by_type_space_or_user(owners, expected):
    assert is_owner(ANN, owners) is expected


def test_an_entry_about_a_user_says_nothing_about_those_without_a_name():
    assert not is_owner(ChannelInfo("telegram", "chat-8"), ["telegram:u1"])


def test_a_channel_type_cannot_be_made_to_look_like_an_owner():
    assert not is_owner(ChannelInfo("telegram:u1", "x"), ["telegram:u1"])


def test_an_id_with_a_colon_can_be_named():
    assert is_owner(ChannelInfo("web", "room:7"), ["web:room:7"])


@pytest.mark.parametrize(
    ("owners", "recorded", "role"),
    [
        (["telegram:u1"], {}, Role.OWNER),
        (["telegram:u1"], {ROLE: "owner"}, Role.OWNER),
        (["telegram:u1"], {ROLE: "guest"}, Role.GUEST),
        (["telegram:u1"], {ROLE: "root"}, Role.GUEST),
        (["telegram:u1"], {ROLE: None}, Role.GUEST),
        ([], {ROLE: "owner"}, Role.GUEST),
        (["telegram:u2"], {ROLE: "owner"}, Role.GUEST),
    ],
)
def test_what_is_recorded_can_only_take_rights_away(owners, recorded, role):
    assert principal_of(ANN, owners, recorded) == Principal(role, ANN)


def test_work_that_nobody_has_asked_for_has_no_rights_of_an_owner():
    assert principal_of(None, ["cli:*"], {ROLE: "owner"}) == NOBODY
    assert not NOBODY.is_owner


@pytest.mark.parametrize("is_own_door", [True, False])
def test_what_a_sender_claims_about_themselves_is_dropped(is_own_door):
    claims = {ROLE: "owner", "account": "other", "apart": "no", DOOR: "mine", "mood": "good"}
    message = with_role(InboundMessage("hello", ANN, "m-1", claims), None, is_own_door=is_own_door)
    assert message.metadata == {"mood": "good"} | ({} if is_own_door else {DOOR: "bridge"})
