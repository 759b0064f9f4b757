"""Skills in folders: whose wins, what is taken up when a file changes, what is refused."""

import os
import shutil
from types import SimpleNamespace

import pytest
import trio

from pegasus.skills import BUILT_IN, SkillCatalog
from pegasus.skills.catalog import MAX_SKILLS, REFRESH_INTERVAL
from pegasus.skills.skill import MAX_BYTES


def write(folder, name, text="Do it.", description="d"):
    (folder / name).mkdir(parents=True, exist_ok=True)
    file = folder / name / "SKILL.md"
    file.write_text(f"---\ndescription: {description}\n---\n{text}", encoding="utf-8")
    return file


@pytest.fixture
def folders(tmp_path):
    made = [tmp_path / name for name in ("built-in", "home", "workspace")]
    for folder in made:
        folder.mkdir()
    return made


def test_the_later_folder_wins(folders):
    for n, folder in enumerate(folders):
        write(folder, "a", f"from {n}")
    write(folders[0], "b")
    write(folders[1], "c")
    skills = SkillCatalog(*folders)
    assert skills.get("a").body == "from 2"
    assert [skill.name for skill in skills.all()] == ["a", "c", "b"]


def test_a_missing_folder_is_empty(tmp_path):
    skills = SkillCatalog(tmp_path / "nowhere")
    assert (skills.all(), skills.problems, skills.get("../x")) == ((), (), None)


def test_a_broken_one_of_the_user_leaves_the_built_in_one(folders):
    write(folders[0], "a", "good")
    (folders[1] / "a").mkdir()
    (folders[1] / "a" / "SKILL.md").write_text("---\nname: [\n---\nBody")
    skills = SkillCatalog(*folders)
    assert skills.get("a").body == "good"
    assert "left out" in str(skills.problems[0])


async def test_changes_are_taken_up_a_second_later(folders, autojump_clock):
    file = write(folders[1], "a", "old")
    write(folders[1], "gone")
    skills = SkillCatalog(*folders, in_thread=False)
    await skills.refresh()
    write(folders[1], "a", "newer")
    os.utime(file, ns=(1, 1))
    write(folders[2], "b")
    (folders[1] / "gone" / "SKILL.md").unlink()
    await skills.refresh()
    assert skills.get("a").body == "old"  # looked less than a second ago
    await trio.sleep(REFRESH_INTERVAL)
    await skills.refresh()
    assert skills.get("a").body == "newer"
    assert skills.get("b") is not None
    assert skills.get("gone") is None


async def test_a_folder_that_comes_and_goes_while_there_are_built_in_skills_only(tmp_path, autojump_clock):
    own, skills = tmp_path / "skills", SkillCatalog(BUILT_IN, tmp_path / "skills", in_thread=False)
    built_in = {skill.name for skill in skills.all()}

    async def names():
        await trio.sleep(REFRESH_INTERVAL)
        await skills.refresh()
        return {skill.name for skill in skills.all()} - built_in

    assert [await names(), await names()] == [set(), set()]
    write(own, "mine")
    assert await names() == {"mine"}
    shutil.rmtree(own)
    assert [await names(), await names()] == [set(), set()]
    write(own, "again")
    assert await names() == {"again"}


async def test_no_thread_is_asked_while_there_are_built_in_skills_only(tmp_path, autojump_clock, monkeypatch):
    skills = SkillCatalog(BUILT_IN, tmp_path / "skills")
    await skills.refresh()
    monkeypatch.delattr(trio.to_thread, "run_sync")
    await trio.sleep(REFRESH_INTERVAL)
    await skills.refresh()
    assert skills.get("commit") is not None


async def test_a_file_that_looks_as_before_is_not_read_again(folders, autojump_clock):
    write(folders[1], "a")
    skills = SkillCatalog(*folders, in_thread=False)
    await skills.refresh()
    before = skills.get("a")
    await trio.sleep(REFRESH_INTERVAL)
    await skills.refresh()
    assert skills.get("a") is before


async def test_a_problem_is_logged_once_and_again_when_it_comes_back(folders, autojump_clock, monkeypatch):
    logged = []
    log = SimpleNamespace(warning=lambda *_, problem: logged.append(problem))
    monkeypatch.setattr("pegasus.skills.catalog._log", log)
    (folders[1] / "a").mkdir()
    file = folders[1] / "a" / "SKILL.md"
    skills = SkillCatalog(*folders, in_thread=False)
    for text in ("---\nx", "---\nx", "fine", "---\nx"):
        file.write_text(text)
        await skills.refresh()
        await trio.sleep(REFRESH_INTERVAL)
    assert [("has no end" in problem, "no description" in problem) for problem in logged] == [
        (True, False),
        (False, True),
        (True, False),
    ]


async def test_files_may_be_read_in_a_thread(folders):
    write(folders[1], "a")
    skills = SkillCatalog(*folders)
    await skills.refresh()
    assert skills.get("a") is not None


@pytest.mark.parametrize("what", ["folder", "file"])
def test_a_link_that_leads_out_is_refused(folders, tmp_path, what):
    outside = write(tmp_path / "elsewhere", "a")
    if what == "folder":
        (folders[1] / "a").symlink_to(outside.parent)
    else:
        (folders[1] / "a").mkdir()
        (folders[1] / "a" / "SKILL.md").symlink_to(outside)
    skills = SkillCatalog(*folders)
    assert skills.get("a") is None
    assert "which is not in" in skills.problems[0].text


def test_a_folder_that_is_itself_a_link_is_the_users_own_affair(folders, tmp_path):
    write(folders[1], "a")
    (tmp_path / "link").symlink_to(folders[1])
    assert SkillCatalog(tmp_path / "link").get("a") is not None


def test_what_is_no_file_is_refused_without_waiting_for_it(folders):
    for name in ("pipe", "folder"):
        (folders[1] / name).mkdir()
    os.mkfifo(folders[1] / "pipe" / "SKILL.md")
    (folders[1] / "folder" / "SKILL.md").mkdir()
    skills = SkillCatalog(*folders)
    assert skills.all() == ()
    assert [problem.text for problem in skills.problems] == ["is not a regular file"] * 2


def test_files_that_are_too_large_or_no_text_cost_only_their_own_skill(folders):
    write(folders[1], "large", "x" * MAX_BYTES)
    (folders[1] / "binary").mkdir()
    (folders[1] / "binary" / "SKILL.md").write_bytes(b"abc\xff")
    (folders[1] / "Upper").mkdir()
    (folders[1] / "Upper" / "SKILL.md").write_text("Body")
    (folders[1] / "no-skill").mkdir()
    write(folders[1], "good")
    skills = SkillCatalog(*folders)
    assert [skill.name for skill in skills.all()] == ["good"]
    assert [problem.text.split(":")[0] for problem in skills.problems] == [
        "the folder 'Upper'",
        "is not UTF-8 text (byte 3)",
        "is larger than 256 kB; longer material belongs into files beside it",
    ]


def test_more_folders_than_anybody_has_are_not_all_looked_at(folders):
    for n in range(MAX_SKILLS + 1):
        (folders[1] / f"s{n:04}").mkdir()
    write(folders[1], "s0000")
    write(folders[1], f"s{MAX_SKILLS:04}")
    skills = SkillCatalog(*folders)
    assert [skill.name for skill in skills.all()] == ["s0000"]
    assert "only the first 500" in skills.problems[0].text
