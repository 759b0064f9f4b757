"""Calls that wait for an owner: through the whole tree, over crashes, answered by everybody who may and by some who may not."""

import errno
import json
from types import SimpleNamespace

import attrs
import pytest
import trio

from actors import Child, Mailbox, open_supervisor
from pegasus.access import ListApprovals, Role, SeekApproval, sender_of
from pegasus.access.approval_store import MOST_FOR_GUESTS
from pegasus.access.question_texts import SHOWN_ARGUMENTS
from pegasus.app.task_services import _withdraw_approvals
from pegasus.gateway import BadParams, Caller
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.models import ToolSpec
from pegasus.settings import AgentSettings, PolicySettings, Settings, TaskSettings
from pegasus.tasks import Cancel, GetContext, GetTask, Resume, Submit, TaskState, Wait, wait_until_running
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import ScriptedModel, call, say
from pegasus.testing.world import FakeChannel, kill, open_world
from pegasus.tools import Effect, Tool, parameters

CLI = ChannelInfo("cli", "main")
ANN = ChannelInfo("slack", "#general", "ann")
EVE = ChannelInfo("slack", "#general", "eve")
CALLER = Caller("cli", "main", None)

FILE = "approvals.jsonl"


def settings(decision="ask", recovery="resume", **policy):
    rules = ({"tool": "touch", "decision": decision},)
    agent = AgentSettings(owners=("cli:*", "slack:ann"))
    return Settings(agent=agent, policy=PolicySettings(rules=rules, **policy), tasks=TaskSettings(recovery=recovery))


class Touch:
    """A tool that must not be run without a yes."""

    def __init__(self, effect=Effect.ONCE):
        self.touched = []
        spec = ToolSpec("touch", "Touch.", parameters({"what": {"type": "string"}}, "what"))
        self.tool = Tool(spec, self.run, effect=effect)

    async def run(self, arguments, context):
        self.touched.append(arguments["what"])
        return "touched"


def at_work(*what):
    """The model of a task: it touches things, one call each in one thought, and then says what came of it."""
    calls = say("", *(call("touch", f"c{n}", what=name) for n, name in enumerate(what)))

    def think(request):
        results = [result.content for turn in request.turns for result in getattr(turn, "results", ())]
        return "; ".join(results) if results else calls

    return ScriptedModel(think)


def opened(touch, *what, **more):
    more.setdefault("settings", settings())
    more.setdefault("channels", (FakeChannel("cli"), FakeChannel("slack")))
    more.setdefault("task_model", at_work(*what))
    return open_world(ScriptedModel(lambda request: say()), tools=(touch.tool,), **more)


async def submit(world, channel=CLI, role="owner"):
    agent = world.root.ref("tasks/agent")
    assert await wait_until_running(agent)
    where = {"type": channel.type, "channelId": channel.channel_id, "userId": channel.user_id}
    return await agent.ask(Submit, "job", "user", "general", "", {"channel": where, "role": role})


async def look(world, task_id):
    return await world.root.ref("tasks/agent").ask(GetTask, task_id)


async def until_waiting(world, task_id):
    """Wait until the task is suspended, and return its approval."""
    while (await look(world, task_id)).state is not TaskState.SUSPENDED:  # noqa: ASYNC110  virtual time
        await trio.sleep(0.01)
    [approval, *_] = await waiting(world)
    return approval


async def waiting(world):
    return await world.root.ref("approvals/keeper").ask(ListApprovals)


async def outcome(world, task_id):
    return await world.root.ref("tasks/agent").ask(Wait, task_id)


def say_to(world, text, channel=CLI):
    message, services = InboundMessage(text, channel, "m1"), world.tree.services
    return services.approvals.answer_command(message, sender_of(message, services.environment.owners.now))


async def results_of(world, task_id):
    context = await world.root.ref("tasks/agent").ask(GetContext, task_id)
    return [entry.content for entry in context.messages if entry.role == "tool"]


async def test_a_call_waits_for_a_yes(autojump_clock):
    touch = Touch()
    async with opened(touch, "x") as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        assert (touch.touched, (await look(world, task_id)).waits_for) == ([], "approval")
        assert approval.request.first.arguments == {"what": "x"}
        text = await say_to(world, f"/approve {approval.id}")
        assert text == f"{approval.id} is allowed: touch will be run."
        assert (await outcome(world, task_id)).result == '"touched"'
        assert await waiting(world) == ()
    assert touch.touched == ["x"]


async def test_a_no_is_an_error_for_the_model(autojump_clock):
    touch = Touch()
    async with opened(touch, "x") as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        await say_to(world, f"/deny {approval.id} not on a Sunday")
        await outcome(world, task_id)
        [result] = await results_of(world, task_id)
    assert result == "Error: touch was not run: an owner was asked and has said no: not on a Sunday."
    assert touch.touched == []


async def test_without_an_answer_it_is_a_no(autojump_clock):
    touch = Touch()

    def clock():
        return round(trio.current_time() * 1000)

    async with opened(touch, "x", settings=settings(timeout=3600.0), clock=clock) as world:
        task_id = await submit(world)
        begin = trio.current_time()
        await outcome(world, task_id)
        assert 3600 <= trio.current_time() - begin < 3602
        [result] = await results_of(world, task_id)
    assert "nobody has answered in time" in result
    assert touch.touched == []


async def test_the_first_answer_counts(autojump_clock):
    touch = Touch()
    async with opened(touch, "x") as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        answers = []

        async def answer(text):
            answers.append(await say_to(world, text))

        async with trio.open_nursery() as nursery:
            for text in (f"/approve {approval.id}", f"/deny {approval.id}", f"/approve {approval.id}"):
                nursery.start_soon(answer, text)
        await outcome(world, task_id)
        late = await say_to(world, f"/deny {approval.id}")
    assert sorted("The first answer counts" in text for text in answers) == [False, True, True]
    assert "The first answer counts" in late


async def test_only_owners_answer(autojump_clock):
    touch = Touch()
    async with opened(touch, "x") as world:
        task_id = await submit(world, ANN)
        approval = await until_waiting(world, task_id)
        desk = world.tree.services.approvals
        assert await say_to(world, f"/approve {approval.id}", EVE) == "Only my owner may decide about that."
        for method in (desk.list, desk.answer):
            with pytest.raises(BadParams, match="only an owner"):
                await method(Caller("slack", "#general", "eve"), {"id": approval.id, "decision": "allow"})
        assert await waiting(world) == (approval,)
        await say_to(world, f"/approve {approval.id}", ANN)
        await outcome(world, task_id)
    assert touch.touched == ["x"]


async def test_always_is_for_exactly_these_arguments_and_rights(autojump_clock):
    touch, disk = Touch(), MemoryDisk()
    async with opened(touch, "x", disk=disk) as world:
        approval = await until_waiting(world, task_id := await submit(world))
        assert "exactly these arguments" in await say_to(world, f"/approve {approval.id} always")
        await outcome(world, task_id)
        await outcome(world, await submit(world))
        assert touch.touched == ["x", "x"]
        await trio.sleep(30)  # nothing of these tasks is left for the next start, not even a reflection
    async with opened(touch, "x", disk=disk) as world:
        for _ in range(3):  # the first ones have the ids of those before, and so the answers that these got
            await outcome(world, await submit(world))
        assert touch.touched == ["x"] * 5
        await until_waiting(world, await submit(world, EVE, "guest"))
        await trio.sleep(30)
    async with opened(touch, "y", disk=disk) as world:
        await until_waiting(world, await submit(world))
    assert touch.touched == ["x"] * 5


@pytest.mark.parametrize("effect", [Effect.ONCE, Effect.PURE])
async def test_calls_of_one_thought_are_one_question(autojump_clock, effect):
    touch = Touch(effect)
    async with opened(touch, "x", "y", "z") as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        assert await waiting(world) == (approval,)
        assert [call.arguments["what"] for call in approval.request.calls] == ["x", "y", "z"]
        assert await say_to(world, f"/approve {approval.id}") == f"{approval.id} is allowed: touch will be run."
        await outcome(world, task_id)
        assert await waiting(world) == ()
    assert sorted(touch.touched) == ["x", "y", "z"]


@pytest.mark.parametrize("effect", [Effect.ONCE, Effect.PURE])
async def test_a_question_is_answered_in_part(autojump_clock, effect):
    touch = Touch(effect)
    async with opened(touch, "x", "y", "z") as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        text = await say_to(world, f"/approve {approval.id} 1, 3")
        assert text == f"{approval.id} is allowed: of 3 calls 1 (touch), 3 (touch) will be run; denied: 2 (touch)."
        await outcome(world, task_id)
        first, second, third = await results_of(world, task_id)
    assert (first, third) == ('"touched"', '"touched"')
    assert second.endswith("an owner was asked about several calls and has said no to this one.")
    assert sorted(touch.touched) == ["x", "z"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("4", "found the number 4; the calls have the numbers 1 to 3"),
        ("0", "found the number 0"),
        ("1,x", "found"),
        ("server", 'Found the scope "server", allowed here: once, arguments, tool, hour, forever'),
        ("week", "allowed behind the id: [once|arguments|tool|server|hour|forever] [1,3]"),
    ],
)
async def test_a_part_or_a_scope_that_does_not_exist_leaves_the_question_open(autojump_clock, text, problem):
    touch = Touch()
    async with opened(touch, "x", "y", "z") as world:
        approval = await until_waiting(world, await submit(world))
        assert problem in await say_to(world, f"/approve {approval.id} {text}")
        assert await waiting(world) == (approval,)
    assert touch.touched == []


@pytest.mark.parametrize("recovery", ["resume", "fail"])
@pytest.mark.parametrize("answer", ["/approve", "/deny"])
async def test_an_approval_waits_on_over_a_crash(autojump_clock, recovery, answer):
    touch, disk = Touch(), MemoryDisk()
    mode = settings(recovery=recovery)
    async with opened(touch, "x", disk=disk, settings=mode) as world:
        task_id = await submit(world)
        before = await until_waiting(world, task_id)
        with trio.CancelScope() as scope:
            await kill(world)
            scope.cancel()
    async with opened(touch, "x", disk=disk, settings=mode) as world:
        assert await wait_until_running(world.root.ref("tasks/agent"))
        after = await until_waiting(world, task_id)
        assert after == before
        await say_to(world, f"{answer} {after.id}")
        assert (await outcome(world, task_id)).state is TaskState.COMPLETED
    assert touch.touched == (["x"] if answer == "/approve" else [])


async def test_a_crash_at_any_moment_of_an_answer_runs_the_call_once_at_most(autojump_clock):
    """Whatever the moment: an answered call is made or reported as of unknown outcome, never twice, and the task comes to its end."""
    for moment in range(12):
        touch, disk = Touch(), MemoryDisk()
        async with opened(touch, "x", disk=disk) as world:
            task_id = await submit(world)
            approval = await until_waiting(world, task_id)
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(say_to, world, f"/approve {approval.id}")
                    for _ in range(5 * moment):
                        await trio.lowlevel.checkpoint()
                    await kill(world)
                    scope.cancel()
        async with opened(touch, "x", disk=disk) as world:
            assert await wait_until_running(world.root.ref("tasks/agent"))
            while not (task := await look(world, task_id)).is_over:
                if task.waits_for and await waiting(world):
                    await say_to(world, f"/approve {approval.id}")
                await trio.sleep(0.1)
            assert task.state is TaskState.COMPLETED, moment
        assert touch.touched in (["x"], []), moment
        assert touch.touched or "may or may not" in task.result, moment


def planning(*what):
    """The model of a task: it asks beforehand for what it touches, then touches it call by call, and the first once more."""

    def think(request):
        done = sum(len(turn.results) for turn in request.turns if hasattr(turn, "results"))
        if done == 0:
            calls = [{"tool": "touch", "arguments": {"what": name}} for name in what]
            return say("", call("ask_permission", "p", calls=calls, why="to touch them"))
        order = (*what, what[0])
        return say("", call("touch", f"c{done}", what=order[done - 1])) if done <= len(order) else "done"

    return ScriptedModel(think)


async def test_a_crash_at_any_moment_neither_loses_nor_doubles_a_planned_call(autojump_clock):
    """The yes is for x and y, each once. Whatever the moment, x runs once at most without a further yes, and y as well."""
    for moment in range(0, 60, 3):
        touch, disk = Touch(Effect.IDEMPOTENT), MemoryDisk()
        async with opened(touch, disk=disk, task_model=planning("x", "y")) as world:
            task_id = await submit(world)
            plan = await until_waiting(world, task_id)
            assert [call.arguments["what"] for call in plan.request.calls] == ["x", "y"]
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(say_to, world, f"/approve {plan.id}")
                    for _ in range(10 * moment):
                        await trio.lowlevel.checkpoint()
                    await kill(world)
                    scope.cancel()
        async with opened(touch, disk=disk, task_model=planning("x", "y")) as world:
            assert await wait_until_running(world.root.ref("tasks/agent"))
            asked = []
            while not (task := await look(world, task_id)).is_over:
                if task.waits_for and (open_ones := await waiting(world)):
                    [approval] = open_ones
                    if approval.request.is_plan:
                        await say_to(world, f"/approve {approval.id}")
                    else:
                        asked.append(approval.request.first.arguments["what"])
                        await say_to(world, f"/deny {approval.id}")
                await trio.sleep(0.1)
            assert asked in (["x"], []), moment  # [] if it was asked and its task suspended before the crash
            results = await results_of(world, task_id)
        assert results[1:3] == ['"touched"', '"touched"'], moment
        assert "said no" in results[3], moment
        assert set(touch.touched) == {"x", "y"}, moment


async def test_a_resume_by_a_person_is_no_way_around(autojump_clock):
    touch = Touch()
    async with opened(touch, "x") as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        await world.root.ref("tasks/agent").ask(Resume, task_id, "go on, it is allowed")
        await trio.sleep(1)
        assert await until_waiting(world, task_id) == approval
    assert touch.touched == []


async def test_a_withdrawal_that_a_full_mailbox_refuses_is_logged(autojump_clock, monkeypatch):
    logged = []
    monkeypatch.setattr(
        "pegasus.app.task_services._log", SimpleNamespace(warning=lambda what, **more: logged.append(more))
    )

    async def busy(inbox):
        inbox.started()
        await trio.sleep_forever()

    async with open_supervisor() as root:
        keeper = await root.start_child(Child("keeper", busy, mailbox=Mailbox(1)))
        _withdraw_approvals(keeper, ["t1"])
        assert logged == []
        _withdraw_approvals(keeper, ["t2", "t3"])
        assert [more["tasks"] for more in logged] == ["t2, t3"]
        await root.stop_child("keeper")
        _withdraw_approvals(keeper, ["t4"])  # the keeper finds out at its start
        assert len(logged) == 1


async def test_ending_the_task_withdraws_the_question(autojump_clock):
    touch = Touch()
    async with opened(touch, "x") as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        await world.root.ref("tasks/agent").ask(Cancel, task_id, "the owner")
        await trio.sleep(0.1)
        assert await waiting(world) == ()
        assert "withdrawn already" in await say_to(world, f"/approve {approval.id}")
    assert touch.touched == []


async def test_nothing_else_waits(autojump_clock):
    """Other tasks, and chats, go on while an owner thinks."""
    touch = Touch()
    async with opened(touch, "x", settings=settings(recovery="resume")) as world:
        for _ in range(6):  # more than tasks.max_active
            await submit(world)
        while len(await waiting(world)) < 6:  # noqa: ASYNC110  virtual time
            await trio.sleep(0.01)
        await world.say("hello", CLI)
        await world.idle()


async def test_an_owner_is_asked_where_they_are(autojump_clock):
    """On the chat of the work if the owner is there, else on the owner's channel; not where a terminal shows it anyway."""
    touch = Touch()
    slack, cli, telegram = FakeChannel("slack"), FakeChannel("cli"), FakeChannel("telegram")
    mode = settings(owner_channel="telegram:42")
    async with opened(touch, "x", channels=(slack, cli, telegram), settings=mode) as world:
        for channel, role in ((ANN, "owner"), (EVE, "guest"), (CLI, "owner")):
            await until_waiting(world, await submit(world, channel, role))
        await trio.sleep(0.1)
        by_id = {approval.id: approval for approval in await waiting(world)}
    assert [len(channel.texts) for channel in (slack, telegram, cli)] == [1, 1, 0]
    for channel, user, role in ((slack, "ann", "owner"), (telegram, "eve", "guest")):
        [text] = channel.texts
        [approval] = [each for id, each in by_id.items() if id in text]
        assert approval.request.channel.user_id == user
        assert f"/approve {approval.id} · /deny {approval.id} reason" in text
        is_wider = f"For later calls too: /approve {approval.id} arguments|tool|hour|forever" in text
        assert is_wider == (role == "owner")  # a yes to the work of a guest is for once
        assert f"Asked for on slack #general by {user} ({role})." in text
        assert "rule 1 of policy.rules" in text
        assert "\nwhat: x\n" in text


async def test_the_message_shows_what_is_run_and_cannot_be_imitated(autojump_clock):
    key = "a-secret-of-the-settings"
    evil = f"{key}```\n/approve a-2222 · harmless\n```" + "y" * 5000 + "\u202e\x1b[2J"
    touch, slack = Touch(), FakeChannel("slack")
    async with opened(touch, evil, channels=(slack, FakeChannel("cli")), secrets=(key,)) as world:
        await until_waiting(world, await submit(world, ANN))
        await trio.sleep(0.1)
    [text] = slack.texts
    assert text.count("\n````\n") == 2, "the fence is longer than any in the text"
    assert "characters more: pegasus approvals list" in text
    assert key not in text
    assert len(text) < SHOWN_ARGUMENTS + 600
    assert not set(text) & {"\u202e", "\x1b"}


async def test_guests_cannot_keep_the_owner_from_being_asked(autojump_clock):
    touch = Touch()
    async with opened(touch, "x") as world:
        for n in range(MOST_FOR_GUESTS + 3):
            stranger = attrs.evolve(EVE, user_id=f"eve-{n}")
            await outcome_or_wait(world, await submit(world, stranger, "guest"))
        assert len(await waiting(world)) == MOST_FOR_GUESTS
        await until_waiting(world, await submit(world))
        assert len(await waiting(world)) == MOST_FOR_GUESTS + 1


async def outcome_or_wait(world, task_id):
    while not (task := await look(world, task_id)).is_over and not task.waits_for:  # noqa: ASYNC110  virtual time
        await trio.sleep(0.01)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("/approve", "Nothing waits for your answer.\n/approve ID, /approve ID always, or /deny ID and a reason."),
        ("/approve a-zzzz", 'There is no approval "a-zzzz". Waiting: none.'),
        ("/deny zzzz no", 'There is no approval "a-zzzz". Waiting: none.'),
        ("/approve a-zzzz forever", 'There is no approval "a-zzzz". Waiting: none.'),
        (
            "/approve a-zzzz whenever",
            '/approve: found "whenever"; allowed behind the id: [once|arguments|tool|server|hour|forever] [1,3].',
        ),
    ],
)
async def test_answers_that_make_no_sense(autojump_clock, text, answer):
    async with opened(Touch(), "x") as world:
        assert await say_to(world, text) == answer


async def test_control_calls(autojump_clock):
    touch = Touch()
    async with opened(touch, "x") as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        desk = world.tree.services.approvals
        [listed] = (await desk.list(CALLER, {}))["approvals"]
        assert (listed["id"], listed["arguments"], listed["taskId"]) == (approval.id, {"what": "x"}, task_id)
        for params in (
            {"id": approval.id, "decision": "maybe"},
            {"id": approval.id, "decision": "allow", "scope": "week"},
            {"decision": "allow"},
            {"id": "a-zzzz", "decision": "allow"},
        ):
            with pytest.raises(BadParams):
                await desk.answer(CALLER, params)
        answer = await desk.answer(CALLER, {"id": approval.id, "decision": "allow"})
        assert answer["approval"]["state"] == "allowed"
        await outcome(world, task_id)
    assert touch.touched == ["x"]


async def test_damaged_lines_are_set_aside(autojump_clock):
    touch, disk = Touch(), MemoryDisk()
    async with opened(touch, "x", disk=disk) as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
    good = disk.content(FILE)
    disk.put(FILE, b'{"tool":3}\n{"id":"a-none","state":"allowed"}\n\xff\xfe\n' + good + b'{"id":"a-')
    async with opened(touch, "x", disk=disk) as world:
        assert (await until_waiting(world, task_id)).id == approval.id
        await say_to(world, f"/approve {approval.id}")
        await outcome(world, task_id)
    lines = [json.loads(line) for line in disk.content(FILE).splitlines()]
    assert [line["id"] for line in lines] == [approval.id] * 3
    assert any(f"{FILE}.bad-" in path for path in disk.paths())


async def test_a_yes_is_no_yes_for_other_arguments_or_another_call(autojump_clock):
    touch = Touch()
    async with opened(touch, "x") as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        keeper = world.root.ref("approvals/keeper")
        await say_to(world, f"/approve {approval.id}")
        await outcome(world, task_id)
        asked = approval.request
        assert (await keeper.ask(SeekApproval, asked)).id == approval.id
        call = asked.first
        others = (
            attrs.evolve(call, arguments={"what": "y"}),
            attrs.evolve(call, arguments={"what": "x", "more": "1"}),
            attrs.evolve(call, tool="other"),
            attrs.evolve(call, key="t/another"),
            attrs.evolve(call, files={"do.sh": "1"}),
        )
        changes = [attrs.evolve(asked, calls=(other,)) for other in others]
        for changed in (*changes, attrs.evolve(asked, who=Role.GUEST)):
            other = await keeper.ask(SeekApproval, changed)
            assert (other.is_open, other.id != approval.id) == (True, True), changed
    assert touch.touched == ["x"]


async def test_a_click_whose_answer_cannot_be_written_is_told_so_and_may_be_repeated(autojump_clock):
    touch, disk = Touch(), MemoryDisk()
    async with opened(touch, "x", disk=disk) as world:
        task_id = await submit(world)
        approval, decide = await until_waiting(world, task_id), world.tree.services.approvals.decide
        await trio.sleep(1)
        disk.fail(1, errno.ENOSPC, 1)
        assert "did not work" in await decide(approval.id, "once", "telegram:1")
        assert [each.is_open for each in await waiting(world)] == [True]
        assert "will be run" in await decide(approval.id, "once", "telegram:1")
        assert (await outcome(world, task_id)).result == '"touched"'


async def test_an_unknown_code_or_proposal_is_answered_in_the_words_of_its_kind(autojump_clock):
    async with opened(Touch()) as world:
        decide = world.tree.services.approvals.decide
        for answer in (await say_to(world, "/approve ABCD2345"), await decide("ABCD2345", "once", "telegram:1")):
            assert answer.startswith('There is no open code "ABCD2345"; a code counts once')
        assert await say_to(world, "/deny p-7") == "There is no proposal 7; waiting for a decision: none."
        assert await say_to(world, "/approve a-7777") == 'There is no approval "a-7777". Waiting: none.'
