"""Ending an answer and nothing else: Ctrl-C and Esc on a terminal, `interrupt` over the gateway and HTTP; twice ends tasks, too."""

from __future__ import annotations

from contextlib import asynccontextmanager

import attrs
import httpx
import pytest
import trio

from pegasus.main_agent.drafts import DRAFT_EVERY
from tests.blackbox.support import HANG, Book, Call, Thought, connect, say, serving, session
from tests.blackbox.support.terminal import CTRL_C, ENTER, terminal
from tests.blackbox.support.waiting import until_async
from tests.blackbox.support.work import Office, act, events, shell

LONG = "It is a long story that is told word by word, so that one can read along while it is being told."
ESC = "\x1b"


def hanging(text: str = LONG, to: str = "c1") -> Thought:
    """A reply that comes in pieces and stops in its middle."""
    whole = Thought("private", (Call("reply", {"channelId": to, "text": text}),), pieces=20, pause=0.03)
    return attrs.evolve(whole, hang_after=25)


def shown(client, *, cut=False):
    """The drafts that a client got so far."""
    return [frame["text"] for frame in client.seen if frame["type"] == "progress" and frame.get("cut", False) is cut]


async def drafted(client):
    """Wait until a draft was shown."""
    while not any(shown(client)):
        await client.get("progress")


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_the_half_written_answer_stays_and_the_model_knows_it(tmp_path, wire):
    book = Book({"tell": hanging()})
    async with serving(tmp_path, book, wire=wire) as daemon, daemon.client() as client, daemon.client() as other:
        await client.say("tell")
        await drafted(client)
        await trio.sleep(2 * DRAFT_EVERY)
        receipt = await client.call("interrupt")
        assert receipt["interrupted"] is True
        assert receipt["ended"]["what"] == "tell"
        await book.abandoned()
        cut = await client.get("progress", cut=True)
        assert LONG.startswith(cut["text"])
        assert cut["text"] == shown(client)[-1] != ""
        await client.get("typing", active=False)
        assert (await other.get("progress", cut=True))["text"] == cut["text"]
        assert "" not in shown(client), "nobody has withdrawn it"
        assert await client.ask("next") == "echo: next"
        assert client.texts() == ["echo: next"], "nothing else was said"
        assert cut["text"] in book.asked[-1].said("assistant")
        assert "was interrupted by the user" in book.asked[-1].user
        page = await client.call("history", limit=10)
        told = [(line["from"], line["text"], line.get("cut", False)) for line in page["messages"]]
        assert told[:3] == [("user", "tell", False), ("agent", cut["text"].strip(), True), ("user", "next", False)]


async def test_it_is_not_answered_again_after_kill_9(tmp_path):
    book = Book({"tell": hanging()})
    async with serving(tmp_path, book) as daemon:
        async with daemon.client() as client:
            await client.say("tell")
            await drafted(client)
            assert (await client.call("interrupt"))["interrupted"]
            daemon.kill()
        await daemon.start()
        async with daemon.client(lastSeq=0) as client:
            assert await client.ask("next") == "echo: next"
            assert client.texts() == ["echo: next"]
        assert len(book.about("tell")) == 1
        assert sum(line.get("metadata", {}).get("type") == "cut" for line in session(daemon.home)) == 1


async def test_nothing_but_the_answer_ends(tmp_path):
    """What waits is taken up next, and tasks of this and other conversations go on."""
    jobs = {"dig": [act(shell("sleep 600"))], "ask": [act(Call("ask_user", {"question": "red?"}))]}
    pages = {"think": hanging(), "wait": say("I have waited")}
    book = Office(jobs, pages)
    async with serving(tmp_path, book) as daemon, daemon.client() as client:
        await client.say("do dig\ndo ask")
        await client.get("task", description="ask", state="SUSPENDED")
        await client.get("reply")
        await client.get("task", description="dig", state="ACTING")
        await client.say("think")
        await drafted(client)
        await client.say("wait")
        receipt = await client.call("interrupt")
        assert "Ended the answer to “think”" in receipt["text"]
        assert {task["description"] for task in receipt["tasks"]} == {"dig", "ask"}
        assert "(ask; waits for an answer)" in receipt["text"]
        assert receipt["waiting"] == 1
        assert (await client.get("reply"))["text"] == "I have waited"
        assert "TASK_FAILED" not in [*events(daemon.home, "dig"), *events(daemon.home, "ask")]
        assert (await client.call("interrupt"))["interrupted"] is False
        await client.say("/stop")
        told = next(frame["text"] for frame in await client.replies(3) if frame["text"].startswith("Stopped:"))
        assert "dig" in told
        assert "ask" in told


@asynccontextmanager
async def guest(daemon, name):
    """A client on web:NAME whose token may send messages and nothing else."""
    made = await daemon.command("token", "add", name, "--type", "web", "--channel", name, "--scope", "message")
    async with connect(daemon.url) as peer:
        await peer.hello(made.out.strip(), "web", name)
        yield peer


async def test_an_answer_of_another_conversation_goes_on_unless_an_owner_names_it(tmp_path):
    settings = {"agent.owners": ["cli:*", "web:anna"]}
    book = Book({"tell": hanging(to="anna")})
    async with (
        serving(tmp_path, book, settings) as daemon,
        daemon.client("web", "anna") as anna,
        daemon.client("cli", "main") as cli,
        guest(daemon, "bob") as bob,
    ):
        await anna.say("tell")
        await drafted(anna)
        assert (await cli.call("interrupt"))["interrupted"] is False
        assert (await bob.call("interrupt"))["interrupted"] is False
        there = {"type": "web", "channelId": "anna"}
        await bob.send({"type": "call", "id": "x", "method": "interrupt", "params": {"channel": there}})
        assert "only an owner" in (await bob.get("error", id="x"))["message"]
        assert not shown(anna, cut=True)
        assert (await cli.call("interrupt", channel=there))["interrupted"] is True
        await anna.get("progress", cut=True)


async def test_a_guest_ends_the_answer_to_themselves(tmp_path):
    book = Book({"tell": hanging(to="bob")})
    settings = {"agent.owners": ["cli:*"]}
    async with serving(tmp_path, book, settings) as daemon, guest(daemon, "bob") as bob:
        await bob.say("tell")
        await drafted(bob)
        assert (await bob.call("interrupt"))["interrupted"] is True
        await bob.get("progress", cut=True)


@pytest.mark.parametrize(
    "channel", ["web", {}, {"type": "web"}, {"type": 1, "channelId": "x"}, {"type": "web", "channelId": "a\u200bb"}]
)
async def test_what_names_no_conversation_is_refused(tmp_path, channel):
    async with serving(tmp_path, Book()) as daemon, daemon.bridge("slack") as bridge:
        await bridge.send({"type": "call", "id": "x", "method": "interrupt", "params": {"channel": channel}})
        assert (await bridge.get("error", id="x"))["code"] == "bad_frame"


async def test_over_http(tmp_path):
    book = Book({"tell": hanging(to="c1")})
    settings = {"http.enabled": True, "http.port": 0}
    async with serving(tmp_path, book, settings) as daemon, daemon.client() as client:
        await client.say("tell")
        await drafted(client)
        headers = {"authorization": f"Bearer {daemon.token}"}
        async with httpx.AsyncClient(base_url=daemon.at.http, headers=headers) as web:
            assert (await web.post("/api/interrupt")).json()["interrupted"] is False
            body = {"channel": {"type": "web", "channelId": "c1"}}
            assert (await web.post("/api/interrupt", json=body)).json()["interrupted"] is True
            assert (await web.post("/api/interrupt", json={"channel": 7})).status_code == 400
        await client.get("progress", cut=True)


async def test_where_each_chat_has_a_session_of_its_own(tmp_path):
    book = Book({"tell": hanging(to="c1"), "hang": HANG})
    async with (
        serving(tmp_path, book, {"agent.scope": "chat"}) as daemon,
        daemon.client("web", "c1") as one,
        daemon.client("web", "c2") as two,
    ):
        await one.say("tell")
        await two.say("hang")
        await drafted(one)
        await book.reached(2)
        assert (await one.call("interrupt"))["interrupted"] is True
        await one.get("progress", cut=True)
        assert (await one.call("interrupt"))["interrupted"] is False
        assert "hang" in await two.ask("/stop"), "it went on"


# ------------------------------------------------------------------ a terminal


async def is_answered(client):
    """Whether nothing waits for the agent on cli:main."""
    return not (await client.call("conversation", type="cli", channelId="main"))["waiting"]


@asynccontextmanager
async def telling_beside_a_task(tmp_path):
    """A terminal that shows the beginning of an answer while a task works."""
    book = Office({"dig": [act(shell("sleep 600"))]}, {"tell": hanging(to="main")})
    async with serving(tmp_path, book) as daemon, terminal(daemon.home, "chat") as screen:
        await screen.see("›")
        await screen.type("do dig", ENTER)
        await screen.see("task 1: dig")
        await screen.type("tell", ENTER)
        await screen.see("word by word")
        yield book, daemon, screen


@pytest.mark.parametrize("key", [CTRL_C, ESC])
async def test_a_key_ends_the_answer_and_leaves_what_was_written_of_it(tmp_path, key):
    async with telling_beside_a_task(tmp_path) as (book, daemon, screen):
        await screen.type(key)
        await book.abandoned()
        await screen.see("(ended here)")
        await screen.see("Ended the answer to “tell”")
        await screen.see("Task 1 (dig) goes on")
        assert "TASK_FAILED" not in events(daemon.home, "dig")
        await screen.type("next", ENTER)
        await screen.see("echo: next")


async def test_ctrl_c_twice_ends_the_tasks_too(tmp_path):
    async with telling_beside_a_task(tmp_path) as (_, daemon, screen):
        await screen.type(CTRL_C, CTRL_C)
        await screen.see("Stopped:")
        await screen.see("task 1: dig (ran")
        assert "TASK_FAILED" in events(daemon.home, "dig")


async def test_ctrl_c_twice_without_an_answer_ends_the_tasks(tmp_path):
    book = Office({"dig": [act(shell("sleep 600"))]})
    async with serving(tmp_path, book) as daemon, terminal(daemon.home, "chat") as screen:
        await screen.see("›")
        await screen.type("do dig", ENTER)
        await screen.see("task 1: dig")
        async with daemon.client("cli", "look") as look:
            await until_async(lambda: is_answered(look), "the end of the answer")
        await screen.type("half a line", CTRL_C)
        await screen.type(CTRL_C)  # the line is empty by now
        await trio.sleep(2.5)
        await screen.type(CTRL_C)  # too late to be the second
        await trio.sleep(0.3)
        assert "TASK_FAILED" not in events(daemon.home, "dig")
        await screen.type(CTRL_C)
        await screen.see("task 1: dig (ran")


async def test_esc_closes_the_menu_and_ends_a_search_first(tmp_path):
    book = Book({"hang": HANG})
    async with serving(tmp_path, book) as daemon, terminal(daemon.home, "chat") as screen:
        await screen.see("›")
        await screen.type("hang", ENTER)
        await book.reached(1)
        await screen.see("thinking")
        await screen.type("/sta")
        await screen.see("what I am doing")
        await screen.type(ESC)
        await trio.sleep(1.5)
        await screen.type("\x15", "\x12", "han")
        await screen.see("search")
        await screen.type(ESC)
        await trio.sleep(1.5)
        assert "Ended" not in screen.text
        await screen.type("\x15", ESC)
        await screen.see("Ended the answer to “hang”")
