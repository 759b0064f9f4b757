"""What becomes of tasks when the process dies: both recovery modes, at every point of a task's life."""

from functools import partial

import pytest
import trio

from actors import ActorError
from pegasus.settings import Settings
from pegasus.tasks import FOR_PERSON, Cancel, CancelAll, Continue, GetTask, Resume, Suspend, TaskState
from pegasus.tasks.agent.recovery import UNKNOWN
from pegasus.tasks.core.fsm import RESTARTED
from pegasus.tasks.run.deps import TaskLimits
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, say
from tests.pegasus.tasks.lives import ID, created, event, reasoned, task_lines
from tests.pegasus.tasks.world import Listener, MemoryFolder, StubMemory, open_desk


async def only_log(shelf):
    [task_id] = shelf.logs
    return task_id


async def test_an_unfinished_task_is_failed_and_told_once(autojump_clock):
    shelf, listener = MemoryFolder(), Listener()
    with trio.move_on_after(5):
        async with open_desk(ScriptedModel([Hang()]), shelf=shelf) as desk:
            await desk.submit("the job", metadata={"a": 1})
            await trio.sleep_forever()
    task_id = await only_log(shelf)
    for _ in range(2):
        async with open_desk(ScriptedModel([]), shelf=shelf, listener=listener) as desk:
            await trio.sleep(5)
            assert (await desk.agent.ask(GetTask, task_id)).error == RESTARTED
    assert [(told.type, told.n, told.metadata) for told in listener.heard] == [("failed", 1, {"a": 1})]
    assert shelf.events(task_id) == ["TASK_CREATED", "TASK_FAILED"]


async def test_the_end_of_interrupted_tasks_is_shown_once_and_nobody_is_asked_for_them_any_more(autojump_clock):
    shelf, seen, over = MemoryFolder(), [], []
    with trio.move_on_after(5):
        async with open_desk(ScriptedModel([Hang(), Hang()]), shelf=shelf) as desk:
            await desk.submit("the job")
            await desk.submit("the other job")
            await trio.sleep_forever()
    for _ in range(2):
        async with open_desk(
            ScriptedModel([]),
            shelf=shelf,
            observe=lambda view, ends: seen.append((view.task_id, view.state, ends)),
            over=over.append,
        ):
            await trio.sleep(5)
        assert seen == [(task_id, TaskState.FAILED, True) for task_id in shelf.logs]
        assert over == [list(shelf.logs)]


async def test_the_approvals_of_tasks_that_were_over_already_are_withdrawn_together(autojump_clock):
    shelf, over = MemoryFolder(), []
    async with open_desk(ScriptedModel(lambda request: "done"), shelf=shelf) as desk:
        for _ in range(20):
            await desk.run("job")
        await trio.sleep(1)
    shelf.forgotten.clear()
    async with open_desk(ScriptedModel([]), shelf=shelf, over=over.append):
        await trio.sleep(5)
    assert over == [list(shelf.logs)]


async def test_a_task_is_pending_until_a_listener_that_comes_late_has_taken_its_end(autojump_clock):
    """What recovery has to say is not lost when it is said before anybody listens."""

    class Late(Listener):
        open = False

        async def run(self, inbox):
            async for message in inbox:
                if self.open:
                    self.heard += message.notifications
                    message.reply.send(None)
                else:
                    message.reply.fail(ActorError("not yet", target="listener", message_type="Notify"))

    shelf, listener = MemoryFolder(), Late()
    with trio.move_on_after(5):
        async with open_desk(ScriptedModel([Hang()]), shelf=shelf) as desk:
            await desk.submit("the job", metadata={"a": 1})
            await trio.sleep_forever()
    task_id = await only_log(shelf)
    async with open_desk(ScriptedModel([]), shelf=shelf, listener=listener):
        await trio.sleep(30)
        assert (listener.heard, shelf.forgotten) == ([], [])
        listener.open = True
        await trio.sleep(30)
    assert [(told.type, told.n, told.metadata) for told in listener.heard] == [("failed", 1, {"a": 1})]
    assert shelf.forgotten == [task_id]


async def test_a_task_that_a_restart_failed_can_be_resumed(autojump_clock):
    shelf = MemoryFolder()
    with trio.move_on_after(5):
        async with open_desk(ScriptedModel([Hang()]), shelf=shelf) as desk:
            await desk.submit("the job")
            await trio.sleep_forever()
    task_id = await only_log(shelf)
    async with open_desk(ScriptedModel(["done after all"]), shelf=shelf) as desk:
        await desk.listener.next(1)
        await desk.agent.ask(Resume, task_id, "go on")
        assert (await desk.outcome(task_id)).result == "done after all"


RESUME = TaskLimits(recovery="resume")


def test_unfinished_tasks_go_on_unless_the_settings_say_otherwise():
    assert Settings().tasks.recovery == TaskLimits().recovery == RESUME.recovery


async def killed_in_a_call(name):
    shelf = MemoryFolder()
    calls = say("", call("echo", "a", x="done before"), call(name, "b", x=30))
    with trio.move_on_after(5):
        async with open_desk(ScriptedModel([calls]), shelf=shelf) as desk:
            await desk.submit("the job")
            await trio.sleep_forever()
    return shelf


async def test_a_look_that_was_under_way_is_taken_again_and_finished_calls_are_not(autojump_clock):
    shelf = await killed_in_a_call("look")
    model = ScriptedModel(["all done"])
    async with open_desk(model, shelf=shelf, limits=RESUME) as desk:
        assert (await desk.outcome(await only_log(shelf))).result == "all done"
        assert [(key.split("/")[1], what) for _, key, what, _ in desk.calls] == [("b", "begin"), ("b", "end")]
        assert model.requests[0].turns[-1].results[0].content == '{"x":"done before"}'


async def test_of_a_call_that_changes_things_the_model_is_told_that_nobody_knows(autojump_clock):
    shelf = await killed_in_a_call("slow")
    model = ScriptedModel(["I shall look first."])
    async with open_desk(model, shelf=shelf, limits=RESUME) as desk:
        assert (await desk.outcome(await only_log(shelf))).result == "I shall look first."
        assert desk.calls == []
        last = model.requests[0].turns[-1].results[-1]
        assert (last.is_error, UNKNOWN in last.content) == (True, True)


async def test_a_task_killed_while_it_thinks_thinks_again(autojump_clock):
    shelf = MemoryFolder()
    with trio.move_on_after(5):
        async with open_desk(ScriptedModel([say("", call("echo", "a", x=1)), Hang()]), shelf=shelf) as desk:
            await desk.submit("the job")
            await trio.sleep_forever()
    async with open_desk(ScriptedModel(["done"]), shelf=shelf, limits=RESUME) as desk:
        assert (await desk.outcome(await only_log(shelf))).result == "done"
        assert desk.calls == []


async def test_a_waiting_task_still_waits_its_turn(autojump_clock):
    shelf = MemoryFolder()
    limits = TaskLimits(max_active=1, recovery="resume")
    with trio.move_on_after(5):
        async with open_desk(ScriptedModel([Hang()]), shelf=shelf, limits=limits) as desk:
            first, second = await desk.submit("first"), await desk.submit("second")
            await trio.sleep_forever()
    listener = Listener()
    model = ScriptedModel(lambda request: request.turns[0].text)
    async with open_desk(model, shelf=shelf, listener=listener, limits=limits) as desk:
        await desk.outcome(first)
        await desk.outcome(second)
        await listener.next(2)
    assert [told.text for told in listener.heard] == ["first", "second"]


async def test_tasks_that_are_paused_before_they_go_on_rest_and_take_no_slot(autojump_clock):
    """They wait for the commands of the last run at that time, and then for a slot; the agent must not wait for them."""
    shelf = MemoryFolder()
    limits = TaskLimits(max_active=1, recovery="resume")
    with trio.move_on_after(5):
        async with open_desk(ScriptedModel([Hang()]), shelf=shelf, limits=limits) as desk:
            first, *others = [await desk.submit(name) for name in ("first", "second", "third")]
            await trio.sleep_forever()
    model = ScriptedModel([After(20, "done"), "went on"])
    async with open_desk(model, shelf=shelf, limits=limits, before_resuming=partial(trio.sleep, 5)) as desk:
        asked = [await desk.agent.request(Suspend, task_id) for task_id in others]
        assert (await desk.outcome(first)).result == "done"
        with trio.fail_after(60):
            assert [(await reply.get()).waits_for for reply in asked] == [FOR_PERSON, FOR_PERSON]
            await desk.agent.ask(Continue, others[0])
            assert (await desk.outcome(others[0])).result == "went on"


async def suspended_task(shelf):
    """The id of a task that has asked a question before the process ended."""
    with trio.move_on_after(5):
        async with open_desk(ScriptedModel([say("", call("ask_user", "q", question="Which?"))]), shelf=shelf) as desk:
            await desk.submit("paint")
            await trio.sleep_forever()
    return await only_log(shelf)


async def test_a_suspended_task_is_still_suspended_and_can_be_answered(autojump_clock):
    shelf = MemoryFolder()
    task_id = await suspended_task(shelf)
    async with open_desk(ScriptedModel(["blue"]), shelf=shelf, limits=RESUME) as desk:
        assert (await desk.listener.next(1)).n == 1
        assert (await desk.agent.ask(GetTask, task_id)).state is TaskState.SUSPENDED
        await desk.agent.ask(Resume, task_id, "the blue one")
        assert (await desk.outcome(task_id)).result == "blue"


async def test_a_suspended_task_of_an_earlier_run_can_be_cancelled(autojump_clock):
    shelf = MemoryFolder()
    task_id = await suspended_task(shelf)
    async with open_desk(ScriptedModel([]), shelf=shelf, limits=RESUME) as desk:
        await desk.agent.ask(Cancel, task_id, "x")
        assert (await desk.outcome(task_id)).error == "stopped by x"


@pytest.mark.parametrize("mode", ["fail", "resume"])
@pytest.mark.parametrize("seconds", [1, 5.5])
@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_a_reflection_that_a_stop_prevents_is_made_at_the_next_start(how, seconds, mode, autojump_clock):
    """Whether it was due or under way: once, and the submitter hears of the result once."""

    async def nothing():
        return ""

    shelf, listener, limits = MemoryFolder(), Listener(), TaskLimits(recovery=mode)
    memory = StubMemory(nothing, nothing)
    model = ScriptedModel(lambda request: Hang() if "Look back" in request.system else "found it " * 50)
    with trio.move_on_after(seconds) as scope:
        async with open_desk(model, shelf=shelf, listener=listener, memory=memory, limits=limits) as desk:
            task_id = await desk.submit("the job")
            await trio.sleep(seconds - 0.5 if how == "stopped" else 1000)
            scope.deadline += 100
    assert shelf.forgotten == []
    again = ScriptedModel(["Nothing to keep."])
    for asked in (1, 1):
        async with open_desk(again, shelf=shelf, listener=listener, memory=memory, limits=limits) as desk:
            await trio.sleep(20)
            assert (await desk.agent.ask(GetTask, task_id)).state is TaskState.COMPLETED
        assert ["Look back" in request.system for request in again.requests] == [True] * asked
        assert shelf.forgotten == [task_id]
    assert {(told.type, told.n) for told in listener.heard} == {("completed", 1)}
    assert shelf.events(task_id)[-2:] == ["TASK_COMPLETED", "REFLECTION_COMPLETE"]


@pytest.mark.parametrize("what", ["cancel", "cancel all", "resume"])
async def test_before_recovery_begins_a_reflection_a_person_may_end_it_or_resume_the_task(what, autojump_clock):
    async def nothing():
        return ""

    shelf, memory = MemoryFolder(), StubMemory(nothing, nothing)
    with trio.move_on_after(1):
        async with open_desk(ScriptedModel(["found it " * 50]), shelf=shelf, memory=memory) as desk:
            task_id = await desk.submit("the job")
            await trio.sleep_forever()
    again = ScriptedModel(["more", "Nothing to keep."])
    commands_done = partial(trio.sleep, 5)
    async with open_desk(again, shelf=shelf, memory=memory, before_resuming=commands_done) as desk:
        await trio.sleep(1)
        if what == "resume":
            await desk.agent.ask(Resume, task_id, "and more")
            assert (await desk.outcome(task_id)).result == "more"
        else:
            stopped = await desk.agent.ask(Cancel, task_id, "x") if what == "cancel" else None
            [stopped] = [stopped] if stopped else await desk.agent.ask(CancelAll, "x")
            assert stopped.doing == "reflecting"
        await trio.sleep(100)
        assert shelf.forgotten == [task_id]
        # The reflection on the resumed task is the one on all that it has done.
        assert ["Look back" in request.system for request in again.requests] == (
            [False, True] if what == "resume" else []
        )
        assert shelf.events(task_id).count("REFLECTION_COMPLETE") == (what == "resume")


async def test_a_reflection_that_a_person_has_ended_is_not_made_at_the_next_start(autojump_clock):
    async def nothing():
        return ""

    shelf, memory = MemoryFolder(), StubMemory(nothing, nothing)
    model = ScriptedModel(lambda request: Hang() if "Look back" in request.system else "found it " * 50)
    async with open_desk(model, shelf=shelf, memory=memory) as desk:
        task_id = await desk.submit("the job")
        await trio.sleep(10)
        assert (await desk.agent.ask(Cancel, task_id, "x")).doing == "reflecting"
        await trio.sleep(1)
        assert shelf.forgotten == [task_id]


@pytest.mark.parametrize("mode", ["fail", "resume"])
@pytest.mark.parametrize("lines", range(1, 10))
async def test_cut_off_after_any_line_a_task_ends_and_is_told_of_once(lines, mode, autojump_clock):
    """Each notification has one number, whatever was told before the crash, and calls that are finished are never made again."""
    shelf = MemoryFolder()

    def script(request):
        done = sum(bool(getattr(turn, "results", ())) for turn in request.turns)
        steps = [say("", call("notify", "n", message="half way")), say("", call("echo", "e", x=1)), "done"]
        return steps[min(done, 2)]

    async with open_desk(ScriptedModel(script), shelf=shelf) as desk:
        task = await desk.run()
        calls = len(desk.calls)
    assert calls == 1
    whole = shelf.logs[task.task_id].splitlines(keepends=True)
    assert len(whole) == 9
    shelf.logs[task.task_id] = b"".join(whole[:lines])
    shelf.forgotten.clear()
    listener = Listener()
    for _ in range(3):
        async with open_desk(
            ScriptedModel(script), shelf=shelf, listener=listener, limits=TaskLimits(recovery=mode)
        ) as desk:
            await trio.sleep(50)
            made = len(desk.calls)
            echoed = any(b'"toolName":"echo"' in line for line in whole[:lines])
            assert made == 0 or not echoed
    numbers = {told.n: told.type for told in listener.heard}
    ended = (await shelf.load(task.task_id)).state
    assert ended in (TaskState.COMPLETED, TaskState.FAILED)
    assert numbers[max(numbers)] == ("completed" if ended is TaskState.COMPLETED else "failed")
    assert mode == "fail" or numbers == {1: "notify", 2: "completed"}
    assert shelf.forgotten


async def test_a_task_that_is_resumed_before_its_end_is_forgotten_stays_pending(autojump_clock):
    """Ends are told together, and forgotten when each has been taken: one that took long must not drop what goes on again."""

    class Slow(Listener):
        async def run(self, inbox):
            async for message in inbox:
                self.heard += message.notifications
                await trio.sleep(
                    5 if len(self.heard) == 1 else 15
                )  # meanwhile the others come, which are told together
                message.reply.send(None)

    shelf, model = (
        MemoryFolder(),
        ScriptedModel(lambda request: Hang() if request.turns[-1].text == "go on" else "done"),
    )
    async with open_desk(model, shelf=shelf, listener=Slow()) as desk:
        ids = {await desk.submit(f"job {n}") for n in range(3)}
        await trio.sleep(10)
        assert len(desk.listener.heard) == 3
        last = desk.listener.heard[2].task_id
        await desk.agent.ask(Resume, last, "go on")
        await trio.sleep(20)
        assert set(shelf.forgotten) == ids - {last}


async def test_a_task_that_is_cancelled_before_it_has_begun_is_not_pending_any_more(autojump_clock):
    shelf = MemoryFolder()
    async with open_desk(ScriptedModel([Hang()]), shelf=shelf, limits=TaskLimits(max_active=1)) as desk:
        await desk.submit("first")
        waiting = await desk.submit("second")
        await desk.agent.ask(Cancel, waiting, "user")
        await trio.sleep(5)
        assert shelf.forgotten == [waiting]


async def test_a_plan_without_an_open_step_leads_to_nothing(autojump_clock):
    """Such a log is not ours; its task does nothing and can be ended."""
    thought = reasoned(("c1", "echo", {}))
    thought.payload["plan"]["steps"][0]["completed"] = True
    shelf, model = MemoryFolder(), ScriptedModel([])
    shelf.logs[ID] = task_lines(created(), event(thought.type, thought.payload))
    async with open_desk(model, shelf=shelf, limits=RESUME) as desk:
        await trio.sleep(10)
        assert (await desk.agent.ask(GetTask, ID)).state is TaskState.ACTING
        assert (desk.calls, model.requests, shelf.events(ID)) == ([], [], ["TASK_CREATED", "REASON_DONE"])
        await desk.agent.ask(Cancel, ID, "x")
        assert (await desk.outcome(ID)).error == "stopped by x"
