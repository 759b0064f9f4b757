"""Skills that were installed: exactly the accepted files count, and a kill or a full disk leaves the old skill or the new one."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys

import pytest

from pegasus.skills import InstalledSkills, SkillCatalog

OLD = {"SKILL.md": b"---\ndescription: d\n---\nOld.", "a/b.txt": b"old"}
NEW = {"SKILL.md": b"---\ndescription: d\n---\nNew.", "a/c.txt": b"new" * 100}


def put(store, files, old=None, name="pdf"):
    store.put(name, files, source="git+https://example.org/x", revision="c0ffee", at=7, old=old)


def manifest(store):
    return store.load()["pdf"].manifest


@pytest.fixture
def store(tmp_path):
    store = InstalledSkills(tmp_path / "home" / "installed-skills")
    put(store, OLD)
    return store


def catalog(store, *folders):
    return SkillCatalog(*folders, installed=store, in_thread=False)


def test_it_counts_with_its_source_and_its_files(store):
    [skill] = catalog(store).all()
    assert (skill.name, skill.body, skill.source, skill.revision) == (
        "pdf",
        "Old.",
        "git+https://example.org/x",
        "c0ffee",
    )
    assert store.load()["pdf"].read() == OLD
    put(store, NEW, manifest(store))
    assert catalog(store).get("pdf").body == "New."
    assert len([path for path in store.folder.iterdir() if path.is_dir()]) == 1
    with pytest.raises(OSError, match="somebody else"):
        put(store, OLD, old=None)
    assert store.remove("pdf")
    assert not store.remove("pdf")
    assert catalog(store).all() == ()
    assert sorted(path.name for path in store.folder.iterdir()) == ["accepted.json", "lock"]


async def test_a_file_that_was_not_accepted_so_is_not_used(store):
    skills = catalog(store)
    skill = skills.get("pdf")
    (skill.folder / "a/b.txt").write_bytes(b"evil")
    (skill.folder / "more.txt").write_bytes(b"evil")
    for path in ("a/b.txt", "more.txt"):
        with pytest.raises(ValueError, match="not as it was when"):
            await skills.read(skill, path)
    assert store.load()["pdf"].read() == {}
    (skill.folder / "SKILL.md").write_bytes(NEW["SKILL.md"])
    changed = catalog(store)
    assert changed.get("pdf") is None
    assert "not the one that was accepted" in str(changed.problems[0])
    put(store, OLD, manifest(store))  # installing it again mends it
    assert store.load()["pdf"].read() == OLD


@pytest.mark.parametrize("content", ["", "{", '{"skills":{"pdf":7}}', '{"skills":{"../x":{"files":{"SKILL.md":"0"}}}}'])
def test_a_record_that_means_nothing_installs_nothing(store, content):
    (store.folder / "accepted.json").write_text(content)
    assert catalog(store).all() == ()


def test_a_record_that_others_can_write_installs_nothing(store):
    (store.folder / "accepted.json").chmod(0o666)
    assert catalog(store).all() == ()


def test_a_skill_of_the_same_name_is_not_replaced(store, tmp_path):
    own = tmp_path / "skills" / "pdf" / "SKILL.md"
    own.parent.mkdir(parents=True)
    own.write_text("---\ndescription: d\n---\nMine.")
    skills = catalog(store, tmp_path / "skills")
    assert skills.get("pdf").body == "Mine."
    assert "there is a skill pdf already" in str(skills.problems[0])


def in_child(work):
    """Return the status of a child process that does this work."""
    child = os.fork()
    if not child:
        try:
            work()
        except OSError:
            os._exit(3)
        finally:
            os._exit(4)
    return os.waitpid(child, 0)[1]


EVENTS = ("open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.unlink", "shutil.rmtree", "fcntl.flock")


@pytest.mark.parametrize("change", ["update", "remove"])
def test_a_kill_at_any_step_leaves_the_old_skill_or_the_new_one(store, change):
    before = manifest(store)
    seen = []

    def step(number):
        """Change the skill, and be killed before the step with this number."""
        left = number

        def hook(event, _):
            nonlocal left
            if event in EVENTS:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        put(store, NEW, before) if change == "update" else store.remove("pdf")
        os._exit(0)

    for number in range(200):
        status = in_child(lambda number=number: step(number))
        found = catalog(store)
        there = found.get("pdf")
        assert found.problems == ()
        state = "gone" if there is None else there.body
        seen.append(state)
        if there is not None:
            assert store.load()["pdf"].read() == (OLD if state == "Old." else NEW)
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        if state != "Old.":  # back to the beginning
            put(store, OLD, manifest(store) if there is not None else None)
    assert seen[-1] == ("New." if change == "update" else "gone")
    assert seen.count("Old.") > 4
    assert seen.count(seen[-1]) > 1, "some kills came after the change counted"
    assert len([path for path in store.folder.iterdir() if path.is_dir()]) == (change == "update")


def test_a_full_disk_leaves_the_old_skill(store):
    before, refused = manifest(store), 0

    def fill(room):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        put(store, NEW, before)
        os._exit(0)

    for room in (0, 10, 40, 200, 250, 400):
        status = in_child(lambda room=room: fill(room))
        if os.waitstatus_to_exitcode(status) == 3:
            refused += 1
            assert store.load()["pdf"].read() == OLD
            assert not [path for path in store.folder.iterdir() if path.name.startswith(".")]
    assert refused > 3
    assert json.loads((store.folder / "accepted.json").read_text())["skills"]["pdf"]["files"] in (
        before,
        manifest(store),
    )
