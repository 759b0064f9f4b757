"""`Agent.messages`: what the agent says that no turn waits for; jobs, of the built-in schedule and of a service of the host's own."""

from __future__ import annotations

import attrs
import pytest
import trio

from pegasus.embedding import MessageKind
from pegasus.schedule import Job, ScheduleError
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, say

from .world import converse, final, inbound, next_message, open_agent, reply


def spawn(task):
    return call("spawn_subagent", "s", description=task, input=task)


def remind(request):
    """Make a job when asked for one, and say what it is about when it is due."""
    text = request.turns[-1].text
    if "is due]" in text:
        return say("", reply(f"Reminder: {text.rpartition(chr(10))[2]}", chat_of(text)))
    if "remind me" in text:
        return say("", call("cron", "c", action="add", delay=600, prompt="drink"))
    return say()


def chat_of(text):
    return text.partition("id: ")[2].partition("]")[0].partition(" ")[0]


async def test_the_result_of_a_task_comes_to_the_chat_that_asked_for_it(autojump_clock):
    def voice(request):
        text = request.turns[-1].text
        if "completed]" in text:
            return say("", reply("It is ready", "b"))
        return say("", reply("I will look", "b"), spawn("look")) if "[channel: " in text else say()

    async with open_agent(ScriptedModel(voice), task_model=ScriptedModel([After(60, say("found"))] * 9)) as agent:
        assert (await final(agent, "Look it up", "b")).content == "I will look"
        message = await next_message(agent)
    assert (message.kind, message.content, message.session_key) == (MessageKind.MESSAGE, "It is ready", "cli:b")


async def test_the_output_of_a_job_goes_to_the_chat_that_made_it_also_after_a_restart(autojump_clock):
    disk = MemoryDisk()
    async with open_agent(ScriptedModel(remind), disk=disk) as agent:
        await final(agent, "remind me", "c7")
        await final(agent, "hello", "c8")
    async with open_agent(ScriptedModel(remind), disk=disk) as agent:
        message = await next_message(agent)
    assert (message.session_key, message.content) == ("cli:c7", "Reminder: drink")


async def test_a_reply_to_another_chat_is_no_part_of_the_turn(autojump_clock):
    model = ScriptedModel(
        [say("", reply("Hi", "a")), say("", reply("Told", "b"), reply("She says hi", "a", call_id="r2"))]
    )
    async with open_agent(model) as agent:
        await final(agent, "Hello", "a")
        assert (await final(agent, "Tell a", "b")).content == "Told"
        message = await next_message(agent)
    assert (message.session_key, message.content) == ("cli:a", "She says hi")


async def test_a_job_that_speaks_while_a_turn_waits_is_not_mixed_up_with_it(autojump_clock):
    def voice(request):
        text = request.turns[-1].text
        if "is due]" in text:
            return After(30, say("", reply("Reminder")))
        return remind(request) if "remind" in text or "[channel" not in text else say("", reply("The answer"))

    async with open_agent(ScriptedModel(voice)) as agent:
        await final(agent, "remind me")
        await trio.sleep(610)
        messages = await converse(agent, "A question")
        assert [message.content for message in messages if message.is_final] == ["The answer"]
        assert not any("Reminder" in message.content for message in messages)
        assert (await next_message(agent)).content == "Reminder"


async def test_asking_for_the_next_message_acknowledges_the_one_before(autojump_clock):
    disk, script = MemoryDisk(), [say("", *(reply(word, "b", call_id=word) for word in ("one", "two", "three")))]
    async with open_agent(ScriptedModel([say("", reply("hi", "b")), *script, say()]), disk=disk) as agent:
        await final(agent, "hi", "b")
        await final(agent, "Tell b", "a")
        messages = agent.messages()
        with trio.fail_after(100):
            assert [(await anext(messages)).content for _ in range(2)] == ["one", "two"]
    async with open_agent(ScriptedModel([]), disk=disk) as agent:
        assert (await next_message(agent)).content == "two"


async def test_a_message_that_was_not_dealt_with_comes_again(autojump_clock):
    async with open_agent(ScriptedModel(remind)) as agent:
        await final(agent, "remind me")
        first = agent.messages()
        content = (await anext(first)).content
        await first.aclose()
        assert (await next_message(agent)).content == content


async def test_a_message_that_is_not_taken_does_not_keep_others_of_its_chat_from_being_acknowledged_later(
    autojump_clock,
):
    disk = MemoryDisk()
    async with open_agent(ScriptedModel(remind), disk=disk) as agent:
        await final(agent, "remind me")
        await trio.sleep(700)
        model_silent = await final(agent, "hello")
        assert model_silent.content == ""
        messages = agent.messages()
        await anext(messages)
        with trio.move_on_after(5):
            await anext(messages)
    async with open_agent(ScriptedModel([]), disk=disk) as agent:
        with trio.move_on_after(100) as waited:
            await next_message(agent)
    assert waited.cancelled_caught


async def test_the_end_of_the_agent_ends_the_iteration(autojump_clock):
    async with open_agent(ScriptedModel([])) as agent:
        messages = agent.messages()
    assert [message async for message in messages] == []


async def test_what_a_turn_had_said_before_it_was_left_comes_later(autojump_clock):
    model = ScriptedModel([say("", reply("First part"), call("current_time", "t")), Hang()])
    async with open_agent(model) as agent:
        with trio.move_on_after(5):
            async for message in agent.process_message(inbound("Go on")):
                assert message.kind is MessageKind.PROGRESS
                break
        assert (await next_message(agent)).content == "First part"


# ------------------------------------------------------------------ a service of the host's own


@attrs.define
class Calendar:
    """Jobs in a list, of which each runs once, a minute after it was made."""

    jobs: dict[str, Job] = attrs.field(factory=dict)

    async def run(self, fire):
        done = set()
        while True:
            await trio.sleep(60)
            for job in list(self.jobs.values()):
                if job.id not in done and job.enabled:
                    done.add(job.id)
                    await fire(job, 1000)
                    await fire(job, 1000)  # the same run

    async def add(self, draft):
        if "never" in draft.prompt:
            raise ScheduleError("prompt: found never")
        job = attrs.evolve(draft, id=f"j-{len(self.jobs)}")
        self.jobs[job.id] = job
        return job

    async def list(self):
        return tuple(self.jobs.values())

    async def remove(self, id):
        return self.jobs.pop(id)

    async def enable(self, id, enabled):
        self.jobs[id] = attrs.evolve(self.jobs[id], enabled=enabled)
        return self.jobs[id]


async def test_jobs_are_kept_by_a_service_of_the_host_and_their_output_goes_to_the_chat_that_made_them(autojump_clock):
    calendar = Calendar()
    async with open_agent(ScriptedModel(remind), cron=calendar) as agent:
        await final(agent, "remind me", "c7")
        assert [job.channel for job in calendar.jobs.values()] == ["cli:c7"]
        messages = agent.messages()
        message = await anext(messages)
        assert (message.session_key, message.content) == ("cli:c7", "Reminder: drink")
        with trio.move_on_after(1000) as waited:
            await anext(messages)
        assert waited.cancelled_caught, "a run that is fired twice for the same time is one run"


@pytest.mark.parametrize("action", ["list", "pause", "resume", "run", "remove"])
async def test_the_tool_of_the_agent_works_with_that_service(action, autojump_clock):
    calendar = Calendar()
    script = [
        say("", call("cron", "a", action="add", delay=600, prompt="drink")),
        say("", call("cron", "b", action=action, id="j-0")),
        say("", reply("done")),
    ]
    model = ScriptedModel([*script, say()])
    async with open_agent(model, cron=calendar) as agent:
        assert (await final(agent, "Go")).content == "done"
    result = model.requests[2].turns[-1].results[0]
    assert not result.failed if hasattr(result, "failed") else "Error" not in result.content


async def test_a_refusal_of_that_service_is_told_to_the_model(autojump_clock):
    model = ScriptedModel([say("", call("cron", "a", action="add", delay=600, prompt="never")), say("", reply("No"))])
    async with open_agent(model, cron=Calendar()) as agent:
        assert (await final(agent, "Go")).content == "No"
    assert "found never" in model.requests[1].turns[-1].results[0].content
