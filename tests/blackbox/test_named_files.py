"""A yes to a command is bound to the files that it names, as they were when the owner was asked."""

from __future__ import annotations

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import serving
from tests.blackbox.support.work import Office, act, answer, heard, shell

ASK = {"policy.rules": [{"tool": "shell_exec", "decision": "ask"}, {"tool": "run_python", "decision": "ask"}]}


def write(path, text):
    return Call("write_file", {"path": path, "content": text})


def run(*calls):
    return [*(act(call) for call in calls), lambda view: answer(view.last)]


async def test_always_does_not_cover_a_script_that_was_changed(tmp_path):
    book = Office(
        {
            "work": run(write("do.sh", "echo first"), shell("sh do.sh")),
            "again": run(shell("sh do.sh")),
            "change": run(write("do.sh", "echo second"), shell("sh do.sh")),
        }
    )
    async with serving(tmp_path, book, ASK) as daemon, daemon.client() as client:
        await client.say("do work")
        shown = await client.get("approval", state="open")
        assert shown["files"].keys() == {"do.sh"}
        await client.call("approvals.answer", id=shown["id"], decision="allow", scope="always")
        assert "first" in (await heard(client))[0]
        await client.say("do again")
        assert "first" in (await heard(client))[0], "the same script needs no second yes"
        await client.say("do change")
        changed = await client.get("approval", state="open")
        assert changed["files"] != shown["files"]
        await client.call("approvals.answer", id=changed["id"], decision="deny")
        assert "has said no" in (await heard(client))[0]


async def test_a_file_that_changes_while_the_owner_is_asked_is_asked_about_again(tmp_path):
    """Also one that appears, that a link leads to, or that another word of the line names."""
    for name, command, before, changed in (
        ("once", "sh a.sh", {"a.sh": "echo good"}, "a.sh"),
        ("appears", "sh b.sh || true", {}, "b.sh"),
        ("link", "sh<c.sh", {"d.sh": "echo good"}, "d.sh"),
        ("nested", "bash -c 'sh \"e e.sh\"'", {"e e.sh": "echo good"}, "e e.sh"),
    ):
        book = Office({"work": run(shell(command))})
        async with serving(tmp_path / name, book, ASK) as daemon, daemon.client() as client:
            home = daemon.home / "workspace"
            for path, text in before.items():
                (home / path).write_text(text)
            if name == "link":
                (home / "c.sh").symlink_to("d.sh")
            await client.say("do work")
            shown = await client.get("approval", state="open")
            (home / changed).write_text("echo evil")
            await client.call("approvals.answer", id=shown["id"], decision="allow")
            again = await client.get("approval", state="open")
            assert again["id"] != shown["id"], name
            assert again["files"] != shown.get("files"), name
            await client.call("approvals.answer", id=again["id"], decision="deny")
            assert "evil" not in (await heard(client))[0], name
