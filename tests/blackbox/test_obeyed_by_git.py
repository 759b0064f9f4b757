"""What git would obey in a repository of the owner's and that was not there before: commands of deceived work make it."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import serving
from tests.blackbox.support.waiting import until
from tests.blackbox.support.walls import WALLS
from tests.blackbox.support.work import Office, act, answer, heard, shell

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

NESTED = "git init -q evil; git -C evil -c user.name=A -c user.email=a@b commit -q --allow-empty -m x; "
LINK = "git update-index --add --cacheinfo 160000,$(git -C evil rev-parse HEAD),sub"


def git(folder, *arguments):
    """Runs git as the owner does, who has no settings of their own."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    name = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    return subprocess.run(["git", *name, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False)


def make_project(workspace):
    """A repository without hooks, which obeys `config.worktree`."""
    project = workspace / "project"
    project.mkdir()
    (workspace / "readme").write_text("what others have written")
    (project / "code").write_text("pass\n")
    git(project, "init", "-q", "--template=")
    git(project, "config", "extensions.worktreeConfig", "true")
    git(project, "add", "code")
    assert git(project, "commit", "-qm", "one").returncode == 0
    return project


async def worked(tmp_path, walled, *steps, after_reading=True, messages=2):
    """What a task that has read from outside was told last, the owner's messages, the project and the daemon's workspace."""
    book = Office()
    reading = [act(Call("read_file", {"path": "readme"}))] if after_reading else []
    async with serving(tmp_path, book, {**WALLS, "sandbox.writable": []}, env=walled) as daemon:
        workspace = daemon.home / "workspace"
        project = make_project(workspace)
        seen = []

        async def keep(view):
            seen.append(view.last)
            return answer("done")

        book.jobs["work"] = [*reading, *(step(workspace) if callable(step) else step for step in steps), keep]
        async with daemon.client() as client:
            await client.say("do work")
            notes = await heard(client, messages)
            assert "completed: done" in notes
    return seen[0], "".join(text for text in notes if text != "completed: done"), project


def programs(workspace):
    """Lines for a shell by which git would run a program of whoever has written them."""
    proof = workspace / "proof"
    hook = f"core.fsmonitor 'touch {proof};:'"
    return {
        "commondir": f"cp -r .git evil; git config -f evil/config {hook}; echo ../evil > .git/commondir",
        "config.worktree": f"git config -f .git/config.worktree {hook}",
        "hooks": f"mkdir .git/hooks; printf '#!/bin/sh\\ntouch {proof}\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    }


def assert_not_obeyed(project, name, told):
    assert not os.path.lexists(project / ".git" / name)
    [aside] = (project / ".git").glob(f"{name}.set-aside-*")
    assert f"project/.git/{name} (now {aside.name})" in told
    assert git(project, "status").returncode == 0
    assert git(project, "commit", "--allow-empty", "-qm", "two").returncode == 0
    assert not (project.parent / "proof").exists()


@pytest.mark.parametrize("name", ["commondir", "config.worktree", "hooks"])
async def test_what_git_would_obey_is_set_aside_and_the_owner_told(tmp_path, walled, name):
    def plant(workspace):
        return act(shell(f"cd project; {programs(workspace)[name]}"))

    result, told, project = await worked(tmp_path, walled, plant)
    assert f"project/.git/{name} (now {name}.set-aside-" in result
    assert_not_obeyed(project, name, told)


async def test_it_is_set_aside_when_a_command_in_the_background_has_ended_that_nobody_looked_at(tmp_path, walled):
    """The command makes it after the last look of its task, which then ends."""

    def start(workspace):
        line = f"until [ -e go ]; do sleep 0.05; done; cd project; {programs(workspace)['commondir']}; touch ../made; sleep 1000"
        return act(Call("command_start", {"command": line, "wait": 0}))

    def wait(workspace):
        async def page(view):
            (workspace / "go").touch()
            await until((workspace / "made").exists, "the command has made it")
            return act(Call("read_file", {"path": "readme"}))

        return page

    _, told, project = await worked(tmp_path, walled, start, wait)
    assert_not_obeyed(project, "commondir", told)


@pytest.mark.parametrize(
    ("named", "line"),
    [
        ("sub/.git", NESTED + LINK + "; mkdir sub; echo 'gitdir: ../evil/.git' > sub/.git"),
        ("sub/.git", NESTED + LINK + "; mv evil sub"),
        ("src", "mkdir src; cp .git/HEAD src; echo ../../elsewhere > src/commondir"),
        ("project", "cp -r .git/HEAD .git/config .git/objects .git/refs .; rm .git/HEAD"),
    ],
)
async def test_the_owner_is_told_of_a_repository_within_another_that_git_enters_by_itself(
    tmp_path, walled, named, line
):
    result, told, _ = await worked(tmp_path, walled, act(shell(f"cd project; {line}")))
    path = "`project`" if named == "project" else f"`project/{named}`"
    assert path in told
    assert path.strip("`") in result


async def test_a_repository_beside_others_is_the_tasks_own_and_so_is_what_an_owner_asked_for(tmp_path, walled):
    clone = act(shell("git clone -q project copy; mkdir new; cd new; git init -q; git config user.name Ada"))
    _, told, project = await worked(tmp_path / "clone", walled, clone, messages=1)
    assert told == ""
    assert (project.parent / "copy/.git/config").exists()
    assert "Ada" in (project.parent / "new/.git/config").read_text()
    hook = act(shell("cd project; mkdir .git/hooks; echo mine > .git/hooks/post-merge; git init -q sub"))
    _, told, project = await worked(
        tmp_path / "hook", walled, hook, act(shell("true")), after_reading=False, messages=1
    )
    assert told == ""
    assert (project / ".git/hooks/post-merge").read_text() == "mine\n"


async def test_a_workspace_with_more_names_than_are_searched_has_partial_walls(tmp_path, walled):
    """An owner is asked once the work has read text from outside, and told why."""
    reading = act(Call("read_file", {"path": "readme"}))
    book = Office(
        {
            "safe": [act(shell("echo ran")), lambda view: answer(view.last)],
            "read": [reading, act(shell("echo ran")), lambda view: answer(view.last)],
        }
    )
    async with serving(tmp_path, book, {**WALLS, "policy.rules": []}, env=walled) as daemon, daemon.client() as client:
        workspace = daemon.home / "workspace"
        (workspace / "readme").write_text("what others have written")
        (workspace / "many").mkdir()
        for number in range(10_001):
            os.mknod(workspace / f"many/{number}")
        await client.say("do safe")
        assert "ran" in (await heard(client))[0]
        await client.say("do read")
        shown = await client.get("approval", state="open")
        assert "more than is searched" in shown["why"]
        assert "10,000 names, 2,000 folders, 200 such files" in shown["why"]
        await client.say(f"/approve {shown['id']}")
        assert "ran" in (await heard(client, 2))[-1]
