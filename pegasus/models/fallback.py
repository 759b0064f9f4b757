"""Fallback chains with circuit breakers: when a model is down, the next one of `models.fallback` answers.

When `models.breaker_failures` calls to a model have failed one after another, its circuit breaker opens and the model is skipped.
Until then each failed call has cost its caller the retries of `HttpModel`. After a pause one call, the probe, is made to the model
again to find out whether it works.

A probe must not cost its caller a long wait either. So it has only `PATIENCE` seconds until its first token, retries included, where
another model works.

A breaker saves time; it never refuses a call. Where all models of a chain are skipped, all are asked all the same. A model without
fallbacks has no breaker at all.

Only failures of the provider count ("overloaded", "server", "network", "timeout"). A refused key or request is reported to the
user at once: another model would hide the mistake.

A breaker has three states:

    closed ──(N failures in a row)──▶ open ──(pause is over)──▶ half-open ──(probe succeeds)──▶ closed
                                        ▲                           │
                                        └──(probe fails: pause × 2)─┘

Breakers live as long as the settings do not change; a reload begins with closed ones. They belong to models, not to chains: a model
that stands in several chains has one breaker, so all callers learn from each other's failures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from pegasus.models.base import ModelError, ModelResponse
from pegasus.models.client import ModelCall, ModelTarget, Next
from pegasus.observe import get_logger
from pegasus.retry import Pauses

_log = get_logger("models")

PROVIDER_FAILURES: Final = frozenset({"overloaded", "server", "network", "timeout"})
"""Kinds of errors that are about the provider's state, not about the request or the key."""
PATIENCE: Final = 10.0
"""Seconds that a probe has until its first token. Then the next model is asked."""
LONGEST_PAUSE: Final = 600.0
"""Seconds between two probes at most."""


# ------------------------------------------------------------------ circuit breaker


@attrs.frozen(eq=False, repr=False)
class BreakerStatus:
    """State of a circuit breaker, for reports."""

    state: str
    """"closed": calls pass. "open": they do not, until the pause is over. "half-open": the next call, or one under way, is a probe."""
    failures: int
    """Failures in a row."""
    seconds: float
    """Seconds until the next probe."""
    why: str
    """Message of the last failure."""


class CircuitBreaker:
    """Circuit breaker of one model, shared by all its callers. It uses Trio's clock and never waits.

    after: failures in a row that open it. pause: seconds until the first probe; doubled after each probe that fails, up to
    `LONGEST_PAUSE`.

    Callers ask `begin_probe` before a call and report how it ended: `succeeded`, `failed` or, without a result, `abandon_probe`.

    Example::

        breaker = CircuitBreaker(after=2, pause=30.0)
        breaker.failed("503"); breaker.failed("503")
        breaker.state               # "open"; 30 s later "half-open"
        breaker.begin_probe()       # True: this call finds out
        breaker.succeeded()         # "closed" again
    """

    def __init__(self, after: int = 3, pause: float = 30.0) -> None:
        self._after = after
        self._pauses = Pauses(pause, max(LONGEST_PAUSE, pause))
        self._failures = 0
        """Failures in a row."""
        self._why = ""
        """Message of the last failure."""
        self._open_until: float | None = None
        """Trio time of the next probe; None while closed."""
        self._is_probing = False
        """True while a probe is under way."""

    @property
    def state(self) -> str:
        """State of the breaker, in the words of `BreakerStatus`."""
        if self._open_until is None:
            return "closed"
        return "half-open" if self._is_probing or trio.current_time() >= self._open_until else "open"

    @property
    def status(self) -> BreakerStatus:
        """State, failures in a row and time until the next probe as they are now, for reports."""
        seconds = 0.0 if self._open_until is None else max(0.0, self._open_until - trio.current_time())
        return BreakerStatus(self.state, self._failures, seconds, self._why)

    @property
    def lets_through(self) -> bool:
        """True if a call would be let through now."""
        return self._open_until is None or (not self._is_probing and trio.current_time() >= self._open_until)

    def begin_probe(self) -> bool:
        """Note that a call begins. Return True if it is the probe."""
        if self._open_until is None or not self.lets_through:
            return False
        self._is_probing = True
        return True

    def abandon_probe(self) -> None:
        """Note that the probe ended without a result (it was cancelled): the next call is one."""
        self._is_probing = False

    def succeeded(self) -> None:
        """Note an answer, also to a call that began before the breaker opened: the model works."""
        self._failures, self._why = 0, ""
        self._pauses.reset()
        self._open_until, self._is_probing = None, False

    def failed(self, why: str, *, is_probe: bool = False) -> None:
        """Note a failure of the provider."""
        self._failures += 1
        self._why = why
        if is_probe:
            self._is_probing = False
            self._open_until = trio.current_time() + self._pauses.next()
        elif self._open_until is None and self._failures >= self._after:
            self._open_until = trio.current_time() + self._pauses.next()


# ------------------------------------------------------------------ middleware


class Fallback:
    """Middleware that tries the fallback models when the target of a call is down.

    fallbacks: the models of `models.fallback`, in order. Each model has its own time limit.
    """

    def __init__(self, fallbacks: Sequence[ModelTarget], *, after: int = 3, pause: float = 30.0) -> None:
        self._fallbacks = tuple(fallbacks)
        self.breakers = defaultdict[str, CircuitBreaker](partial(CircuitBreaker, after, pause))
        """By model: there is one for each, in whatever chain it stands."""

    def failing(self) -> Mapping[str, BreakerStatus]:
        """Return the breakers of the models that failed when they were last asked."""
        statuses = {name: breaker.status for name, breaker in self.breakers.items()}
        return {name: status for name, status in statuses.items() if status.failures}

    async def __call__(self, call: ModelCall, next: Next) -> ModelResponse:
        """Ask the first model that can answer.

        Models whose breaker is closed come first, in the order of the settings, then those that are skipped: they are only asked when
        all others have failed. If the first one is due for a probe and another model works, the probe has only `PATIENCE` seconds.

        Raises the ModelError of the first model that was asked, with the messages of the others.
        """
        targets = [call.target, *(target for target in self._fallbacks if target.name != call.target.name)]
        if len(targets) == 1:
            return await next(call)
        ready = [target for target in targets if self.breakers[target.name].lets_through]
        has_alternative = any(self.breakers[target.name].state == "closed" for target in ready[1:])
        errors: list[ModelError] = []
        for target in [*ready, *(target for target in targets if target not in ready)]:
            is_probe = self.breakers[target.name].begin_probe()
            limited = attrs.evolve(call, patience=PATIENCE) if is_probe and has_alternative else call
            try:
                return await self._ask(target, limited, next, is_probe=is_probe)
            except ModelError as error:
                errors.append(error)
                if error.kind not in PROVIDER_FAILURES:
                    break
                _log.warning("model failed, the next one is asked", model=target.name, reason=str(error))
        raise _joined(errors)

    async def _ask(self, target: ModelTarget, call: ModelCall, next: Next, *, is_probe: bool) -> ModelResponse:
        """Ask one model and report to its breaker how the call ended. Raises ModelError.

        A refusal ("auth", "request", "overflow", "protocol") closes the breaker: the provider answered, so it is not down. A call that
        a budget forbade and a call that was cancelled say nothing about it.
        """
        breaker = self.breakers[target.name]
        try:
            response = await next(await call.to(target))
        except BaseException as error:
            kind = error.kind if isinstance(error, ModelError) else "cancelled"
            if kind in PROVIDER_FAILURES:
                breaker.failed(str(error), is_probe=is_probe)
            elif kind not in ("budget", "cancelled"):
                breaker.succeeded()
            elif is_probe:
                breaker.abandon_probe()
            raise
        breaker.succeeded()
        return response


def _joined(errors: Sequence[ModelError]) -> ModelError:
    """Return the first error, with the messages of the others behind its own."""
    first = errors[0]
    if len(errors) == 1:
        return first
    joined = ModelError("; then ".join(map(str, errors)), kind=first.kind, status=first.status)
    joined.__cause__ = first
    return joined
