"""Files that programs run by themselves, in a workspace: which are found, and what commands can do to them."""

import os

import attrs
import pytest

from pegasus.sandbox import AutorunSnapshot, autorun
from tests.pegasus.sandbox.walls import make_sandbox


def make(folder, *paths):
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("as it was")


def closed_below(folder):
    return [os.path.relpath(path, folder) for path in AutorunSnapshot.take([str(folder)]).closed]


# ------------------------------------------------------------------ the search


def test_what_programs_run_is_found_at_any_depth_and_a_folder_of_it_counts_as_a_whole(tmp_path):
    make(
        tmp_path,
        ".git/hooks/pre-commit",
        ".git/config",
        ".git/HEAD",
        "a/b/.vscode/tasks.json",
        "a/b/code.py",
        ".venv/bin/python",
    )
    assert sorted(closed_below(tmp_path)) == [".git/config", ".git/hooks", ".venv", "a/b/.vscode"]


@pytest.mark.parametrize("name", ["commondir", "config.worktree"])
def test_what_leads_git_to_other_settings_is_closed_where_it_is_there(tmp_path, name):
    make(tmp_path, f".git/{name}", ".git/HEAD")
    assert closed_below(tmp_path) == [f".git/{name}"]


def test_letter_case_makes_no_other_name(tmp_path):
    make(tmp_path, ".VSCode/tasks.json", ".ENVRC")
    assert sorted(closed_below(tmp_path)) == [".ENVRC", ".VSCode"]


def test_the_settings_of_a_repositorys_modules_are_found_and_its_objects_are_not_looked_at(tmp_path):
    make(tmp_path, ".git/modules/lib/config", ".git/modules/lib/objects/ab/config", ".git/objects/ab/config")
    assert closed_below(tmp_path) == [".git/modules/lib/config"]


def test_a_repository_under_another_name_is_known_by_what_is_in_it(tmp_path):
    make(
        tmp_path,
        *(
            f"{name}/{file}"
            for name in ("bare", "named")
            for file in ("HEAD", "config", "hooks/x", "objects/a", "refs/b")
        ),
    )
    make(tmp_path, "plain/config", "plain/hooks/x", "work/code")
    (tmp_path / "work/.git").symlink_to("../named")
    assert sorted(closed_below(tmp_path)) == ["bare/config", "bare/hooks", "named/config", "named/hooks", "work/.git"]


def test_packages_are_not_looked_into(tmp_path):
    make(tmp_path, "node_modules/a/.npmrc", "src/.npmrc")
    assert closed_below(tmp_path) == ["src/.npmrc"]


def test_a_link_leads_to_what_is_closed_and_never_out_of_the_folder(tmp_path):
    make(tmp_path / "work", "hooks/pre-commit", ".git/HEAD")
    make(tmp_path, "outside/file")
    (tmp_path / "work/.git/hooks").symlink_to("../hooks")
    (tmp_path / "work/.vscode").symlink_to(tmp_path / "outside")
    assert sorted(closed_below(tmp_path / "work")) == [".git/hooks", ".vscode", "hooks"]


def test_folders_near_the_top_come_first_and_a_repository_before_the_other_folders(tmp_path, monkeypatch):
    make(tmp_path, *(f"d{number}/e/file" for number in range(50)), "repository/.git/config", "a/b/c/d/.npmrc", ".npmrc")
    monkeypatch.setattr(autorun, "MOST_FOLDERS", 60)
    assert closed_below(tmp_path) == [".npmrc", "repository/.git/config"]


def test_a_huge_tree_costs_no_more_than_its_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(autorun, "MOST_ENTRIES", 100)
    monkeypatch.setattr(autorun, "MOST_FOUND", 10)
    looked_at = []
    scandir = os.scandir
    monkeypatch.setattr(autorun.os, "scandir", lambda path: looked_at.append(path) or scandir(path))
    make(tmp_path, *(f"d{number}/.npmrc" for number in range(150)))
    assert len(closed_below(tmp_path)) == 0
    assert len(looked_at) == 1
    make(tmp_path / "d1", *(f"{number}.pth" for number in range(20)))
    assert len(closed_below(tmp_path / "d1")) == 10


def test_changes_are_what_is_new_different_or_gone(tmp_path):
    make(tmp_path, ".npmrc", ".envrc", ".vscode/tasks.json", ".bashrc")
    before = AutorunSnapshot.take([str(tmp_path)])
    assert not before.changes().former + before.changes().made
    (tmp_path / ".npmrc").write_text("changed")
    (tmp_path / ".envrc").unlink()
    (tmp_path / ".vscode/tasks.json").chmod(0o755)
    make(tmp_path, "a/.git/hooks/pre-push", "a/other")
    changes = before.changes()
    assert changes.former == (".envrc", ".npmrc", ".vscode/tasks.json")
    assert changes.made == ("a/.git/hooks/pre-push",)
    assert not changes.now.changes().former + changes.now.changes().made
    make(tmp_path, ".npmrc")
    (tmp_path / "a/.git/hooks/pre-push").write_text("changed again by whoever has made it")
    assert changes.now.changes().former == (".npmrc",)
    assert changes.now.changes().made == ()


def repository(folder):
    make(folder, ".git/HEAD", ".git/config")


def test_what_git_would_obey_is_set_aside_each_time(tmp_path):
    repository(tmp_path / "a")
    snapshot = AutorunSnapshot.take([str(tmp_path)], is_compared=False)
    for _ in range(2):
        make(tmp_path, "a/.git/hooks/pre-commit")
        (tmp_path / "a/.git/commondir").symlink_to("../../elsewhere")
        changes = snapshot.changes()
        snapshot = changes.now
        assert [text.partition(" (now ")[0] for text in changes.set_aside] == ["a/.git/commondir", "a/.git/hooks"]
        assert not any(os.path.lexists(tmp_path / "a/.git" / name) for name in ("commondir", "hooks"))
    assert len(list((tmp_path / "a/.git").glob("*.set-aside-*"))) == 4
    assert snapshot.changes().set_aside == ()


def test_what_may_be_there_counts_as_having_been_there(tmp_path):
    repository(tmp_path)
    snapshot = AutorunSnapshot.take([str(tmp_path)])
    make(tmp_path, ".git/hooks/pre-commit", "sub/.git/HEAD")
    snapshot = snapshot.changes(sets_aside=False).now
    make(tmp_path, ".git/hooks/pre-push", ".git/commondir")
    changes = snapshot.changes()
    assert [text.partition(" (now ")[0] for text in changes.set_aside] == [".git/commondir"]
    assert changes.nested == ()


def test_nothing_is_renamed_where_a_link_leads(tmp_path):
    """A command that runs puts a link in the place of the folder."""
    repository(tmp_path / "work/a")
    make(tmp_path, "other/.git/HEAD", "other/.git/hooks/mine")
    snapshot = AutorunSnapshot.take([str(tmp_path / "work")])
    (tmp_path / "work/a").rename(tmp_path / "work/b")
    (tmp_path / "work/a").symlink_to("../other")
    assert snapshot.changes().set_aside == ("a/.git/hooks",)
    assert (tmp_path / "other/.git/hooks/mine").exists()


def test_a_new_repository_is_named_if_another_is_around_it_or_within_it(tmp_path):
    repository(tmp_path / "a/b")
    snapshot = AutorunSnapshot.take([str(tmp_path)])
    make(tmp_path, "a/b/file/.git", "c/.git/HEAD", "a/b/.git/modules/x/HEAD", "a/b/bare/HEAD", "a/b/bare/commondir")
    repository(tmp_path / "a/b/folder")
    repository(tmp_path / "a")
    changes = snapshot.changes()
    assert changes.nested == ("a/.git", "a/b/bare", "a/b/file/.git", "a/b/folder/.git")
    assert changes.now.changes().nested == ()


@pytest.mark.parametrize(("bound", "more"), [("MOST_FOLDERS", 3), ("MOST_ENTRIES", 4), ("MOST_FOUND", 1)])
def test_a_search_that_reaches_its_bounds_says_so(tmp_path, monkeypatch, bound, more):
    make(tmp_path, ".npmrc", "a/b/file")
    monkeypatch.setattr(autorun, bound, more)
    assert AutorunSnapshot.take([str(tmp_path)]).is_complete
    make(tmp_path, "a/b/c/.envrc")
    assert not AutorunSnapshot.take([str(tmp_path)]).is_complete


def test_a_folder_that_a_command_can_open_and_the_search_cannot_is_not_complete(tmp_path, monkeypatch):
    make(tmp_path, "a/.npmrc")
    scandir = os.scandir

    def refuse(path):
        if path == str(tmp_path / "a"):
            raise PermissionError
        return scandir(path)

    monkeypatch.setattr(autorun.os, "scandir", refuse)
    assert not AutorunSnapshot.take([str(tmp_path)]).is_complete
    monkeypatch.setattr(autorun.os, "geteuid", lambda: os.lstat(tmp_path).st_uid + 1)
    assert AutorunSnapshot.take([str(tmp_path)]).is_complete


def test_what_was_there_is_compared_also_when_a_flood_hides_it_from_the_search(tmp_path, monkeypatch):
    make(tmp_path, "a/b/.npmrc", "a/b/.envrc")
    repository(tmp_path / "a/b")
    snapshot = AutorunSnapshot.take([str(tmp_path)])
    monkeypatch.setattr(autorun, "MOST_ENTRIES", 5)
    make(tmp_path, *(f"flood{number}" for number in range(10)), "a/b/.npmrc", "a/b/.git/commondir")
    changes = snapshot.changes()
    assert changes.former == ("a/b/.npmrc",)
    assert len(changes.set_aside) == 1
    assert not changes.now.is_complete
    (tmp_path / "a/b/.envrc").unlink()
    assert changes.now.changes().former == ("a/b/.envrc",)


# ------------------------------------------------------------------ commands

ATTACK = """
echo evil >> .git/config; echo evil > .git/hooks/pre-commit; echo evil > .git/hooks/new; rm -rf .git/hooks .vscode; mv .vscode other
mv .git git2; mv a a2; mv a/.git a/git2; ln -f evil .git/config; cp evil .git/config; mv evil .git/config; chmod 777 .git/config
rm -rf a; sed -i s/as/evil/ .vscode/tasks.json; mv .git/hooks x; mkdir -p fresh/.vscode; echo mine > fresh/.vscode/tasks.json
touch .vscode/new a/.git/hooks/new; echo evil >> link/post-merge; truncate -s 0 a/.git/config
ln -sfn ../evil a/.husky; mkdir a/.husky; echo kept > a/file; echo kept > .git/HEAD
mkdir evil2; mv -T evil2 .vscode; git -C a config core.fsmonitor ./evil; true
"""


@pytest.fixture
def folder(home):
    return home / "workspace"


async def test_files_that_were_there_are_read_only_and_what_is_made_anew_is_the_commands_own(run, home, folder):
    sandbox = make_sandbox(home, "bubblewrap")
    if not sandbox.can_close:
        pytest.skip("this bubblewrap lends nobody a capability")
    make(
        folder,
        ".git/config",
        ".git/hooks/pre-commit",
        ".git/HEAD",
        "a/.git/config",
        "a/.git/hooks/x",
        ".vscode/tasks.json",
        "evil",
    )
    make(folder, "shared-hooks/post-merge")
    (folder / "link").symlink_to("shared-hooks")
    (folder / "a/.husky").symlink_to("../shared-hooks")
    before = AutorunSnapshot.take([str(folder)])
    found = await run(ATTACK, sandbox=attrs.evolve(sandbox, closed=before.closed))
    assert found.exit_code == 0, found.stderr
    assert (before.changes().former, before.changes().made) == ((), ("fresh/.vscode/tasks.json",))
    assert (folder / "shared-hooks/post-merge").read_text() == "as it was"
    assert (folder / "a/file").read_text() == (folder / ".git/HEAD").read_text() == "kept\n"


async def test_git_works_with_a_repository_whose_settings_are_closed(run, home, folder):
    sandbox = make_sandbox(home, "bubblewrap")
    await run("git init -q && git config user.name Ada && git config user.email a@b", sandbox=sandbox)
    closed = AutorunSnapshot.take([str(folder)]).closed
    assert closed
    work = (
        "echo a > a && git add a && git commit -qm one && git checkout -qb b && git gc -q && "
        "git clone -q . copy && cd copy && git log --format=%s"
    )
    found = await run(work, sandbox=attrs.evolve(sandbox, closed=closed))
    assert (found.exit_code, found.stdout) == (0, "one\n"), found.stderr
