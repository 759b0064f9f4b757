"""A model with others behind it, tried in order when the one before is down or overloaded.

Each has a circuit breaker, so that a dead model is not asked every time. What finds out whether it is back costs nobody a
turn: a probe that has not answered within PATIENCE seconds goes on while the next model is asked as well, and whoever answers
first is taken. A model is never given up where there is nobody else to ask: those that were left out are asked last.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs
import trio

from pegasus.models.base import LanguageModel, ModelError, ModelRequest, ModelResponse
from pegasus.models.breaker import Breaker
from pegasus.observe import get_logger

_log = get_logger("models")

PASSING: Final = frozenset({"overloaded", "server", "network", "timeout"})
"""Kinds of errors that say something about the provider's state, not about the request or the key."""
PATIENCE: Final = 3.0
"""Seconds that a probe has for itself."""


class FallbackModel:
    """A LanguageModel. Each model in the chain has its own time limit; name is the first one's.

    breakers: one for each model of the chain, shared with other chains that have it.
    """

    def __init__(self, chain: Sequence[LanguageModel], breakers: Sequence[Breaker] | None = None) -> None:
        guards = breakers or [Breaker() for _ in chain]
        self._links = [_Link(model, breaker) for model, breaker in zip(chain, guards, strict=True)]

    @property
    def name(self) -> str:
        """`<provider>/<model>` of the first."""
        return self._links[0].model.name

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Ask the first that can answer. Raises the ModelError of the first that was asked, with what the others said."""
        said = None
        if request.on_text is not None:
            said = _Said(request.on_text)
            request = attrs.evolve(request, on_text=said)
        ready = [link for link in self._links if link.breaker.lets_through]
        skipped = [link for link in self._links if link not in ready]
        order = [*ready, *skipped]
        others = any(link.breaker.state == "closed" for link in ready[1:])
        if others and order[0].breaker.begin_probe():
            return await _hedged(order[0], order[1:], request, said)
        return await _in_order(order, request, said, [])


class _Link:
    """A model of the chain, whose breaker hears how its calls end."""

    def __init__(self, model: LanguageModel, breaker: Breaker) -> None:
        self.model = model
        self.breaker = breaker

    async def ask(self, request: ModelRequest, *, probe: bool) -> ModelResponse:
        """Raises ModelError. Cancelled: tells nothing about the model."""
        try:
            response = await self.model.generate(request)
        except ModelError as error:
            if error.kind in PASSING:
                self.breaker.failed(str(error), probe=probe)
            elif error.kind == "budget":  # it was not asked
                self._give_up(probe)
            else:  # it has answered, if only to refuse
                self.breaker.succeeded()
            raise
        except BaseException:
            self._give_up(probe)
            raise
        self.breaker.succeeded()
        return response

    def _give_up(self, probe: bool) -> None:
        if probe:
            self.breaker.give_up_probe()


class _Said:
    """Passes the text on, and tells its reader when it was in vain."""

    def __init__(self, on_text: Callable[[str | None], None]) -> None:
        self._on_text = on_text
        self._any = False

    def __call__(self, piece: str | None) -> None:
        self._any = piece is not None
        self._on_text(piece)

    def anew(self) -> None:
        """Another model begins."""
        if self._any:
            self(None)


async def _in_order(
    links: Sequence[_Link], request: ModelRequest, said: _Said | None, errors: list[ModelError]
) -> ModelResponse:
    """errors: of models that were asked before these."""
    for link in links:
        if said is not None:
            said.anew()
        try:
            return await link.ask(request, probe=link.breaker.begin_probe())
        except ModelError as error:
            errors.append(error)
            if error.kind not in PASSING:
                break
            _log.warning("model failed, the next is asked", model=link.model.name, why=str(error))
    raise _all_of(errors)


async def _hedged(first: _Link, rest: Sequence[_Link], request: ModelRequest, said: _Said | None) -> ModelResponse:
    """Ask the first, which is a probe, and after a moment the others too."""
    probe, others = _Asking(), _Asking()

    async def ask_first() -> None:
        await probe.run(lambda: first.ask(attrs.evolve(request, on_text=None), probe=True))
        if probe.response is not None:
            others.scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask_first)
        with trio.move_on_after(PATIENCE):
            await probe.ended.wait()
        if not probe.decided:
            errors = [probe.error] if probe.error is not None else []
            await others.run(lambda: _in_order(rest, request, said, errors))
            if others.response is not None and not probe.ended.is_set():
                first.breaker.failed("it takes long to answer", probe=True)
                nursery.cancel_scope.cancel()
    if probe.response is not None:
        if said is not None:
            said.anew()
            said(probe.response.text)
        return probe.response
    if others.response is not None:
        return others.response
    raise others.error or probe.error or AssertionError("one of them has ended")


class _Asking:
    """A call under way beside another: its end is kept, not raised."""

    def __init__(self) -> None:
        self.response: ModelResponse | None = None
        self.error: ModelError | None = None
        self.ended = trio.Event()
        self.scope = trio.CancelScope()

    @property
    def decided(self) -> bool:
        """Nobody else need be asked: it has answered, or refused what others would refuse too."""
        return self.response is not None or (self.error is not None and self.error.kind not in PASSING)

    async def run(self, ask: Callable[[], Awaitable[ModelResponse]]) -> None:
        with self.scope:
            try:
                self.response = await ask()
            except ModelError as error:
                self.error = error
            self.ended.set()


def _all_of(errors: Sequence[ModelError]) -> ModelError:
    first = errors[0]
    if len(errors) == 1:
        return first
    words = "; then ".join(str(error) for error in errors)
    whole = ModelError(words, kind=first.kind, status=first.status)
    whole.__cause__ = first
    return whole
