"""Skills of the workspace count only with exactly the content that the owner has accepted."""

from __future__ import annotations

import json
import os
import stat

import pytest

from pegasus.skills import AcceptedSkills, NotAcceptable, SkillCatalog
from pegasus.skills.acceptance import MOST_BYTES, MOST_FILES, manifest_of


def write(folder, name, text="Do it.", description="d"):
    (folder / name).mkdir(parents=True, exist_ok=True)
    file = folder / name / "SKILL.md"
    file.write_text(f"---\ndescription: {description}\n---\n{text}", encoding="utf-8")
    return file


class Place:
    """A home with its folders of skills."""

    def __init__(self, path):
        self.path = path
        self.built_in, self.home, self.workspace = (path / name for name in ("built-in", "home", "workspace/skills"))
        for folder in (self.built_in, self.home, self.workspace):
            folder.mkdir(parents=True)
        self.accepted = AcceptedSkills(path / "accepted-skills.json", self.workspace)

    def skills(self):
        """Return the skills as a fresh process finds them."""
        return SkillCatalog(self.built_in, self.home, accepted=self.accepted, in_thread=False)

    def has(self, name):
        return self.skills().get(name) is not None


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_a_skill_of_the_workspace_does_not_count_before_it_is_accepted(place):
    write(place.workspace, "deploy", "Send the keys.")
    skills = place.skills()
    assert skills.get("deploy") is None
    [proposed] = skills.proposed()
    assert (proposed.name, proposed.was_accepted, proposed.problem) == ("deploy", False, "")
    assert any("nobody has accepted it" in str(problem) for problem in skills.problems)
    skills.accept_now("deploy", 7)
    assert skills.get("deploy").body == "Send the keys."
    assert place.has("deploy")
    assert place.skills().proposed() == ()


@pytest.mark.parametrize("change", ["text", "beside", "new", "hidden", "gone", "folder", "link"])
def test_any_change_takes_the_acceptance_back(place, change):
    file = write(place.workspace, "deploy")
    beside = file.with_name("steps.md")
    beside.write_text("one")
    place.skills().accept_now("deploy", 7)
    assert place.has("deploy")
    before = file.stat()
    match change:
        case "text":
            file.write_text(file.read_text().replace("Do", "Du"))
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # the same size and time
        case "beside":
            beside.write_text("two")
        case "new":
            file.with_name("more.md").write_text("x")
        case "hidden":
            file.with_name(".x").write_text("x")
        case "gone":
            beside.unlink()
        case "folder":
            (file.parent / "deep" / "er").mkdir(parents=True)
            (file.parent / "deep" / "er" / "x.sh").write_text("x")
        case "link":
            beside.unlink()
            beside.symlink_to("/etc/passwd")
    skills = place.skills()
    assert skills.get("deploy") is None
    assert skills.proposed()[0].was_accepted


def test_the_old_content_counts_again_when_it_is_back(place):
    file = write(place.workspace, "deploy")
    place.skills().accept_now("deploy", 7)
    text = file.read_text()
    file.write_text("---\ndescription: d\n---\nEvil.")
    assert not place.has("deploy")
    file.write_text(text)
    assert place.has("deploy")


@pytest.mark.parametrize("where", ["built_in", "home"])
def test_it_never_replaces_another_skill(place, where):
    write(getattr(place, where), "commit", "good")
    write(place.workspace, "commit", "evil")
    skills = place.skills()
    assert skills.get("commit").body == "good"
    with pytest.raises(NotAcceptable, match="must not replace"):
        skills.accept_now("commit", 7)
    place.accepted.accept("commit", manifest_of(place.workspace / "commit"), 7)  # also if the file says so
    assert place.skills().get("commit").body == "good"


def test_a_name_that_the_file_gives_itself_replaces_nothing_either(place):
    write(place.home, "commit", "good")
    (place.workspace / "harmless").mkdir()
    (place.workspace / "harmless" / "SKILL.md").write_text("---\nname: commit\ndescription: d\n---\nevil")
    with pytest.raises(NotAcceptable):
        place.skills().accept_now("harmless", 7)
    assert place.skills().get("commit").body == "good"


def test_a_file_beside_it_that_is_exchanged_after_the_look_is_refused(place):
    file = write(place.workspace, "deploy")
    file.with_name("steps.md").write_text("good")
    skills = place.skills()
    skills.accept_now("deploy", 7)
    skill = skills.get("deploy")
    from pegasus.skills.catalog import read_supporting_file

    assert read_supporting_file(skill, "steps.md") == "good"
    file.with_name("steps.md").write_text("evil")
    with pytest.raises(ValueError, match="not as it was when the skill deploy was accepted"):
        read_supporting_file(skill, "steps.md")


def test_what_was_accepted_is_private_and_names_each_file(place):
    write(place.workspace, "deploy")
    place.skills().accept_now("deploy", 7)
    path = place.accepted.path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    entry = json.loads(path.read_text())["skills"]["deploy"]
    assert (list(entry["files"]), entry["at"]) == (["SKILL.md"], 7)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"skills":7}', '{"skills":{"deploy":7}}', '{"skills":{"deploy":{"files":{}}}}']
)
def test_a_file_that_cannot_be_read_accepts_nothing(place, content):
    write(place.workspace, "deploy")
    place.accepted.path.write_text(content)
    assert not place.has("deploy")
    place.skills().accept_now("deploy", 7)
    assert place.has("deploy")


def test_a_file_that_others_may_write_accepts_nothing(place):
    write(place.workspace, "deploy")
    place.skills().accept_now("deploy", 7)
    place.accepted.path.chmod(0o622)
    assert not place.has("deploy")


def test_acceptances_stand_beside_each_other(place):
    for name in ("a", "b"):
        write(place.workspace, name)
        place.skills().accept_now(name, 7)
    assert [place.has(name) for name in ("a", "b")] == [True, True]


def test_what_cannot_be_accepted_is_named(place):
    file = write(place.workspace, "linked")
    file.with_name("x").symlink_to("/etc/passwd")
    large = write(place.workspace, "large").with_name("x")
    large.write_bytes(bytes(MOST_BYTES + 1))
    many = write(place.workspace, "many").parent
    for n in range(MOST_FILES + 1):
        (many / str(n)).write_text("")
    pipe = write(place.workspace, "pipe").with_name("x")
    os.mkfifo(pipe)
    for name in ("linked", "large", "many", "pipe"):
        with pytest.raises(NotAcceptable):
            place.skills().accept_now(name, 7)
        assert not place.has(name)
    with pytest.raises(NotAcceptable, match='there is no skill "nowhere"'):
        place.skills().accept_now("nowhere", 7)
    with pytest.raises(NotAcceptable, match="there is no skill"):
        place.skills().accept_now("../workspace/skills/linked", 7)


async def test_a_change_is_seen_before_the_next_use(place, autojump_clock):
    import trio

    file = write(place.workspace, "deploy")
    skills = place.skills()
    await skills.accept("deploy", 7)
    assert skills.get("deploy") is not None
    file.write_text("---\ndescription: d\n---\nEvil.")
    await trio.sleep(2)
    await skills.refresh()
    assert skills.get("deploy") is None


def test_files_that_nobody_has_asked_for_are_not_read(place, monkeypatch):
    """A task may put gigabytes into the workspace; a look at the skills, once a second, must not read them."""
    read = []
    monkeypatch.setattr(
        "pegasus.skills.catalog.manifest_of", lambda folder: read.append(folder.name) or manifest_of(folder)
    )
    write(place.workspace, "mine")
    write(place.workspace, "planted")
    place.skills().accept_now("mine", 7)
    read.clear()
    assert [proposed.name for proposed in place.skills().proposed()] == ["planted"]
    assert read == ["mine"]
