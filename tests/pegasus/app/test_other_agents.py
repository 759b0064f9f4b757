"""The link to other agents: nothing of it is imported before it is needed."""

import subprocess
import sys

from pegasus.app.other_agents import DELEGATE, delegation_tools
from pegasus.settings import RemoteAgentSettings

CODE = """
import sys
import pegasus.app.daemon
from pegasus import web
from pegasus.app.other_agents import A2aLink, delegation_tools
from pegasus.settings import LiveSettings, RemoteAgentSettings, Settings
link = A2aLink(None, LiveSettings(Settings()), None)
assert len(link.operations()) > 10
assert delegation_tools({"helper": RemoteAgentSettings(url="https://a.example")}, ())
print(*[name for name in sys.modules if name.startswith("pegasus.a2a")])
"""


def test_the_routes_and_the_tool_stand_before_the_package_is_imported():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_there_is_no_tool_without_agents():
    assert delegation_tools({}, ()) == ()
    [tool] = delegation_tools({"b": RemoteAgentSettings(), "a": RemoteAgentSettings()}, ())
    assert tool.name == DELEGATE
    assert "a, b" in tool.spec.description
