"""Specs are checked when they are built, and say what is wrong."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors import AutoShutdown, Backoff, Child, Intensity, Mailbox, Restart, Strategy, open_supervisor, supervisor
from tests.actors.kit import idle


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: Child("", idle), "Child.name is ''"),
        (lambda: Child("a/b", idle), 'a non-empty string without "/"'),
        (lambda: Child(3, idle), "Child.name is 3"),
        (lambda: Child("x", idle, shutdown=-1), "'x': shutdown is -1; it must be 0 or more seconds, or math.inf"),
        (lambda: Child("x", idle, shutdown=math.nan), "'x': shutdown is nan"),
        (lambda: Child("x", idle, restart="always"), "'x': restart is 'always'; it must be a Restart"),
        (lambda: Child("x", idle, significant=True), "'x': significant needs restart=TRANSIENT or TEMPORARY"),
        (lambda: Child("x", idle, restart=Restart.TEMPORARY, backoff=Backoff(1, 2)), "'x': a backoff makes no sense"),
        (lambda: Mailbox(0), "Mailbox.capacity is 0; it must be 1 or more"),
        (lambda: Mailbox(-1), "Mailbox.capacity is -1; it must be 1 or more"),
        (lambda: Mailbox(1, "drop"), "Mailbox.overflow is 'drop'"),
        (lambda: Intensity(-1), "Intensity.restarts is -1; it must be 0 or more"),
        (lambda: Intensity(1, 0), "Intensity.period is 0"),
        (lambda: Intensity(1, -5), "Intensity.period is -5; it must be a positive number of seconds"),
        (lambda: Intensity(1, math.inf), "Intensity.period is inf"),
        (lambda: Intensity(1, math.nan), "Intensity.period is nan"),
        (lambda: Backoff(-1, 1), "Backoff.first is -1; it must be a positive number of seconds"),
        (lambda: Backoff(math.nan, 1), "Backoff.first is nan"),
        (lambda: Backoff(1, math.nan), "Backoff.limit is nan"),
        (lambda: Backoff(1, 2, factor=math.nan), "Backoff.factor is nan"),
        (lambda: Backoff(1, 2, jitter=math.nan), "Backoff.jitter is nan"),
        (lambda: Backoff(1, 2, jitter=-0.1), "Backoff.jitter is -0.1"),
        (lambda: Backoff(1, 2, reset_after=math.nan), "Backoff.reset_after is nan"),
        (lambda: Backoff(0, 1), "Backoff.first is 0"),
        (lambda: Backoff(2, 1), r"Backoff.limit is 1; it must be at least first \(2\)"),
        (lambda: Backoff(1, math.inf), "Backoff.limit is inf"),
        (lambda: Backoff(1, 2, factor=0.5), "Backoff.factor is 0.5; it must be 1 or more"),
        (lambda: Backoff(1, 2, jitter=1), "Backoff.jitter is 1; it must be at least 0 and below 1"),
        (lambda: Backoff(1, 2, reset_after=0), "Backoff.reset_after is 0"),
        (lambda: supervisor([Child("x", idle), Child("x", idle)]), "'x' is there twice"),
        (
            lambda: supervisor([Child("x", idle, significant=True, restart=Restart.TRANSIENT)]),
            "'x': significant means nothing under auto_shutdown=NEVER",
        ),
        (
            lambda: supervisor([Child("x", idle, backoff=Backoff(4, 60))], intensity=Intensity(5, 60)),
            "'x': with this backoff 5 restarts take 96 s or more, so the intensity of 5 in 60 s can never be exceeded",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(build: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        build()


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: Mailbox(math.nan), "Mailbox.capacity is nan; it must be a whole number, 1 or more"),
        (lambda: Mailbox(2.5), "Mailbox.capacity is 2.5; it must be a whole number"),
        (lambda: Mailbox(True), "Mailbox.capacity is True"),
        (lambda: Intensity(math.nan), "Intensity.restarts is nan; it must be a whole number, 0 or more"),
        (lambda: Intensity(1, "5 s"), "Intensity.period is '5 s'; it must be a number of seconds"),
        (lambda: Backoff("1", 2), "Backoff.first is '1'; it must be a number"),
        (lambda: Child("x", idle, shutdown="now"), "Child 'x': shutdown is 'now'; it must be a number of seconds"),
        (lambda: Child("x", idle, backoff=3), "Child 'x': backoff is 3; it must be a Backoff or None"),
        (lambda: Child("x", idle, mailbox=3), "Child 'x': mailbox is 3; it must be a Mailbox"),
        (lambda: supervisor([], strategy="one_for_all"), "strategy is 'one_for_all'; it must be a Strategy"),
        (lambda: supervisor([idle]), "a child is <function idle .*>; it must be a Child"),
    ],
)
def test_what_is_of_the_wrong_kind_is_refused_too(build: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        build()


def test_run_must_be_callable() -> None:
    with pytest.raises(TypeError, match="Child 'x': run is None"):
        Child("x", None)


async def test_the_outermost_supervisor_checks_its_children_too() -> None:
    with pytest.raises(ValueError, match="'x' is there twice"):
        async with open_supervisor([Child("x", idle), Child("x", idle)]):
            pytest.fail("opened")


async def test_a_child_that_is_added_later_is_checked_too() -> None:
    async with open_supervisor(intensity=Intensity(1, 5)) as supervisor:
        with pytest.raises(ValueError, match="can never be exceeded"):
            await supervisor.start_child(Child("x", idle, backoff=Backoff(10, 60)))
        assert supervisor.children() == ()


def test_specs_are_frozen() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Child("x", idle).name = "y"


def test_defaults_are_those_of_otp() -> None:
    assert Intensity() == Intensity(1, 5.0)
    child = Child("x", idle)
    assert (child.restart, child.shutdown, child.significant) == (Restart.PERMANENT, 5.0, False)
    assert Child("x", supervisor([])).shutdown == math.inf
    nested = supervisor([])
    assert (nested.strategy, nested.auto_shutdown) == (Strategy.ONE_FOR_ONE, AutoShutdown.NEVER)


# ------------------------------------------------------------ backoff, the pure part


def test_delays_grow_by_the_factor_up_to_the_limit() -> None:
    backoff = Backoff(1, 10, jitter=0)
    assert [backoff.delay(n, Random(0)) for n in range(1, 7)] == [1, 2, 4, 8, 10, 10]


@given(
    count=st.integers(1, 10**6),
    factor=st.floats(1, 1e6),
    first=st.floats(1e-6, 1e6),
    more=st.floats(0, 1e9),
    jitter=st.floats(0, 0.99),
    seed=st.integers(),
)
def test_a_delay_is_its_nominal_length_varied_by_the_jitter(
    count: int, factor: float, first: float, more: float, jitter: float, seed: int
) -> None:
    backoff = Backoff(first, first + more, factor, jitter)
    nominal, delay = backoff.nominal(count), backoff.delay(count, Random(seed))
    assert first <= nominal <= first + more
    assert nominal * (1 - jitter) * 0.999 <= delay <= nominal * (1 + jitter) * 1.001
    assert delay == backoff.delay(count, Random(seed))


def test_the_jitter_comes_from_the_given_source_only() -> None:
    backoff = Backoff(1, 10)
    delays = {backoff.delay(1, Random(seed)) for seed in range(20)}
    assert len(delays) == 20
    assert all(0.8 <= delay <= 1.2 for delay in delays)
