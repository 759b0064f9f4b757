"""`send_file` in direct speech: files are gathered while the agent works, and go out behind the text that ends the turn."""

from contextlib import suppress

import pytest
import trio

from actors import ActorError, GaveUp
from pegasus.messages import ChannelInfo
from pegasus.settings import AgentSettings, MediaSettings, Settings
from pegasus.testing.scripted import Hang, ScriptedModel, call, down, reply, say
from pegasus.testing.world import FakeChannel, kill, open_world

pytestmark = pytest.mark.usefixtures("threads_in_place")
DIRECT = Settings(agent=AgentSettings(speech="direct"))
SLACK = ChannelInfo("slack", "#general", "u1")


@pytest.fixture
def workspace(tmp_path):
    for number in range(12):
        (tmp_path / f"{number}.txt").write_text(f"file {number}")
    return tmp_path


def send(*numbers):
    return say("", *(call("send_file", f"c{number}", path=f"{number}.txt") for number in numbers))


def names(reply):
    return [file.name for file in reply.files]


def results(request):
    return [result.content for turn in request.turns for result in getattr(turn, "results", ())]


async def test_files_go_out_behind_the_text_that_ends_the_turn(autojump_clock, workspace):
    model = ScriptedModel([send(1), send(2), say("Two files."), say("Nothing more.")])
    async with open_world(model, settings=DIRECT, workspace=workspace) as world:
        await world.say("send them")
        heard = await world.next_reply()
        await world.say("and now?")
        last = await world.next_reply()
    assert (heard.text, names(heard), [m.name for m in heard.media]) == (
        "Two files.",
        ["1.txt", "2.txt"],
        ["1.txt", "2.txt"],
    )
    assert (last.text, names(last)) == ("Nothing more.", [])


async def test_it_is_offered_in_direct_speech_alone(autojump_clock, workspace):
    offered = {}
    for speech in ("direct", "monologue"):
        model = ScriptedModel([say("", reply("r", "hi"))])
        settings = Settings(agent=AgentSettings(speech=speech))
        async with open_world(model, settings=settings, workspace=workspace) as world:
            await world.say("hello")
            await world.idle()
        offered[speech] = [spec.name for spec in model.requests[0].tools]
    assert "send_file" in offered["direct"]
    assert "send_file" not in offered["monologue"]


async def test_what_is_sent_is_the_file_as_it_was_at_the_call(autojump_clock, workspace):
    def step(request):
        if not results(request):
            return send(1)
        (workspace / "1.txt").write_text("something else")
        return say("Here.")

    async with open_world(ScriptedModel(step), settings=DIRECT, workspace=workspace) as world:
        await world.say("send it")
        heard = await world.next_reply()
    assert heard.media[0].data == "ZmlsZSAx"  # "file 1"


@pytest.mark.parametrize(
    "end",
    [say(""), say("(silence)"), say("", reply("r", "Sent.", "main")), down()],
    ids=["nothing", "silence", "reply", "failure"],
)
async def test_a_turn_that_ends_without_a_text_sends_them_alone(autojump_clock, workspace, end):
    model = ScriptedModel(lambda request: end if results(request) else send(1))
    async with open_world(model, settings=DIRECT, workspace=workspace) as world:
        await world.say("send it")
        await world.idle()
        replies = world.channels["cli"].replies
        assert [(reply.text, names(reply)) for reply in replies if reply.files] == [("", ["1.txt"])]


async def test_what_cannot_be_sent_is_a_result_and_nothing_of_it_goes_out(autojump_clock, workspace):
    model = ScriptedModel(
        [say("", call("send_file", "a", path="missing.txt"), call("send_file", "b"), *send(1).calls), say("One.")]
    )
    async with open_world(model, settings=DIRECT, workspace=workspace) as world:
        await world.say("send")
        heard = await world.next_reply()
    missing, empty, sent = results(model.requests[-1])
    assert missing.startswith("Error: not sent: ")
    assert empty.startswith("Error: ")
    assert "goes out behind your answer" in sent
    assert names(heard) == ["1.txt"]


async def test_the_bounds_are_those_of_one_reply(autojump_clock, workspace):
    model = ScriptedModel([send(*range(12)), say("Ten.")])
    async with open_world(model, settings=DIRECT, workspace=workspace) as world:
        await world.say("send")
        heard = await world.next_reply()
    assert len(heard.files) == 10
    assert "allowed: 10" in results(model.requests[-1])[-1]
    small = Settings(agent=AgentSettings(speech="direct"), media=MediaSettings(max_bytes=13))
    model = ScriptedModel([send(1, 2, 3), say("Two.")])
    async with open_world(model, settings=small, workspace=workspace) as world:
        await world.say("send")
        heard = await world.next_reply()
    assert names(heard) == ["1.txt", "2.txt"]


async def test_files_stay_with_the_chat_that_they_were_gathered_in(autojump_clock, workspace):
    cli, slack = FakeChannel("cli"), FakeChannel("slack")
    settings = Settings(agent=AgentSettings(speech="direct", owners=("cli:*", "slack:*"), scope="chat"))

    def step(request):
        sent = results(request)
        return say("done") if sent else send(1 if "cli" in request.turns[-1].text else 2)

    async with open_world(
        ScriptedModel(step, delay=1), settings=settings, workspace=workspace, channels=(cli, slack)
    ) as world:
        await world.say("send it")
        await world.say("send it", SLACK)
        await world.idle()
    assert [names(reply) for reply in cli.replies] == [["1.txt"]]
    assert [names(reply) for reply in slack.replies] == [["2.txt"]]


async def test_a_stop_drops_what_was_gathered(autojump_clock, workspace):
    model = ScriptedModel([send(1), Hang(), say("Hello.")])
    async with open_world(model, settings=DIRECT, workspace=workspace) as world:
        await world.say("send it")
        await trio.sleep(1)
        await world.say("/stop")
        await world.idle()
        await world.say("hi")
        await world.idle()
        assert [names(reply) for reply in world.channels["cli"].replies] == [[], []]


async def test_a_message_that_joins_the_turn_loses_no_file(autojump_clock, workspace):
    settings = Settings(agent=AgentSettings(speech="direct", when_busy="steer"))
    model = ScriptedModel([send(1), say("Both.")], delay=2)
    async with open_world(model, settings=settings, workspace=workspace) as world:
        await world.say("send it")
        await trio.sleep(1)
        await world.say("and be quick")
        await world.idle()
        assert [(reply.text, names(reply)) for reply in world.channels["cli"].replies] == [("Both.", ["1.txt"])]


@pytest.mark.parametrize("end", ["Here.", ""])
@pytest.mark.parametrize("operation", range(1, 16))
async def test_it_is_sent_once_whenever_the_power_fails(autojump_clock, workspace, operation, end):
    cli = FakeChannel("cli")

    def step(request):
        return say(end) if any("behind your answer" in content for content in results(request)) else send(1)

    model = ScriptedModel(step)
    with suppress(GaveUp):
        async with open_world(model, settings=DIRECT, workspace=workspace, channels=(cli,)) as world:
            await world.say("send it")
            world.disk.lose_power(operation)
            with suppress(ActorError):
                await world.idle()
            await kill(world)
    world.disk.crash()
    for _ in range(2):
        async with open_world(model, disk=world.disk, settings=DIRECT, workspace=workspace, channels=(cli,)) as again:
            await again.idle()
            await kill(again)
    assert [(reply.text, names(reply)) for reply in cli.replies] == [(end, ["1.txt"])]
