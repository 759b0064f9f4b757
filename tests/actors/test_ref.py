"""Questions and answers: every question ends, and soon."""

from __future__ import annotations

import gc
import threading
from contextlib import suppress
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import assert_checkpoints

from actors import (
    ActorDied,
    ActorError,
    AskCycle,
    AskTimeout,
    Child,
    DeadLetter,
    Inbox,
    Mailbox,
    MailboxFull,
    Overflow,
    Ref,
    Reply,
    Restart,
    Supervisor,
    open_supervisor,
    watch,
)
from tests.actors.kit import (
    Add,
    Boom,
    Crash,
    Probe,
    Total,
    Work,
    actor,
    counter,
    happened,
    idle,
    never_reads,
    settle,
    tree,
)


async def test_an_answer_comes_back() -> None:
    async with actor(counter, 40) as ref:
        await ref.tell(Add(2))
        assert await ref.ask(Total, "clicks", timeout=1) == 42


async def test_an_answer_may_be_an_error() -> None:
    async def refuses(inbox: Inbox[Total]) -> None:
        async for message in inbox:
            message.reply.fail(KeyError("nothing there"))

    async with actor(refuses) as ref:
        with pytest.raises(KeyError, match="nothing there"):
            await ref.ask(Total)


async def test_a_question_may_be_sent_and_its_answer_fetched_later() -> None:
    async with actor(counter, 1) as ref:
        answers = [await ref.request(Total, "x") for _ in range(3)]
        await ref.tell(Add(5))
        assert [await answer.get(timeout=1) for answer in answers] == [1, 1, 1]
        assert await answers[0].get() == 1


async def test_an_answer_that_is_there_is_given_again_and_again() -> None:
    async def sometimes_refuses(inbox: Inbox[Total]) -> None:
        async for message in inbox:
            message.reply.fail(KeyError("nothing there")) if message.label else message.reply.send(7)

    async with actor(sometimes_refuses) as ref:
        good, bad = await ref.request(Total), await ref.request(Total, "no")
        await settle()
        for _ in range(2):
            assert await good.get() == 7
            with pytest.raises(KeyError, match="nothing there"):
                await bad.get()


async def test_that_no_answer_will_come_is_raised_later_too() -> None:
    async def goes_away(inbox: Inbox[Total]) -> None:
        await inbox.receive()

    async with actor(goes_away) as ref:
        answer = await ref.request(Total)
        await settle()
        with pytest.raises(ActorDied):
            await answer.get()


async def test_every_call_is_a_checkpoint_also_where_it_need_not_wait() -> None:
    async with open_supervisor([Child("counter", counter), Child("gone", counter)]) as supervisor:
        ref: Ref[Any] = supervisor.ref("counter")
        with assert_checkpoints():
            await ref.tell(Add(2))
        with assert_checkpoints():
            answer = await ref.request(Total)
        await settle()
        with assert_checkpoints():
            assert await answer.get() == 2
        with assert_checkpoints():
            assert await ref.ask(Total) == 2
        with assert_checkpoints():
            await ref.wait_alive()
        with assert_checkpoints():
            await supervisor.stop_child("gone")
        with assert_checkpoints():
            await watch(supervisor.ref("gone"))
        with assert_checkpoints():
            await supervisor.ref("gone").wait_stopped()
        with assert_checkpoints():
            await supervisor.stop()
        with assert_checkpoints():
            await supervisor.stop()
        with assert_checkpoints():
            await supervisor.wait_stopped()


async def test_a_start_and_a_start_after_a_crash_wake_those_who_wait_for_them(
    autojump_clock: trio.testing.MockClock,
) -> None:
    seen: list[tuple[str, float]] = []

    async def comes_up_late(inbox: Inbox[Crash]) -> None:
        await trio.sleep(1)
        async for message in inbox:
            raise Boom(message)

    async def note(ref: Ref[Crash], when: str) -> None:
        await ref.wait_alive()
        assert ref.alive
        seen.append((when, trio.current_time() - began))

    began = trio.current_time()
    async with open_supervisor() as supervisor, trio.open_nursery() as nursery:
        ref: Ref[Crash] = supervisor.ref("late")
        nursery.start_soon(note, ref, "before it was started")
        await trio.sleep(1)
        assert seen == []
        await supervisor.start_child(Child("late", comes_up_late))
        await trio.testing.wait_all_tasks_blocked()
        await note(ref, "while it was up")
        await ref.tell(Crash())
        await trio.testing.wait_all_tasks_blocked()
        assert not ref.alive
        await note(ref, "after the crash")
    assert seen == [
        ("before it was started", 2),
        ("while it was up", 2),
        ("after the crash", pytest.approx(3, abs=0.9)),
    ]


async def test_a_stop_that_is_asked_for_from_below_is_a_checkpoint_too() -> None:
    checked = []

    async def stops(inbox: Inbox[Any], supervisor: list[Supervisor]) -> None:
        await inbox.receive()
        with assert_checkpoints():
            await supervisor[0].stop()
        checked.append(True)

    own: list[Supervisor] = []
    async with open_supervisor([Child("stops", stops, own)]) as supervisor:
        own.append(supervisor)
        supervisor.ref("stops").tell_nowait("now")
        await supervisor.wait_stopped()
    assert checked


async def test_only_one_task_may_wait_for_an_answer() -> None:
    async with actor(counter) as ref, trio.open_nursery() as nursery:
        answer = await ref.request(Work, 1.0)
        nursery.start_soon(answer.get)
        await settle()
        with pytest.raises(trio.BusyResourceError):
            await answer.get()


async def test_an_ask_times_out_and_says_whom_what_and_when() -> None:
    async with actor(counter) as ref:
        begun = trio.current_time()
        with pytest.raises(AskTimeout) as raised:
            await ref.ask(Work, 10.0, timeout=2)
        assert trio.current_time() == begun + 2
        assert raised.value.target == "actor"
        assert raised.value.message_type == "Work"
        assert raised.value.time == trio.current_time()


async def test_a_timeout_of_nothing_asks_nothing() -> None:
    async with tree(Child("counter", counter)) as (supervisor, _):
        with pytest.raises(AskTimeout):
            await supervisor.ref("counter").ask(Total, timeout=0)
        assert supervisor.children()[0].sent == 0


async def test_an_answer_is_waited_for_with_its_own_timeout() -> None:
    async with actor(counter) as ref:
        answer = await ref.request(Work, 10.0)
        with pytest.raises(AskTimeout):
            await answer.get(timeout=1)


async def test_cancelling_get_does_not_give_the_answer_up() -> None:
    async with actor(counter) as ref:
        answer = await ref.request(Work, 3.0)
        with trio.move_on_after(1):
            await answer.get()
        assert await answer.get() == "done"


# ------------------------------------------------------------ nobody there, or not for long


async def test_asking_nobody_fails_at_once() -> None:
    async with tree() as (supervisor, events):
        with pytest.raises(ActorDied, match="Total to 'nobody': the actor is not running"):
            await supervisor.ref("nobody").ask(Total)
        [letter] = happened(events)
        assert isinstance(letter, DeadLetter)
        assert letter.path == "nobody"


async def test_a_crash_fails_the_asker_whose_question_was_in_hand() -> None:
    async def crashes(inbox: Inbox[Any]) -> None:
        async for _ in inbox:
            raise Boom("in the middle")

    async with tree(Child("crashes", crashes)) as (supervisor, events):
        with pytest.raises(ActorDied, match="in the middle") as raised:
            await supervisor.ref("crashes").ask(Total)
        assert isinstance(raised.value.__cause__, Boom)
        [letter] = happened(events, DeadLetter)
        assert letter.attempt == 1


async def test_a_crash_leaves_the_questions_in_the_mailbox_to_the_next_run() -> None:
    async with actor(counter, 7) as ref:
        ref.tell_nowait(Crash())
        assert await ref.ask(Total) == 7


async def test_a_crash_fails_the_questions_that_were_kept() -> None:
    """They are told at once although the traceback of the crash keeps the Reply alive."""

    async def keeps(inbox: Inbox[Any]) -> None:
        kept = []
        async for message in inbox:
            if isinstance(message, Crash):
                raise Boom
            kept.append(message.reply)

    async with actor(keeps) as ref:
        answer = await ref.request(Total)
        ref.tell_nowait(Crash())
        with trio.fail_after(1), pytest.raises(ActorDied):
            await answer.get()


async def test_stopping_fails_what_waits_in_the_mailbox_and_lets_the_one_in_hand_finish() -> None:
    async with tree(Child("counter", counter)) as (supervisor, _):
        ref = supervisor.ref("counter")
        in_hand = await ref.request(Work, 1.0)
        await settle()
        waiting = await ref.request(Total)
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.stop_child, "counter")
            with pytest.raises(ActorDied, match="the actor is stopping"):
                await waiting.get()
            assert trio.current_time() == begun
            assert await in_hand.get() == "done"


# ------------------------------------------------------------ forgotten and kept


async def ignores(inbox: Inbox[Total]) -> None:
    async for _ in inbox:
        pass


async def matches_and_ignores(inbox: Inbox[Total]) -> None:
    async for message in inbox:
        match message:
            case Total(reply, label):  # noqa: F841
                pass


async def hands_to_a_function(inbox: Inbox[Total]) -> None:
    def look_at(message: Total) -> Reply[int]:
        return message.reply

    while True:
        message = await inbox.receive()
        reply = look_at(message)
        del reply


async def catches_its_error(inbox: Inbox[Total]) -> None:
    async for message in inbox:
        try:
            reply = message.reply  # noqa: F841
            raise Boom
        except Boom:
            pass


FORGETFUL = [ignores, matches_and_ignores, hands_to_a_function, catches_its_error]


@pytest.mark.parametrize("run", FORGETFUL)
async def test_a_forgotten_question_fails_when_the_next_message_takes_its_place(run: Any) -> None:
    async with actor(run) as ref:
        forgotten, _next = await ref.request(Total), await ref.request(Total)
        with trio.fail_after(0.1), pytest.raises(ActorError, match="dropped without an answer"):
            await forgotten.get()


@pytest.mark.parametrize("run", FORGETFUL)
async def test_a_forgotten_question_fails_at_its_deadline(run: Any) -> None:
    async with actor(run) as ref:
        with pytest.raises(AskTimeout):
            await ref.ask(Total, timeout=3)


@pytest.mark.parametrize("run", FORGETFUL)
async def test_a_forgotten_question_fails_when_the_actor_ends(run: Any) -> None:
    async with tree(Child("forgetful", run)) as (supervisor, _):
        forgotten = await supervisor.ref("forgetful").request(Total)
        await settle()
        await supervisor.stop_child("forgetful")
        with trio.fail_after(0.1), pytest.raises(ActorError):
            await forgotten.get()


async def drops(inbox: Inbox[Total | Add]) -> None:
    kept = [(await inbox.receive()).reply]
    await inbox.receive()
    kept.clear()
    await trio.sleep(10)


async def drops_in_a_thread(inbox: Inbox[Total | Add]) -> None:
    kept = [(await inbox.receive()).reply]
    await inbox.receive()
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    await trio.sleep(10)


@pytest.mark.parametrize("run", [drops, drops_in_a_thread])
async def test_a_kept_reply_that_is_dropped_fails_the_asker_at_once(run: Any) -> None:
    async with actor(run) as ref:
        answer = await ref.request(Total)
        ref.tell_nowait(Add(1))
        with pytest.raises(ActorError, match="dropped without an answer"):
            await answer.get()


async def keeps_in_a_list(inbox: Inbox[Total | Add]) -> None:
    waiting = []
    async for message in inbox:
        match message:
            case Total(reply, _):
                waiting.append(reply)
            case Add(amount):
                waiting.pop().send(amount)


async def keeps_in_a_variable(inbox: Inbox[Total | Add]) -> None:
    waiting = None
    async for message in inbox:
        match message:
            case Total(reply, _):
                waiting = reply
            case Add(amount):
                waiting.send(amount)


async def keeps_the_message(inbox: Inbox[Total | Add]) -> None:
    question = await inbox.receive()
    while True:
        match await inbox.receive():
            case Add(amount):
                question.reply.send(amount)


async def keeps_until_the_loop_ends(inbox: Inbox[Total | Add]) -> None:
    async for message in inbox:
        if isinstance(message, Add):
            break
        reply = message.reply
    reply.send(message.amount)
    await idle(inbox)


async def keeps_for_its_cleanup(inbox: Inbox[Total | Add]) -> None:
    try:
        async for message in inbox:
            if isinstance(message, Add):
                raise Boom
            reply = message.reply
    except Boom:
        reply.send(3)


async def keeps_in_a_closure(inbox: Inbox[Total | Add]) -> None:
    def answer(amount: int) -> None:
        message.reply.send(amount)

    message = await inbox.receive()
    add = await inbox.receive()
    answer(add.amount)


async def keeps_in_a_caller(inbox: Inbox[Total | Add]) -> None:
    async def next_amount() -> int:
        async for message in inbox:
            return message.amount
        raise AssertionError

    question = await inbox.receive()
    question.reply.send(await next_amount())


async def keeps_in_a_task(inbox: Inbox[Total | Add]) -> None:
    wake = trio.Event()

    async def answer(reply: Reply[int]) -> None:
        await wake.wait()
        reply.send(3)

    async with trio.open_nursery() as nursery:
        async for message in inbox:
            match message:
                case Total(reply, _):
                    nursery.start_soon(answer, reply)
                case Add():
                    wake.set()


@pytest.mark.parametrize(
    "run",
    [
        keeps_in_a_list,
        keeps_in_a_variable,
        keeps_the_message,
        keeps_until_the_loop_ends,
        keeps_for_its_cleanup,
        keeps_in_a_closure,
        keeps_in_a_caller,
        keeps_in_a_task,
    ],
)
async def test_a_kept_reply_may_be_answered_after_later_messages(run: Any) -> None:
    async with actor(run) as ref:
        answer = await ref.request(Total)
        await settle()
        await ref.tell(Add(3))
        assert await answer.get(timeout=1) == 3


async def test_a_reply_is_sent_once() -> None:
    problems = []

    async def twice(inbox: Inbox[Total]) -> None:
        async for message in inbox:
            message.reply.send(1)
            try:
                message.reply.send(2)
            except ActorError as error:
                problems.append(str(error))

    async with actor(twice) as ref:
        assert await ref.ask(Total) == 1
    assert "answered already" in problems[0]


# ------------------------------------------------------------ forwarding


@attrs.frozen
class Forwarded:
    reply: Reply[int]
    by: str


async def test_a_reply_may_be_forwarded_and_outlives_the_forwarder() -> None:
    async def forwards(inbox: Inbox[Total], other: Ref[Forwarded]) -> None:
        question = await inbox.receive()
        await other.tell(Forwarded(question.reply, "me"))
        raise Boom

    async def answers_late(inbox: Inbox[Forwarded]) -> None:
        async for message in inbox:
            await trio.sleep(5)
            message.reply.send(9)

    async with open_supervisor([Child("late", answers_late)]) as supervisor:
        front = await supervisor.start_child(Child("front", forwards, supervisor.ref("late")))
        assert await front.ask(Total) == 9


async def test_a_reply_forwarded_to_nobody_fails_the_asker() -> None:
    async def forwards(inbox: Inbox[Total], other: Ref[Forwarded]) -> None:
        async for question in inbox:
            await other.tell(Forwarded(question.reply, "me"))

    async with open_supervisor() as supervisor:
        front = await supervisor.start_child(Child("front", forwards, supervisor.ref("nobody")))
        with pytest.raises(ActorDied, match="to 'nobody'"):
            await front.ask(Total)


async def test_a_forwarded_question_dies_with_the_actor_that_has_it() -> None:
    async def forwards(inbox: Inbox[Total], other: Ref[Forwarded]) -> None:
        async for question in inbox:
            await other.tell(Forwarded(question.reply, "me"))

    async def crashes(inbox: Inbox[Forwarded]) -> None:
        async for _ in inbox:
            raise Boom("holding it")

    async with open_supervisor([Child("last", crashes)]) as supervisor:
        front = await supervisor.start_child(Child("front", forwards, supervisor.ref("last")))
        with pytest.raises(ActorDied, match="holding it"):
            await front.ask(Total)


async def test_a_reply_that_could_not_be_forwarded_stays_where_it_was() -> None:
    """The mailbox of the other was full: it dies with the actor that still has it."""

    async def forwards(inbox: Inbox[Total], other: Ref[Forwarded]) -> None:
        kept = []
        async for question in inbox:
            kept.append(question.reply)
            with pytest.raises(MailboxFull):
                other.tell_nowait(Forwarded(question.reply, "me"))
            with trio.move_on_after(1):
                await other.tell(Forwarded(question.reply, "me"))
            raise Boom("still has it")

    async def stuck(inbox: Inbox[Any]) -> None:
        async for _ in inbox:
            await trio.sleep(100)

    async with open_supervisor([Child("stuck", stuck, mailbox=Mailbox(1), shutdown=0)]) as supervisor:
        other = supervisor.ref("stuck")
        for _ in range(2):
            await other.tell(Add(1))
            await settle()
        front = await supervisor.start_child(Child("front", forwards, other))
        with pytest.raises(ActorDied, match="still has it"):
            await front.ask(Total)


async def test_a_reply_may_stand_in_line_before_a_full_mailbox() -> None:
    async def forwards(inbox: Inbox[Total], other: Ref[Forwarded]) -> None:
        async for question in inbox:
            await other.tell(Forwarded(question.reply, "me"))
            raise Boom("has it no more")

    async def slow(inbox: Inbox[Any]) -> None:
        async for message in inbox:
            await trio.sleep(5)
            if isinstance(message, Forwarded):
                message.reply.send(4)

    async with open_supervisor([Child("slow", slow, mailbox=Mailbox(1))]) as supervisor:
        other = supervisor.ref("slow")
        for _ in range(2):
            await other.tell(Add(1))
            await settle()
        front = await supervisor.start_child(Child("front", forwards, other))
        assert await front.ask(Total) == 4


async def test_a_question_that_leaves_the_line_of_a_mailbox_after_its_holder_has_ended_fails() -> None:
    async def forwards(inbox: Inbox[Total], other: Ref[Any], nursery: trio.Nursery) -> None:
        async def tell_within_two_seconds() -> None:
            with trio.move_on_after(2):
                await other.tell(question)

        question = await inbox.receive()
        nursery.start_soon(tell_within_two_seconds)
        await trio.sleep(1)
        raise Boom("has handed it to a task that is not its own")

    full = Child("full", never_reads, mailbox=Mailbox(1), shutdown=0)
    async with tree(full) as (supervisor, events), trio.open_nursery() as nursery:
        other = supervisor.ref("full")
        await other.tell(Add(1))
        front = await supervisor.start_child(Child("front", forwards, other, nursery, restart=Restart.TEMPORARY))
        begun = trio.current_time()
        with pytest.raises(ActorDied, match="has handed it to a task"):
            await front.ask(Total)
        assert trio.current_time() == begun + 2
        assert len(happened(events, DeadLetter)) == 1


async def test_a_message_may_be_told_again_after_it_was_answered() -> None:
    async def answers_and_logs(inbox: Inbox[Total], log: Ref[Total]) -> None:
        async for question in inbox:
            question.reply.send(6)
            await log.tell(question)

    probe = Probe()
    async with open_supervisor([Child("log", probe.run)]) as supervisor:
        front = await supervisor.start_child(Child("front", answers_and_logs, supervisor.ref("log")))
        assert await front.ask(Total) == 6
        await settle()
    assert [type(message) for message in probe.got] == [Total]


async def test_a_message_that_is_asked_carries_its_reply_first() -> None:
    @attrs.frozen
    class Backwards:
        label: str
        reply: Reply[int]

    async with actor(counter) as ref:
        with pytest.raises(
            TypeError, match="Backwards: a message that is asked must have its Reply as its first field"
        ):
            await ref.ask(lambda reply: Backwards("x", reply))


# ------------------------------------------------------------ askers that leave


async def test_a_question_whose_asker_left_before_it_began_is_skipped() -> None:
    handled = []

    async def slow(inbox: Inbox[Any]) -> None:
        async for message in inbox:
            handled.append(type(message).__name__)
            await trio.sleep(5)

    async with tree(Child("slow", slow)) as (supervisor, events):
        ref = supervisor.ref("slow")
        await ref.tell(Add(1))
        with pytest.raises(AskTimeout):
            await ref.ask(Total, timeout=1)
        await ref.tell(Add(2))
        await trio.sleep(20)
        assert handled == ["Add", "Add"]
        assert [letter.why for letter in happened(events, DeadLetter)] == ["its asker has left"]


@pytest.mark.parametrize("leave", ["timeout", "cancel", "drop"])
async def test_work_in_progress_can_be_cancelled_when_its_asker_leaves(leave: str) -> None:
    seen = []

    async def careful(inbox: Inbox[Any]) -> None:
        async for message in inbox:
            with message.reply.scope():
                await trio.sleep(100)
            seen.append((trio.current_time(), message.reply.abandoned))
            message.reply.send("too late, and no error")

    async with actor(careful) as ref:
        begun = trio.current_time()
        if leave == "timeout":
            with pytest.raises(AskTimeout):
                await ref.ask(Work, 1.0, timeout=3)
        elif leave == "cancel":
            with trio.move_on_after(3):
                await ref.ask(Work, 1.0)
        else:
            answer = await ref.request(Work, 1.0)
            await trio.sleep(3)
            del answer
            gc.collect()
        await settle()
        assert seen == [(begun + 3, True)]


async def test_a_scope_taken_after_the_asker_left_is_cancelled_already() -> None:
    cancelled = []

    async def late(inbox: Inbox[Any]) -> None:
        async for message in inbox:
            await trio.sleep(5)
            cancelled.append(message.reply.scope().cancel_called)

    async with actor(late) as ref:
        with pytest.raises(AskTimeout):
            await ref.ask(Total, timeout=1)
        await trio.sleep(10)
    assert cancelled == [True]


# ------------------------------------------------------------ deadlines


async def relay(inbox: Inbox[Work], other: Ref[Work], timeout: float | None = None) -> None:
    async for message in inbox:
        try:
            message.reply.send(await other.ask(Work, message.seconds, timeout=timeout))
        except AskTimeout as error:
            message.reply.send(f"{error.target} timed out at {error.time:g}")


async def asked_through_a_relay(ask_timeout: float, own_timeout: float | None) -> float:
    """When the innermost ask gave up, in seconds after it was asked."""
    times = []

    async def relay(inbox: Inbox[Any], other: Ref[Any]) -> None:
        async for message in inbox:
            with pytest.raises(AskTimeout):
                await other.ask(Work, 100.0, timeout=own_timeout)
            times.append(trio.current_time())
            message.reply.send("")

    async with open_supervisor([Child("worker", counter, shutdown=0)]) as supervisor:
        front = await supervisor.start_child(Child("front", relay, supervisor.ref("worker")))
        begun = trio.current_time()
        with trio.move_on_after(60), pytest.raises(AskTimeout):
            await front.ask(Work, 0.0, timeout=ask_timeout)
        await trio.sleep(60)
        return times[0] - begun


async def test_a_nested_ask_inherits_the_deadline() -> None:
    assert await asked_through_a_relay(4, None) == 4


async def test_a_nested_ask_inherits_the_smaller_deadline() -> None:
    assert await asked_through_a_relay(4, 30) == 4


async def test_a_nested_ask_may_have_a_smaller_deadline_of_its_own() -> None:
    times = []

    async def relay(inbox: Inbox[Any], other: Ref[Any]) -> None:
        async for message in inbox:
            with pytest.raises(AskTimeout):
                await other.ask(Work, 100.0, timeout=2)
            times.append(trio.current_time())
            message.reply.send("in time")

    async with open_supervisor([Child("worker", counter, shutdown=0)]) as supervisor:
        front = await supervisor.start_child(Child("front", relay, supervisor.ref("worker")))
        begun = trio.current_time()
        assert await front.ask(Work, 0.0, timeout=9) == "in time"
        assert times == [begun + 2]


async def test_a_deadline_says_nothing_once_the_question_is_answered() -> None:
    """Work that goes on after the answer is not done for the asker any more."""
    results = []

    async def answers_first(inbox: Inbox[Any], other: Ref[Any]) -> None:
        async for message in inbox:
            message.reply.send("soon")
            results.append(await other.ask(Work, 50.0))

    async with open_supervisor([Child("worker", counter)]) as supervisor:
        front = await supervisor.start_child(Child("front", answers_first, supervisor.ref("worker")))
        assert await front.ask(Work, 0.0, timeout=1) == "soon"
        await trio.sleep(60)
    assert results == ["done"]


async def test_a_task_of_the_actor_inherits_the_deadline_of_the_question_it_works_for() -> None:
    times = []

    async def concurrent(inbox: Inbox[Any], other: Ref[Any]) -> None:
        async def work(reply: Reply[str]) -> None:
            with pytest.raises(AskTimeout):
                await other.ask(Work, 100.0)
            times.append(trio.current_time())
            reply.send("")

        async with trio.open_nursery() as nursery:
            async for message in inbox:
                nursery.start_soon(work, message.reply)

    async with open_supervisor([Child("worker", counter, shutdown=0)]) as supervisor:
        front = await supervisor.start_child(Child("front", concurrent, supervisor.ref("worker")))
        begun = trio.current_time()
        answer = await front.request(Work, 0.0)
        with pytest.raises(AskTimeout):
            await front.ask(Work, 0.0, timeout=3)
        await trio.sleep(1)
        assert times == [begun + 3]
        del answer


# ------------------------------------------------------------ circles


async def passes_on(inbox: Inbox[Total], supervisor: Any, name: str) -> None:
    """Asks another actor, by name, whatever it is asked, and answers with the circle that it was told of."""
    async for message in inbox:
        try:
            message.reply.send(await supervisor().ref(name).ask(Total))
        except AskCycle as error:
            message.reply.send(error.path)


@pytest.mark.parametrize(
    ("edges", "circle"),
    [
        ({"a": "a"}, ("a", "a")),
        ({"a": "b", "b": "a"}, ("b", "a", "b")),
        ({"a": "b", "b": "c", "c": "a"}, ("c", "a", "b", "c")),
        ({"a": "b", "b": "c", "c": "b"}, ("c", "b", "c")),
    ],
)
async def test_a_wait_that_would_close_a_circle_is_refused_with_the_circle(edges: dict, circle: tuple) -> None:
    async with open_supervisor() as supervisor:
        for name, other in edges.items():
            await supervisor.start_child(Child(name, passes_on, lambda: supervisor, other))
        assert await supervisor.ref("a").ask(Total, timeout=5) == circle


async def test_a_circle_through_a_forwarded_question_is_seen() -> None:
    """a waits for b, which has handed the question on to c; c may ask b, but not a."""

    async def hands_on(inbox: Inbox[Any], c: Ref[Any]) -> None:
        async for message in inbox:
            match message:
                case Total(reply, "for c"):
                    await c.tell(Total(reply))
                case Total(reply, _):
                    reply.send(1)

    async def asks_both(inbox: Inbox[Any], supervisor: Any) -> None:
        async for message in inbox:
            assert await supervisor().ref("b").ask(Total) == 1
            with pytest.raises(AskCycle) as raised:
                await supervisor().ref("a").ask(Total)
            message.reply.send(raised.value.path)

    async def asks(inbox: Inbox[Any], b: Ref[Any]) -> None:
        async for message in inbox:
            message.reply.send(await b.ask(Total, "for c"))

    async with open_supervisor() as supervisor:
        await supervisor.start_child(Child("b", hands_on, supervisor.ref("c")))
        await supervisor.start_child(Child("c", asks_both, lambda: supervisor))
        a = await supervisor.start_child(Child("a", asks, supervisor.ref("b")))
        assert await a.ask(Total, timeout=5) == ("c", "a", "c")


@pytest.mark.parametrize("room", [1, 64])
@pytest.mark.parametrize("between", [0, 1])
async def test_a_question_that_is_handed_on_to_who_waits_for_its_asker_closes_a_circle(between: int, room: int) -> None:
    """First c asks a (through `between` others), who waits for b; then b hands what a has asked on to c."""

    async def asks(inbox: Inbox[Any], other: str) -> None:
        async for message in inbox:
            try:
                message.reply.send(await root.ref(other).ask(Total))
            except AskCycle as error:
                message.reply.send(error.path)

    async def hands_on(inbox: Inbox[Any], other: str) -> None:
        async for message in inbox:
            await trio.sleep(1)
            await root.ref(other).tell(message)

    names = ["a", "d"][: between + 1]
    async with (
        tree(
            Child("a", asks, "b"),
            Child("b", hands_on, "c"),
            Child("c", asks, names[-1], mailbox=Mailbox(room)),
            Child("d", asks, "a"),
        ) as (root, events),
        trio.open_nursery() as nursery,
    ):
        first = await root.ref("a").request(Total)
        await settle()
        second = await root.ref("c").request(Total)
        await settle()
        if room == 1:  # so that what is handed on stands in line
            nursery.start_soon(root.ref("c").request, Total, "nobody waits for this")
        with trio.fail_after(5):
            assert await first.get() == ("a", "c", *names[::-1])
            blocked = ("b",) if room == 1 else ()  # b itself is in line
            assert await second.get() == ("a", *blocked, "c", *names[::-1])
        await settle()
        dead = [(event.path, event.why) for event in happened(events, DeadLetter) if not event.message.label]
        assert dead == [("c", "its asker has left")] * (2 - len(blocked))  # what a has asked for each of both


@pytest.mark.parametrize("between", [0, 1])
async def test_who_waits_for_one_that_waits_for_room_before_it_hears_so(between: int) -> None:
    """a asks b (through `between` others), which tells a, which has no room."""

    async def asks(inbox: Inbox[Any], other: str) -> None:
        async for message in inbox:
            got.append(message)
            if isinstance(message, Total):
                try:
                    message.reply.send(await root.ref(other).ask(Total))
                except AskCycle as error:
                    message.reply.send(error.path)

    async def tells(inbox: Inbox[Any]) -> None:
        async for message in inbox:
            await root.ref("a").tell("told")
            message.reply.send(1)

    got: list[Any] = []
    async with (
        tree(
            Child("a", asks, "d" if between else "b", mailbox=Mailbox(1)), Child("b", tells), Child("d", asks, "b")
        ) as (root, _),
        trio.open_nursery() as nursery,
    ):
        first = await root.ref("a").request(Total)
        nursery.start_soon(root.ref("a").tell, "fills it")
        with trio.fail_after(5):
            answer = await first.get()
        assert answer == (("d", "b", "a", "d") if between else ("a", "b", "a"))
        await settle()
        assert got[-2:] == ["fills it", "told"]


async def test_a_request_does_not_wait_for_room_behind_itself() -> None:
    async def requests(inbox: Inbox[Any]) -> None:
        async for message in inbox:
            try:
                await inbox.ref.request(Total)
            except AskCycle as error:
                message.reply.send(error.path)

    async with tree(Child("a", requests, mailbox=Mailbox(1))) as (root, _):
        answers = [root.ref("a").request(Total), root.ref("a").request(Total)]
        first, _second = [await answer for answer in answers]
        with trio.fail_after(1):
            assert await first.get() == ("a", "a")


async def test_an_actor_that_waits_for_room_behind_itself_is_no_matter_for_others() -> None:
    """No ask is in that circle, so none can end; the others go on."""

    async def tells_itself(inbox: Inbox[Any]) -> None:
        async for _ in inbox:
            await inbox.ref.tell("again")
            await inbox.ref.tell("and again")

    async def asks(inbox: Inbox[Any]) -> None:
        async for message in inbox:
            with pytest.raises(AskTimeout):
                await root.ref("a").ask(Total, timeout=1)
            message.reply.send(1)

    async with tree(Child("a", tells_itself, mailbox=Mailbox(1), shutdown=1), Child("b", asks)) as (root, _):
        await root.ref("a").tell("go")
        await settle()
        assert await root.ref("b").ask(Total, timeout=2) == 1


async def test_an_actor_may_ask_itself_from_a_task_beside_its_inbox() -> None:
    async def asks_itself(inbox: Inbox[Any]) -> None:
        async def ask(reply: Reply[int]) -> None:
            reply.send(await inbox.ref.ask(Total, "inner"))

        async with trio.open_nursery() as nursery:
            async for message in inbox:
                if message.label == "inner":
                    message.reply.send(5)
                else:
                    nursery.start_soon(ask, message.reply)

    async with actor(asks_itself) as ref:
        assert await ref.ask(Total, "outer", timeout=1) == 5


async def test_a_wait_that_has_ended_is_no_part_of_a_circle() -> None:
    async with open_supervisor([Child("counter", counter, 3)]) as supervisor:
        await supervisor.start_child(Child("a", passes_on, lambda: supervisor, "counter"))
        await supervisor.start_child(Child("b", passes_on, lambda: supervisor, "a"))
        for _ in range(3):
            assert await supervisor.ref("b").ask(Total) == 3


@pytest.mark.parametrize("failed", [False, True])
async def test_who_has_its_answer_waits_no_more_though_it_has_not_run_yet(failed: bool) -> None:
    """An actor may ask the one whom it has answered, in the same breath."""

    async def asks(inbox: Inbox[Any]) -> None:
        async for message in inbox:
            if message == "go":
                with suppress(Boom):
                    await root.ref("b").ask(Total)
            else:
                message.reply.send(7)

    async def answers_and_asks_back(inbox: Inbox[Total]) -> None:
        async for message in inbox:
            if failed:
                message.reply.fail(Boom())
            else:
                message.reply.send(1)
            seen.append(await root.ref("a").ask(Total, timeout=5))

    seen: list[int] = []
    async with open_supervisor([Child("a", asks), Child("b", answers_and_asks_back)]) as root:
        await root.ref("a").tell("go")
        await settle()
        assert seen == [7]


async def test_a_refused_question_is_no_part_of_a_circle() -> None:
    """An actor whose ask was refused waits for nobody."""

    async def tries(inbox: Inbox[Any], busy: Ref[Any]) -> None:
        async for message in inbox:
            if message.label == "try":
                with pytest.raises(MailboxFull):
                    await busy.ask(Total)
            message.reply.send(1)

    async def slow(inbox: Inbox[Any], tries: Ref[Any]) -> None:
        async for _ in inbox:
            await trio.sleep(1)
            results.append(await tries.ask(Total, timeout=5))

    results: list[int] = []
    async with open_supervisor() as supervisor:
        mailbox = Mailbox(1, Overflow.REJECT)
        busy = await supervisor.start_child(Child("busy", slow, supervisor.ref("tries"), mailbox=mailbox))
        tries_ref = await supervisor.start_child(Child("tries", tries, busy))
        await busy.tell(Add(1))
        await settle()
        await busy.tell(Add(1))
        assert await tries_ref.ask(Total, "try") == 1
        await trio.sleep(10)
    assert results[:1] == [1]
