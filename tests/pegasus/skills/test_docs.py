"""docs/user/skills.md says what is so."""

import re
from pathlib import Path

from pegasus.skills import BUILT_IN, SkillCatalog, expand
from pegasus.skills.skill import _KEYS, parse_skill

TEXT = (Path(__file__).parents[3] / "docs" / "user" / "skills.md").read_text("utf-8")


def test_every_key_is_in_the_table_and_no_other():
    table = TEXT.partition("| key | meaning |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == set(_KEYS)


def test_the_built_in_skills_are_in_the_table_as_they_are():
    rows = re.findall(r"^\| `/([a-z-]+) .*?` \| .* \| (as a task|in the conversation) \|$", TEXT, re.MULTILINE)
    skills = SkillCatalog(BUILT_IN).all()
    assert dict(rows) == {skill.name: "as a task" if skill.fork else "in the conversation" for skill in skills}


def test_the_example_is_a_skill_without_fault():
    [example] = re.findall(r"```markdown\n(.*?)```", TEXT, re.DOTALL)
    skill, warnings = parse_skill(example, Path("standup"))
    assert warnings == []
    assert expand(skill, "fixed the build").startswith("Write a standup note out of this: fixed the build\n")
