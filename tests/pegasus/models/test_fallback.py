"""Circuit breakers: a model that is down is left alone, and finding out whether it is back costs nobody a turn."""

from __future__ import annotations

import attrs
import pytest
import trio

from pegasus.models import (
    LanguageModel,
    ModelClient,
    ModelError,
    ModelRequest,
    ModelResponse,
    StreamPiece,
    TextPiece,
    TokenCounter,
)
from pegasus.models.client import ModelTarget
from pegasus.models.fallback import LONGEST_PAUSE, PATIENCE, CircuitBreaker, Fallback
from pegasus.models.model_facts import ModelFacts
from pegasus.models.providers import LocalModel
from pegasus.testing.scripted import After, Hang, ScriptedModel, down, say
from tests.pegasus.models.conftest import FixedSource, request, target


def chain(*models: LanguageModel, after: int = 2, pause: float = 30.0) -> ModelClient:
    """A client of the first model, with the others as its fallbacks."""
    first, *others = (ModelTarget(f"lab/{n}", model, TokenCounter()) for n, model in enumerate(models))
    return ModelClient(FixedSource(first, [Fallback(others, after=after, pause=pause)]), "default")


def first_breaker(model: ModelClient) -> CircuitBreaker:
    return model._source.middleware[0].breakers["lab/0"]


async def ask(model: ModelClient, **fields: object) -> str:
    return (await model.generate(request(**fields))).text


class Silent:
    """Model that is down and then never begins to answer: as `HttpModel`, it fails when its time for that is over."""

    name = "scripted/silent"

    def __init__(self) -> None:
        self._was_down = False

    async def generate(self, request: ModelRequest) -> ModelResponse:
        if self._was_down:
            await trio.sleep(request.options.timeout)
            raise ModelError("no token", kind="timeout")
        self._was_down = True
        raise down()


def forever(step: object) -> ScriptedModel:
    return ScriptedModel(lambda request: step)


# ------------------------------------------------------------------ the breaker alone


async def test_it_opens_after_failures_in_a_row(autojump_clock) -> None:
    breaker = CircuitBreaker(after=3, pause=30)
    for _ in range(2):
        breaker.failed("down")
    breaker.succeeded()
    for _ in range(2):
        breaker.failed("down")
    assert breaker.state == "closed"
    breaker.failed("down for good")
    assert attrs.astuple(breaker.status) == ("open", 3, 30.0, "down for good")
    assert not breaker.lets_through


async def test_it_is_half_open_after_the_pause_and_lets_one_call_through(autojump_clock) -> None:
    breaker = CircuitBreaker(after=1, pause=30)
    breaker.failed("down")
    await trio.sleep(29.9)
    assert not breaker.begin_probe()
    await trio.sleep(0.1)
    assert breaker.begin_probe()
    assert breaker.state == "half-open"
    assert not breaker.lets_through
    assert not breaker.begin_probe()
    breaker.succeeded()
    assert breaker.state == "closed"


async def test_a_probe_that_fails_doubles_the_pause_up_to_a_limit(autojump_clock) -> None:
    breaker = CircuitBreaker(after=1, pause=100)
    breaker.failed("down")
    pauses = []
    for _ in range(5):
        pauses.append(breaker.status.seconds)
        await trio.sleep(breaker.status.seconds)
        assert breaker.begin_probe()
        breaker.failed("still down", is_probe=True)
    assert pauses == [100, 200, 400, LONGEST_PAUSE, LONGEST_PAUSE]


async def test_after_a_success_the_pause_is_short_again(autojump_clock) -> None:
    breaker = CircuitBreaker(after=1, pause=100)
    breaker.failed("down")
    await trio.sleep(100)
    breaker.begin_probe()
    breaker.failed("down", is_probe=True)
    breaker.succeeded()
    breaker.failed("down")
    assert breaker.status.seconds == 100


async def test_a_probe_that_is_given_up_lets_the_next_call_find_out(autojump_clock) -> None:
    breaker = CircuitBreaker(after=1, pause=10)
    breaker.failed("down")
    await trio.sleep(10)
    assert breaker.begin_probe()
    breaker.abandon_probe()
    assert breaker.begin_probe()


async def test_failures_of_calls_begun_before_do_not_lengthen_the_pause(autojump_clock) -> None:
    breaker = CircuitBreaker(after=1, pause=10)
    breaker.failed("down")
    await trio.sleep(5)
    breaker.failed("down, too")
    assert breaker.status.seconds == 5


# ------------------------------------------------------------------ in a chain


@pytest.mark.parametrize("kind", ["overloaded", "server", "network", "timeout"])
async def test_the_chain_is_tried_in_order_while_providers_fail(kind: str) -> None:
    models = tuple(ScriptedModel([step]) for step in (down(kind), down("network"), say("third"), say("never")))
    assert await ask(chain(*models)) == "third"
    assert [len(model.requests) for model in models] == [1, 1, 1, 0]


@pytest.mark.parametrize("kind", ["auth", "request", "protocol"])
async def test_what_is_wrong_with_the_request_or_the_key_is_told_at_once(kind: str) -> None:
    models = (ScriptedModel([down(kind, "the reason")]), ScriptedModel([say("never")]))
    with pytest.raises(ModelError, match="the reason") as caught:
        await ask(chain(*models))
    assert caught.value.kind == kind


async def test_when_all_fail_the_error_is_the_first_ones_with_what_the_others_said() -> None:
    models = (ScriptedModel([down("overloaded", "one is busy")]), ScriptedModel([down("auth", "two has no key")]))
    with pytest.raises(ModelError, match="one is busy; then two has no key") as caught:
        await ask(chain(*models))
    assert caught.value.kind == "overloaded"


async def test_a_dead_first_model_is_not_asked_any_more(autojump_clock) -> None:
    dead, other = forever(down()), forever("I am here")
    model = chain(dead, other, after=2)
    assert [await ask(model) for _ in range(5)] == ["I am here"] * 5
    assert len(dead.requests) == 2


async def test_a_model_that_is_back_is_asked_again(autojump_clock) -> None:
    back = ScriptedModel([down(), down(), "back", "still here"])
    model = chain(back, forever("the other"), after=2)
    assert [await ask(model) for _ in range(3)] == ["the other"] * 3
    await trio.sleep(30)
    assert [await ask(model) for _ in range(2)] == ["back", "still here"]


async def test_a_probe_that_hangs_costs_nobody_more_than_a_moment(autojump_clock) -> None:
    model = chain(Silent(), forever("the other"), after=1)
    await ask(model)
    await trio.sleep(30)
    began = trio.current_time()
    assert await ask(model) == "the other"
    assert trio.current_time() - began == PATIENCE
    assert attrs.astuple(first_breaker(model).status)[:3] == ("open", 2, 60.0)
    began = trio.current_time()
    assert await ask(model) == "the other"
    assert trio.current_time() == began


async def test_only_one_of_many_calls_is_the_probe(autojump_clock) -> None:
    slow = ScriptedModel([down(), After(2.0, say("back"))])
    model = chain(slow, forever("the other"), after=1)
    await ask(model)
    await trio.sleep(30)
    answers: list[str] = []

    async def one() -> None:
        answers.append(await ask(model))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(one)
    assert sorted(answers) == ["back"] + ["the other"] * 4
    assert first_breaker(model).state == "closed"


async def test_if_all_fail_behind_a_probe_that_is_told(autojump_clock) -> None:
    other = ScriptedModel(["the other", down("server", "two is broken")])
    model = chain(Silent(), other, after=1)
    await ask(model)
    await trio.sleep(30)
    with pytest.raises(ModelError, match=r"no token.*two is broken"):
        await ask(model)


async def test_a_refused_key_is_told_at_once_also_by_a_probe(autojump_clock) -> None:
    model = chain(ScriptedModel([down(), down("auth", "no key")]), forever("the other"), after=1)
    await ask(model)
    await trio.sleep(30)
    with pytest.raises(ModelError, match="no key"):
        await ask(model)


async def test_when_all_are_open_all_are_asked_all_the_same(autojump_clock) -> None:
    """A breaker saves time; it never refuses a call that nobody else can take."""
    first, second = ScriptedModel([down(), down(), "back"]), forever(down())
    model = chain(first, second, after=1)
    for _ in range(2):
        with pytest.raises(ModelError):
            await ask(model)
    assert await ask(model) == "back"


async def test_a_cancelled_call_says_nothing_about_the_model(autojump_clock) -> None:
    model = chain(ScriptedModel([down(), Hang(), "back"]), ScriptedModel(["the other", Hang()]), after=1)
    await ask(model)
    await trio.sleep(30)
    with trio.move_on_after(1):
        await ask(model)
    assert first_breaker(model).lets_through
    assert await ask(model) == "back"


async def test_a_call_that_a_budget_forbids_says_nothing_about_the_model(autojump_clock) -> None:
    model = chain(ScriptedModel([down(), down("budget", "no money"), "back"]), forever("the other"), after=1)
    await ask(model)
    await trio.sleep(30)
    with pytest.raises(ModelError, match="no money"):
        await ask(model)
    assert await ask(model) == "back"


# ------------------------------------------------------------------ streamed text


@attrs.frozen
class Talker:
    """Says its pieces, then does what its script does."""

    pieces: tuple[str, ...]
    inner: ScriptedModel

    @property
    def name(self) -> str:
        return self.inner.name

    async def generate(self, request):
        for piece in self.pieces:
            if request.on_pieces is not None:
                request.on_pieces([TextPiece(piece)])
        return await self.inner.generate(attrs.evolve(request, on_pieces=None))


async def test_text_of_a_model_that_failed_is_taken_back(autojump_clock) -> None:
    heard: list[StreamPiece | None] = []
    model = chain(Talker(("half a",), forever(down())), Talker(("whole",), forever("whole")))
    await ask(model, on_pieces=heard.extend)
    assert heard == [TextPiece("half a"), None, TextPiece("whole")]


async def test_text_of_one_model_alone_is_not_taken_back(autojump_clock) -> None:
    heard: list[StreamPiece | None] = []
    await ask(chain(Talker(("a", "b"), forever("ab")), forever("never")), on_pieces=heard.extend)
    assert heard == [TextPiece("a"), TextPiece("b")]


# ------------------------------------------------------------------ reports


async def test_chains_share_the_breaker_of_a_model_and_report_it(autojump_clock) -> None:
    fallback = Fallback([])
    assert fallback.failing() == {}
    fallback.breakers["lab/a"].failed("down")
    assert fallback.breakers["lab/a"] is fallback.breakers["lab/a"]
    assert fallback.failing()["lab/a"].why == "down"


async def test_a_fallback_is_asked_for_its_window_before_its_call(autojump_clock) -> None:
    async def describe() -> LocalModel:
        return LocalModel("lab", "m", "llama.cpp", "http://localhost:1/v1", 16_384)

    windows: list[int] = []

    def answer(request: ModelRequest) -> str:
        windows.append(request.options.context_window)
        return "b"

    first = target(ScriptedModel([down()], name="a/m"))
    other = ScriptedModel(answer, name="lab/m")
    described = ModelTarget(other.name, other, TokenCounter(), ModelFacts(other.name, describe=describe))
    model = ModelClient(FixedSource(first, [Fallback([described])]), "default")
    assert (await model.generate(request())).text == "b"
    assert windows == [16_384]
