"""/skills: an owner accepts a skill of the workspace, nobody else does, and until then nobody can call it."""

from __future__ import annotations

import pytest

from pegasus.access import sender_of
from pegasus.main_agent import skills_answer
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.skills import AcceptedSkills, SkillCatalog

OWNER, GUEST = ChannelInfo("cli", "main"), ChannelInfo("slack", "#general", "eve")


@pytest.fixture
def catalog(tmp_path):
    folder = tmp_path / "workspace" / "skills" / "deploy"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\ndescription: Deploys.\n---\nDo it.")
    return SkillCatalog(accepted=AcceptedSkills(tmp_path / "accepted.json", folder.parent), in_thread=False)


async def ask(catalog, text, channel=OWNER):
    message = InboundMessage(text, channel, "m")
    return await skills_answer(catalog, lambda: 7, message, sender_of(message, ("cli:*",)))


async def test_an_owner_accepts_a_skill(autojump_clock, catalog):
    assert "deploy (workspace): does not count, you have not accepted it" in await ask(catalog, "/skills")
    assert "SKILL.md" in await ask(catalog, "/skills accept deploy")
    assert await ask(catalog, "/skills") == "/deploy — Deploys."
    assert catalog.get("deploy") is not None


async def test_a_guest_accepts_nothing_and_is_not_told_what_waits(autojump_clock, catalog):
    assert await ask(catalog, "/skills accept deploy", GUEST) == "Only my owner can accept a skill."
    assert "deploy" not in await ask(catalog, "/skills", GUEST)
    assert catalog.get("deploy") is None


@pytest.mark.parametrize("text", ["/skills accept", "/skills accept a b", "/skills what"])
async def test_another_form_is_explained(autojump_clock, catalog, text):
    assert "/skills accept NAME" in await ask(catalog, text)


async def test_what_cannot_be_accepted_is_answered(autojump_clock, catalog):
    assert 'there is no skill "nowhere"' in await ask(catalog, "/skills accept nowhere")
