"""Skills of others are installed by an owner at a terminal, and by nobody else."""

from __future__ import annotations

import shlex
import shutil
import sys

import pytest

from tests.blackbox.support import Book, say, serving
from tests.blackbox.support.terminal import ENTER, terminal
from tests.blackbox.support.walls import attacked
from tests.blackbox.support.work import Office, act, answer, heard, shell


def source(tmp_path, body="Fill the form."):
    file = tmp_path / "source" / "pdf" / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\nname: pdf\ndescription: Fills forms.\n---\n{body}\n")
    return file.parents[1]


async def test_an_owner_says_yes_and_the_running_agent_has_it(tmp_path):
    folder = source(tmp_path)
    book = Book(otherwise=say("done"))
    async with serving(tmp_path, book) as daemon, daemon.client() as client:
        async with terminal(daemon.home, "skills", "install", str(folder)) as screen:
            await screen.see("Fills forms.")
            await screen.see("Install pdf with exactly these files?")
            source(tmp_path, "Something else, meanwhile.")
            await screen.type("y", ENTER)
            assert await screen.exit() == 0
        await client.say("/pdf now")
        await book.reached(1)
        assert "Fill the form." in book.asked[-1].question.text
        [listed] = [each for each in (await client.call("skills.list"))["skills"] if each["name"] == "pdf"]
        assert (listed["source"], listed["installedFrom"]) == ("installed", str(folder))


def command(home, folder):
    """A command that sits down at a terminal and says yes."""
    line = [sys.executable, "-m", "pegasus", "--home", str(home), "skills", "install", str(folder), "--yes"]
    return f"script -qec {shlex.quote(shlex.join(line))} /dev/null"


@pytest.mark.skipif(shutil.which("script") is None, reason="util-linux is not installed")
async def test_a_model_that_was_told_to_install_a_skill_does_not(tmp_path):
    folder, seen = source(tmp_path), []

    def keep(view):
        seen.append(view.last)
        return answer("done")

    book = Office()
    async with serving(tmp_path, book) as daemon:
        book.jobs["install"] = [act(shell(command(daemon.home, folder))), keep]
        async with daemon.client() as client:
            await client.say("do install")
            assert await heard(client) == ["completed: done"]
            assert "pdf" not in [each["name"] for each in (await client.call("skills.list"))["skills"]]
    assert "only an owner accepts a skill" in seen[0]


@pytest.mark.skipif(shutil.which("script") is None, reason="util-linux is not installed")
async def test_within_walls_there_is_no_home_to_install_into(tmp_path, walled):
    # Without the mark of its call, by which the command would notice that it is one of the agent's.
    plant = "mkdir -p {0}/installed-skills && echo x > {0}/installed-skills/accepted.json; env -u PEGASUS_CALL {1}"
    result, daemon, _ = await attacked(
        tmp_path,
        walled,
        lambda daemon: plant.format(daemon.home, command(daemon.home, source(daemon.home / "workspace"))),
    )
    assert result["stdout"] + result["stderr"]
    assert not (daemon.home / "installed-skills").exists()
