"""/stop and /status while something runs, does not end, or was begun on another chat."""

import json

import pytest
import trio

from pegasus.main_agent import EndedWork, TaskDelegation, interrupt_text
from pegasus.messages import Address, ChannelInfo, TaskProgress
from pegasus.settings import AgentSettings, Settings
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, reply, say
from pegasus.testing.world import CLI, FakeChannel, kill, open_world

from .voices import add_sleepy, delegate, spawn

OWNER = ChannelInfo("slack", "#owner", "owner")


@pytest.mark.parametrize("kind", ['we"b', "back\\slash"])
async def test_the_result_of_a_stopped_call_is_json_whatever_the_channel_is_called(autojump_clock, kind):
    model = ScriptedModel([say("", call("sleepy", "s1"))])
    both = Settings(agent=AgentSettings(owners=("cli:*", f"{kind}:*")))
    async with open_world(model, settings=both, channels=(FakeChannel("cli"), FakeChannel(kind))) as world:
        add_sleepy(world)
        await world.say("sleep")
        await trio.sleep(1)
        await world.say("/stop", ChannelInfo(kind, "x"))
        await world.idle()
        [result] = [line["content"] for line in world.session() if line["role"] == "tool"]
        assert json.loads(result) == {"cancelled": True, "reason": f"stopped by the user ({kind})"}


@pytest.fixture
def tasks_never_end(monkeypatch):
    async def stop(self, by, channel, guests_only):
        await trio.sleep_forever()

    monkeypatch.setattr(TaskDelegation, "stop", stop)


async def test_a_stop_whose_work_does_not_end_is_answered_with_what_is_still_ending(autojump_clock, tasks_never_end):
    async with open_world(ScriptedModel([Hang(), say("", reply("r", "next"))])) as world:
        await world.say("think")
        await trio.sleep(1)
        began = trio.current_time()
        await world.say("/stop")
        text = (await world.next_reply()).text
        assert trio.current_time() - began < 6
        assert "- thought: think" in text
        assert "- still ending: tasks that were begun on this chat" in text
        await world.say("go on")
        assert (await world.next_reply()).text == "next"


async def test_strangers_who_stop_again_and_again_do_not_keep_the_owner_waiting(autojump_clock, tasks_never_end):
    slack = FakeChannel("slack")
    async with open_world(ScriptedModel([]), channels=(FakeChannel("cli"), slack)) as world:
        for n in range(20):
            await world.say("/stop", message_id=f"stop-{n}")
        began = trio.current_time()
        await world.say("/status", OWNER)
        await slack.next_reply()
        assert trio.current_time() - began < 8


async def test_a_message_whose_sender_has_gone_is_not_worked_on_any_more(autojump_clock):
    model = ScriptedModel([Hang(), say("", reply("r", "next"))])
    async with open_world(model) as world:
        withdraw = world.tree.main_agent.withdraw
        await world.say("think", message_id="a")
        await world.say("wait", message_id="b")
        await trio.sleep(1)
        withdraw(Address("cli", "other"), "a")  # a message of another conversation
        withdraw(CLI.address, "b")
        await trio.sleep(1)
        assert (await world.status()).thinking_about == "think"
        withdraw(CLI.address, "a")
        await world.idle()
        assert (await world.status()).turns == 2
        notes = [line["content"] for line in world.session() if line["role"] == "system"]
        assert notes == ["(Work on the message above was stopped by the user (cli).)"] * 2
        await world.say("go on")
        assert (await world.next_reply()).text == "next"
    assert len(model.requests) == 2


async def test_a_turn_goes_on_for_the_messages_whose_senders_still_wait(autojump_clock):
    model = ScriptedModel([After(5, say("", call("current_time", "t"))), After(5, say("", reply("r", "both")))])
    steer = Settings(agent=AgentSettings(when_busy="steer"))
    async with open_world(model, settings=steer) as world:
        await world.say("first", message_id="a")
        await trio.sleep(1)
        await world.say("second", message_id="b")
        await trio.sleep(6)
        world.tree.main_agent.withdraw(CLI.address, "a")
        assert (await world.next_reply()).text == "both"


async def test_tasks_go_on_without_the_turn_that_began_them(autojump_clock):
    thinks = ScriptedModel(lambda request: Hang())
    script = [say("", spawn("count the stars")), Hang()]
    async with open_world(ScriptedModel(script), task_model=thinks) as world:
        await world.say("count the stars", message_id="a")
        await trio.sleep(3)
        world.tree.main_agent.withdraw(CLI.address, "a")
        await world.idle()
        await world.say("/status")
        text = (await world.next_reply()).text
        assert "I am waiting for 1 background task." in text


async def test_status_names_the_tasks_that_run_while_nothing_is_thought(autojump_clock):
    thinks = ScriptedModel(lambda request: Hang())
    async with open_world(ScriptedModel(delegate), task_model=thinks) as world:
        await world.say("/status")
        assert "I am idle." in (await world.next_reply()).text
        await world.say("count the stars")
        await world.idle()
        await world.next_reply()
        await world.say("/status")
        text = (await world.next_reply()).text
        assert "I am waiting for 1 background task." in text
        assert "Task 1  thinking, step 1" in text
        assert text.partition("Task 1")[2].partition("\n")[0].endswith(": count the stars")


GUEST = ChannelInfo("slack", "D-eve", "eve")
CLI_OWNS = Settings(agent=AgentSettings(owners=("cli:*",)))


async def test_status_tells_a_stranger_nothing_of_other_conversations(autojump_clock):
    slack = FakeChannel("slack")
    thinks = ScriptedModel(lambda request: Hang())
    channels = FakeChannel("cli"), slack
    async with open_world(ScriptedModel(delegate), task_model=thinks, channels=channels, settings=CLI_OWNS) as world:
        await world.say("count the stars")
        await world.idle()
        await world.next_reply()
        await world.say("/status", GUEST)
        text = (await slack.next_reply()).text
        assert "Task 1" not in text
        assert "stars" not in text


async def test_status_tells_a_stranger_no_message_of_another_conversation(autojump_clock):
    slack = FakeChannel("slack")
    channels = FakeChannel("cli"), slack
    async with open_world(ScriptedModel([Hang()]), channels=channels, settings=CLI_OWNS) as world:
        await world.say("my secret")
        await trio.sleep(1)
        await world.say("/status", GUEST)
        text = (await slack.next_reply()).text
        assert "I am idle." in text, "in the stranger's own conversation"
        assert "secret" not in text
        await world.say("/status")
        assert "I am thinking about “my secret”" in (await world.next_reply()).text
        await world.say("/stop")
        await world.next_reply()


async def test_waiting_notifications_of_one_task_are_thought_about_together(autojump_clock):
    """A task may send hundreds, and each thought is a model call; none of them is lost."""
    notes = tuple(call("notify", f"n{i}", message=f"step {i}.") for i in range(30))
    model = ScriptedModel(delegate, delay=2)
    async with open_world(model, task_model=ScriptedModel([say("", *notes), "done"])) as world:
        await world.say("work")
        while "done" not in " ".join(world.channels["cli"].texts):
            with trio.fail_after(600):
                await world.next_reply()
        session = "\n".join(str(line.get("content")) for line in world.session())
        assert all(f"step {i}." in session for i in range(30))
    assert len(model.requests) < 12


async def test_the_metadata_line_names_the_writer_once_several_people_share_a_channel(autojump_clock):
    slack = FakeChannel("slack")
    async with open_world(ScriptedModel(lambda request: say("")), channels=(FakeChannel("cli"), slack)) as world:
        for user in ("anna", "anna", "bob", "anna"):
            await world.say("hi", ChannelInfo("slack", "#dev", user))
        await world.say("hi", ChannelInfo("slack", "D-other", "anna"))
        await world.idle()
        sessions = (world.session(ChannelInfo("slack", "#dev").address), world.session())
        lines = [
            line["content"].partition("\n")[0] for session in sessions for line in session if line["role"] == "user"
        ]
    assert lines == [
        "[channel: slack | id: #dev]",
        "[channel: slack | id: #dev]",
        "[channel: slack | id: #dev | user: bob]",
        "[channel: slack | id: #dev | user: anna]",
        "[channel: slack | id: D-other]",
    ]


# ------------------------------------------------------------------ /stop all


def heard(model):
    """The texts of people in the last request."""
    return "\n".join(turn.text for turn in model.requests[-1].turns)


async def test_stop_names_the_way_to_discard_what_waits(autojump_clock):
    async with open_world(ScriptedModel([Hang(), Hang()])) as world:
        await world.say("think")
        await trio.sleep(1)
        await world.say("one")
        await world.say("/stop")
        text = (await world.next_reply()).text
        assert text.endswith("1 message is still waiting and will be taken up next; /stop all discards it.")


async def test_what_waits_is_discarded_and_the_conversation_shows_it(autojump_clock):
    model = ScriptedModel([Hang(), say("", reply("r", "hello again"))])
    disk = MemoryDisk()
    async with open_world(model, disk=disk) as world:
        await world.say("think")
        await trio.sleep(1)
        for n in range(3):
            await world.say(f"line {n}", message_id=f"line-{n}")
        await world.say("/STOP  all")
        text = (await world.next_reply()).text
        assert "- thought: think" in text
        assert text.endswith("\nDiscarded: 3 messages that waited.")
        await world.idle()
        assert len(model.requests) == 1
        assert (await world.say("line 1", message_id="line-1")).duplicate
        await world.say("hello")
        assert (await world.next_reply()).text == "hello again"
        await world.idle()
    assert "[Messages discarded: 3]" in heard(model)
    assert "line 0" not in heard(model)
    async with open_world(ScriptedModel([]), disk=disk) as world:
        await world.idle()
        assert not world.channels["cli"].texts


async def test_other_conversations_keep_what_waits(autojump_clock):
    slack = FakeChannel("slack")
    model = ScriptedModel([Hang(), say("", reply("r", "done"))])
    async with open_world(model, channels=(FakeChannel("cli"), slack)) as world:
        await world.say("think")
        await trio.sleep(1)
        await world.say("mine")
        await world.say("theirs", ChannelInfo("slack", "D-bob", "bob"))
        await world.say("/stop all")
        text = (await world.next_reply()).text
        assert "Discarded: 1 message that waited." in text
        assert "1 message is still waiting and will be taken up next." in text
        await world.idle()
    assert "theirs" in heard(model)


async def test_a_guest_discards_their_own_messages_only(autojump_clock):
    slack = FakeChannel("slack")
    bob, ann = ChannelInfo("slack", "#all", "bob"), ChannelInfo("slack", "#all", "ann")
    model = ScriptedModel([Hang(), *[say("", reply("r", "done"))] * 3])
    async with open_world(model, channels=(FakeChannel("cli"), slack), settings=CLI_OWNS) as world:
        await world.say("think", ann)
        await trio.sleep(1)
        await world.say("from bob", bob)
        await world.say("from ann", ann)
        await world.say("/stop all", bob)
        text = (await slack.next_reply()).text
        assert "Discarded: 1 message that waited." in text
        assert "- thought" not in text
        await world.say("/stop", ann)
        await world.idle()
    assert "from ann" in heard(model)
    assert "from bob" not in heard(model)


async def test_what_was_discarded_stays_so_when_the_agent_is_killed_before_it_answers(autojump_clock, tasks_never_end):
    disk = MemoryDisk()
    async with open_world(ScriptedModel([Hang()]), disk=disk) as world:
        with trio.CancelScope() as scope:
            await world.say("think")
            await trio.sleep(1)
            await world.say("line")
            await world.say("/stop all")
            await trio.sleep(0.5)
            await kill(world)
            scope.cancel()
    model = ScriptedModel([say("", reply("r", "about think"))])
    async with open_world(model, disk=disk) as world:
        await world.idle()
        texts = world.channels["cli"].texts
        assert "Discarded: 1 message that waited." in texts[
            -1
        ] or "The messages that waited are discarded." in "\n".join(texts)
    assert all("line" not in turn.text for request in model.requests for turn in request.turns)


async def test_new_says_that_it_takes_no_words(autojump_clock):
    async with open_world(ScriptedModel([])) as world:
        await world.say("/new now")
        assert "I have not read what stood behind /new" in (await world.next_reply()).text
        await world.say("/new")
        assert "behind /new" not in (await world.next_reply()).text


# ------------------------------------------------------------------ interrupt


def of_task(number, state="ACTING", waits_for=""):
    return TaskProgress(CLI, f"t{number}", number, f"job {number}", state, "", 1, 0, waits_for=waits_for)


ANSWER = EndedWork("thought", "tell me", 8.2)


@pytest.mark.parametrize(
    ("tasks", "waiting", "says"),
    [
        ([], 0, "Ended the answer to “tell me” (8.2 s)."),
        ([], 1, "1 message waited and comes next. /stop all discards what waits."),
        ([of_task(1)], 0, "Task 1 (job 1) goes on. /stop ends the task, too."),
        (
            [of_task(1, "SUSPENDED"), of_task(2, "SUSPENDED", "approval")],
            2,
            "Tasks 1 (job 1; waits for an answer) and 2 (job 2; waits for your yes) go on. 2 messages waited and come next. "
            "/stop ends the tasks, too.",
        ),
        ([of_task(n) for n in range(1, 6)], 0, "Tasks 1 (job 1), 2 (job 2), 3 (job 3) and 2 more go on."),
    ],
)
def test_the_receipt_of_an_interrupt_names_what_goes_on(tasks, waiting, says):
    assert says in interrupt_text(ANSWER, tasks, waiting)
