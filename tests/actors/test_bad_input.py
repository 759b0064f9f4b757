"""What nobody should do with a running tree: always a typed error or a dead letter, never a hang, never silence."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest
import trio

from actors import (
    ActorDied,
    ActorError,
    AskCycle,
    AskTimeout,
    Child,
    DeadLetter,
    Inbox,
    Mailbox,
    Reply,
    open_pool,
    open_supervisor,
)
from tests.actors.kit import Add, Total, actor, counter, happened, idle, settle, tree


@attrs.frozen
class Alien:
    """No actor knows it."""


@attrs.frozen
class AlienQuestion:
    reply: Reply[str]


async def careful(inbox: Inbox[Any]) -> None:
    total = 0
    async for message in inbox:
        match message:
            case Add(amount):
                total += amount
            case Total(reply):
                reply.send(total)
            case _:
                inbox.reject(message)


# ------------------------------------------------------------ after the end


@pytest.fixture
async def ended() -> Any:
    """A supervisor that has ended, and the address of its only child."""
    async with open_supervisor([Child("counter", counter)]) as supervisor:
        ref = supervisor.ref("counter")
    return supervisor, ref


async def test_telling_an_actor_whose_tree_has_ended_is_an_error(ended: Any) -> None:
    _, ref = ended
    with pytest.raises(ActorDied, match="Add to 'counter': the actor is not running, its tree has ended"):
        await ref.tell(Add(1))
    with pytest.raises(ActorDied, match="its tree has ended"):
        ref.tell_nowait(Add(1))


async def test_asking_an_actor_whose_tree_has_ended_is_an_error(ended: Any) -> None:
    _, ref = ended
    with pytest.raises(ActorDied, match="Total to 'counter': the actor is not running"):
        await ref.ask(Total)
    with pytest.raises(ActorDied, match="Total to 'counter': the actor is not running"):
        await ref.request(Total)


async def test_a_supervisor_that_has_ended_does_nothing_more(ended: Any) -> None:
    supervisor, ref = ended
    for request in (
        supervisor.start_child(Child("new", idle)),
        supervisor.stop_child("counter"),
        supervisor.restart_child("counter"),
        supervisor.delete_child("counter"),
    ):
        with pytest.raises(ActorError, match="'root': the supervisor is stopping"):
            await request
    await supervisor.stop()
    await supervisor.wait_stopped()
    await ref.wait_stopped()
    assert not ref.alive
    assert [event async for event in supervisor.events()] == []


async def test_a_pool_that_has_ended_starts_nobody() -> None:
    async with open_pool() as pool:
        pass
    with pytest.raises(ActorError, match="the supervisor is stopping"):
        await pool.start_child(Child("late", idle))


async def test_telling_an_actor_below_a_supervisor_that_has_ended_is_a_dead_letter_of_the_tree() -> None:
    async def has_a_tree(inbox: Inbox[Any], refs: list[Any]) -> None:
        async with open_supervisor([Child("below", idle)]) as inner:
            refs.append(inner.ref("below"))
        await idle(inbox)

    refs: list[Any] = []
    async with tree() as (root, events):
        await root.start_child(Child("above", has_a_tree, refs))
        await refs[0].tell(Alien())
        [letter] = happened(events, DeadLetter)
        assert (letter.path, letter.why) == ("above/below", "the actor is not running")


# ------------------------------------------------------------ questions


async def test_replying_twice_is_an_error_of_who_does_it() -> None:
    raised: list[str] = []

    async def twice(inbox: Inbox[Total]) -> None:
        async for message in inbox:
            message.reply.send(1)
            for again, what in ((message.reply.send, 2), (message.reply.fail, KeyError())):
                with pytest.raises(ActorError, match="Total to 'actor': was answered already") as error:
                    again(what)
                raised.append(error.value.message_type)

    async with actor(twice) as ref:
        assert await ref.ask(Total) == 1
    assert raised == ["Total", "Total"]


async def test_asking_oneself_is_refused_with_the_circle() -> None:
    async def narcissus(inbox: Inbox[Total], found: list[Any]) -> None:
        async for message in inbox:
            with pytest.raises(AskCycle) as raised:
                await inbox.ref.ask(Total)
            answer = await inbox.ref.request(Total)
            with pytest.raises(AskCycle):
                await answer.get()
            del answer
            found.append(raised.value.path)
            message.reply.send(0)

    found: list[Any] = []
    async with actor(narcissus, found) as ref:
        await ref.ask(Total, timeout=1)
    assert found == [("actor", "actor")]


async def test_a_message_that_is_asked_needs_a_reply_as_its_first_field() -> None:
    async with actor(counter) as ref:
        with pytest.raises(TypeError, match="Add: a message that is asked must have its Reply as its first field"):
            await ref.ask(lambda reply: Add(1))


@pytest.mark.parametrize("timeout", [0, -1, -math.inf])
async def test_a_deadline_that_has_passed_is_a_timeout_at_once(timeout: float) -> None:
    async with actor(idle) as ref:
        with pytest.raises(AskTimeout):
            await ref.ask(Total, timeout=timeout)
        assert trio.current_time() == 0


async def test_a_deadline_that_is_no_number_is_refused() -> None:
    async with actor(counter) as ref:
        with pytest.raises(ValueError, match="timeout is nan; it must be a number of seconds, or None"):
            await ref.ask(Total, timeout=math.nan)
        answer = await ref.request(Total)
        with pytest.raises(ValueError, match="timeout is nan"):
            await answer.get(timeout=math.nan)


# ------------------------------------------------------------ messages that an actor does not know


async def test_a_rejected_message_is_a_dead_letter() -> None:
    async with tree(Child("careful", careful)) as (root, events):
        ref = root.ref("careful")
        await ref.tell(Alien())
        await ref.tell(Add(1))
        assert await ref.ask(Total) == 1
        [letter] = happened(events, DeadLetter)
        assert (letter.path, letter.message, letter.why) == (
            "careful",
            Alien(),
            "the actor does not know this message",
        )
        [info] = root.children()
        assert (info.sent, info.handled, info.dead, info.attempt) == (3, 2, 1, 1)


async def test_who_asks_with_a_message_that_is_rejected_hears_of_it_at_once() -> None:
    async with actor(careful) as ref:
        with pytest.raises(
            ActorError, match="AlienQuestion to 'actor': the actor does not know this message"
        ) as raised:
            await ref.ask(AlienQuestion)
        assert not isinstance(raised.value, ActorDied)
        assert await ref.ask(Total) == 0


async def test_who_asks_with_a_message_that_nobody_has_a_case_for_hears_of_it_with_the_next_message() -> None:
    async with actor(counter) as ref:
        answer = await ref.request(AlienQuestion)
        await ref.tell(Add(1))
        with pytest.raises(ActorError, match="AlienQuestion to 'actor': the question was dropped without an answer"):
            await answer.get()


async def test_a_question_that_was_handed_on_is_still_open_when_its_message_is_rejected() -> None:
    async def front(inbox: Inbox[Any], behind: Any) -> None:
        async for message in inbox:
            await behind.tell(Total(message.reply))
            inbox.reject(message, "somebody else does that")

    async with open_supervisor([Child("behind", counter, 7)]) as root:
        await root.start_child(Child("front", front, root.ref("behind")))
        assert await root.ref("front").ask(AlienQuestion) == 7


async def test_only_the_message_in_hand_can_be_rejected() -> None:
    """And once only: the books would not be right."""
    problems: list[str] = []

    async def rejects(inbox: Inbox[Any]) -> None:
        first = await inbox.receive()
        second = await inbox.receive()
        for message in (first, second, second, None):
            try:
                inbox.reject(message)
            except ValueError as error:
                problems.append(str(error))
        await idle(inbox)

    async with tree(Child("a", rejects)) as (root, _):
        await root.ref("a").tell(Add(1))
        await root.ref("a").tell(Add(2))
        await settle()
        [info] = root.children()
        assert (info.sent, info.handled, info.dead) == (2, 1, 1)
    assert problems == [
        "'a' rejects Add(amount=1), which it has not in hand",
        "'a' rejects Add(amount=2), which it has not in hand",
        "'a' rejects None, which it has not in hand",
    ]


# ------------------------------------------------------------ names, and what is no spec


@pytest.mark.parametrize("name", ["", "a/b", 3])
async def test_a_tree_needs_a_name_that_can_be_part_of_a_path(name: Any) -> None:
    with pytest.raises(ValueError, match='it must be a non-empty string without "/", or None'):
        async with open_supervisor(name=name):
            pytest.fail("opened")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"strategy": "one_for_all"}, "strategy is 'one_for_all'; it must be a Strategy"),
        ({"intensity": 3}, "intensity is 3; it must be an Intensity"),
        ({"auto_shutdown": True}, "auto_shutdown is True; it must be an AutoShutdown"),
        ({"children": [idle]}, "a child is <function idle .*>; it must be a Child"),
    ],
)
async def test_a_tree_is_made_of_specs(options: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        async with open_supervisor(**options):
            pytest.fail("opened")


async def test_what_is_no_child_is_not_started() -> None:
    async with open_supervisor() as root:
        with pytest.raises(TypeError, match="a child is 'x'; it must be a Child"):
            await root.start_child("x")


async def test_an_actor_that_is_no_async_function_does_not_start() -> None:
    def not_async(inbox: Inbox[Any]) -> None:
        pass

    async with open_supervisor() as root:
        with pytest.raises(ActorDied, match="did not start, crashed with TypeError"):
            await root.start_child(Child("x", not_async))


async def test_nobody_can_ask_for_a_child_that_is_not_there() -> None:
    async with open_supervisor([Child("a", idle, mailbox=Mailbox(1)), Child("b", idle)]) as root:
        for request in (root.stop_child, root.restart_child, root.delete_child):
            with pytest.raises(ActorError, match="there is no child 'c'; there are: a, b"):
                await request("c")
