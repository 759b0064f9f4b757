"""Edges of what one message may cause: who joins it, what it may cost, what is left when it is cut short."""

import attrs
import pytest
import trio

from pegasus.intake import Intake
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.settings import AgentSettings, LiveValue, ModelSettings, Settings, ToolSettings
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, reply, say
from pegasus.testing.world import CLI, FakeChannel, ScriptedModels, kill, open_world
from tests.pegasus.conversation.test_projection import is_valid
from tests.pegasus.main_agent.voices import add_sleepy, add_tool

LOOK = say("", call("current_time", "t"))
ANN = ChannelInfo("slack", "D-general", "ann", "thread:1")


def busy(mode, **more):
    return Settings(agent=AgentSettings(when_busy=mode, **more))


def here(call_id, text):
    return reply(call_id, text, "#general", channelType="slack")


# ------------------------------------------------------------------ who joins a thought


@pytest.mark.parametrize(
    "other",
    [
        attrs.evolve(ANN, reply_to="thread:2"),
        attrs.evolve(ANN, reply_to=None),
        attrs.evolve(ANN, user_id="bob"),
        attrs.evolve(ANN, user_id=None),
    ],
    ids=["another thread", "no thread", "another person", "nobody known"],
)
@pytest.mark.parametrize("mode", ["steer", "interrupt"])
async def test_only_the_same_person_in_the_same_thread_joins(autojump_clock, mode, other):
    model = ScriptedModel([After(5, LOOK), say("", here("r1", "one")), say("", here("r2", "two"))])
    async with open_world(model, settings=busy(mode), channels=(FakeChannel("slack"),)) as world:
        await world.say("first", ANN)
        await trio.sleep(1)
        await world.say("second", other)
        await world.idle()
    assert "second" not in "".join(turn.text for turn in model.requests[1].turns)
    assert (len(model.requests), model.cancelled) == (3, 0)


async def test_no_more_than_the_cap_interrupt_one_thought(autojump_clock):
    """Who writes on and on would else never get an answer."""
    model = ScriptedModel([Hang(), After(5, say("", reply("r1", "one"))), say("", reply("r2", "two"))])
    async with open_world(model, settings=busy("interrupt", steer_cap=1)) as world:
        for word in ("first", "second", "third"):
            await world.say(word)
            await trio.sleep(1)
        await world.idle()
        assert world.channels["cli"].texts == ["one", "two"]
    assert model.cancelled == 1
    assert "third" not in model.requests[1].turns[-1].text


async def test_a_message_that_joins_has_all_its_thoughts_and_replies(autojump_clock):
    """What the one before it has used up is not taken from it."""
    script = [After(5, say("", reply("r1", "looking"), call("current_time", "t1"))), LOOK, say("", reply("r2", "done"))]
    model = ScriptedModel(script)
    settings = busy("steer", max_thoughts=2, max_replies=1)
    async with open_world(model, settings=settings) as world:
        await world.say("first")
        await trio.sleep(1)
        await world.say("second")
        await world.idle()
        assert world.channels["cli"].texts == ["looking", "done"]


# ------------------------------------------------------------------ how it ends


async def test_who_got_a_reply_gets_no_apology_at_the_limit(autojump_clock):
    first = say("", reply("r1", "one moment"), call("current_time", "t"))
    list_memory = say("", call("memory_list", "m"))
    model = ScriptedModel([first, list_memory, LOOK])
    async with open_world(model, settings=Settings(agent=AgentSettings(max_thoughts=3))) as world:
        await world.say("loop")
        await world.idle()
        await trio.sleep(1)
        assert world.channels["cli"].texts == ["one moment"]
        assert world.session()[-1]["metadata"]["type"] == "limit"


async def test_who_got_a_reply_is_not_told_of_a_refusal(autojump_clock):
    first = say("", reply("r1", "one moment"), call("current_time", "t"))
    model = ScriptedModel([first, say("I would rather not", stop_reason="refusal"), say("", reply("r2", "yes"))])
    async with open_world(model) as world:
        await world.say("hm")
        await world.say("and this?")
        await world.idle()
        await trio.sleep(1)
        assert world.channels["cli"].texts == ["one moment", "yes"]


@pytest.mark.parametrize("text", ["", "  ", "\n\t"])
async def test_a_reply_without_a_text_is_an_error_and_reaches_nobody(autojump_clock, text):
    model = ScriptedModel([say("", reply("r1", text)), say("", reply("r2", "better"))])
    async with open_world(model) as world:
        await world.say("hi")
        assert (await world.next_reply()).text == "better"
        assert len(world.channels["cli"].texts) == 1
    [result] = model.requests[1].turns[-1].results
    assert result.is_error
    assert "text is empty" in result.content


async def test_stop_while_a_tool_runs_gives_each_open_call_its_result(autojump_clock):
    model = ScriptedModel([say("", call("sleepy", "s1"), call("current_time", "t1")), say("", reply("r", "next"))])
    async with open_world(model) as world:
        add_sleepy(world)
        await world.say("sleep")
        await trio.sleep(1)
        await world.say("/stop")
        await world.idle()
        closed = [line for line in world.session() if line["role"] == "tool"]
        assert sorted(line["toolCallId"] for line in closed) == ["s1", "t1"]
        assert all('"cancelled":true' in line["content"] for line in closed)
        await world.say("go on")
        await world.idle()
    assert is_valid(model.requests[1].turns)


async def test_after_a_stop_the_model_knows_which_replies_were_posted_all_the_same(autojump_clock):
    """A reply goes out with the thought, before the tools run. Called cancelled, it would be given a second time."""
    model = ScriptedModel([say("", call("sleepy", "s1"), reply("r1", "wait")), say("", reply("r2", "next"))])
    async with open_world(model) as world:
        add_sleepy(world)
        await world.say("sleep")
        await trio.sleep(1)
        await world.say("/stop")
        await world.say("go on")
        await world.idle()
        texts = world.channels["cli"].texts
        assert (texts[0], texts[-1]) == ("wait", "next")
    stopped, replied = model.requests[1].turns[-1].results
    assert (stopped.call_id, stopped.is_error) == ("s1", True)
    assert (replied.call_id, replied.is_error, '"queued":true' in replied.content) == ("r1", False, True)
    assert is_valid(model.requests[1].turns)


async def test_after_a_crash_the_message_at_hand_comes_first_whoever_wrote_since(autojump_clock):
    """Its work has begun: an owner's message that waits goes behind it."""
    disk = MemoryDisk()
    slack, cli = FakeChannel("slack"), FakeChannel("cli")
    model = ScriptedModel([LOOK, Hang()])
    async with open_world(model, disk=disk, channels=(cli, slack)) as world:
        with trio.CancelScope() as scope:
            await world.say("first", ANN)
            await trio.sleep(1)
            await Intake(world.journal, owners=LiveValue(["cli"])).submit(InboundMessage("mine", CLI, "m2"))
            await kill(world)
            scope.cancel()
    order = []

    def think(request):
        order.append(request.turns[-1].text.partition("\n")[2] or "first")
        return say()

    async with open_world(ScriptedModel(think), disk=disk, channels=(cli, slack)) as again:
        await again.idle()
    assert order == ["first", "mine"]


async def test_a_call_that_crashes_have_cut_short_does_not_count_as_repeated(autojump_clock):
    """The model makes it again because it was not carried out. Refused the third time, its work would never be done."""
    disk, sleep = MemoryDisk(), After(1, say("", call("sleepy", "s")))  # answers when the world has the tool
    for _ in range(2):
        async with open_world(ScriptedModel([sleep]), disk=disk) as world:
            add_sleepy(world)
            with trio.CancelScope() as scope:
                if not world.session():
                    await world.say("sleep")
                await trio.sleep(2)
                await kill(world)
                scope.cancel()
    runs = []

    async def run(arguments, context):
        runs.append(context.key)

    last = ScriptedModel([sleep, say("", reply("r", "slept well"))])
    async with open_world(last, disk=disk) as world:
        add_tool(world, "sleepy", run)
        assert (await world.next_reply()).text == "slept well"
    assert len(runs) == 1


async def test_the_session_knows_which_message_it_was_and_whose(autojump_clock):
    async with open_world(ScriptedModel([say()]), channels=(FakeChannel("slack"),)) as world:
        await world.say("hi", ANN, message_id="m-7")
        await world.idle()
        metadata = world.session()[0]["metadata"]
        assert {key: metadata[key] for key in ("item", "messageId", "userId")} == {
            "item": 1,
            "messageId": "m-7",
            "userId": "ann",
        }


async def test_no_more_replies_than_the_owner_allows(autojump_clock):
    model = ScriptedModel([say("", *(reply(f"r{n}", str(n)) for n in range(4))), say()])
    async with open_world(model, settings=Settings(agent=AgentSettings(max_replies=2))) as world:
        await world.say("hi")
        await world.idle()
        await trio.sleep(1)
        assert world.channels["cli"].texts == ["0", "1"]
    assert [result.is_error for result in model.requests[1].turns[-1].results] == [False, False, True, True]


async def test_a_tool_has_the_time_that_the_settings_give_it(autojump_clock):
    model = ScriptedModel([say("", call("sleepy", "s1")), say()])
    settings = Settings(tools=ToolSettings(timeout=50.0, timeouts={"sleepy": 2.0}))
    async with open_world(model, settings=settings) as world:
        add_sleepy(world)
        await world.say("hi")
        await world.idle()
    assert "took longer than 2 s" in model.requests[1].turns[-1].results[0].content


async def test_a_result_that_fills_the_window_is_cut_with_a_notice(autojump_clock):
    """The conversation of a task may be megabytes; what was asked for stays readable, and the model knows what is missing."""
    model = ScriptedModel(
        [say("", call("huge", "h1")), say("", call("current_time", "t1", timezone="x" * 200_000)), say()]
    )
    async with open_world(model) as world:

        async def run(arguments, context):
            return ["word " * 100] * 2_000

        add_tool(world, "huge", run, more="Ask for less.")
        await world.say("hi")
        await world.idle()
    for request in model.requests[1:]:
        [result] = request.turns[-1].results
        assert 60_000 < len(result.content) <= 70_000
        assert "characters are missing here" in result.content


@pytest.mark.parametrize("seconds", [30, 100])
async def test_a_summary_is_prepared_while_turns_go_on(autojump_clock, seconds):
    """However slow the model is that summarises: who writes meanwhile waits no longer than ever."""
    summary = "## Now\nwe count\n## People\ncli:main\n## Decisions and facts\nnone\n## Open\nnone"
    compact = ScriptedModel(lambda request: After(seconds, say(summary)))
    model = ScriptedModel(lambda request: say("", reply(f"r{len(request.turns)}", "ok")))
    settings = Settings(models=ModelSettings(context_window=20_000))
    turns = []
    async with open_world(model, settings=settings, models={"compact": compact}) as world:
        while not world.session() or world.session()[0]["role"] != "system":
            begun = trio.current_time()
            await world.say("one two three four " * 60)
            await world.idle()
            turns.append((trio.current_time() - begun, len(compact.requests)))
            await trio.sleep(30)
        assert world.session()[0]["metadata"]["mechanical"] is False
    assert len([took for took, summaries in turns[:-1] if summaries]) >= 2, "nothing was said while it was made"
    assert max(took for took, _ in turns) < 5


# ------------------------------------------------------------------ skills


@pytest.fixture
def skills(tmp_path):
    def write(name, front):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(f"---\ndescription: d\n{front}\n---\nDo $ARGUMENTS.", "utf-8")
        return [tmp_path]

    return write


def without(monkeypatch, name):
    """In this world there is no model of this name."""
    client = ScriptedModels.client

    def find(self, role="default", lane="work"):
        if role == name:
            raise ValueError(f"models: there is no provider for {role!r}")
        return client(self, role, lane)

    monkeypatch.setattr(ScriptedModels, "client", find)


async def test_a_skill_whose_model_there_is_not_is_told_and_nothing_is_thought(autojump_clock, skills, monkeypatch):
    without(monkeypatch, "lab/gone")
    model = ScriptedModel([say("", reply("r", "next"))])
    async with open_world(model, skills=skills("fix", "model: lab/gone")) as world:
        await world.say("/fix it")
        told = (await world.next_reply()).text
        assert told.startswith("/fix could not be started")
        assert "lab/gone" in told
        await world.say("hello")
        assert (await world.next_reply()).text == "next"
    assert len(model.requests) == 1


async def test_a_skill_whose_model_has_gone_meanwhile_is_gone_on_with_by_the_usual_one(
    autojump_clock, skills, monkeypatch
):
    """The settings were changed while it was in force, over a crash: its message is answered all the same."""
    disk, folders, strong = MemoryDisk(), skills("fix", "model: lab/gone"), ScriptedModel([LOOK, Hang()])
    async with open_world(ScriptedModel([]), disk=disk, skills=folders, models={"lab/gone": strong}) as world:
        with trio.CancelScope() as scope:
            await world.say("/fix it")
            await trio.sleep(1)
            await kill(world)
            scope.cancel()
    without(monkeypatch, "lab/gone")
    model = ScriptedModel([say("", reply("r", "fixed"))])
    async with open_world(model, disk=disk, skills=folders) as again:
        assert (await again.next_reply()).text == "fixed"
        await again.idle()


@pytest.mark.parametrize("turns", range(12))
async def test_stop_says_that_it_ended_what_it_ended(autojump_clock, turns):
    """Whatever the thought was just doing: one that came to its end by itself was not ended."""
    async with open_world(ScriptedModel([say("", reply("r1", "done"))])) as world:
        await world.say("quick")
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        ended = await world.stop_thinking()
        await world.idle()
        lines = world.session()
    stopped = [line for line in lines if line.get("metadata", {}).get("type") == "stopped"]
    assert [one.what for one in ended] == ["quick"] * (len(stopped) or not lines)


async def test_a_secret_in_the_result_of_a_tool_reaches_neither_model_nor_session(autojump_clock):
    """Results of the Main Agent's tools are masked as those of tasks are: a memory file may hold a key that somebody has pasted."""
    model = ScriptedModel(
        [say("", call("current_time", "t1", timezone="sk-live-123456")), say("", reply("r1", "done"))]
    )
    async with open_world(model, secrets=("sk-live-123456",)) as world:
        await world.say("which time is it there?")
        await world.idle()
        [result, _] = [line["content"] for line in world.session() if line["role"] == "tool"]
    assert "sk-live-123456" not in result
    assert "***" in result
    [shown] = model.requests[1].turns[-1].results
    assert shown.content == result
