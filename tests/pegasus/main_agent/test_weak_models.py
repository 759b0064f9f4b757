"""Whatever a weak model answers, the person hears something sensible after at most three model calls."""

import pytest
from trio.testing import MockClock

from pegasus.testing.weak_models import MOST_CALLS, WEAK_MODELS, ask_weak_model


@pytest.fixture
def patient_clock():
    """The provider is behind a real socket, so time jumps only when nothing has happened for a moment."""
    return MockClock(autojump_threshold=0.02)


@pytest.mark.parametrize("name", WEAK_MODELS)
async def test_a_weak_model_leads_to_a_sensible_reply(patient_clock, name):
    weak = WEAK_MODELS[name]
    heard = await ask_weak_model(weak)
    text = "\n".join(heard.texts)
    assert heard.texts
    for wanted in weak.wanted:
        assert wanted in text
    for unwanted in weak.unwanted:
        assert unwanted not in text
    assert heard.calls <= MOST_CALLS
    assert heard.is_sensible(weak)
