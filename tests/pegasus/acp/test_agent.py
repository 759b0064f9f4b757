"""Requests that an editor sends without waiting for answers."""

from pegasus.acp.agent import EditorAgent


async def test_an_editor_may_send_its_next_request_before_initialize_is_answered():
    agent = EditorAgent(None, None, None, None, None, 0)
    first = agent.begin("initialize", {"protocolVersion": 1})
    agent.begin("session/list", {}).close()
    assert (await first)["protocolVersion"] == 1
