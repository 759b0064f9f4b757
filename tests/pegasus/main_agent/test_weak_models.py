"""Whatever a weak model answers, the person hears something sensible after at most three model calls."""

import pytest
from trio.testing import MockClock

from pegasus.testing.weak_models import MOST_CALLS, WEAK_MODELS, ask_weak_model


@pytest.fixture
def patient_clock():
    """The provider is behind a real socket, so time jumps only when nothing has happened for a moment."""
    return MockClock(autojump_threshold=0.02)


DIRECT = (
    *("plain text", "JSON alone", "JSON in a code block", "Hermes and Qwen", "thoughts before the text"),
    *("no channelId", "wrong channelId", "half of the arguments", "an unknown tool", "the same tool for ever"),
    *("tools are not supported", "the prompt is too large", "the prompt is cut silently", "silence in the middle"),
)
"""Those that are tried in direct speech as well, where all that the model writes is for the person."""


@pytest.mark.parametrize(
    ("name", "speech"), [*((name, "auto") for name in WEAK_MODELS), *((name, "direct") for name in DIRECT)]
)
async def test_a_weak_model_leads_to_a_sensible_reply(patient_clock, name, speech):
    weak = WEAK_MODELS[name]
    heard = await ask_weak_model(weak, speech=speech)
    text = "\n".join(heard.texts)
    assert heard.texts
    for wanted in weak.wanted:
        assert wanted in text
    for unwanted in weak.unwanted:
        assert unwanted not in text
    assert heard.calls <= MOST_CALLS
    assert heard.is_sensible(weak)
