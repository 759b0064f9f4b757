from pegasus.messages import ChannelInfo
from pegasus.settings import AgentSettings, Settings
from pegasus.testing.scripted import ScriptedModel, say
from pegasus.testing.world import FakeChannel, open_world

MONOLOGUE = Settings(agent=AgentSettings(speech="monologue"))
PLACES = (ChannelInfo("slack", "#dev"), ChannelInfo("slack", "#general"), ChannelInfo("slack", "D1"))


async def test_who_wrote_last_does_not_change_the_prompt_of_the_next_start(autojump_clock):
    """Or every restart would cost a provider's whole cache of the conversation."""
    model, slack, disk = ScriptedModel(lambda request: say("hm")), FakeChannel("slack"), None
    for places in (PLACES, PLACES[::-1], PLACES[1:]):
        async with open_world(model, disk=disk, channels=(slack,), settings=MONOLOGUE) as world:
            disk = world.disk
            for place in places:
                await world.say("hello", place)
            await world.idle()
    _, second, third = (model.requests[n].system for n in (0, 3, 6))
    assert "D1" in second
    assert second == third
