"""`agent.show_usage`: what a message has used stands in the metadata of its replies, where the owner wants it."""

from __future__ import annotations

import pytest

from pegasus.formatting import format_usage
from pegasus.settings import AgentSettings, Settings
from pegasus.testing.scripted import ScriptedModel, say
from pegasus.testing.world import FakeChannel, open_world
from tests.pegasus.main_agent.voices import reply

USED = {"inputTokens": 1204, "outputTokens": 80, "cachedTokens": 0, "cost": 0.0031}


def with_usage(world, used):
    """Have the calls of a world counted: `used` for each message."""
    object.__setattr__(world.tree.services.main_agent, "usage_of", lambda item: used)


@pytest.mark.parametrize(("speech", "answer"), [("monologue", say("", reply("Hello"))), ("direct", say("Hello"))])
@pytest.mark.parametrize("is_wanted", [True, False])
async def test_a_reply_says_what_its_message_has_used_if_the_owner_wants_it(autojump_clock, speech, answer, is_wanted):
    settings = Settings(agent=AgentSettings(speech=speech, show_usage=is_wanted))
    cli = FakeChannel("cli")
    async with open_world(ScriptedModel([answer]), settings=settings, channels=[cli]) as world:
        with_usage(world, USED)
        await world.say("Hi")
        [said] = [await cli.next_reply()]
    assert said.text == "Hello"
    assert said.metadata.get("usage") == (USED if is_wanted else None)


@pytest.mark.parametrize(
    ("usage", "line"),
    [
        (USED, "1,204 tokens in, 80 out, $0.0031"),
        ({"inputTokens": 1, "outputTokens": 2}, "1 tokens in, 2 out"),
        (None, ""),
        ("much", ""),
        ({"inputTokens": "x", "outputTokens": 2}, ""),
    ],
)
def test_the_line_for_people(usage, line):
    assert format_usage(usage) == line
