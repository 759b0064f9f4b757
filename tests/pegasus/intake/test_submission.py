import attrs
import pytest

from actors import Child, open_supervisor
from pegasus.access import Access, AccessDenied, ChannelRules
from pegasus.intake import Intake, InvalidMessage, check_message, is_name, lane_of
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.settings import LiveValue
from pegasus.storage import Accepted, Overloaded, StorageError

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
    assert lane_of(text) == expected


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
    "name",
    [
        "cli\u200b",  # zero-width space
        "c\u00adli",  # soft hyphen
        "\u202ecli",  # right-to-left override
        "\U000e0063cli",  # a tag character
        "cli\ufe0f",  # variation selector
        "cli\u034f",  # combining grapheme joiner
        "cli\u2028",
        "\u00a0cli",
        "\uff43li",  # fullwidth c
        "\U0001d41cli",  # mathematical bold c
        "cli\u3164",  # Hangul filler, shown as a blank
    ],
)
def test_a_name_that_would_read_as_another_one_is_refused(name):
    """The model sees names stripped and many fonts show them alike, so `cli` and an invisible character would be the owner's."""
    assert not is_name(name)
    with pytest.raises(InvalidMessage, match=r"channel\.type"):
        check_message(InboundMessage("hi", ChannelInfo(name, "main"), "m-1"))


@pytest.mark.parametrize(
    ("channel", "id", "field"),
    [
        (ChannelInfo("", "c"), "m", 'type: found ""'),
        (ChannelInfo("a:b", "c"), "m", 'channel.type: found "a:b", allowed: a name without a colon'),
        (ChannelInfo("t", "c\n"), "m", "channelId"),
        (ChannelInfo("t", "c", ""), "m", "userId"),
        (ChannelInfo("t", "c", None, "x" * 300), "m", "replyTo"),
        (ChannelInfo("t", "c"), "", 'id: found ""'),
    ],
)
def test_a_name_that_cannot_be_used_is_named_in_the_error(channel, id, field):
    with pytest.raises(InvalidMessage, match=field):
        check_message(InboundMessage("hi", channel, id))


def message(text="hi"):
    return InboundMessage(text, TELEGRAM, "m-1")


class Journal:
    def __init__(self, verdict):
        self.verdict = verdict
        self.lanes = []
        self.priorities = []

    async def run(self, inbox):
        async for asked in inbox:
            _, _, lane, priority, *_ = attrs.astuple(asked, recurse=False)
            self.lanes.append(lane)
            self.priorities.append(priority)
            if isinstance(self.verdict, Exception):
                asked.reply.fail(self.verdict)
            else:
                asked.reply.send(self.verdict)


async def submitted(journal, text="hi", **rules):
    async with open_supervisor([Child("journal", journal.run)]) as supervisor:
        return await Intake(supervisor.ref("journal"), **rules).submit(message(text))


@pytest.mark.parametrize("verdict", [Accepted(1, False), Accepted(1, True), Overloaded(1000)])
async def test_submit_returns_what_the_journal_answers(verdict):
    assert await submitted(Journal(verdict)) == verdict


async def test_submit_chooses_the_lane():
    journal = Journal(Accepted(1, False))
    await submitted(journal, "/stop")
    assert journal.lanes == ["control"]


@pytest.mark.parametrize(("owners", "priority"), [((), 1), (["cli"], 1), (["telegram:u1"], 0)])
async def test_submit_lets_the_owner_go_first(owners, priority):
    journal = Journal(Accepted(1, False))
    await submitted(journal, owners=LiveValue(owners))
    assert journal.priorities == [priority]


async def test_submit_raises_the_error_of_the_disk():
    with pytest.raises(StorageError, match="full"):
        await submitted(Journal(StorageError("full")))


async def test_a_sender_who_is_not_in_allow_from_is_refused_and_nothing_is_stored():
    journal = Journal(Accepted(1, False))
    with pytest.raises(AccessDenied, match="allow_from"):
        await submitted(journal, access=LiveValue(Access({"telegram": ChannelRules("allow_list", ["u2"])})))
    assert journal.lanes == []


async def test_a_message_that_is_sent_is_taken_whether_or_not_its_answer_is_waited_for():
    journal = Journal(Accepted(1, False))
    async with open_supervisor([Child("journal", journal.run)]) as supervisor:
        answers = [await Intake(supervisor.ref("journal")).send(message()) for _ in range(3)]
        assert await answers[-1].get(1.0) == Accepted(1, False)
    assert len(journal.lanes) == 3
