"""Guests where several ways meet: the door of OpenAI's clients, groups, reports of tasks, archives and consolidation."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import httpx
import pytest

from tests.blackbox.support import Book, Call, serving
from tests.blackbox.support.work import Office, act, answer, idle
from tests.blackbox.test_consolidation import Secretary, told_of
from tests.blackbox.test_people_apart import ANN, EVE, SECRET, by, prompts_with, said
from tests.blackbox.test_tokens import HTTP, add

OWNERS = ("7781", "Wilhelmina", SECRET)
"""Words of the owner, from memory, from a file of the prompt, and from the conversation."""


def write_facts(home):
    """Put words of the owner into memory and into the files of the prompt."""
    for path, text in {
        "data/memory/facts/user.md": "# User\n\n- The safe opens with 7781\n",
        "workspace/memory/MEMORY.md": "- The safe opens with 7781\n",
        "workspace/USER.md": "The owner is called Wilhelmina.",
    }.items():
        file = home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


class Keeper(Secretary):
    """A secretary whose notes for an owner and for a guest can be told apart, and who keeps what was to be noted."""

    def __init__(self):
        super().__init__()
        self.notes = []

    async def __call__(self, request):
        if "historyEntry" in request.system:
            self.notes.append(request.turns[0].text)
        return await super().__call__(request)


@asynccontextmanager
async def speaking(daemon, token):
    async with httpx.AsyncClient(
        base_url=daemon.at.http, headers={"authorization": f"Bearer {token}"}, timeout=30
    ) as http:
        yield http


async def completed(http, text, **more):
    """The whole body of a completion, streamed or not."""
    response = await http.post(
        "/v1/chat/completions", json={"model": "mine", "messages": [{"role": "user", "content": text}], **more}
    )
    assert response.status_code == 200, response.text
    return response.text


@pytest.mark.parametrize("scope", ["global", "chat"])
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_guest_of_v1_has_a_conversation_of_their_own(tmp_path, scope, is_streamed):
    """Its numbers of usage are those of the own request, which clients add up; they name neither the owner's model nor a price."""
    settings = {**HTTP, "agent.scope": scope, "agent.show_usage": True}
    more = {"stream": True, "stream_options": {"include_usage": True}} if is_streamed else {}
    async with serving(tmp_path, book := Book(), settings) as daemon:
        write_facts(daemon.home)
        token = await add(daemon, "app")
        async with daemon.client("cli", "main") as owner, speaking(daemon, token) as http:
            for number in range(3):
                await owner.ask(f"{SECRET} {number}")
            told = [
                await completed(http, "what opens", **more),
                await completed(http, "what else", user="main", **more),
            ]
            told += [await completed(http, command, **more) for command in ("/status", "/usage", "/model", "/tasks")]
            told.append((await http.get("/v1/models")).text)
            for path in (
                "usage",
                "status",
                "sessions",
                "tasks",
                "memory",
                "events",
                "settings",
                "replies?channelId=main&type=cli",
            ):
                response = await http.get(f"/api/{path}")
                assert response.status_code in (403, 404), path
                told.append(response.text)
            assert await owner.ask("I again") == "echo: I again"
    assert "what opens" in told[0]
    for body in told:
        assert not any(word in body for word in (*OWNERS, "test/", "model-1", "cost", "$")), body
    used = json.loads(told[0].split("data: ")[-2] if is_streamed else told[0])["usage"]
    [mine] = book.about("what opens")[:1]
    calls = len(book.about("what opens"))
    assert used["prompt_tokens"] == calls * 100, "of this request alone"
    assert mine
    for text in ("what opens", "what else"):
        for prompt in prompts_with(book, text):
            assert not any(word in prompt for word in OWNERS)
    assert "what opens" not in prompts_with(book, "what else")[0], "`user` names another conversation of the token"
    [prompt] = prompts_with(book, "I again")
    assert SECRET in prompt
    assert "what opens" not in prompt


@pytest.mark.parametrize("scope", ["global", "chat"])
@pytest.mark.parametrize("first", ["ann", "eve"])
async def test_what_the_owner_has_said_in_private_is_not_in_a_groups_prompt(tmp_path, scope, first):
    """Whoever of the two writes first in the group, and after a restart."""
    async with serving(tmp_path, book := Book(), {**ANN, "agent.scope": scope}) as daemon:
        write_facts(daemon.home)
        async with daemon.client() as page, daemon.bridge("slack") as bridge:
            await page.ask(f"{SECRET} on the page")
            await said(bridge, f"{SECRET} in private", by("ann", "D-ann"))
            await said(bridge, "hello from one", by(first, "C-group"))
            await said(bridge, "hello from the other", by({"ann": "eve", "eve": "ann"}[first], "C-group"))
            await said(bridge, f"{SECRET} again", by("ann", "D-ann"))
        await daemon.restart()
        async with daemon.bridge("slack") as bridge, daemon.client("web", "c2") as page:
            await bridge.say("hello once more", channel=by("ann", "C-group"))
            while (await bridge.reply())["text"] != "echo: hello once more":
                pass
            assert await page.ask("what is said in the group") == "echo: what is said in the group"
    for text in ("hello from one", "hello from the other", "hello once more"):
        [prompt] = prompts_with(book, text)
        assert not any(word in prompt for word in OWNERS), text
    [prompt] = prompts_with(book, "hello once more")
    assert "hello from one" in prompt
    assert "hello from the other" in prompt
    [prompt] = prompts_with(book, "what is said in the group")
    assert "hello from" not in prompt


@pytest.mark.deadline(60)
async def test_reports_of_a_guests_task_go_to_the_guest_only(tmp_path):
    """What it notifies of, its end, and its failure; also after a kill in its midst."""
    jobs = {
        "look for eve": [act(Call("notify", {"message": "half of it for eve"})), answer("found for eve")],
        "fail for eve": [act(Call("read_file", {"path": "nothing"})), answer("no file for eve")],
    }
    async with serving(tmp_path, book := Office(jobs), ANN) as daemon:
        async with daemon.client() as owner, daemon.client("cli", "main") as terminal, daemon.bridge("slack") as bridge:
            await said(bridge, "hello", by("ann", "D-ann"))
            await said(bridge, "hello", by("mal", "D-mal"))
            book.hold_tasks(after=1)
            await bridge.say("do look for eve", channel=EVE)
            await book.waiting()
            # Not acknowledged, so it comes again; one that had not been told yet could be told in one turn with the end of the task.
            while "half of it for eve" not in (await bridge.reply())["text"]:
                pass
            daemon.kill()
        book.release()
        await daemon.start()
        async with (
            daemon.client(lastSeq=0) as owner,
            daemon.client("cli", "main", lastSeq=0) as terminal,
            daemon.bridge("slack") as bridge,
        ):
            frames = []
            while not frames or "found for eve" not in frames[-1]["text"]:
                frames.append(await bridge.reply())
                await bridge.ack(frames[-1])
            await bridge.say("do fail for eve", channel=EVE)
            while "no file for eve" not in frames[-1]["text"]:
                frames.append(await bridge.reply())
                await bridge.ack(frames[-1])
            await idle(daemon)
            assert any("half of it for eve" in frame["text"] for frame in frames)
            assert {frame["channel"]["channelId"] for frame in frames if "eve" in frame["text"]} == {"D-eve"}
            for client in (owner, terminal):
                await client.fence()
                assert "eve" not in str(client.texts())
            assert await owner.ask("what is new") == "echo: what is new"
    [prompt] = prompts_with(book, "what is new")
    assert "for eve" not in prompt


@pytest.mark.deadline(60)
async def test_notes_of_a_guests_conversation_are_not_the_owners(tmp_path):
    """Both have more messages than the window holds. An archive of the guest's holds the guest's words only."""
    settings = {**ANN, "agent.scope": "chat", "session.memory_window": 6}
    async with serving(tmp_path, book := Keeper(), settings) as daemon:
        async with daemon.client() as owner, daemon.bridge("slack") as bridge:
            for number in range(20):
                await owner.ask(f"number {number}: {SECRET}")
                await said(bridge, f"eve wrote: number {1000 + number}", EVE)
            assert "fresh conversation" in await said(bridge, "/new", EVE)
            await said(bridge, "and now", EVE)
            await owner.ask("I again")
        notes = daemon.home / "workspace" / "memory"
        for line in (notes / "HISTORY.md").read_text().splitlines():
            numbers = told_of(line[line.find("told of") :])
            assert not numbers or (max(numbers) < 1000) != (min(numbers) >= 1000), line
        assert book.notes
        for guest in (True, False):
            assert any(("eve wrote" in text) == guest for text in book.notes)
        assert not any("eve wrote" in text and SECRET in text for text in book.notes)
        archives = list((daemon.home / "data" / "sessions").glob("slack%3AD-eve*"))
        assert len(archives) > 1
        assert not any(SECRET in path.read_text() for path in archives)
    [prompt] = prompts_with(book, "and now")
    assert "eve wrote" not in prompt
    assert "Likes tea" not in prompt
    [prompt] = prompts_with(book, "I again")
    assert "eve wrote" not in prompt
