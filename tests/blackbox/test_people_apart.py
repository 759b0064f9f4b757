"""People apart: a guest has a conversation of their own, and nothing of the owner's stands in it."""

from __future__ import annotations

import base64
import json
import os

import httpx
import pytest

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import Book, connect, serving
from tests.blackbox.support.model import SILENCE, Thought, say
from tests.blackbox.support.walls import WALLS
from tests.blackbox.support.work import Office, act, answer
from tests.blackbox.test_tokens import add

SECRET = "the blue door opens at midnight"
ANN = {"agent.owners": ["slack:ann", "telegram:ann"]}


def by(user, channel_id, kind="slack"):
    return {"type": kind, "channelId": channel_id, "userId": user}


def prompts_with(book, text):
    """The requests whose newest message is this text, each as one string."""
    return [json.dumps(view.body, ensure_ascii=False) for view in book.asked if text in view.newest]


async def said(bridge, text, channel, **more):
    await bridge.say(text, channel=channel, **more)
    reply = await bridge.reply()
    await bridge.ack(reply)
    assert reply["channel"]["channelId"] == channel["channelId"]
    return reply["text"]


@pytest.mark.parametrize("scope", ["global", "chat"])
async def test_what_the_owner_said_elsewhere_is_not_in_a_guests_prompt(tmp_path, scope):
    async with serving(tmp_path, book := Book(), {**ANN, "agent.scope": scope}) as daemon:
        (daemon.home / "workspace" / "USER.md").write_text("The owner is called Wilhelmina.")
        async with daemon.client() as owner, daemon.bridge("slack") as bridge:
            await owner.ask(SECRET)
            assert await said(bridge, "what opens", by("eve", "D-eve")) == "echo: what opens"
            await owner.ask("and now")
            await daemon.restart()
        async with daemon.client() as owner, daemon.bridge("slack") as bridge:
            await bridge.say("what else", channel=by("eve", "D-eve"))
            # The last acknowledgement before a kill -9 may be lost, and its reply comes again.
            while (await bridge.reply())["text"] != "echo: what else":
                pass
            await owner.say("I again")
            while (await owner.reply())["text"] != "echo: I again":
                pass
    for text in ("what opens", "what else"):
        [prompt] = prompts_with(book, text)
        assert SECRET not in prompt
        assert "Wilhelmina" not in prompt
    [prompt] = prompts_with(book, "what else")
    assert "what opens" in prompt, "the guest's own conversation goes on"
    [prompt] = prompts_with(book, "I again")
    assert SECRET in prompt
    assert "what opens" not in prompt, "the owner's conversation has nothing of the guest's"


# ------------------------------------------------------------------ memory


def remembering(view):
    """A model that looks into all of memory, or writes there, as the message says."""
    name, _, rest = view.question.text.partition(" ")
    if view.results or not name.startswith("memory_"):
        return SILENCE if view.replied else say("\n".join(view.results) or f"echo: {view.question.text}")
    return Thought(calls=(Call(name, json.loads(rest or "{}")),))


FACTS = {
    "facts/user.md": "# User\n\n- The safe opens with 7781\n",
    "facts/shop.md": "# Shop\n> Summary: opening hours\nshared: true\n\n- The shop opens at nine\n",
}


@pytest.mark.parametrize("scope", ["global", "chat"])
async def test_the_owners_memory_answers_no_guest_but_for_what_is_shared(tmp_path, scope):
    book = Book(otherwise=remembering)
    async with serving(tmp_path, book, {**ANN, "agent.scope": scope}) as daemon:
        for path, text in FACTS.items():
            file = daemon.home / "data" / "memory" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        async with daemon.client() as owner, daemon.bridge("slack") as bridge:
            assert "7781" in await owner.ask('memory_search {"query": "opens"}')
            for n, channel in enumerate([by("eve", "D-eve"), by("eve", "C-group"), by("ann", "C-group")]):
                found = await said(bridge, 'memory_search {"query": "safe opens"}', channel)
                assert "opens at nine" in found, channel
                assert "7781" not in found, channel
                assert "facts/user.md" not in await said(bridge, f'memory_read {{"path": "facts/user{n}.md"}}', channel)
                assert "facts/shop.md" in await said(bridge, "memory_list", channel)
                assert "7781" not in await said(bridge, 'memory_read {"path": "facts/user.md"}', channel)
    for view in book.asked:
        if view.question.id != "c1":
            assert "7781" not in str(view.body)


async def test_a_guests_notes_are_that_guests_and_bounded(tmp_path):
    book = Book(otherwise=remembering)
    note = 'memory_append {"path": "facts/me.md", "entry": "- Likes: chess", "summary": "what Eve likes"}'
    async with serving(tmp_path, book, {**ANN, "limits.guest_memory_kb": 1}) as daemon:
        async with daemon.client() as owner, daemon.bridge("slack") as bridge:
            await said(bridge, note, by("eve", "D-eve"))
            assert "chess" in await said(bridge, 'memory_search {"query": "chess"}', by("eve", "D-eve"))
            assert "chess" not in await said(bridge, 'memory_read {"path": "facts/me.md"}', by("mal", "D-mal"))
            assert "chess" not in await owner.ask('memory_read {"path": "facts/me.md"}')
            long = json.dumps({"path": "facts/more.md", "entry": "x" * 1500})
            assert "allowed: 1,024" in await said(bridge, f"memory_append {long}", by("eve", "D-eve"))
            await daemon.restart()
        async with daemon.bridge("slack") as bridge:
            await bridge.say('memory_search {"query": "chess"}', channel=by("eve", "D-eve"))
            while "Likes: chess" not in (await bridge.reply())["text"]:
                pass
    assert (daemon.home / "data/guests/slack%3Aeve/memory/facts/me.md").exists()


# ------------------------------------------------------------------ files


class Caller:
    """Jobs that make the one call which they name, and report what came of it."""

    def get(self, job, default=None):
        name, _, arguments = job.partition(" ")
        return [act(Call(name, json.loads(arguments))), lambda view: answer(view.last)]


def files_office():
    office = Office()
    office.jobs = Caller()
    return office


async def did(bridge, call, channel):
    """What came of a task that makes this call."""
    await bridge.say(f"do {call}", channel=channel)
    while not (reply := await bridge.reply())["text"].startswith("completed"):
        pass
    await bridge.ack(reply)
    return reply["text"]


EVE, MAL = by("eve", "D-eve"), by("mal", "D-mal")
AUTORUN = [".git/hooks/pre-commit", ".npmrc", ".venv/bin/python", "CLAUDE.md", "sub/.envrc"]


@pytest.mark.deadline(90)
async def test_a_guest_has_a_folder_of_their_own_and_no_other_file(tmp_path):
    async with serving(tmp_path, files_office(), ANN) as daemon:
        (daemon.home / "workspace" / "private.txt").write_text("the owner's words")
        folder = daemon.home / "guests" / "slack%3Aeve"
        async with daemon.client() as owner, daemon.bridge("slack") as bridge:
            await did(bridge, 'write_file {"path": "mine.txt", "content": "a trap for all"}', EVE)
            assert (folder / "mine.txt").read_text() == "a trap for all"
            assert "a trap" in await did(bridge, 'read_file {"path": "mine.txt"}', EVE)
            for path in ("private.txt", "../../workspace/private.txt", f"{daemon.home}/workspace/private.txt"):
                for call in ("read_file", "delete_file", "write_file"):
                    arguments = {"path": path} | ({"content": "x", "overwrite": True} if call == "write_file" else {})
                    told = await did(bridge, f"{call} {json.dumps(arguments)}", EVE)
                    assert "owner's words" not in told, (path, call)
            assert (daemon.home / "workspace" / "private.txt").read_text() == "the owner's words"
            assert "private.txt" not in await did(bridge, 'list_files {"path": "."}', MAL)
            assert "a trap" not in await did(bridge, f'read_file {{"path": "{folder}/mine.txt"}}', MAL)
            for path in AUTORUN:
                await did(bridge, f'write_file {{"path": "{path}", "content": "x"}}', EVE)
                assert not (folder / path).exists(), path
            # The owner reads what guests have, as text from outside, and does not write there.
            await owner.say(f'do read_file {{"path": "{folder}/mine.txt"}}')
            while not (reply := await owner.reply())["text"].startswith("completed"):
                pass
            assert "a trap" in reply["text"]
            await owner.say(f'do write_file {{"path": "{folder}/other.txt", "content": "x"}}')
            await owner.reply()
            assert not (folder / "other.txt").exists()


async def test_a_guests_folder_is_bounded(tmp_path):
    async with serving(tmp_path, files_office(), {**ANN, "limits.guest_disk_mb": 1}) as daemon:
        folder = daemon.home / "guests" / "slack%3Aeve"
        async with daemon.bridge("slack") as bridge:
            await did(bridge, 'write_file {"path": "a.txt", "content": "x"}', EVE)
            (folder / "large.bin").write_bytes(b"x" * (1 << 20))
            assert "limits.guest_disk_mb" in await did(bridge, 'write_file {"path": "b.txt", "content": "x"}', EVE)
            await did(bridge, 'delete_file {"path": "large.bin"}', EVE)
            await did(bridge, 'write_file {"path": "b.txt", "content": "x"}', EVE)
            assert (folder / "b.txt").exists()


GUESTS_MAY = [{"tool": "*", "decision": "allow"}]


@pytest.mark.deadline(120)
@pytest.mark.parametrize("opened", [False, True])
async def test_commands_of_a_guest_run_in_their_folder_and_see_no_other(tmp_path, walled, opened):
    """Where a rule of the owner lets guests run commands, also of what the settings open to commands."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "plans.txt").write_text("the owner's plans")
    more = {"sandbox.writable": [str(shared)] if opened else []}
    settings = {**ANN, **WALLS, **more, "policy.rules": GUESTS_MAY, "limits.guest_disk_mb": 1}
    async with serving(tmp_path, files_office(), settings, env=walled) as daemon:
        workspace, folder = daemon.home / "workspace", daemon.home / "guests" / "slack%3Aeve"
        (workspace / "private.txt").write_text("the owner's words")

        async def ran(line, channel=EVE, **more):
            arguments = json.dumps({"command": line, **more})
            return json.loads((await did(bridge, f"shell_exec {arguments}", channel)).removeprefix("completed: "))

        async with daemon.bridge("slack") as bridge, daemon.client() as owner:
            assert (await owner.call("status"))["sandbox"]["walled"]
            done = await ran("pwd; echo mine > mine.txt; ls")
            assert done["stdout"] == f"{folder}\nmine.txt\n", done
            assert (folder / "mine.txt").read_text() == "mine\n"
            reads = [
                f"cat {workspace}/private.txt",
                f"ls {workspace}",
                f"ls {daemon.home}",
                "cat ../../workspace/private.txt",
            ]
            reads += [f"ls {folder.parent}", f"cat {folder.parent}/*/mine.txt"]
            reads += [f"cat {shared}/plans.txt"] if opened else []
            for line in reads:
                done = await ran(line, MAL)
                assert not any(word in done["stdout"] for word in ("owner", "private", "mine", "eve")), (line, done)
            for place in (workspace, folder, *([shared] if opened else [])):
                await ran(f"echo x > {place}/trap", MAL)
                assert not (place / "trap").exists(), place
            assert "outside" in (
                told := await did(bridge, f'shell_exec {{"command": "ls", "cwd": "{workspace}"}}', EVE)
            ), told
            python = await did(bridge, 'run_python {"code": "import os; print(os.getcwd(), os.listdir())"}', EVE)
            assert "slack%3Aeve ['mine.txt']" in python
            started = await did(bridge, 'command_start {"command": "pwd; ls", "wait": 2}', EVE)
            assert "slack%3Aeve\\nmine.txt" in started, started
            # A folder that is full takes no more commands until something is deleted.
            (folder / "large.bin").write_bytes(b"x" * (1 << 20))
            assert "limits.guest_disk_mb" in await did(bridge, 'shell_exec {"command": "true"}', EVE)
            # Those of the owner have the workspace, and not the folders of guests.
            await owner.say(f'do shell_exec {{"command": "pwd; cat private.txt; cat {folder}/mine.txt"}}')
            while not (reply := await owner.reply())["text"].startswith("completed"):
                pass
            assert str(workspace) in reply["text"]
            assert "owner's words" in reply["text"]
            assert "mine\\n" not in reply["text"]


# ------------------------------------------------------------------ limits


async def test_a_token_is_counted_whatever_names_its_client_makes_up(tmp_path):
    settings = {"limits.guest_messages_per_minute": 5, "http.enabled": True, "http.port": 0}
    async with serving(tmp_path, Book(), settings) as daemon:
        token = await add(daemon, "many", "--type", "web")
        headers = {"authorization": f"Bearer {token}"}
        taken = 0
        async with httpx.AsyncClient(base_url=daemon.at.http, headers=headers, timeout=20) as http:
            for n in range(12):
                body = {
                    "text": "hi",
                    "id": f"m{n}",
                    "channel": {"type": "web", "channelId": f"c{n}", "userId": f"u{n}"},
                }
                taken += (await http.post("/api/messages", json=body)).status_code == 202
        for n in range(6):
            async with connect(daemon.url) as peer:
                await peer.send(
                    {
                        "type": "hello",
                        "token": token,
                        "channel": {"type": "web", "channelId": f"d{n}", "userId": f"u{n}"},
                    }
                )
                frame = await peer.get("welcome", "error")
                if frame["type"] == "welcome":
                    await peer.post("hi", f"n{n}")
                    taken += (await peer.get("accepted", "error"))["type"] == "accepted"
        assert taken <= 5


@pytest.mark.deadline(90)
async def test_what_a_guest_sends_is_bounded_and_a_message_beyond_is_answered(tmp_path):
    data = base64.b64encode(os.urandom(400_000)).decode()
    picture = [{"name": "a.bin", "mime": "application/octet-stream", "data": data}]
    settings = {**ANN, "limits.guest_disk_mb": 1, "limits.guest_messages_per_minute": 0}
    async with serving(tmp_path, Book(), settings) as daemon:
        async with daemon.bridge("slack") as bridge:
            for n in range(2):
                await bridge.say("a file", id=f"f{n}", channel=EVE, media=picture)
                await bridge.reply()
            await bridge.say("a file", id="f1", channel=EVE, media=picture)  # the same again
        await daemon.restart()
        async with daemon.bridge("slack") as bridge, daemon.client() as owner:
            await bridge.post("a file", "f2", channel=EVE, media=picture)
            assert "limits.guest_disk_mb" in (await bridge.get("error", id="f2"))["message"]
            await bridge.say("only words", channel=EVE)
            await bridge.say("a file of somebody else", channel=MAL, media=picture)
            await owner.say("a file of mine", media=picture)
