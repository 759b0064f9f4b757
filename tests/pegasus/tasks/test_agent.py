"""The task system as a whole, in virtual time: creating, running, recording and ending tasks."""

import json
from functools import partial

import attrs
import pytest
import trio

from actors import ActorError, AskTimeout
from pegasus.events import Emit, Event, EventType
from pegasus.models.base import ModelError
from pegasus.tasks import (
    FOR_PERSON,
    Cancel,
    CancelAll,
    Continue,
    GetContext,
    GetTask,
    ListTasks,
    Resume,
    Suspend,
    TaskError,
    TaskState,
    Wait,
    task_id_of,
)
from pegasus.tasks.agent.state import REMEMBERED, TaskRegistry
from pegasus.tasks.log.replay import replay
from pegasus.tasks.run.deps import REFLECT_AFTER, TaskLimits
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, say
from tests.pegasus.tasks.lives import task_lines
from tests.pegasus.tasks.world import Listener, MemoryFolder, StubMemory, open_desk


def types_of(desk, task_id):
    return [event.type.name for event in desk.watcher.events if event.task_id == task_id]


async def test_a_direct_answer_completes_the_task_and_its_submitter_hears_of_it(autojump_clock):
    async with open_desk(ScriptedModel(["Forty-two."])) as desk:
        task = await desk.run("What is the answer?")
        assert (task.state, task.result) == (TaskState.COMPLETED, "Forty-two.")
        told = await desk.listener.next(1)
        assert (told.type, told.n, told.text) == ("completed", 1, "Forty-two.")
        assert told.result == {
            "taskId": task.task_id,
            "input": "What is the answer?",
            "response": "Forty-two.",
            "iterations": 1,
        }
        assert desk.shelf.events(task.task_id) == ["TASK_CREATED", "REASON_DONE", "STEP_COMPLETED", "TASK_COMPLETED"]
        await trio.sleep(1)
        assert desk.shelf.forgotten == [task.task_id]


async def test_tools_lead_back_to_reasoning_until_the_model_answers(autojump_clock):
    model = ScriptedModel([say("first", call("echo", "a", x=1)), say("then", call("echo", "b", x=2)), "Done."])
    async with open_desk(model) as desk:
        task = await desk.run()
        assert (task.result, task.iteration) == ("Done.", 3)
        assert [made[2] for made in desk.calls] == [1, 2]
        assert desk.shelf.events(task.task_id) == [
            "TASK_CREATED",
            *["REASON_DONE", "TOOL_CALL_COMPLETED"] * 2,
            "REASON_DONE",
            "STEP_COMPLETED",
            "TASK_COMPLETED",
        ]
        context = await desk.agent.ask(GetContext, task.task_id)
        assert [entry.role for entry in context.messages] == [
            "user",
            "assistant",
            "tool",
            "assistant",
            "tool",
            "assistant",
        ]


async def test_the_task_reads_its_input_in_every_call_of_the_model(autojump_clock):
    """It must not be forgotten after the first tool call."""
    model = ScriptedModel([say("", call("echo", "a", x=1)), "Done."])
    async with open_desk(model) as desk:
        await desk.run("the whole job")
        assert all(request.turns[0].text == "the whole job" for request in model.requests)


async def test_a_failed_tool_call_is_a_result_and_not_the_end(autojump_clock):
    model = ScriptedModel([say("", call("broken", "a")), "I could not."])
    async with open_desk(model) as desk:
        task = await desk.run()
        assert task.result == "I could not."
        assert model.requests[1].turns[-1].results[0].content == "Error: it is broken"
        assert "TOOL_CALL_FAILED" in desk.shelf.events(task.task_id)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [("no_such", "general", "there is no such tool"), ("echo", "explore", "not available to tasks of type explore")],
)
async def test_a_tool_that_the_task_may_not_use_is_refused_with_what_there_is(name, kind, words, autojump_clock):
    model = ScriptedModel([say("", call(name, "a")), "ok"])
    async with open_desk(model) as desk:
        await desk.run(task_type=kind)
        content = model.requests[1].turns[-1].results[0].content
        assert words in content
        assert "notify" in content
        assert desk.calls == []


async def test_a_type_shows_the_model_only_its_tools(autojump_clock):
    model = ScriptedModel(["ok", "ok"])
    async with open_desk(model) as desk:
        await desk.run(task_type="general")
        await desk.run(task_type="explore")
        general, explore = ({tool.name for tool in request.tools} for request in model.requests)
        assert general == {"echo", "slow", "look", "broken", "notify", "ask_user", "ask_permission"}
        assert explore == {"notify", "ask_user", "ask_permission"}


async def test_each_type_has_its_own_prompt(autojump_clock):
    model = ScriptedModel(lambda request: "ok")
    async with open_desk(model) as desk:
        for kind in ("general", "explore", "plan", "general"):
            await desk.run(task_type=kind)
    prompts = [request.system for request in model.requests]
    assert (len(set(prompts)), prompts[0]) == (3, prompts[3])


async def test_too_many_rounds_end_in_failure_with_a_notification(autojump_clock):
    """The task must not hang, and its submitter must hear of it, once."""
    model = ScriptedModel(lambda request: say("again", call("echo", "a", x=1)))
    async with open_desk(model, limits=TaskLimits(max_iterations=3)) as desk:
        task = await desk.run()
        assert task.state is TaskState.FAILED
        assert task.error == "the task did not come to an end within 3 rounds of thinking"
        assert len(model.requests) == 3
        await trio.sleep(10)
        assert [told.type for told in desk.listener.heard] == ["failed"]
        assert desk.shelf.events(task.task_id).count("TASK_FAILED") == 1


async def test_a_model_that_cannot_be_asked_fails_the_task(autojump_clock):
    async with open_desk(ScriptedModel([ModelError("no route to the model", kind="network")])) as desk:
        task = await desk.run()
        assert (task.state, task.error) == (TaskState.FAILED, "no route to the model")


async def test_a_task_that_takes_too_long_fails_and_what_it_did_is_ended(autojump_clock):
    model = ScriptedModel([say("", call("slow", "a", x=1000))])
    async with open_desk(model, limits=TaskLimits(timeout=30.0), timeout=5000.0) as desk:
        task = await desk.run()
        assert task.error == "the task took longer than 30 s"
        assert [made[2] for made in desk.calls] == ["begin"]
        assert trio.current_time() < 40


async def test_the_time_of_a_task_is_that_of_all_its_stages_together(autojump_clock):
    """Each thought and each call takes half of it."""
    model = ScriptedModel([After(15, say("", call("slow", "a", x=15))), After(15, "too late")])
    async with open_desk(model, limits=TaskLimits(timeout=30.0)) as desk:
        task = await desk.run()
        assert task.error == "the task took longer than 30 s"
        assert trio.current_time() < 40


async def test_a_task_that_goes_on_after_a_question_has_its_time_anew(autojump_clock):
    """What it took before the question, and the time of the person, do not count."""
    model = ScriptedModel([After(20, say("", call("ask_user", "q", question="Which one?"))), After(20, "that one")])
    async with open_desk(model, limits=TaskLimits(timeout=30.0)) as desk:
        task_id = await desk.submit()
        await desk.listener.next(1)
        await trio.sleep(1_000)
        await desk.agent.ask(Resume, task_id, "that one")
        assert (await desk.outcome(task_id)).result == "that one"


async def test_a_defect_in_a_stage_fails_that_task_alone(autojump_clock):
    model = ScriptedModel(lambda request: "fine" if "good" in request.turns[0].text else RuntimeError("a defect"))
    async with open_desk(model) as desk:
        bad, good = await desk.submit("bad"), await desk.submit("good")
        assert (await desk.outcome(bad)).error == "RuntimeError: a defect"
        assert (await desk.outcome(good)).result == "fine"


# ------------------------------------------------------------------ submitting


async def test_an_id_is_given_when_the_task_is_on_disk_and_before_it_works(autojump_clock):
    async with open_desk(ScriptedModel([Hang()])) as desk:
        task_id = await desk.submit()
        assert desk.shelf.events(task_id) == ["TASK_CREATED"]
        created = next(event for event in desk.watcher.events if event.type is EventType.TASK_CREATED)
        received = next(event for event in desk.watcher.events if event.type is EventType.MESSAGE_RECEIVED)
        assert created.parent_id == received.id


async def test_the_same_key_gives_the_same_task(autojump_clock):
    async with open_desk(ScriptedModel(["once"])) as desk:
        ids = set()

        async def submit():
            ids.add(await desk.submit(key="main/7/call_1"))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(submit)
        [task_id] = ids
        await desk.outcome(task_id)
        assert await desk.submit(key="main/7/call_1") == task_id
        assert len(desk.listener.heard) == 1


class Slow(MemoryFolder):
    """Logs that take a second to be looked for."""

    async def exists(self, task_id):
        await trio.sleep(1)
        return await super().exists(task_id)

    async def replay(self, task_id):
        found = await super().replay(task_id)
        await trio.sleep(1)
        return found


async def test_who_leaves_before_a_task_exists_gets_none(autojump_clock):
    """As /stop does, which ends all tasks that exist, and the thought that was about to make one."""
    async with open_desk(ScriptedModel([Hang()]), shelf=Slow()) as desk:
        with trio.move_on_after(0.5):
            await desk.submit(key="main/7/call_1")
        assert await desk.agent.ask(CancelAll, "x") == ()
        await trio.sleep(5)
        assert await desk.agent.ask(ListTasks) == ()
        assert desk.shelf.logs == {}


async def test_a_task_that_is_asked_about_while_it_comes_to_be_is_found(autojump_clock):
    """Who submitted it and has crashed asks right away; "there is none" would make it submit another."""

    key = "main/7/call_1"
    async with open_desk(ScriptedModel([Hang()]), shelf=Slow()) as desk, trio.open_nursery() as nursery:
        nursery.start_soon(partial(desk.submit, key=key))
        await trio.sleep(0.5)
        assert (await desk.agent.ask(GetTask, task_id_of(key))).input_text == "do it"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [({"text": "  "}, "input is empty"), ({"task_type": "wizard"}, r"no type .wizard.*general, explore, plan")],
)
async def test_what_cannot_be_a_task_is_refused_with_the_reason(fields, problem, autojump_clock):
    async with open_desk(ScriptedModel([])) as desk:
        with pytest.raises(TaskError, match=problem):
            await desk.submit(**{"text": "x", **fields})


async def test_beyond_max_active_tasks_wait_in_order_and_beyond_max_queued_they_are_refused(autojump_clock):
    model = ScriptedModel(lambda request: After(10, request.turns[0].text))
    async with open_desk(model, limits=TaskLimits(max_active=2, max_queued=2)) as desk:
        ids = [await desk.submit(str(n)) for n in range(4)]
        await trio.sleep(1)
        states = [(await desk.agent.ask(GetTask, task_id)).state.value for task_id in ids]
        assert states == ["reasoning", "reasoning", "idle", "idle"]
        with pytest.raises(TaskError, match="2 tasks are waiting already"):
            await desk.submit("one too many")
        for task_id in ids:
            await desk.outcome(task_id)
        await desk.listener.next(4)
        heard = [told.text for told in desk.listener.heard]
        assert (set(heard[:2]), set(heard[2:])) == ({"0", "1"}, {"2", "3"})
        assert trio.current_time() == pytest.approx(20, abs=1)


async def test_a_more_urgent_task_goes_first_among_those_that_wait(autojump_clock):
    model = ScriptedModel(lambda request: After(1, request.turns[0].text))
    async with open_desk(model, limits=TaskLimits(max_active=1)) as desk:
        ids = [await desk.submit("first"), await desk.submit("slow one"), await desk.submit("urgent", priority=1)]
        for task_id in ids:
            await desk.outcome(task_id)
        await desk.listener.next(3)
        assert [told.text for told in desk.listener.heard] == ["first", "urgent", "slow one"]


@pytest.mark.parametrize("kind", [EventType.MESSAGE_RECEIVED, EventType.WEBHOOK_TRIGGERED, EventType.SCHEDULE_FIRED])
async def test_an_event_from_outside_makes_a_task(kind, autojump_clock):
    async with open_desk(ScriptedModel(["done"])) as desk:
        await desk.bus.tell(Emit((Event(kind, 0, "outside", payload={"text": "do it", "metadata": {"a": 1}}),)))
        told = await desk.listener.next(1)
        assert (told.type, told.metadata) == ("completed", {"a": 1})


async def test_a_task_of_an_event_has_its_source_and_type_and_the_event_as_its_cause(autojump_clock):
    """A type that there is not is the usual one."""
    async with open_desk(ScriptedModel(["done", "done"])) as desk:
        for kind in ("explore", "wizard"):
            payload = {"text": "do it", "description": "a job", "taskType": kind}
            event = Event(EventType.WEBHOOK_TRIGGERED, 0, "hook:1", payload=payload)
            await desk.bus.tell(Emit((event,)))
            told = await desk.listener.next(len(desk.listener.heard) + 1)
            task = await desk.agent.ask(GetTask, told.task_id)
            known = "general" if kind == "wizard" else kind
            assert (task.source, task.task_type, task.description) == ("hook:1", known, "a job")
            created = next(
                e for e in desk.watcher.events if e.type is EventType.TASK_CREATED and e.task_id == task.task_id
            )
            assert created.parent_id == event.id


async def test_who_submits_says_for_whom(autojump_clock):
    async with open_desk(ScriptedModel(["done"])) as desk:
        task = await desk.run(source="cli:main", task_type="plan")
        assert (task.source, task.task_type) == ("cli:main", "plan")


async def test_an_event_that_somebody_else_handles_makes_none(autojump_clock):
    async with open_desk(ScriptedModel([])) as desk:
        payload = {"text": "hello", "handledBy": "main-agent"}
        await desk.bus.tell(Emit((Event(EventType.MESSAGE_RECEIVED, 0, "cli:main", payload=payload),)))
        await desk.bus.tell(Emit((Event(EventType.MESSAGE_RECEIVED, 0, "cli:main", payload={"text": 7}),)))
        await trio.sleep(1)
        assert await desk.agent.ask(ListTasks) == ()


# ------------------------------------------------------------------ many at once


async def test_tasks_interleave_and_none_waits_for_another(autojump_clock):
    model = ScriptedModel(
        lambda request: "done" if len(request.turns) > 1 else say("", call("slow", "a", x=request.turns[0].text))
    )
    async with open_desk(model) as desk:
        slow, quick = await desk.submit("50"), await desk.submit("1")
        assert (await desk.outcome(quick)).state is TaskState.COMPLETED
        assert trio.current_time() < 10
        assert (await desk.agent.ask(GetTask, slow)).doing == "slow"


async def test_tool_calls_of_all_tasks_together_are_at_most_three(autojump_clock):
    """The permits are shared, not each task's own."""
    model = ScriptedModel(lambda request: "ok" if len(request.turns) > 1 else say("", call("slow", "s", x=10)))
    async with open_desk(model) as desk:
        ids = [await desk.submit(str(n)) for n in range(5)]
        for task_id in ids:
            await desk.outcome(task_id)
        begun = [at for _, _, what, at in desk.calls if what == "begin"]
        assert [round(at) for at in begun] == [0, 0, 0, 10, 10]


async def test_at_most_three_tool_calls_at_a_time(autojump_clock):
    calls = [call("look", f"c{n}", x=1) for n in range(7)]
    async with open_desk(ScriptedModel([say("", *calls), "ok"])) as desk:
        await desk.run()
        begun = [at for _, _, what, at in desk.calls if what == "begin"]
        assert [round(at) for at in begun] == [0, 0, 0, 1, 1, 1, 2]


async def test_calls_that_only_look_run_side_by_side_and_their_results_keep_their_order(autojump_clock):
    calls = [call("look", "a", x=3), call("look", "b", x=1), call("look", "c", x=2)]
    model = ScriptedModel([say("", *calls), "ok"])
    async with open_desk(model) as desk:
        await desk.run()
        assert trio.current_time() == pytest.approx(3, abs=0.5)
        assert [result.call_id for result in model.requests[1].turns[-1].results] == ["a", "b", "c"]


async def test_calls_that_change_things_run_one_after_another(autojump_clock):
    calls = [call("slow", "a", x=3), call("slow", "b", x=1)]
    async with open_desk(ScriptedModel([say("", *calls), "ok"])) as desk:
        await desk.run()
        assert [(key.split("/")[1], what) for _, key, what, _ in desk.calls] == [
            ("a", "begin"),
            ("a", "end"),
            ("b", "begin"),
            ("b", "end"),
        ]


# ------------------------------------------------------------------ words to the submitter


async def test_notify_is_told_at_once_and_the_task_goes_on(autojump_clock):
    model = ScriptedModel([say("", call("notify", "n", message="half way")), say("", call("slow", "s", x=50)), "ok"])
    async with open_desk(model) as desk:
        task_id = await desk.submit(metadata={"channel": {"type": "web", "channelId": "c1"}})
        told = await desk.listener.next(1)
        assert (told.type, told.text, told.n) == ("notify", "half way", 1)
        assert told.metadata == {"channel": {"type": "web", "channelId": "c1"}}
        assert trio.current_time() < 10
        await desk.outcome(task_id)
        await desk.listener.next(2)
        assert [(told.type, told.n) for told in desk.listener.heard] == [("notify", 1), ("completed", 2)]
        assert desk.shelf.events(task_id)[2:4] == ["TASK_NOTIFY", "TOOL_CALL_COMPLETED"]


async def test_a_question_suspends_the_task_until_the_answer_comes(autojump_clock):
    model = ScriptedModel([say("hm", call("ask_user", "q", question="Which one?")), "The blue one it is."])
    async with open_desk(model) as desk:
        task_id = await desk.submit("paint it")
        told = await desk.listener.next(1)
        assert (told.type, told.text) == ("needs_info", "Which one?")
        task = await desk.agent.ask(GetTask, task_id)
        assert (task.state, task.question) == (TaskState.SUSPENDED, "Which one?")
        await trio.sleep(80_000)
        await desk.agent.ask(Resume, task_id, "the blue one")
        assert (await desk.outcome(task_id)).result == "The blue one it is."
        assert "Which one?" in model.requests[1].turns[1].text
        assert model.requests[1].turns[-1].text == "the blue one"


async def test_a_message_with_its_id_answers_a_task_that_asks(autojump_clock):
    """And it is the cause of what follows."""
    model = ScriptedModel([say("", call("ask_user", "q", question="Which one?")), "ok"])
    async with open_desk(model) as desk:
        task_id = await desk.submit()
        await desk.listener.next(1)
        event = Event(EventType.MESSAGE_RECEIVED, 0, "web:c1", task_id, {"text": "that one"})
        await desk.bus.tell(Emit((event,)))
        assert (await desk.outcome(task_id)).result == "ok"
        resumed = next(it for it in desk.watcher.events if it.type is EventType.TASK_RESUMED)
        assert resumed.parent_id == event.id


async def test_a_suspended_task_holds_no_place(autojump_clock):
    model = ScriptedModel(
        lambda request: say("", call("ask_user", "q", question="?")) if request.turns[0].text == "asks" else "ok"
    )
    async with open_desk(model, limits=TaskLimits(max_active=1)) as desk:
        await desk.submit("asks")
        assert (await desk.run("next")).result == "ok"


# ------------------------------------------------------------------ suspend, resume


async def test_the_events_of_a_task_are_written_in_their_order(autojump_clock):
    written = []

    class Noting(MemoryFolder):
        async def gate(self, inbox):
            async for message in inbox:
                written.extend(event.type.name for event in message.events)
                for event in message.events:
                    self.logs[event.task_id] = self.logs.get(event.task_id, b"") + task_lines(event)
                message.reply.send({})

    async with open_desk(ScriptedModel(["done"]), shelf=Noting()) as desk:
        assert (await desk.run()).result == "done"
    assert written == ["TASK_CREATED", "REASON_DONE", "STEP_COMPLETED", "TASK_COMPLETED"]


async def test_a_task_that_is_suspended_while_its_answer_is_written_is_completed(autojump_clock):
    shelf = MemoryFolder()
    model = ScriptedModel([After(5, "done")])
    async with open_desk(model, shelf=shelf) as desk:
        task_id = await desk.submit()
        shelf.refusing = refused = trio.Event()
        await trio.sleep(6)  # the thought is over, and its answer waits for the disk
        paused = await desk.agent.request(Suspend, task_id)
        await trio.sleep(1)
        shelf.refusing = None
        refused.set()
        assert (await desk.outcome(task_id)).result == "done"
        assert (await paused.get()).is_over
        await trio.sleep(1)
        assert [told.type for told in desk.listener.heard] == ["completed"]
        assert replay(shelf.logs[task_id], task_id).task.state is TaskState.COMPLETED


@pytest.mark.parametrize("place", ["at work", "in the queue"])
async def test_a_pause_that_is_taken_back_while_the_disk_refuses_it_holds_nothing(place, autojump_clock):
    """Whoever is told that the task goes on must not find it paused a moment later."""
    written = trio.Event()

    class Refusing(MemoryFolder):
        async def gate(self, inbox):
            async for message in inbox:
                if any(event.type is EventType.TASK_SUSPENDED for event in message.events):
                    await written.wait()
                self.write(message.events)
                message.reply.send({})

    first = [After(5, "done")] if place == "in the queue" else []
    model = ScriptedModel([*first, say("", call("slow", "a", x=2)), "went on"])
    async with open_desk(model, shelf=Refusing(), limits=TaskLimits(max_active=1)) as desk:
        for _ in first:
            await desk.submit("before")
        task_id = await desk.submit("the job")
        await trio.sleep(1)
        pausing = await desk.agent.request(Suspend, task_id)
        await trio.sleep(3)
        going_on = await desk.agent.request(Continue, task_id)
        await trio.sleep(3)
        written.set()
        with trio.fail_after(60):
            await pausing.get()
            assert (await going_on.get()).waits_for == ""
            assert (await desk.outcome(task_id)).result == "went on"


async def test_a_task_that_is_suspended_while_it_thinks_of_its_answer_gives_it_when_it_goes_on(autojump_clock):
    model = ScriptedModel([After(5, "done")])
    async with open_desk(model) as desk:
        task_id = await desk.submit()
        await trio.sleep(2)
        assert (await desk.agent.ask(Suspend, task_id)).state is TaskState.SUSPENDED
        await trio.sleep(10)
        assert desk.listener.heard == []
        await desk.agent.ask(Resume, task_id, "")
        assert (await desk.outcome(task_id)).result == "done"
    assert len(model.requests) == 1


async def test_a_pause_costs_no_time_and_no_model_calls_of_the_task(autojump_clock):
    """Its deadline stands still, and the number of its model calls goes on counting."""
    model = ScriptedModel([say("", call("slow", "a", x=10)), say("", call("slow", "b", x=10)), "ok"])
    limits = TaskLimits(timeout=30, max_iterations=3)
    async with open_desk(model, limits=limits) as desk:
        task_id = await desk.submit()
        await trio.sleep(2)
        view = await desk.agent.ask(Suspend, task_id)
        assert (view.waits_for, view.iteration) == (FOR_PERSON, 1)
        await trio.sleep(50_000)
        assert (await desk.agent.ask(Continue, task_id)).state is not TaskState.SUSPENDED
        task = await desk.outcome(task_id)
        assert (task.result, task.iteration) == ("ok", 3)


async def test_a_pause_that_has_not_begun_is_taken_back(autojump_clock):
    model = ScriptedModel([say("", call("slow", "a", x=10)), "ok"])
    async with open_desk(model) as desk:
        task_id = await desk.submit()
        await trio.sleep(2)
        pausing = await desk.agent.request(Suspend, task_id)
        await trio.sleep(1)
        await desk.agent.ask(Continue, task_id)
        assert (await pausing.get()).state is TaskState.ACTING
        assert (await desk.outcome(task_id)).result == "ok"
        assert "TASK_SUSPENDED" not in desk.shelf.events(task_id)


async def test_a_task_that_asks_in_its_last_step_pauses_when_it_is_answered(autojump_clock):
    model = ScriptedModel([After(5, say("", call("ask_user", "q", question="Which one?"))), "ok"])
    async with open_desk(model) as desk:
        task_id = await desk.submit()
        await trio.sleep(2)
        asked = await desk.agent.ask(Suspend, task_id)
        assert (asked.state, asked.question) == (TaskState.SUSPENDED, "Which one?")
        await desk.agent.ask(Resume, task_id, "that one")
        await trio.sleep(10)
        assert (await desk.agent.ask(GetTask, task_id)).waits_for == FOR_PERSON
        with pytest.raises(TaskError, match="is paused already"):
            await desk.agent.ask(Suspend, task_id)
        await desk.agent.ask(Continue, task_id)
        assert (await desk.outcome(task_id)).result == "ok"
        context = await desk.agent.ask(GetContext, task_id)
        assert replay(desk.shelf.logs[task_id], task_id).task.context == context


async def test_a_resume_is_answered_when_it_is_on_disk(autojump_clock):
    model = ScriptedModel([say("", call("ask_user", "q", question="Which one?")), "ok"])
    async with open_desk(model) as desk:
        task_id = await desk.submit()
        await desk.listener.next(1)
        desk.shelf.refusing = refused = trio.Event()
        with pytest.raises(AskTimeout):
            await desk.agent.ask(Resume, task_id, "that one", timeout=30)
        assert "TASK_RESUMED" not in desk.shelf.events(task_id)
        assert len(model.requests) == 1
        desk.shelf.refusing = None
        refused.set()
        assert (await desk.outcome(task_id)).result == "ok"


@pytest.mark.parametrize("recorded", [False, True], ids=["before the answer", "behind it"])
@pytest.mark.parametrize("after", [1, REFLECT_AFTER + 1], ids=["before the reflection", "while it reflects"])
async def test_a_task_that_is_resumed_while_it_reflects_goes_on(recorded, after, autojump_clock):
    """The reflection is ended; the resume is answered when it is on disk."""

    async def nothing():
        return ""

    model = ScriptedModel(lambda request: Hang() if "Look back" in request.system else "long " * 50)
    async with open_desk(model, memory=StubMemory(nothing, nothing)) as desk:
        task = await desk.run("the job")
        await trio.sleep(after)
        await desk.agent.ask(Resume, task.task_id, "and now?")
        assert "TASK_RESUMED" in desk.shelf.events(task.task_id)
        if recorded:
            await trio.sleep(1)
        assert (await desk.outcome(task.task_id)).input_text == "and now?"
        live = await desk.agent.ask(GetContext, task.task_id)
    assert [entry.content for entry in live.messages if entry.role == "user"] == ["the job", "and now?"]


async def test_a_task_suspended_while_a_tool_runs_keeps_its_result_and_never_runs_it_again(autojump_clock):
    model = ScriptedModel([say("", call("slow", "a", x=10)), "ok"])
    async with open_desk(model) as desk:
        task_id = await desk.submit()
        await trio.sleep(2)
        assert (await desk.agent.ask(Suspend, task_id)).state is TaskState.SUSPENDED
        await trio.sleep(100)
        await desk.agent.ask(Resume, task_id, "")
        assert (await desk.outcome(task_id)).result == "ok"
        assert [what for _, _, what, _ in desk.calls] == ["begin", "end"]


async def test_a_completed_task_goes_on_with_all_it_knows(autojump_clock):
    model = ScriptedModel(["first answer", "second answer"])
    async with open_desk(model) as desk:
        first = await desk.run("question one")
        await desk.agent.ask(Resume, first.task_id, "question two")
        second = await desk.outcome(first.task_id)
        assert second.result == "second answer"
        texts = [getattr(turn, "text", "") for turn in model.requests[1].turns]
        assert texts == ["question one", "first answer", "question two"]
        await desk.listener.next(2)
        assert [told.n for told in desk.listener.heard] == [1, 2]


async def test_the_log_says_what_a_task_was_when_it_was_resumed(autojump_clock):
    model = ScriptedModel([say("", call("ask_user", "q", question="Which one?")), "blue", "more"])
    async with open_desk(model) as desk:
        task_id = await desk.submit()
        await desk.listener.next(1)
        await desk.agent.ask(Resume, task_id, "the blue one")
        await desk.outcome(task_id)
        await desk.agent.ask(Resume, task_id, "more")
        await desk.listener.next(3)
        lines = map(json.loads, desk.shelf.logs[task_id].splitlines())
        assert [line["data"]["previousState"] for line in lines if line["event"] == "TASK_RESUMED"] == [
            "suspended",
            "completed",
        ]
        context = await desk.agent.ask(GetContext, task_id)
        assert replay(desk.shelf.logs[task_id], task_id).task.context == context


async def test_a_running_task_cannot_be_resumed_nor_one_that_failed(autojump_clock):
    async with open_desk(ScriptedModel([Hang(), ModelError("down", kind="network")])) as desk:
        running = await desk.submit()
        with pytest.raises(TaskError, match=r"is reasoning|is idle"):
            await desk.agent.ask(Resume, running, "more")
        failed = await desk.run()
        with pytest.raises(TaskError, match="is failed"):
            await desk.agent.ask(Resume, failed.task_id, "more")
        with pytest.raises(TaskError, match="there is no task"):
            await desk.agent.ask(Resume, "0123456789abcdef", "more")


# ------------------------------------------------------------------ stopping


async def test_cancel_ends_the_model_call_and_says_what_it_ended(autojump_clock):
    model = ScriptedModel([Hang()])
    async with open_desk(model) as desk:
        task_id = await desk.submit("think", description="a long thought")
        await trio.sleep(5)
        stopped = await desk.agent.ask(Cancel, task_id, "the owner")
        assert (stopped.what, stopped.doing, round(stopped.seconds)) == ("a long thought", "thinking", 5)
        assert model.cancelled == 1
        task = await desk.outcome(task_id)
        assert (task.state, task.error) == (TaskState.FAILED, "stopped by the owner")
        await desk.listener.next(1)
        assert [told.type for told in desk.listener.heard] == ["stopped"]


async def test_a_word_that_is_not_taken_holds_up_none_of_another_task(autojump_clock):
    """It is offered again, and what the same task has to say after it comes after it."""

    class Choosy(Listener):
        refused = 3

        async def run(self, inbox):
            async for message in inbox:
                if {"a": "slow"} in [told.metadata for told in message.notifications] and self.refused:
                    self.refused -= 1
                    message.reply.fail(ActorError("not now", target="listener", message_type="Notify"))
                else:
                    self.heard += message.notifications
                    message.reply.send(None)

    def script(request):
        if "half way" in str(request.turns):
            return "done"
        return say("", call("notify", "n", message="half way"))

    listener = Choosy()
    async with open_desk(ScriptedModel(script), listener=listener) as desk:
        for name in ("slow", "other"):
            await desk.outcome(await desk.submit(metadata={"a": name}))
        await trio.sleep(10)
    heard = [(told.metadata["a"], told.n) for told in listener.heard]
    assert [n for name, n in heard if name == "slow"] == [1, 2]
    assert [n for name, n in heard if name == "other"] == [1, 2]
    assert listener.refused == 0


async def test_cancel_ends_a_tool_that_is_running(autojump_clock):
    async with open_desk(ScriptedModel([say("", call("slow", "a", x=100))])) as desk:
        task_id = await desk.submit()
        await trio.sleep(5)
        stopped = await desk.agent.ask(Cancel, task_id, "the owner")
        assert stopped.doing == "slow"
        await desk.outcome(task_id)
        await trio.sleep(1000)
        assert [what for _, _, what, _ in desk.calls] == ["begin"]


async def test_a_waiting_and_a_suspended_task_can_be_cancelled_too(autojump_clock):
    model = ScriptedModel(
        lambda request: say("", call("ask_user", "q", question="?")) if request.turns[0].text == "asks" else Hang()
    )
    async with open_desk(model, limits=TaskLimits(max_active=1)) as desk:
        suspended = await desk.submit("asks")
        await desk.listener.next(1)
        await desk.submit("hangs")
        waiting = await desk.submit("waits")
        for task_id in (suspended, waiting):
            await desk.agent.ask(Cancel, task_id, "x")
            assert (await desk.outcome(task_id)).error == "stopped by x"


async def test_stop_ends_the_tasks_of_a_channel_and_no_others(autojump_clock):
    async with open_desk(ScriptedModel(lambda request: Hang())) as desk:
        web = {"channel": {"type": "web", "channelId": "c1"}}
        mine = [await desk.submit("a", metadata=web), await desk.submit("b", metadata=web)]
        other = await desk.submit("c", metadata={"channel": {"type": "cli", "channelId": "main"}})
        await trio.sleep(1)
        stopped = await desk.agent.ask(CancelAll, "u", ("web", "c1"))
        assert sorted(one.task_id for one in stopped) == sorted(mine)
        assert (await desk.agent.ask(GetTask, other)).state is TaskState.REASONING
        assert len(await desk.agent.ask(CancelAll, "u")) == 1


async def test_what_is_finished_or_unknown_cannot_be_cancelled(autojump_clock):
    async with open_desk(ScriptedModel(["ok"])) as desk:
        task = await desk.run()
        for task_id, why in ((task.task_id, "is not running"), ("0123456789abcdef", "there is no task")):
            with pytest.raises(TaskError, match=why):
                await desk.agent.ask(Cancel, task_id, "x")


async def test_a_disk_that_refuses_holds_a_task_up_and_a_cancel_still_ends_it(autojump_clock):
    model = ScriptedModel([say("", call("slow", "a", x=5)), say("", call("echo", "b")), "ok"])
    async with open_desk(model) as desk:
        task_id = await desk.submit()
        await trio.sleep(2)
        desk.shelf.refusing = trio.Event()
        await trio.sleep(60)
        assert desk.shelf.events(task_id) == ["TASK_CREATED", "REASON_DONE"]
        assert len(model.requests) == 1
        assert [what for _, _, what, _ in desk.calls] == ["begin", "end"]
        await desk.agent.ask(Cancel, task_id, "x")
        desk.shelf.refusing.set()
        assert (await desk.outcome(task_id)).error == "stopped by x"
        assert len(model.requests) == 1
        assert len(desk.calls) == 2


# ------------------------------------------------------------------ waiting, and events out of place


async def test_waiting_may_have_a_limit_of_time_and_costs_the_task_nothing(autojump_clock):
    async with open_desk(ScriptedModel([After(100, "ok")])) as desk:
        task_id = await desk.submit()
        with pytest.raises(AskTimeout):
            await desk.agent.ask(Wait, task_id, timeout=10)
        assert (await desk.outcome(task_id)).result == "ok"
        with pytest.raises(TaskError, match="there is no task"):
            await desk.outcome("0123456789abcdef")


async def test_an_event_that_others_emit_changes_no_task(autojump_clock):
    """Neither the task nor its log: only its actor records events of it."""
    async with open_desk(ScriptedModel([After(10, "ok")])) as desk:
        task_id = await desk.submit()
        await trio.sleep(1)
        stray = Event(EventType.STEP_COMPLETED, 0, "test", task_id, {"newMessages": []})
        await desk.bus.tell(Emit((stray,)))
        await desk.bus.tell(Emit((attrs.evolve(stray, id=stray.id + 1, task_id="0123456789abcdef"),)))
        assert (await desk.outcome(task_id)).result == "ok"
        await trio.sleep(1)
        assert [told.type for told in desk.listener.heard] == ["completed"]
        context = await desk.agent.ask(GetContext, task_id)
        assert [entry.content for entry in context.messages] == ["do it", "ok"]


# ------------------------------------------------------------------ remembering


async def test_of_many_finished_tasks_the_last_are_in_memory_and_all_can_be_asked_for(autojump_clock):
    """Memory does not grow with what was done."""
    async with open_desk(ScriptedModel(lambda request: request.turns[0].text)) as desk:
        ids = [(await desk.run(str(n))).task_id for n in range(REMEMBERED + 30)]
        assert [task.task_id for task in await desk.agent.ask(ListTasks)] == ids[-REMEMBERED:]
        assert (await desk.agent.ask(GetTask, ids[0])).result == "0"


# ------------------------------------------------------------------ seeing


async def test_events_form_a_chain_from_the_message_to_the_result(autojump_clock):
    async with open_desk(ScriptedModel([say("", call("echo", "a")), "ok"])) as desk:
        task = await desk.run()
        await trio.sleep(1)
        by_id = {event.id: event for event in desk.watcher.events}
        last = next(e for e in desk.watcher.events if e.type is EventType.TASK_COMPLETED and e.task_id == task.task_id)
        chain = [last.type.name]
        while last.parent_id is not None:
            last = by_id[last.parent_id]
            chain.append(last.type.name)
        assert chain == [
            "TASK_COMPLETED",
            "STEP_COMPLETED",
            "REASON_DONE",
            "TOOL_CALL_COMPLETED",
            "REASON_DONE",
            "TASK_CREATED",
            "MESSAGE_RECEIVED",
        ]


async def test_system_start_states_and_tool_requests_are_events_too(autojump_clock):
    async with open_desk(ScriptedModel([say("", call("echo", "a")), "ok"])) as desk:
        task = await desk.run()
        await trio.sleep(1)
        assert "SYSTEM_STARTED" in [event.type.name for event in desk.watcher.events]
        seen = types_of(desk, task.task_id)
        assert seen.count("TASK_STATE_CHANGED") == 5
        assert seen.index("TOOL_CALL_REQUESTED") < seen.index("TOOL_CALL_COMPLETED")


async def test_tasks_show_in_the_tree_while_they_run(autojump_clock):
    async with open_desk(ScriptedModel([Hang()])) as desk:
        task_id = await desk.submit()
        await trio.sleep(1)
        assert f"task:{task_id}" in repr(desk.root.tree())
        await desk.agent.ask(Cancel, task_id, "x")
        await desk.outcome(task_id)
        await trio.sleep(1)
        assert f"task:{task_id}" not in repr(desk.root.tree())


async def test_old_tasks_that_are_asked_for_do_not_stay_in_memory(autojump_clock, monkeypatch):
    registries = []

    class SmallRegistry(TaskRegistry):
        def __init__(self):
            super().__init__(2)
            registries.append(self)

    async with open_desk(ScriptedModel(lambda request: "done")) as desk:
        tasks = [await desk.run("job") for _ in range(5)]
        await trio.sleep(1)
        shelf = desk.shelf
    monkeypatch.setattr("pegasus.tasks.agent.agent.TaskRegistry", SmallRegistry)
    async with open_desk(ScriptedModel([]), shelf=shelf) as desk:
        for task in tasks:
            assert (await desk.outcome(task.task_id)).result == task.result
    assert len(registries[0].tasks) == 2
