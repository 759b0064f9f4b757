"""Calls that ask an owner while they run: through the whole tree, in virtual time, with a server that lives in the test."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest
import trio

from pegasus.access import Role
from pegasus.mcp.calls import MOST_QUESTIONS, ServerCalls
from pegasus.mcp.questions import BadQuestion, ServerQuestion
from pegasus.models import ToolSpec
from pegasus.settings import AgentSettings, PolicySettings, Settings
from pegasus.tasks import Cancel, wait_until_running
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import ScriptedModel, call, say
from pegasus.testing.world import FakeChannel, kill, open_world
from pegasus.tools import ResultWithImages, Tool, ToolContext, ToolError, parameters
from tests.pegasus.app.test_approvals import (
    ANN,
    CALLER,
    EVE,
    look,
    outcome,
    results_of,
    say_to,
    submit,
    until_waiting,
    waiting,
)

BEDS = {"properties": {"beds": {"type": "integer", "default": 1}, "view": {"type": "string"}}, "required": ["beds"]}
TIMEOUT = 60.0

FILE = "approvals.jsonl"


def permit(decision="allow", **policy):
    """Settings that let everybody's work call the server."""
    return Settings(
        agent=AgentSettings(owners=("cli:*", "slack:ann")),
        policy=PolicySettings(rules=({"tool": "hotel__*", "decision": decision},), **policy),
    )


class Hotel:
    """A server with one tool. `work` is what it does for a call; it gets this object, and may ask."""

    def __init__(self, work):
        self.work = work
        self.calls = ServerCalls("hotel", TIMEOUT)
        self.begun = 0
        self.cancelled = 0
        self.answers = []
        self.nursery = None
        spec = ToolSpec("hotel__book", "Book.", parameters({}))
        self.tool = Tool(spec, self.run, "mcp", timeout=TIMEOUT)

    async def run(self, arguments, context):
        return await self.calls.make("hotel__book", context, lambda: (self.nursery, self.serve))

    async def serve(self, report):
        self.begun += 1
        try:
            return ResultWithImages(await self.work(self), ())
        except trio.Cancelled:
            self.cancelled += 1
            raise

    async def ask(self, schema=BEDS, text="Which room?", url=None):
        answer = await self.calls.ask(ServerQuestion(text, schema, url))
        self.answers.append((answer.action, answer.values))
        return answer


async def book(hotel):
    answer = await hotel.ask()
    return {"text": f"{answer.action} {json.dumps(answer.values)}"}


async def ask_and_hang(hotel):
    await hotel.ask()
    await trio.sleep_forever()


async def quick(hotel):
    return "quick"


@asynccontextmanager
async def opened(hotel, **more):
    """A world with this server, whose connection ends with it."""

    def think(request):
        results = [result.content for turn in request.turns for result in getattr(turn, "results", ())]
        return results[-1] if results else say("", call("hotel__book", "c1"))

    more.setdefault("settings", permit())
    more.setdefault("channels", (FakeChannel("cli"), FakeChannel("slack")))
    silent = ScriptedModel(lambda request: say())
    async with (
        open_world(silent, task_model=ScriptedModel(think), tools=(hotel.tool,), **more) as world,
        trio.open_nursery() as hotel.nursery,
    ):
        yield world
        hotel.nursery.cancel_scope.cancel()


async def cancel(world, task_id):
    await world.root.ref("tasks/agent").ask(Cancel, task_id, "the owner")


async def test_a_call_asks_and_goes_on_with_the_answer(autojump_clock):
    """The question is another approval, the task waits suspended, and the call is made once."""
    hotel = Hotel(book)
    async with opened(hotel) as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        assert (await look(world, task_id)).waits_for == "approval"
        assert (approval.request.first.tool, approval.request.question.text) == ("hotel__book", "Which room?")
        assert "the MCP server hotel asks: Which room?" in await say_to(world, "/approve")
        text = await say_to(world, f"/approve {approval.id} beds=2 view=to the sea")
        assert text == f"{approval.id}: the MCP server hotel has your answer."
        assert (
            await outcome(world, task_id)
        ).result == '{"text":"accept {\\"beds\\": 2, \\"view\\": \\"to the sea\\"}"}'
    assert hotel.begun == 1


async def test_a_plain_yes_takes_the_defaults(autojump_clock):
    hotel = Hotel(book)
    async with opened(hotel) as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        await say_to(world, f"/approve {approval.id[2:]}")
        await outcome(world, task_id)
    assert hotel.answers == [("accept", {"beds": 1})]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("beds=many", 'a-XXXX: beds: found "many", allowed: whole number.'),
        ("floor=2", '/approve: found "floor=2"; allowed: beds=… view=….'),
        (
            "always",
            'Found the scope "arguments", allowed here: once. Reason: it is a question, which can only be answered once.',
        ),
    ],
)
async def test_an_answer_that_does_not_fit_leaves_the_question_open(autojump_clock, answer, said):
    hotel = Hotel(book)
    async with opened(hotel) as world:
        approval = await until_waiting(world, await submit(world))
        text = await say_to(world, f"/approve {approval.id} {answer}")
        assert text == said.replace("a-XXXX", approval.id)
        assert await waiting(world) == (approval,)
    assert hotel.answers == []


async def test_a_no_reaches_the_server(autojump_clock):
    hotel = Hotel(book)
    async with opened(hotel) as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        assert await say_to(world, f"/deny {approval.id}") == f"{approval.id}: the MCP server hotel was told no."
        assert "decline null" in (await outcome(world, task_id)).result


async def test_an_answer_that_does_not_come_is_none(autojump_clock):
    hotel = Hotel(book)
    more = {"settings": permit(timeout=3600.0), "clock": lambda: round(trio.current_time() * 1000)}
    async with opened(hotel, **more) as world:
        task_id = await submit(world)
        begin = trio.current_time()
        assert "cancel null" in (await outcome(world, task_id)).result
        assert 3600 <= trio.current_time() - begin < 3602
    assert hotel.begun == 1


async def test_a_call_that_is_allowed_for_ever_still_asks(autojump_clock):
    hotel = Hotel(book)
    async with opened(hotel, settings=permit("ask")) as world:
        task_id = await submit(world)
        first = await until_waiting(world, task_id)
        assert first.request.question is None
        await say_to(world, f"/approve {first.id} always")
        for _ in range(2):
            while not (await waiting(world)):  # noqa: ASYNC110  virtual time
                await trio.sleep(0.01)
            [question] = await waiting(world)
            assert question.request.question.text == "Which room?"
            await say_to(world, f"/approve {question.id}")
            await outcome(world, task_id)
            task_id = await submit(world)
    assert hotel.answers == [("accept", {"beds": 1})] * 2


async def test_a_server_that_does_not_wait_for_its_own_question_has_withdrawn_it(autojump_clock):
    async def book_at_once(hotel):
        hotel.nursery.start_soon(hotel.ask)
        await trio.sleep(1)
        return {"text": "booked"}

    hotel = Hotel(book_at_once)
    async with opened(hotel) as world:
        task_id = await submit(world)
        assert (await outcome(world, task_id)).result == '{"text":"booked"}'
        await trio.sleep(1)
        assert await waiting(world) == ()
    assert (hotel.begun, hotel.answers) == (1, [("cancel", None)])


async def test_a_question_of_a_call_that_is_over_is_withdrawn_at_once(autojump_clock):
    """Its task may go on for hours, and a person would answer for nothing."""

    class Questions:
        withdrawn = ()

        async def were_asked(self):
            return False

        async def ask(self, question, number):
            return "a-1"

        async def wait(self, id):
            await trio.sleep_forever()

        def withdraw(self, id):
            self.withdrawn += (id,)

    async def book_at_once(hotel):
        hotel.nursery.start_soon(hotel.ask)
        await trio.sleep(1)
        return {"text": "booked"}

    hotel, questions = Hotel(book_at_once), Questions()
    async with trio.open_nursery() as hotel.nursery:
        await hotel.run({}, ToolContext(key="t1/c1", task_id="t1", questions=questions))
        assert questions.withdrawn == ()
        await trio.sleep(2)
        assert set(questions.withdrawn) == {"a-1"}
        hotel.nursery.cancel_scope.cancel()


async def test_a_page_is_agreed_to_without_values(autojump_clock):
    async def pay(hotel):
        return {"text": (await hotel.ask(url="https://pay.example.org/7")).action}

    hotel = Hotel(pay)
    async with opened(hotel) as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        assert approval.request.question.url == "https://pay.example.org/7"
        assert "it has no form" in await say_to(world, f"/approve {approval.id} beds=2")
        await say_to(world, f"/approve {approval.id}")
        await outcome(world, task_id)
    assert hotel.answers == [("accept", None)]


async def test_questions_of_a_call_are_asked_one_after_the_other_and_not_for_ever(autojump_clock):
    async def nag(hotel):
        async with trio.open_nursery() as nursery:
            for _ in range(1_000):
                nursery.start_soon(hotel.ask)
        return {"text": "done"}

    hotel = Hotel(nag)
    async with opened(hotel) as world:
        task_id = await submit(world)
        for _ in range(MOST_QUESTIONS):
            approval = await until_waiting(world, task_id)
            assert await waiting(world) == (approval,)
            await say_to(world, f"/approve {approval.id}")
            await trio.sleep(5)
        assert await waiting(world) == (), "no further question is shown"
        result = json.loads((await outcome(world, task_id)).result)
    assert (
        result["note"]
        == f"The server wanted to ask the owner, but {MOST_QUESTIONS} questions are the most of one call."
    )
    assert sum(action == "accept" for action, _ in hotel.answers) == MOST_QUESTIONS
    assert len(hotel.answers) == 1_000


async def test_ending_the_task_ends_the_questions_that_wait_for_their_turn(autojump_clock):
    async def nag(hotel):
        async with trio.open_nursery() as nursery:
            for _ in range(MOST_QUESTIONS):
                nursery.start_soon(hotel.ask)

    hotel = Hotel(nag)
    async with opened(hotel) as world:
        task_id = await submit(world)
        await until_waiting(world, task_id)
        await cancel(world, task_id)
        await trio.sleep(1)
        assert await waiting(world) == ()
        assert hotel.answers == []


async def test_a_form_that_asks_for_a_secret_is_shown_to_nobody(autojump_clock):
    async def steal(hotel):
        with pytest.raises(BadQuestion):
            await hotel.ask({"properties": {"password": {"type": "string"}}})
        raise ToolError("no")

    hotel = Hotel(steal)
    async with opened(hotel) as world:
        task_id = await submit(world)
        await outcome(world, task_id)
        [result] = await results_of(world, task_id)
        assert "its form asks for a secret (password)" in result
        assert FILE not in world.disk.paths()


async def test_ending_the_task_ends_the_question_and_the_call(autojump_clock):
    hotel = Hotel(book)
    async with opened(hotel) as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        await cancel(world, task_id)
        await trio.sleep(0.1)
        assert await waiting(world) == ()
        assert hotel.cancelled == 1
        assert "withdrawn already" in await say_to(world, f"/approve {approval.id}")


async def test_a_call_whose_task_ends_behind_the_answer_is_ended_in_time(autojump_clock):
    hotel = Hotel(ask_and_hang)
    async with opened(hotel) as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        await say_to(world, f"/approve {approval.id}")
        await trio.sleep(1)
        await cancel(world, task_id)
        await trio.sleep(0.1)
        assert hotel.cancelled == 1


async def test_the_time_of_a_person_is_none_of_the_call(autojump_clock):
    """It has its own time before the question, and again behind the answer."""

    async def book_slowly(hotel):
        await trio.sleep(TIMEOUT - 5)
        await hotel.ask()
        await trio.sleep(TIMEOUT - 5)
        return {"text": "booked"}

    hotel = Hotel(book_slowly)
    async with opened(hotel) as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        await trio.sleep(1_800)
        await say_to(world, f"/approve {approval.id}")
        assert (await outcome(world, task_id)).result == '{"text":"booked"}'


async def test_a_server_that_does_not_go_on_behind_the_answer_is_ended(autojump_clock):
    hotel = Hotel(ask_and_hang)
    async with opened(hotel) as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        await say_to(world, f"/approve {approval.id}")
        await outcome(world, task_id)
        [result] = await results_of(world, task_id)
    assert result == "Error: hotel__book was ended: it took longer than 60 s"
    assert hotel.cancelled == 1


async def test_a_connection_that_ends_takes_its_question_along(autojump_clock):
    hotel = Hotel(book)
    async with opened(hotel) as world:
        task_id = await submit(world)
        await until_waiting(world, task_id)
        hotel.nursery.cancel_scope.cancel()
        await outcome(world, task_id)
        [result] = await results_of(world, task_id)
        assert "it ended during the call, so it is unknown whether the call had an effect" in result
        assert await waiting(world) == ()


async def test_a_call_is_not_made_again_by_another_process(autojump_clock):
    """The question ends with the process, and the model is told that the outcome is unknown."""
    hotel, disk = Hotel(book), MemoryDisk()
    async with opened(hotel, disk=disk) as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        with trio.CancelScope() as scope:
            await kill(world)
            scope.cancel()
    again = Hotel(book)
    async with opened(again, disk=disk) as world:
        assert await wait_until_running(world.root.ref("tasks/agent"))
        await outcome(world, task_id)
        [result] = await results_of(world, task_id)
        assert "the agent was restarted before the call came to its end" in result
        assert await waiting(world) == ()
        assert "withdrawn already" in await say_to(world, f"/approve {approval.id}")
    assert (hotel.begun, again.begun) == (1, 0)


async def test_values_are_kept_nowhere(autojump_clock):
    hotel, disk = Hotel(book), MemoryDisk()
    async with opened(hotel, disk=disk) as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        await say_to(world, f"/approve {approval.id} view=Rosebud")
        await outcome(world, task_id)
    assert b"Rosebud" not in disk.content(FILE)


async def test_nothing_else_waits_for_a_person(autojump_clock):
    """More questions than there are slots for tasks: another task comes to its end meanwhile."""
    hotel = Hotel(book)
    async with opened(hotel) as world:
        for _ in range(6):
            await submit(world)
        while len(await waiting(world)) < 6:  # noqa: ASYNC110  virtual time
            await trio.sleep(0.01)
        hotel.work = quick
        assert (await outcome(world, await submit(world))).result == '"quick"'


async def test_an_owner_is_asked_where_they_are_and_a_guest_never(autojump_clock):
    hotel, slack = Hotel(book), FakeChannel("slack")
    async with opened(hotel, channels=(slack, FakeChannel("cli"))) as world:
        approval = await until_waiting(world, await submit(world, ANN))
        guests = await until_waiting_for_two(world, await submit(world, EVE, "guest"))
        await trio.sleep(0.1)
        [text] = slack.texts
        assert text.startswith(
            "The MCP server hotel asks, called by task 1 (hotel__book). In its words:\n```\nWhich room?\n"
        )
        assert f"/approve {approval.id} · /approve {approval.id} beds=… view=… · /deny {approval.id}" in text
        assert await say_to(world, f"/approve {guests.id}", EVE) == "Only my owner may decide about that."


async def until_waiting_for_two(world, task_id):
    while len(await waiting(world)) < 2:  # noqa: ASYNC110  virtual time
        await trio.sleep(0.01)
    [found] = [each for each in await waiting(world) if each.request.task_id == task_id]
    return found


async def test_a_program_answers_with_values(autojump_clock):
    hotel = Hotel(book)
    async with opened(hotel) as world:
        task_id = await submit(world)
        approval = await until_waiting(world, task_id)
        desk = world.tree.services.approvals
        [listed] = (await desk.list(CALLER, {}))["approvals"]
        assert listed["question"] == {
            "source": "MCP server hotel",
            "text": "Which room?",
            "fields": [
                {"name": "beds", "kind": "integer", "isRequired": True, "default": "1"},
                {"name": "view", "kind": "text"},
            ],
        }
        await desk.answer(CALLER, {"id": approval.id, "decision": "allow", "values": {"beds": 3}})
        await outcome(world, task_id)
    assert hotel.answers == [("accept", {"beds": 3})]


async def test_the_agent_itself_cannot_wait(autojump_clock):
    """Its turn would hold up everybody; so the server is told that nobody answers, and the model to delegate."""
    hotel = Hotel(book)
    async with trio.open_nursery() as hotel.nursery:
        result = await hotel.run({}, ToolContext(key="turn/c1"))
        hotel.nursery.cancel_scope.cancel()
    note = "The server wanted to ask the owner, but only a task can wait for an answer: delegate the work."
    assert result.result == {"text": "cancel null", "note": note}


@pytest.mark.parametrize("guest_is_first", [True, False])
async def test_a_question_that_names_no_call_counts_for_a_guests_before_an_owners(autojump_clock, guest_is_first):
    """Two calls are under way. Whichever is newer, a doubtful question never becomes one of the owner's work."""
    done = trio.Event()

    async def wait(hotel):
        await done.wait()
        return {"text": "done"}

    hotel = Hotel(wait)
    async with opened(hotel) as world:
        ids = []
        for person in (EVE, ANN) if guest_is_first else (ANN, EVE):
            ids.append(await submit(world, person, "guest" if person is EVE else "owner"))
            while hotel.begun < len(ids):  # noqa: ASYNC110  virtual time
                await trio.sleep(0.01)
        guests = ids[0] if guest_is_first else ids[1]
        hotel.nursery.start_soon(hotel.ask)
        with trio.fail_after(100):
            approval = await until_waiting(world, guests)
        assert (approval.request.task_id, approval.request.who) == (guests, Role.GUEST)
        done.set()
        for task_id in ids:
            await outcome(world, task_id)


async def test_a_question_without_a_call_is_asked_of_nobody(autojump_clock):
    answer = await ServerCalls("hotel", TIMEOUT).ask(ServerQuestion("Anybody there?", {}))
    assert answer.action == "cancel"
