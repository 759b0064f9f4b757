import pytest

from actors import Child, open_supervisor
from pegasus.intake.submission import Denied, InvalidMessage, check, is_name, lane, permits, submit
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.storage.messages import Accept, Accepted, Overloaded, StorageError

TELEGRAM = ChannelInfo("telegram", "chat-7", "u1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/stop", "control"),
        ("  /Stop  ", "control"),
        ("/stop it", "control"),
        ("/status", "control"),
        ("/HELP", "control"),
        ("\u200b/stop", "control"),
        ("/stop\u2060\u200b", "control"),
        ("\ufeff/stop", "control"),
        ("\u00a0/stop\u00a0it", "control"),
        ("/stopped", "main"),
        ("/new", "main"),
        ("say /stop", "main"),
        ("", "main"),
        ("hello", "main"),
    ],
)
def test_only_the_commands_that_must_pass_a_busy_agent_take_the_control_lane(text, expected):
    assert lane(text) == expected


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("#general", True),
        ("+8613800138000", True),
        ("張三 🙂", True),
        ("x" * 256, True),
        ("", False),
        ("x" * 257, False),
        ("a\x00", False),
        ("a\n", False),
        ("\x85", False),
        ("\ud800", False),
    ],
)
def test_names_are_short_and_have_no_control_characters(name, good):
    assert is_name(name) is good


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [([], True), (["u1"], True), (["chat-7"], True), (["u2"], False), (["telegram"], False)],
)
def test_allow_from_names_users_or_spaces_and_empty_is_everybody(allowed, expected):
    assert permits({"telegram": allowed}, TELEGRAM) is expected


def test_another_channels_list_does_not_count():
    assert permits({"slack": ["u2"]}, TELEGRAM)


@pytest.mark.parametrize(
    ("channel", "id", "field"),
    [
        (ChannelInfo("", "c"), "m", "type: found ''"),
        (ChannelInfo("t", "c\n"), "m", "channelId"),
        (ChannelInfo("t", "c", ""), "m", "userId"),
        (ChannelInfo("t", "c", None, "x" * 300), "m", "replyTo"),
        (ChannelInfo("t", "c"), "", "id: found ''"),
    ],
)
def test_what_cannot_be_stored_and_answered_is_named(channel, id, field):
    with pytest.raises(InvalidMessage, match=field):
        check(InboundMessage("hi", channel, id))


def message(text="hi"):
    return InboundMessage(text, TELEGRAM, "m-1")


class Journal:
    def __init__(self, verdict):
        self.verdict = verdict
        self.lanes = []
        self.ranks = []

    async def run(self, inbox):
        async for asked in inbox:
            assert isinstance(asked, Accept)
            self.lanes.append(asked.lane)
            self.ranks.append(asked.rank)
            if isinstance(self.verdict, Exception):
                asked.reply.fail(self.verdict)
            else:
                asked.reply.send(self.verdict)


async def submitted(journal, text="hi", **options):
    async with open_supervisor([Child("journal", journal.run)]) as supervisor:
        return await submit(supervisor.ref("journal"), message(text), **options)


@pytest.mark.parametrize("verdict", [Accepted(1, False), Accepted(1, True), Overloaded(1000)])
async def test_submit_gives_what_the_journal_says(verdict):
    assert await submitted(Journal(verdict)) == verdict


async def test_submit_decides_the_lane():
    journal = Journal(Accepted(1, False))
    await submitted(journal, "/stop")
    assert journal.lanes == ["control"]


@pytest.mark.parametrize(("owners", "rank"), [((), 1), (["cli"], 1), (["telegram:u1"], 0)])
async def test_submit_lets_the_owner_go_first(owners, rank):
    journal = Journal(Accepted(1, False))
    await submitted(journal, owners=owners)
    assert journal.ranks == [rank]


async def test_submit_raises_what_the_disk_says():
    with pytest.raises(StorageError, match="full"):
        await submitted(Journal(StorageError("full")))


async def test_submit_lets_nobody_in_who_is_not_in_allow_from():
    journal = Journal(Accepted(1, False))
    with pytest.raises(Denied, match="u1"):
        await submitted(journal, access={"telegram": ["u2"]})
    assert journal.lanes == []
