"""The line that a schedule is replayed from."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from actors.testing import Kind, Perturbation, simulate
from actors.testing._faults import from_token, to_token

PERTURBATIONS = st.builds(
    Perturbation,
    kind=st.sampled_from(Kind),
    task=st.text(min_size=1),
    step=st.integers(0, 10_000),
    amount=st.integers(0, 2**53) | st.floats(0.001, 1e9),
)


@given(st.integers(), st.lists(PERTURBATIONS).map(tuple))
def test_what_is_written_down_can_be_read_again(seed: int, perturbations: tuple[Perturbation, ...]) -> None:
    token = to_token(seed, perturbations)
    assert from_token(token) == (seed, perturbations)
    assert "\n" not in token
    assert "'" not in token


def test_the_line_can_be_read_by_people() -> None:
    assert to_token(17, (Perturbation(Kind.LAG, "lines/first#2", 3, 6),)) == "17 lag:lines/first#2@3*6"


@pytest.mark.parametrize("token", ["", "x", "1 lag", "1 lag:a@x*1", "1 swap:a@1*1", "1 crash:a@1"])
def test_nonsense_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="no schedule to replay"):
        simulate(trio.lowlevel.checkpoint, replay=token)
