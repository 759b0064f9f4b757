"""What was sent before is not put together again, and is the same bytes all the same."""

from hypothesis import given
from hypothesis import strategies as st

from pegasus.models.anthropic import AnthropicWire
from pegasus.models.base import AssistantTurn, ModelRequest, UserTurn
from pegasus.models.joined import Joined
from pegasus.models.openai import ChatWire


def turn(n):
    return UserTurn(text=f"question {n}") if n % 2 == 0 else AssistantTurn(f"answer {n}")


def written(calls):
    def write(one):
        calls.append(one)
        return one.text.encode()

    return write


def test_only_what_is_new_is_written():
    joined, calls = Joined(), []
    turns = tuple(map(turn, range(5)))
    joined.before_last(turns[:3], written(calls))
    assert joined.before_last(turns, written(calls)) == b"question 0,answer 1,question 2,answer 3,"
    assert calls == [*turns[:2], *turns[2:4]]


def test_a_turn_that_was_replaced_in_the_middle_is_noticed():
    joined = Joined()
    turns = tuple(map(turn, range(5)))
    joined.before_last(turns, written([]))
    other = (turns[0], AssistantTurn("changed"), *turns[2:])
    assert joined.before_last(other, written([])) == b"question 0,changed,question 2,answer 3,"


def test_what_was_forgotten_is_written_anew():
    joined, calls = Joined(), []
    turns = tuple(map(turn, range(3)))
    joined.before_last(turns, written([]))
    joined.forget()
    joined.before_last(turns, written(calls))
    assert calls == list(turns[:2])


@given(st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=8))
def test_bodies_are_the_same_as_those_of_a_wire_that_has_sent_nothing(lengths):
    """However conversations grow, shrink, begin anew and alternate."""
    conversations = {alternate: tuple(map(turn, range(25))) for alternate in (False, True)}
    for make in (lambda: ChatWire("m"), lambda: AnthropicWire("m")):
        wire = make()
        for length, alternate in lengths:
            request = ModelRequest("system", conversations[alternate][: 2 * length - 1])
            assert wire.body(request) == make().body(request)
