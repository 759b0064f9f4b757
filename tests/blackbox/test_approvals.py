"""Approvals of the real process: shown to owners, answered over chat, gateway and command line, and kept over SIGKILL."""

from __future__ import annotations

import attrs
import pytest

from tests.blackbox.support import Call, serving
from tests.blackbox.support.files import lines
from tests.blackbox.support.work import Effects, Office, act, answer, events, heard, shell

ASK = {"policy.rules": [{"tool": "shell_exec", "decision": "ask"}], "agent.owners": ["web:*", "cli:*", "slack:ann"]}
EVE = {"type": "slack", "channelId": "#general", "userId": "eve"}


def office(*commands):
    """A task that runs commands one after the other and says what the last of them gave."""
    pages = [*(act(command) for command in commands), lambda view: answer(view.last)]
    return Office({"work": pages})


async def test_a_call_waits_for_the_owner_over_a_kill(tmp_path):
    """Killed while it waits, and killed right after the answer: the command runs once, after the yes."""
    work = Effects(tmp_path)
    async with serving(tmp_path, office(work.shell("done", "true")), ASK) as daemon:
        async with daemon.client() as client:
            await client.say("do work")
            shown = await client.get("approval", state="open")
            assert (shown["tool"], shown["why"], shown["who"]) == ("shell_exec", "rule 1 of policy.rules", "owner")
            assert set(shown["arguments"]) == {"command", "env"}
            await client.get("task", state="SUSPENDED")
            assert await client.ask("hello") == "echo: hello", "nothing else waits"
            daemon.kill()
        await daemon.start()
        async with daemon.client(lastSeq=0) as client:
            again = await client.get("approval", state="open")
            assert (again["id"], again["arguments"], again["expires"]) == (
                shown["id"],
                shown["arguments"],
                shown["expires"],
            )
            assert not work.count("done")
            listed = await daemon.command("approvals", "list")
            assert shown["id"] in listed.out
            assert shown["arguments"]["command"] in listed.out.replace("\\", "")
            status = await daemon.command("status")
            assert "1 call for your yes or no" in status.out
            allowed = await daemon.command("approvals", "allow", shown["id"])
            assert (allowed.code, allowed.out) == (0, f"{shown['id']} is allowed: shell_exec\n")
            assert (await client.get("approval", id=shown["id"], state="allowed"))["by"] == "cli:approvals"
            await work.happened("done")
            daemon.kill()
        await daemon.start()
        async with daemon.client(lastSeq=0) as client:
            [text] = [text for text in await heard(client, 2) if text.startswith("completed")]
            assert "exitCode" in text or "may or may not have happened" in text
            late = await daemon.command("approvals", "deny", shown["id"])
            assert late.code == 1
            assert "The first answer counts" in late.err
    assert work.count("done") == 1


BARE = {
    "sandbox.mode": "off",
    "policy.rules": [
        {"tool": "shell_exec", "match": "git status*", "decision": "allow"},
        {"tool": "shell_exec", "match": "echo *", "decision": "allow"},
        {"tool": "run_python", "match": "x = *", "decision": "allow"},
    ],
}
"""Rules that look harmless, where every other command is asked about."""


@pytest.mark.parametrize(
    "call",
    [
        shell("echo x > TARGET"),
        shell("echo x >> TARGET"),
        shell("git status", env={"PATH": "FOLDER"}),
        shell(
            "git status",
            env={"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": "TOUCH"},
        ),
        shell("git status", cwd="repository"),
        shell('git status "\'" ; TOUCH "\'"'),
        shell("git status $(TOUCH)"),
        shell("git status\rTOUCH"),
        Call("run_python", {"code": 'x = f\'{open("TARGET", "w")}\''}),
    ],
)
async def test_a_rule_that_allows_a_command_by_its_text_allows_nothing_else(tmp_path, call):
    """Each of these would do what the text of the rule says nothing about."""
    target, folder = tmp_path / "target", tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(f"#!/bin/sh\n: > {target}\n")
    (folder / "git").chmod(0o755)
    names = {"TARGET": str(target), "FOLDER": str(folder), "TOUCH": f"/bin/touch {target}"}

    def put(value):
        if isinstance(value, dict):
            return {key: put(each) for key, each in value.items()}
        for name, text in names.items():
            value = value.replace(name, text)
        return value

    steps = act(attrs.evolve(call, arguments=put(call.arguments)))
    async with serving(tmp_path, Office({"work": [steps, lambda view: answer(view.last)]}), BARE) as daemon:
        (daemon.home / "workspace" / "repository").mkdir()
        async with daemon.client() as client:
            await client.say("do work")
            shown = await client.get("approval", state="open")
            assert shown["tool"] == call.name
            await client.say(f"/deny {shown['id']}")
            await heard(client)
    assert not target.exists()


async def test_a_rule_that_allows_a_command_by_its_text_allows_that(tmp_path):
    steps = act(shell("echo 'a > b; c'", cwd="."))
    work = Office({"work": [steps, lambda view: answer(view.last)]})
    async with serving(tmp_path, work, BARE) as daemon, daemon.client() as client:
        await client.say("do work")
        assert "a > b; c" in (await heard(client))[0]


async def test_a_variable_of_the_task_makes_another_command_of_it(tmp_path):
    """What `set_env` sets counts for each command that follows."""
    steps = [act(Call("set_env", {"key": "PATH", "value": "/nowhere"})), act(shell("echo a"))]
    async with serving(tmp_path, Office({"work": [*steps, answer("done")]}), BARE) as daemon, daemon.client() as client:
        await client.say("do work")
        assert (await client.get("approval", state="open"))["tool"] == "shell_exec"


@pytest.mark.parametrize(
    ("call", "counts"),
    [
        (Call("write_file", {"path": "AGENTS.md", "content": "Say please."}), True),
        (Call("edit_file", {"path": "AGENTS.md", "old_string": "brief", "new_string": "Say please."}), True),
        (Call("delete_file", {"path": "AGENTS.md"}), True),
        (Call("move_file", {"from": "AGENTS.md", "to": "old.md"}), True),
        (Call("move_file", {"from": "new.md", "to": "AGENTS.md"}), False),  # the question has not shown its text
    ],
)
async def test_a_file_of_the_prompt_is_asked_about_once(tmp_path, call, counts):
    """A command that runs could have written it, too; the yes to exactly this call says that it was the owner's will."""
    rules = [{"tool": name, "decision": "ask"} for name in ("write_file", "edit_file", "delete_file", "move_file")]
    work = Effects(tmp_path)
    book = Office(
        {"work": [act(call), lambda view: answer(view.last)], "other": [act(work.shell("began", "sleep 600"))]}
    )
    async with serving(tmp_path, book, {"policy.rules": rules}) as daemon, daemon.client() as client:
        (daemon.home / "workspace" / "AGENTS.md").write_text("Be brief.")
        (daemon.home / "workspace" / "new.md").write_text("Say please.")
        await client.say("do other")
        await work.happened("began")
        await client.say("do work")
        shown = await client.get("approval", state="open")
        assert shown["tool"] == call.name
        assert "The file is part of prompts to come" in shown["why"]
        await client.call("approvals.answer", id=shown["id"], decision="allow")
        await heard(client)
        await client.ask("hello")
        asked = [frame for frame in client.seen if frame["type"] == "approval" and frame["tool"] == "prompt_file"]
        assert bool(asked) != counts
        listed = await daemon.command("approvals", "list")
        assert ("prompt_file, for owner;" in listed.out) != counts, listed.out


async def test_a_no_reaches_the_model_and_nothing_runs(tmp_path):
    work = Effects(tmp_path)
    async with serving(tmp_path, office(work.shell("done", "true")), ASK) as daemon, daemon.client() as client:
        await client.say("do work")
        shown = await client.get("approval", state="open")
        await client.say(f"/deny {shown['id']} not today — 不行")
        assert f"{shown['id']} is denied" in (await client.reply())["text"]
        [text] = await heard(client)
        assert text.endswith("an owner was asked and has said no: not today — 不行.")
        assert not work.count("done")


async def test_strangers_neither_see_nor_answer(tmp_path):
    """A bridge's guest asks for work: the owner is asked in another window, and what the guest says about it changes nothing."""
    rules = [{"tool": "shell_exec", "decision": "ask"}]
    async with (
        serving(tmp_path, office(shell("echo secret")), {**ASK, "policy.rules": rules}) as daemon,
        daemon.client() as owner,
        daemon.bridge("slack") as slack,
    ):
        await slack.say("do work", channel=EVE)
        shown = await owner.get("approval", state="open")
        assert (shown["who"], shown["channel"]["userId"]) == ("guest", "eve")
        await slack.say(f"/approve {shown['id']}", channel=EVE)
        assert (await slack.reply())["text"] == "Only my owner may decide about that."
        for method, params in (
            ("approvals.answer", {"id": shown["id"], "decision": "allow"}),
            ("approvals.allow", {"id": shown["id"]}),
            ("approvals.list", {}),
        ):
            with pytest.raises(AssertionError, match="only an owner"):
                await slack.call(method, **params)
        await slack.fence()
        assert not [frame for frame in slack.seen if frame["type"] == "approval"]
        assert not [line for line in lines(daemon.home / "data/approvals.jsonl") if "state" in line]
        await owner.call("approvals.answer", id=shown["id"], decision="deny", reason="no")
        assert "has said no" in (await slack.reply())["text"]


async def test_an_owner_on_a_bridge_is_asked_there(tmp_path):
    work = Effects(tmp_path)
    ann = {**EVE, "userId": "ann"}
    async with serving(tmp_path, office(work.shell("done", "true")), ASK) as daemon, daemon.bridge("slack") as slack:
        await slack.say("do work", channel=ann)
        question = await slack.reply()
        assert question["channel"]["channelId"] == "#general"
        id = question["text"].partition("/approve ")[2].split()[0]
        assert "May task 1 run shell_exec?" in question["text"]
        await slack.say(f"/approve {id} always", channel=ann)
        assert "an answer that comes through a bridge counts once" in (await slack.reply())["text"]
        assert not work.count("done")
        await slack.say(f"/approve {id}", channel=ann)
        assert "is allowed" in (await slack.reply())["text"]
        assert "completed" in (await slack.reply())["text"]
    assert work.count("done") == 1


async def test_stop_ends_what_waits(tmp_path):
    work = Effects(tmp_path)
    async with serving(tmp_path, office(work.shell("done", "true")), ASK) as daemon, daemon.client() as client:
        await client.say("do work")
        shown = await client.get("approval", state="open")
        await client.get("task", state="SUSPENDED")
        await client.say("/stop")
        assert "task 1: work (was waiting)" in (await client.reply())["text"]
        await client.get("approval", id=shown["id"], state="withdrawn")
        await client.say(f"/approve {shown['id']}")
        texts = await client.replies(2)
        assert any("withdrawn already" in reply["text"] for reply in texts)
        assert not work.count("done")


async def test_work_for_a_guest_runs_no_commands(tmp_path):
    """Without any rule. The refusal is a result that the model reads, and the log has it."""
    work = Effects(tmp_path)
    settings = {"policy.rules": [], "agent.owners": ["web:*", "cli:*"]}
    async with (
        serving(tmp_path, office(work.shell("done", "true")), settings) as daemon,
        daemon.bridge("slack") as slack,
    ):
        await slack.say("do work", channel=EVE)
        assert "only work for the owner may do this" in (await slack.reply())["text"]
        assert "TOOL_CALL_FAILED" in events(daemon.home, "work")
    assert not work.count("done")


async def test_a_yes_that_comes_too_late_or_is_for_other_arguments_runs_nothing(tmp_path):
    """Nobody answers in time; a yes for ever is for exactly these arguments; the process table has nothing of either."""
    work = Effects(tmp_path)
    book = office(work.shell("late", "sleep 600"))
    book.jobs["good"] = [act(work.shell("good", "true")), answer("done")]
    book.jobs["other"] = [act(work.shell("good", "sleep 600")), answer("never")]
    async with serving(tmp_path, book, {**ASK, "policy.timeout": 0.5}) as daemon:
        async with daemon.client() as client:
            await client.say("do work")
            shown = await client.get("approval", state="expired")
            assert "nobody has answered in time" in (await heard(client))[0]
            await client.say(f"/approve {shown['id']}")
            refused = await client.reply()
            assert "expired already" in refused["text"]
        daemon.configure(policy__timeout=3600.0)
        await daemon.restart()
        async with daemon.client(lastSeq=refused["seq"]) as client:
            await client.say("do good")
            shown = await client.get("approval", state="open")
            await client.say(f"/approve {shown['id']} always")
            texts = sorted(await heard(client, 2))
            assert "exactly these arguments" in texts[0]
            assert texts[1] == "completed: done"
            await client.say("do other")
            await client.get("approval", state="open")
            assert (work.count("late"), work.count("good"), work.processes()) == (0, 1, [])
            await client.say("/stop")
            await client.reply()


async def test_rules_follow_a_reload(tmp_path):
    work = Effects(tmp_path)
    book = office(work.shell("done", "true"))
    rules = [{"tool": "shell_exec", "match": "*", "decision": "deny"}]
    async with serving(tmp_path, book, {"policy.rules": rules}) as daemon, daemon.client() as client:
        await client.say("do work")
        assert "rule 1 of policy.rules" in (await heard(client))[0]
        daemon.configure(policy__rules=[{"tool": "*", "decision": "allow"}])
        assert "policy.rules" in (await client.call("config.reload"))["changed"]
        book.jobs["more"] = book.jobs["work"]
        await client.say("do more")
        assert "exitCode" in (await heard(client))[0]
    assert work.count("done") == 1
