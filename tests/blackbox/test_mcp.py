"""Tools of MCP servers, with the real process and servers that behave."""

from __future__ import annotations

import json
import re

import pytest

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import Book, Thought, reply, say, serving
from tests.blackbox.support.mcp_settings import got, reached, received, server, states
from tests.blackbox.support.waiting import until_async
from tests.blackbox.support.work import Effects, Office, act, answer, heard

SECRET = "hunter22-of-the-server"


async def test_a_task_uses_the_tools_of_a_server(tmp_path):
    """Text, structured content and a picture, which is kept in the workspace and shown; an error of the tool is a result."""
    calls = [
        Call("lab__echo", {"text": "hello"}),
        Call("lab__structured", {}),
        Call("lab__picture", {}),
        Call("lab__fail", {}),
    ]
    seen, shown = [], []

    def tell(view):
        seen.extend(result.content for turn in view.request.turns for result in getattr(turn, "results", ()))
        shown.extend(image.mime for turn in view.request.turns for image in getattr(turn, "images", ()))
        return answer("used")

    book = Office({"use": [act(*calls), tell]})
    async with serving(tmp_path, book, server("lab", "chatty")) as daemon, daemon.client() as client:
        await reached(daemon, "lab")
        await client.say("do use")
        assert await heard(client) == ["completed: used"]
        assert "lab__echo" in book.of("use")[0].tools
        text, structured, picture, failure = seen
        assert json.loads(text) == {"text": "hello"}
        assert json.loads(structured) == {"structured": {"n": 3}}
        [file] = json.loads(picture)["files"]
        assert (daemon.home / "workspace" / file["path"]).read_bytes().startswith(b"\x89PNG")
        assert shown == ["image/png"]
        assert failure == "Error: the MCP server lab reports an error: that went wrong"


async def test_the_agent_itself_uses_them(tmp_path):
    def tell(view):
        return Thought(calls=(reply(json.loads(view.results[0])["text"]),))

    def look(view):
        return say(str([image.mime for turn in view.request.turns for image in getattr(turn, "images", ())]))

    pages = {"use it": [Thought(calls=(Call("lab__echo", {"text": "hello"}),)), tell]}
    book = Book({**pages, "draw": [Thought(calls=(Call("lab__picture", {}),)), look]})
    async with serving(tmp_path, book, server("lab")) as daemon, daemon.client() as client:
        await reached(daemon, "lab")
        assert await client.ask("use it") == "hello"
        assert await client.ask("draw") == "['image/png']"
        words = r'<untrusted source="mcp" id="\w+">\nlab: Be kind. Use echo.\n</untrusted id="\w+">$'
        [end] = re.findall(words, book.asked[0].system)
        await daemon.restart()
        await reached(daemon, "lab")
        await client_says(daemon, "hello again")
        assert book.asked[-1].system.endswith(end), "the provider's cache stays valid over a restart"


async def client_says(daemon, text):
    async with daemon.client("web", "another") as client:
        assert await client.ask(text) == f"echo: {text}"


async def test_a_call_by_work_that_has_read_words_of_a_server_needs_an_owners_yes(tmp_path):
    """Unless a rule of the settings allows it."""
    twice = [
        act(Call("lab__echo", {"text": "one"})),
        act(Call("lab__echo", {"text": "two"})),
        lambda view: answer(view.last),
    ]
    settings = {**server("lab"), "policy.rules": []}
    async with serving(tmp_path, Office({"twice": twice}), settings) as daemon:
        await reached(daemon, "lab")
        async with daemon.client("cli", "main") as client:
            await client.say("do twice")
            asked = await client.get("approval", state="open")
            assert (asked["tool"], asked["arguments"]) == ("lab__echo", {"text": "two"})
            assert "Nobody has said what the tools of lab do" in asked["why"]
            assert "mcp add lab`" in asked["why"]
            await client.call("approvals.answer", id=asked["id"], decision="allow")
            assert await heard(client) == ['completed: {"text":"two"}']
        await daemon.stop()
        daemon.configure(policy__rules=[{"tool": "lab__*", "decision": "allow"}])
        await daemon.start()
        await reached(daemon, "lab")
        async with daemon.client("cli", "other") as client:
            await client.say("do twice")
            assert await heard(client) == ['completed: {"text":"two"}']


async def test_the_state_of_each_server_is_shown_without_its_secrets(tmp_path):
    """In `mcp list`, `status`, the tree and the log."""
    dead = server("dead", "dies_at_start", env={"SECRET_WORD": SECRET})
    off = {**server("off"), "mcp.servers.off.enabled": False}
    async with serving(tmp_path, Book(), {**server("lab"), **dead, **off}) as daemon:
        await reached(daemon, "lab")
        await reached(daemon, "dead", "down")
        listed = (await daemon.command("mcp", "list")).out
        assert "lab  up, 13 tools (2025-11-25)" in listed
        assert "dead  down: the program ended with exit code 9; cannot work: ***" in listed
        assert "off  off" in listed
        status = (await daemon.command("status")).out
        assert "lab  up, 13 tools" in status
        tree = ""

        async def is_waiting() -> bool:
            nonlocal tree
            tree = (await daemon.command("tree")).out
            return "waiting" in tree

        # It may be in the middle of another attempt.
        await until_async(is_waiting, "the pause before the next attempt", 30, lambda: tree)
        assert "mcp:dead" in tree
        for text in (listed, status, tree, daemon.stderr, (daemon.home / "logs" / "pegasus.log").read_text()):
            assert SECRET not in text


async def test_the_ready_line_does_not_wait_for_servers(tmp_path):
    async with serving(tmp_path, Book(), server("slow", "deaf", timeout=30)) as daemon, daemon.client() as client:
        assert await client.ask("hi") == "echo: hi"
        assert (await states(client))["slow"]["state"] == "connecting"


async def test_a_program_gets_its_own_environment_alone(tmp_path):
    asked = [Call("lab__environment", {"name": name}) for name in ("GREETING", "OPENAI_API_KEY", "HOME")]
    seen = []

    def tell(view):
        seen.extend(json.loads(result)["text"] for result in view.results)
        return say("looked")

    book = Book({"look": [Thought(calls=tuple(asked)), tell]})
    settings = server("lab", env={"GREETING": "good day"})
    async with serving(tmp_path, book, settings, env={"OPENAI_API_KEY": "sk-of-the-daemon"}) as daemon:
        await reached(daemon, "lab")
        async with daemon.client() as client:
            assert await client.ask("look") == "looked"
    assert seen == ["***", "None", str(tmp_path)], "values of the settings are secrets"


@pytest.mark.parametrize("is_confined", [True, False])
async def test_a_program_runs_within_walls_unless_the_owner_says_otherwise(tmp_path, is_confined):
    """It sees nothing of the agent's home."""
    settings = server("lab") | {"mcp.servers.lab.sandbox": is_confined}
    book = Book()
    async with serving(tmp_path, book, settings) as daemon:
        path = str(daemon.home / "token")
        book.pages["read"] = [Thought(calls=(Call("lab__read", {"path": path}),)), lambda view: say(view.results[0])]
        await reached(daemon, "lab")
        status = json.loads((await daemon.command("status", "--json")).out)
        async with daemon.client() as client:
            said = await client.ask("read")
        if is_confined and not status["sandbox"]["walled"]:
            pytest.skip(f"no walls here: {status['sandbox']}")
        assert ("Error" in said) == is_confined
        assert daemon.token not in said


async def test_stop_cancels_a_call_on_the_wire(tmp_path):
    log = tmp_path / "log"
    book = Book({"wait": [Thought(calls=(Call("lab__wait", {}),)), say("never")]})
    async with serving(tmp_path, book, server("lab", log=log, timeout=60)) as daemon, daemon.client() as client:
        await reached(daemon, "lab")
        await client.say("wait")
        [call] = await got(log, "tools/call")
        assert "Stopped" in await client.ask("/stop")
        [cancelled] = await got(log, "notifications/cancelled")
        assert cancelled["params"]["requestId"] == call["id"]
        assert await client.ask("and now?") == "echo: and now?"


async def test_a_call_has_the_timeout_of_its_server(tmp_path):
    log = tmp_path / "log"
    book = Book({"wait": [Thought(calls=(Call("lab__wait", {}),)), lambda view: say(view.results[-1])]})
    async with serving(tmp_path, book, server("lab", log=log, timeout=1.5)) as daemon, daemon.client() as client:
        await reached(daemon, "lab")
        assert await client.ask("wait") == "Error: lab__wait was ended: it took longer than 1.5 s"
        await got(log, "notifications/cancelled")


async def test_a_call_that_takes_too_long_tells_its_last_report(tmp_path):
    book = Book({"count": [Thought(calls=(Call("lab__slow", {}),)), lambda view: say(view.results[-1])]})
    async with serving(tmp_path, book, server("lab", timeout=1.5)) as daemon, daemon.client() as client:
        await reached(daemon, "lab")
        said = await client.ask("count")
        assert said == "Error: lab__slow was ended: it took longer than 1.5 s; its last report: 2 of 5, counting beans"


async def test_a_call_that_a_kill_cut_short_is_not_made_again(tmp_path):
    """Nobody knows what it did at its server. The task is told so, and goes on."""
    log = tmp_path / "log"
    book = Office({"wait": [act(Call("lab__wait", {})), lambda view: answer(view.last)]})
    async with serving(tmp_path, book, server("lab", log=log, timeout=60)) as daemon:
        await reached(daemon, "lab")
        async with daemon.client() as client:
            await client.say("do wait")
            await got(log, "tools/call")
            daemon.kill()
        await daemon.start()
        await reached(daemon, "lab")
        async with daemon.client(lastSeq=0) as client:
            assert "may or may not have happened" in (await heard(client))[0]
        assert len(await got(log, "tools/call")) == 1


async def test_only_the_tools_that_the_settings_name_exist(tmp_path):
    """A task is not shown another one, and a call of it reaches nobody."""
    log = tmp_path / "log"
    settings = server("lab", log=log) | {"mcp.servers.lab.tools": ["echo", "s*"]}
    book = Office({"read": [act(Call("lab__read", {"path": "/etc/hostname"})), lambda view: answer(view.last)]})
    async with serving(tmp_path, book, settings) as daemon, daemon.client() as client:
        known = await reached(daemon, "lab")
        assert known["tools"] == 3
        await client.say("do read")
        assert "lab__read" in (await heard(client))[0]
        shown = [name for name in book.of("read")[0].tools if name.startswith("lab__")]
        assert sorted(shown) == ["lab__echo", "lab__slow", "lab__structured"]
        await client.say("hello")
        await client.reply()
        assert received(log)[-1]["method"] == "tools/list"


async def test_a_shutdown_leaves_no_process_of_a_server(tmp_path):
    work = Effects(tmp_path)
    name, _, value = work.mark.partition("=")
    settings = server("lab", "stubborn", env={name: value})
    async with serving(tmp_path, Book(), settings) as daemon:
        await reached(daemon, "lab")
        assert len(work.processes()) >= 2
        assert await daemon.stop() == 0
        assert work.processes() == []


async def test_check_needs_no_daemon(tmp_path):
    settings = {**server("lab"), **server("mute", "silent", "stubborn", timeout=3.0), **server("gone")}
    settings["mcp.servers.gone.command"] = "no-such-program"
    async with serving(tmp_path, Book(), settings, start=False) as daemon:
        daemon.configure()
        checked = await daemon.command("mcp", "check")
        assert checked.code == 1
        lab, mute, gone = checked.out.splitlines()
        assert lab.startswith("lab  answers, 13 tools (2025-11-25, ")
        assert mute.startswith("mute  failed: it did not answer within ")
        assert gone == "gone  failed: cannot run no-such-program: No such file or directory"
        alone = await daemon.command("mcp", "check", "lab")
        assert (alone.code, alone.out.count("\n")) == (0, 1)
        unknown = await daemon.command("mcp", "check", "nobody")
        assert (unknown.code, "there are: lab, mute, gone" in unknown.err) == (1, True)
        assert "lab  not running" in (await daemon.command("mcp", "list")).out
