"""The services of a tree fit what other packages say about them."""

from pegasus.main_agent import SEND_FILE
from pegasus.main_agent.replies import REPLY
from pegasus.settings import ModelSettings, Settings
from pegasus.testing.scripted import ScriptedModel
from pegasus.testing.world import open_world
from pegasus.tools import MAIN_AGENT_TOOLS


async def test_the_list_of_the_main_agents_tools_is_what_it_has(autojump_clock):
    async with open_world(ScriptedModel([]), settings=Settings(models=ModelSettings(speech="test/tts"))) as world:
        toolset = world.tree.services.main_agent.toolset.now
    assert {REPLY.name, SEND_FILE.name, *(tool.name for tool in toolset.executor.offered())} - toolset.aliases == set(
        MAIN_AGENT_TOOLS
    )
