"""/persona and propose_persona_change: the agent asks, only its owner decides."""

from __future__ import annotations

from functools import partial

import pytest

from actors import Child, open_supervisor
from pegasus.access import sender_of
from pegasus.app.control_plane import PersonaMethods
from pegasus.gateway import BadParams, Caller
from pegasus.identity import BUILT_IN, PersonaChanges
from pegasus.main_agent.chat_commands import persona_answer
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.outside import Untrusted
from pegasus.settings import LiveValue
from pegasus.storage import run_journal
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.tools import ToolContext, persona_tool
from tests.pegasus.tools.calling import run_tool

OWNERS = ("cli", "telegram:12345")
CLI, TELEGRAM = ChannelInfo("cli", "main"), ChannelInfo("telegram", "chat", "12345")
STRANGER = ChannelInfo("telegram", "chat", "666")


@pytest.fixture
async def persona_changes():
    async with open_supervisor(
        [Child("journal", partial(run_journal, clock=lambda: 0, report=lambda text: None), MemoryDisk())]
    ) as supervisor:
        yield PersonaChanges(supervisor.ref("journal"), LiveValue(BUILT_IN), lambda: 0)


@pytest.fixture
def say(persona_changes):
    async def say(text, channel=CLI):
        is_by_owner = sender_of(InboundMessage(text, channel, "m"), OWNERS).is_owner
        return await persona_answer(persona_changes, BUILT_IN, text, channel, is_by_owner=is_by_owner)

    return say


@pytest.fixture
def propose(persona_changes):
    async def propose(key="k", origin=CLI, **arguments):
        return await run_tool(
            persona_tool(persona_changes, LiveValue(OWNERS)), arguments, 10, ToolContext(key=key, origin=origin)
        )

    return propose


WARM = {"field": "style", "value": "warm", "why": "People smile"}


async def test_what_the_agent_proposes_the_owner_sees_and_accepts(say, propose, persona_changes):
    assert '"proposal":1,"status":"open"' in (await propose(**WARM)).content
    assert "1. style: “warm”" in await say("/persona", TELEGRAM)
    assert (
        await say("/persona accept 1")
        == "Accepted; it takes effect at the next start or reload of the settings: style: “warm”"
    )
    assert (await persona_changes.read_state()).persona.style == "warm"
    assert (
        await say("/persona reject 1")
        == "Taken back; it takes effect at the next start or reload of the settings: style: “warm”"
    )


async def test_the_owner_sees_that_text_from_outside_may_have_chosen_the_words(say, propose, persona_changes):
    tool = persona_tool(persona_changes, LiveValue(OWNERS))
    await run_tool(tool, WARM, 10, ToolContext(key="k", origin=CLI, outside=(Untrusted.WEB, Untrusted.MCP)))
    assert "why: (After reading text from outside: web, mcp.) People smile" in await say("/persona")
    [request] = await persona_changes.waiting()
    assert "(After reading text from outside: web, mcp.)" in request.text


async def test_the_owner_rejects(say, propose):
    await propose(**WARM)
    assert await say("/Persona reject 1") == "Rejected: style: “warm”"


@pytest.mark.parametrize("text", ["/persona", "/persona accept 1", "/persona reject 1"])
async def test_nobody_else_sees_or_decides(say, propose, persona_changes, text):
    await propose(**WARM)
    assert "Only my owner" in await say(text, STRANGER)
    assert [one.state for one in (await persona_changes.read_state()).proposals.values()] == ["open"]


@pytest.mark.parametrize(
    "text", ["/persona accept", "/persona accept one", "/persona accept -1", "/persona what", "/persona accept ²"]
)
async def test_other_words_are_answered_with_what_can_be_said(say, text):
    assert "/persona accept N" in await say(text)


async def test_a_number_that_is_not_there_is_told(say):
    assert "there is no proposal 99" in await say("/persona accept 99")


async def test_the_same_call_again_after_a_crash_is_the_same_proposal(propose):
    assert [(await propose(**WARM)).content for _ in range(2)] == [(await propose(**WARM)).content] * 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"field": "safety", "value": "x", "why": "y"}, "safety"),
        ({"field": "style", "value": "## Safety", "why": "y"}, "heading"),
        ({"field": "style", "value": "warm"}, "why"),
        ({"field": "style", "value": BUILT_IN.style, "why": "y"}, "already"),
    ],
)
async def test_what_cannot_be_proposed_is_told_to_the_model(propose, arguments, says):
    outcome = await propose(**arguments)
    assert outcome.failed
    assert says in outcome.content


async def test_the_owner_is_told_who_was_listened_to(propose, persona_changes):
    await propose(origin=STRANGER, **WARM)
    assert (await persona_changes.read_state()).proposals[1].on == "telegram:chat (666)"


@pytest.mark.parametrize(
    ("caller", "may"),
    [
        (Caller("cli", "persona"), True),
        (Caller("telegram", "chat", "12345"), True),
        (Caller("telegram", "chat", "666"), False),
        (Caller("telegram", None), False),
    ],
)
async def test_programs_decide_only_for_an_owner(persona_changes, propose, caller, may):
    await propose(**WARM)
    control = PersonaMethods(persona_changes, LiveValue(BUILT_IN), LiveValue(OWNERS))
    if may:
        assert (await control.accept(caller, {"n": 1}))["state"] == "accepted"
        assert (await control.list(caller, {}))["atNextStart"] == ["style"]
        assert (await control.reject(caller, {"n": 1}))["state"] == "withdrawn"
    else:
        for call in (control.accept, control.reject, control.list):
            with pytest.raises(BadParams, match="owner"):
                await call(caller, {"n": 1})


@pytest.mark.parametrize("n", [None, "1", True, 1.5, 7])
async def test_programs_that_ask_wrongly_are_told(persona_changes, n):
    with pytest.raises(BadParams, match="proposal"):
        await PersonaMethods(persona_changes, LiveValue(BUILT_IN), LiveValue(OWNERS)).accept(
            Caller("cli", "x"), {"n": n}
        )
