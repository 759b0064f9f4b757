"""The supervisor against the retold OTP supervisor, with scripts that nobody has thought of."""

from __future__ import annotations

from random import Random

from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.actors import otp_model
from tests.actors.otp import ours
from tests.actors.otp.scenario import invent


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False))
def test_any_script_leaves_the_trace_that_otp_leaves(random: Random) -> None:
    scenario = invent(random)
    note(f"{scenario}\n{scenario.batches}")
    assert ours.play(scenario) == otp_model.play(scenario)
