"""A person pauses a task and lets it go on, in the chat and by programs. One that a person ends has not failed."""

from __future__ import annotations

import json

import httpx
import pytest
import trio

from tests.blackbox.support import Call, Thought, connect, serving
from tests.blackbox.support.waiting import until
from tests.blackbox.support.work import NOTICE, Office, act, answer, events, log_of, shell

PAUSED = {"waitsFor": "person", "state": "SUSPENDED"}


def steps(count=3):
    """A job that takes a few steps, each of which waits for a file and leaves its mark."""
    return [act(shell(f"until [ -e go{n} ]; do sleep 0.02; done; echo {n} >> done")) for n in range(count)] + [
        answer("all done")
    ]


def let(folder, n):
    (folder / f"go{n}").touch()


def done(folder):
    path = folder / "done"
    return path.read_text().split() if path.exists() else []


async def begun(client, folder, text="do dig"):
    """Give the job, and return when its first step runs."""
    await client.say(text)
    return await client.get("task", state="ACTING", tool="shell_exec")


@pytest.fixture
def folder(tmp_path):
    """The workspace, in which the commands run."""
    return tmp_path / "home" / "workspace"


async def test_a_task_pauses_before_its_next_step_and_goes_on_where_it_was(tmp_path, folder):
    book = Office({"dig": steps()})
    async with serving(tmp_path, book) as daemon, daemon.client("cli", "main") as client:
        await begun(client, folder)
        told = await client.ask("/pause 1")
        assert "Task 1 (dig) pauses when shell_exec has ended" in told
        assert (await client.get("task", pausing=True))["state"] == "ACTING"
        assert "then paused: dig" in await client.ask("/tasks")
        assert "being paused already" in await client.ask("/pause 1")
        let(folder, 0)
        await client.get("task", **PAUSED)
        assert done(folder) == ["0"], "the step that ran was not cut"
        suspended = log_of(daemon.home, "dig")[-1]
        assert (suspended["event"], suspended["data"]["suspendReason"]) == ("TASK_SUSPENDED", "person")
        assert "task 1 is paused already" in (await client.ask("/pause 1")).lower()
        assert "1  paused: dig" in await client.ask("/tasks")
        assert "paused" in await client.ask("/tasks show 1")
        thoughts = len(book.of("dig"))
        let(folder, 1)
        let(folder, 2)
        await trio.sleep(0.5)
        assert len(book.of("dig")) == thoughts
        assert await client.ask("/continue 1") == "Task 1 (dig) goes on."
        assert (await client.reply())["text"] == "completed: all done"
        assert done(folder) == ["0", "1", "2"], "each step once"
        assert "not paused" in await client.ask("/continue 1")
        assert "has completed" in await client.ask("/pause 1")


@pytest.mark.parametrize("recovery", ["resume", "fail"])
async def test_it_stays_paused_over_kill_9(tmp_path, folder, recovery):
    book = Office({"dig": steps()})
    settings = {"tasks.recovery": recovery}
    async with serving(tmp_path, book, settings) as daemon:
        async with daemon.client("cli", "main") as client:
            await begun(client, folder)
            await client.ask("/pause 1")
            let(folder, 0)
            await client.get("task", **PAUSED)
            daemon.kill()
        thoughts = len(book.of("dig"))
        for n in (1, 2):
            let(folder, n)
        for _ in range(2):
            await daemon.start()
            async with daemon.client("cli", "main", lastSeq=1000) as client:
                await client.get("task", **PAUSED)
                await trio.sleep(0.5)
                assert len(book.of("dig")) == thoughts
                assert done(folder) == ["0"]
            daemon.kill()
        await daemon.start()
        async with daemon.client("cli", "main", lastSeq=1000) as client:
            assert "1 paused" in (await daemon.command("status")).out
            listed = (await daemon.command("tasks", "list")).out
            assert "paused" in listed
            assert (await daemon.command("tasks", "continue", "1")).out == "Task 1 (dig) goes on.\n"
            await client.get("task", state="COMPLETED")
        assert done(folder) == ["0", "1", "2"]


async def test_without_a_number_it_is_those_of_this_conversation(tmp_path, folder):
    jobs = {
        "dig": steps(),
        "delve": steps(),
        "ask": [act(Call("ask_user", {"question": "red?"})), answer("ok")],
    }
    book = Office(jobs)
    async with (
        serving(tmp_path, book) as daemon,
        daemon.client("cli", "main") as client,
        daemon.client("web", "c2") as other,
    ):
        assert await client.ask("/pause") == "No task of this conversation is at work."
        await client.say("do dig\ndo ask")
        await client.get("task", description="ask", state="SUSPENDED")
        await client.reply()
        await client.get("task", description="dig", state="ACTING")
        await other.say("do delve")
        await other.get("task", description="delve", state="ACTING")
        told = await client.ask("/pause")
        assert told.splitlines() == ["Task 1 (dig) pauses when shell_exec has ended; /continue 1 takes that back."]
        assert "waits for an answer" in await client.ask("/pause 2")
        assert await client.ask("/continue") == "Task 1 (dig) goes on."
        for n in range(3):
            let(folder, n)
        await client.get("task", description="dig", state="COMPLETED")
        await other.get("task", description="delve", state="COMPLETED")
        assert (await client.reply())["text"] == "completed: all done"
        assert await client.ask("/continue") == "No task of this conversation is paused."


async def test_stop_ends_a_paused_task_which_is_no_failure(tmp_path, folder):
    book = Office({"dig": steps()})
    async with serving(tmp_path, book) as daemon, daemon.client("cli", "main") as client:
        await begun(client, folder)
        let(folder, 0)
        await client.ask("/pause 1")
        await client.get("task", **PAUSED)
        assert "task 1: dig" in await client.ask("/stop")
        frame = await client.get("task", state="FAILED")
        assert frame["reason"] == "stopped"
        told = (await client.reply())["text"]
        assert told == "stopped: stopped by the user (cli)"
        assert NOTICE.match(book.asked[-1].question.text)["what"] == "stopped", "the model reads it, too"
        ended = log_of(daemon.home, "dig")[-1]
        assert (ended["event"], ended["data"]["reason"]) == ("TASK_FAILED", "stopped")
        assert "1  stopped by the user (cli)" in await client.ask("/tasks")
        assert "Task 1  stopped" in await client.ask("/tasks show 1")
        assert "was stopped already" in await client.ask("/tasks cancel 1")
        shown = json.loads((await daemon.command("tasks", "show", "1", "--json")).out)
        assert (shown["state"], shown["reason"]) == ("failed", "stopped")
        for command in (["tasks", "list"], ["tasks", "show", "1"], ["tasks", "follow", "1"]):
            out = (await daemon.command(*command)).out
            assert "stopped" in out
            assert "failed" not in out
        await daemon.stop()
        assert "stopped" in (await daemon.command("tasks", "list")).out


async def test_a_log_of_an_earlier_version_shows_as_stopped_too(tmp_path, folder):
    book = Office({"dig": steps()})
    async with serving(tmp_path, book) as daemon:
        async with daemon.client("cli", "main") as client:
            await begun(client, folder)
            await client.ask("/stop")
        await daemon.stop()
        [path] = (daemon.home / "data" / "tasks").glob("*/*.jsonl")
        lines = path.read_text().splitlines()
        assert '"reason":"stopped"' in lines[-1]
        path.write_text("\n".join([*lines[:-1], lines[-1].replace(',"reason":"stopped"', "")]) + "\n")
        out = (await daemon.command("tasks", "show", "1")).out
        assert "stopped" in out
        assert "failed" not in out


async def test_a_task_that_waits_for_its_turn_pauses_at_once(tmp_path, folder):
    book = Office({"dig": steps(), "delve": [answer("delved")]})
    settings = {"tasks.max_active": 1}
    async with serving(tmp_path, book, settings) as daemon, daemon.client("cli", "main") as client:
        await begun(client, folder)
        await client.say("do delve")
        await client.get("task", description="delve", state="IDLE")
        assert await client.ask("/pause 2") == "Paused task 2 (delve); /continue 2 lets it go on."
        for n in range(3):
            let(folder, n)
        assert (await client.reply())["text"] == "completed: all done"
        assert book.of("delve") == []
        daemon.kill()
        await daemon.start()
        async with daemon.client("cli", "main", lastSeq=1000) as again:
            await again.get("task", description="delve", **PAUSED)
            assert await again.ask("/continue 2") == "Task 2 (delve) goes on."
            assert (await again.reply())["text"] == "completed: delved"


async def test_the_model_does_not_let_a_paused_task_go_on(tmp_path, folder):
    book = Office({"dig": steps()})
    async with serving(tmp_path, book) as daemon, daemon.client("cli", "main") as client:
        frame = await begun(client, folder)
        let(folder, 0)
        await client.ask("/pause 1")
        await client.get("task", **PAUSED)
        book.pages["nudge"] = [Thought(calls=(Call("resume_task", {"taskId": frame["taskId"], "input": "go on"}),))]
        await client.say("nudge")
        await until(lambda: any("was paused by a person" in result for result in book.asked[-1].results), "the refusal")
        assert events(daemon.home, "dig")[-1] == "TASK_SUSPENDED"


async def test_over_http_and_the_gateway(tmp_path, folder):
    book = Office({"dig": steps()})
    settings = {"http.enabled": True, "http.port": 0}
    async with serving(tmp_path, book, settings) as daemon, daemon.client("cli", "main") as client:
        await begun(client, folder)
        headers = {"authorization": f"Bearer {daemon.token}"}
        async with httpx.AsyncClient(base_url=daemon.at.http, headers=headers, timeout=20) as web:
            paused = (await web.post("/api/tasks/1/suspend")).json()
            assert paused["status"] == "suspending"
            assert (await web.get("/api/tasks/1")).json()["pausing"] is True
            let(folder, 0)
            await client.get("task", **PAUSED)
            again = await web.post("/api/tasks/1/suspend")
            assert (again.status_code, again.json()["error"]["message"]) == (409, "task 1 is paused already")
            assert (await web.get("/api/tasks/1")).json()["waitsFor"] == "person"
            assert (await web.get("/api/status")).json()["tasks"]["paused"] == 1
            assert 'pegasus_tasks{state="paused"} 1.0' in (await web.get("/metrics")).text
            assert (await web.post("/api/tasks/1/continue")).json()["status"] == "continued"
            assert (await web.post("/api/tasks/9/suspend")).status_code in (404, 409)
        let(folder, 1)
        await trio.sleep(0.2)
        assert (await client.call("tasks.suspend", taskId=1))["status"] in ("suspended", "suspending")
        await client.call("tasks.continue", taskId=1)
        let(folder, 2)
        await client.get("task", state="COMPLETED")
        assert done(folder) == ["0", "1", "2"]


async def test_a_guest_pauses_only_their_own(tmp_path, folder):
    jobs = {"dig": steps(), "mine": [act(Call("ask_user", {"question": "red?"}))]}
    settings = {"agent.owners": ["cli:*"]}
    async with serving(tmp_path, Office(jobs), settings) as daemon, daemon.client("cli", "main") as client:
        made = await daemon.command("token", "add", "bob", "--type", "web", "--channel", "bob", "--scope", "message")
        await begun(client, folder)
        async with connect(daemon.url) as bob:
            await bob.hello(made.out.strip(), "web", "bob")
            assert "belongs to another conversation" in await bob.ask("/pause 1")
            assert await bob.ask("/pause") == "No task of this conversation is at work."
            assert "belongs to another conversation" in await bob.ask("/continue 1")
        assert "TASK_SUSPENDED" not in events(daemon.home, "dig")
