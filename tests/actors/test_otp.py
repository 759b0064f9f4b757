"""The supervisor against Erlang/OTP's: the same script must leave the same trace.

`traces.txt` was given, `traces-generated.txt` was recorded by `scripts/otp-traces`, both from OTP 25. A trace is script
and expectation in one. What a title of the first file does not say is in tests/actors/otp/named.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from tests.actors import otp_model
from tests.actors.otp import erlang, named, ours
from tests.actors.otp.scenario import Scenario, invent, load

GENERATED = list(load((Path(__file__).parent / "traces-generated.txt").read_text()))


@pytest.mark.parametrize(("title", "trace"), list(named.recorded()), ids=[title for title, _ in named.recorded()])
def test_same_trace_as_otp(title: str, trace: list[str]) -> None:
    player = ours.Player(named.SCENARIOS[title].scenario(trace))
    if title == "significant under never":
        with pytest.raises(ValueError, match="significant means nothing under auto_shutdown=NEVER"):
            player.run()
        return
    player.run()
    failed = re.search(r"'(.)' did not start", str(player.error))
    assert named.as_terms(player.lines, f"{failed[1]},{player.error.__cause__}" if failed else None) == trace


def test_every_recorded_scenario_is_played() -> None:
    assert [title for title, _ in named.recorded()] == list(named.SCENARIOS)


@pytest.mark.parametrize(("scenario", "trace"), GENERATED, ids=range(len(GENERATED)))
def test_same_trace_as_otp_where_nobody_has_thought_of_it(scenario: Scenario, trace: list[str]) -> None:
    assert ours.play(scenario) == trace
    assert otp_model.play(scenario) == trace


@pytest.mark.skipif(not erlang.installed(), reason="needs erl and erlc (Debian: erlang-base)")
def test_same_trace_as_the_otp_that_is_installed() -> None:
    scenarios = [invent(Random(seed)) for seed in range(100)]
    assert erlang.play(scenarios) == [ours.play(scenario) for scenario in scenarios]
