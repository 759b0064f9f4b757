"""Which replies leave a conversation, so that the policy decides about them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pegasus.access import GROUP, principal_of
from pegasus.main_agent.reply_decisions import labels_of_reply
from pegasus.messages import Address, ChannelInfo, InboundMessage
from pegasus.outside import Untrusted
from pegasus.schedule import PLACED
from pegasus.settings import AgentSettings, LiveValue

OWNERS = ("cli:*", "web:*", "telegram:1", "slack:ann")
GUESTS = (Address("web", "g"),)
WEB = (Untrusted.WEB,)
TERMINAL = ChannelInfo("cli", "main")
CHAT = ChannelInfo("telegram", "1", "1")
EVE = ChannelInfo("telegram", "2", "2")
ROOM = ChannelInfo("slack", "C1", "ann")


def labels(target, source, outside=WEB, *, has_files=False, **metadata):
    """The labels that count for a reply to `target` in answer to a message from `source`."""
    services = SimpleNamespace(config=LiveValue(AgentSettings(owners=OWNERS)), is_from_guest=GUESTS.__contains__)
    message = InboundMessage("x", source, "m", metadata)
    principal = principal_of(source, OWNERS)
    return labels_of_reply(services, target, message, principal, outside, has_files=has_files)


@pytest.mark.parametrize(
    ("target", "source"),
    [
        (TERMINAL, TERMINAL),
        (ChannelInfo("telegram", "1"), TERMINAL),
        (ChannelInfo("web", "me"), TERMINAL),
        (ChannelInfo("cli", "main"), EVE),
        (EVE, EVE),
        (ROOM, ROOM),
    ],
)
def test_a_reply_to_an_owner_or_back_to_where_the_message_came_from_does_not_leave(target, source):
    assert labels(target, source) == ()


@pytest.mark.parametrize(
    ("target", "source"),
    [
        (ChannelInfo("telegram", "2"), TERMINAL),
        (ChannelInfo("web", "g"), TERMINAL),
        (ChannelInfo("slack", "C1"), TERMINAL),
        (ChannelInfo("slack", "@ann"), ROOM),
        (ChannelInfo("telegram", "3"), EVE),
    ],
)
def test_any_other_leaves_whoever_has_written(target, source):
    assert labels(target, source) == WEB
    assert labels(target, source, has_files=True) == WEB
    assert labels(target, source, ()) == ()


def test_files_leave_where_others_read_along():
    assert labels(ROOM, ROOM, has_files=True) == WEB
    assert labels(CHAT, CHAT, has_files=True) == ()
    assert labels(CHAT, CHAT, has_files=True, **{GROUP: True}) == WEB


def test_a_guest_who_is_answered_in_the_own_conversation_has_asked_for_the_file():
    assert labels(EVE, EVE, (Untrusted.GUEST, Untrusted.WEB), has_files=True) == WEB
    assert labels(EVE, EVE, (Untrusted.GUEST,), has_files=True) == ()


def test_a_job_that_text_from_outside_may_have_placed_leaves_where_it_speaks():
    assert labels(EVE, EVE, **{PLACED: True}) == WEB
    assert labels(TERMINAL, TERMINAL, **{PLACED: True}) == ()
