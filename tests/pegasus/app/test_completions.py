"""The control call `completions`."""

from __future__ import annotations

from pegasus.app.control_plane import CompletionMethod
from pegasus.gateway import Caller
from pegasus.main_agent import SkillInvoker
from pegasus.messages import Address
from pegasus.models.stand_in import StandIn
from pegasus.skills import SkillCatalog


async def test_it_names_commands_skills_of_people_and_models(tmp_path):
    for name, callable in (("review", "true"), ("hidden", "false")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\nuser-invocable: {callable}\n---\nx\n")

    async def model_of(address):
        assert address == Address("cli", "main")
        return StandIn()

    skills = SkillInvoker(SkillCatalog(tmp_path), agent=None)
    method = CompletionMethod({"/usage"}, skills, lambda: ("test/model-1",), model_of)
    answer = await method.call(Caller("cli", "main"), {})
    assert [command["name"] for command in answer["commands"]] == [
        "/stop",
        "/new",
        "/clear",
        "/compact",
        "/retry",
        "/resume",
        "/rename",
        "/context",
        "/status",
        "/usage",
        "/cost",
        "/help",
    ]
    assert all(command["description"] for command in answer["commands"])
    assert answer["skills"] == [{"name": "review", "description": "d"}]
    assert answer["models"] == ["test/model-1"]
    assert answer["model"] == StandIn().name
