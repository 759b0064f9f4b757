"""Who may write, and whose messages go first: the owner, other people, tasks, schedules."""

from __future__ import annotations

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors import Child, open_supervisor
from pegasus.access import Access, AccessDenied, ChannelRules, is_owner, rules_of
from pegasus.intake import GuestLimits, Priority, TooManyMessages
from pegasus.intake.limits import SenderRates
from pegasus.main_agent import forward_notifications
from pegasus.messages import ChannelInfo
from pegasus.settings import LiveValue, Settings
from pegasus.storage import Accept, Accepted
from pegasus.tasks import Notification, Notify

CLI = ChannelInfo("cli", "main")
ANN = ChannelInfo("telegram", "chat-7", "u1")


def permits(access, channel):
    try:
        access.check_rules(channel)
    except AccessDenied:
        return False
    return True


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [([], True), (["u1"], True), (["chat-7"], True), (["u2"], False), (["web"], False)],
)
def test_allow_from_names_users_or_spaces_and_empty_is_everybody(allowed, expected):
    assert permits(Access({"web": rules_of("web", "", allowed, "all")}), attrs.evolve(ANN, type="web")) is expected


def test_another_channels_list_does_not_count():
    assert permits(Access({"slack": ChannelRules("allow_list", ["u2"])}), ANN)


def test_the_setting_that_refuses_a_sender_is_named():
    with pytest.raises(AccessDenied, match=r"channels\.telegram\.allow_from"):
        Access({"telegram": ChannelRules("allow_list", ["u2"])}).check_rules(ANN)


@pytest.mark.parametrize(
    ("groups", "heard"), [("all", (True, True)), ("mention", (True, False)), ("off", (False, False))]
)
@pytest.mark.parametrize("channel", [ChannelInfo("telegram", "-1001", "u1"), ChannelInfo("slack", "C0123", "u1")])
def test_of_a_group_is_heard_what_the_settings_say(channel, groups, heard):
    """Also of somebody who is known. A conversation of two is none, whatever its messages say about being meant."""
    access = Access({channel.type: ChannelRules("allow_list", frozenset({"u1"}), groups)})

    def is_heard(where, **metadata):
        try:
            access.check_rules(where, metadata)
        except AccessDenied:
            return False
        return True

    assert (is_heard(channel), is_heard(channel, mentioned=False)) == heard
    assert is_heard(channel, mentioned=False, group=False)
    alone = ChannelInfo(channel.type, "u1" if channel.type == "telegram" else "D0123", "u1")
    assert is_heard(alone, mentioned=False)
    assert not is_heard(alone, mentioned=False, group=True) or groups == "all"


def test_the_owner_goes_first_and_schedules_last():
    assert Priority.OWNER < Priority.PERSON < Priority.TASK


def test_without_a_setting_the_terminal_is_the_owners():
    owners = Settings().agent.owners
    assert (is_owner(CLI, owners), is_owner(ANN, owners)) == (True, False)


async def test_a_guest_who_wrote_too_much_may_write_again_after_a_while(autojump_clock):
    """The minute fills evenly, and holds no more than a minute's messages after any silence."""
    rates = SenderRates(LiveValue(GuestLimits(per_minute=2)))

    def refused():
        with pytest.raises(TooManyMessages, match="try again in 30 s"):
            rates.count("slack:U1")

    rates.count("slack:U1")
    rates.count("slack:U1")
    refused()
    rates.count("slack:U2")
    await trio.sleep(30)
    rates.count("slack:U1")
    refused()
    await trio.sleep(86_400)
    rates.count("slack:U1")
    rates.count("slack:U1")
    refused()


async def test_of_more_senders_than_are_counted_the_silent_are_forgotten_and_never_who_writes_now(autojump_clock):
    rates = SenderRates(LiveValue(GuestLimits(per_minute=2)))
    for _ in range(2):
        rates.count("slack:first")
    for number in range(10_000):
        rates.count(f"slack:{number}")
    rates.count("slack:first")  # as somebody new
    for sender in ("slack:flood", "slack:9999"):
        rates.count(sender)
        if sender == "slack:flood":
            rates.count(sender)
        with pytest.raises(TooManyMessages):
            rates.count(sender)


async def test_a_report_of_a_task_has_the_priority_of_tasks():
    accepted = []

    async def journal(inbox):
        async for asked in inbox:
            accepted.append(asked)
            asked.reply.send(Accepted(1, duplicate=False))

    async with open_supervisor([Child("journal", journal)]) as supervisor:
        await supervisor.start_child(Child("notifications", forward_notifications, supervisor.ref("journal")))
        await supervisor.ref("notifications").ask(
            Notify, (Notification("t1", 1, "completed", "done", {"ok": True}, {}),)
        )
        await wait_all_tasks_blocked()
    [asked] = accepted
    assert isinstance(asked, Accept)
    assert attrs.astuple(asked, recurse=False)[2:] == ("main", Priority.TASK, False, "", 0)
