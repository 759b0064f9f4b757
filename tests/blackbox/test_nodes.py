"""Two real nodes over a real PostgreSQL, killed, drained, upgraded and stopped from the other side: nothing is lost or comes twice."""

from __future__ import annotations

import json
import signal
from contextlib import asynccontextmanager
from functools import partial

import httpx
import pytest
import trio

from pegasus.testing.provider import open_provider
from pegasus.testing.services.server import open_service
from pegasus.testing.services.telegram import TelegramServer
from tests.blackbox.support import Book, Daemon, Exited, thinks_with, until
from tests.blackbox.support.ports import free_port
from tests.blackbox.support.waiting import until_async
from tests.blackbox.support.work import Office, act, answer, heard, later, shell
from tests.blackbox.test_telegram import OWNER, settings_for
from tests.postgres_server import postgres_server, postgres_url  # noqa: F401  fixtures

LEASE = 3.0
"""The shortest that the settings allow."""
MOST = LEASE + 1.5
"""Seconds in which another node has taken over: the lease, a look, and a start of the agent on a busy machine."""


@asynccontextmanager
async def open_nodes(folder, url, book, *names, **settings):
    """Daemons over one database, with homes of their own and one model."""
    async with open_provider(book, keep=1) as server:
        book.server = server
        shared = {"agent.scope": "chat", "storage.url": url, "node.lease": LEASE, **thinks_with(server.url)}
        shared |= {key.replace("__", "."): value for key, value in settings.items()}
        nodes = [Daemon(folder / name / "home", {**shared, "node.name": name}) for name in names]
        try:
            async with trio.open_nursery() as nursery:
                for node in nodes:
                    (folder / node.home.parent.name).mkdir(exist_ok=True)
                    nursery.start_soon(node.start)
            yield nodes
        finally:
            for node in nodes:
                node.kill()
        assert server.invalid == [], "the provider refused requests"


async def nodes_in_order(client, nodes):
    """The nodes, the one that owns the chat of a client first."""
    listed = {each["name"]: each for each in (await client.call("nodes.list"))["nodes"]}
    return sorted(nodes, key=lambda node: not listed[node.home.parent.name]["chats"])


async def renewed(control, node):
    """Wait until a node has renewed its lease: since then it knows of all others."""
    seen = [float("inf")]

    async def is_renewed():
        listed = {each["name"]: each for each in (await control.call("nodes.list"))["nodes"]}
        seen.append(listed[node.home.parent.name]["leaseLeft"])
        return seen[-1] > seen[-2]

    await until_async(is_renewed, "a renewal")


async def table(node):
    """The nodes by name, as `pegasus nodes` shows them."""
    answer = json.loads((await node.command("nodes", "--json")).out)
    return {each["name"]: each for each in answer["nodes"]}


class Talker:
    """Somebody who sends one message after the other, at any node, as a client does that repeats what is not accepted."""

    def __init__(self, name, nodes):
        self.name, self.nodes = name, nodes
        self.sent, self.heard = 0, []

    async def talk(self, count):
        """Say so many things; each is said again at the next node until it has been answered."""
        for _ in range(count):
            self.sent += 1
            while len(self.heard) < self.sent:
                self.nodes.append(self.nodes.pop(0))
                try:
                    with trio.move_on_after(5.0):
                        await self._say(self.nodes[0], f"m{self.sent}")
                except (Exception, ExceptionGroup):
                    await trio.sleep(0.1)

    async def _say(self, node, text):
        async with node.client("web", self.name, lastSeq=len(self.heard)) as client:
            await client.post(text, f"{self.name}-{text}")
            while len(self.heard) < self.sent:
                frame = await client.reply()
                if frame["seq"] > len(self.heard):
                    assert frame["seq"] == len(self.heard) + 1, "no number is left out"
                    self.heard.append(frame["text"])
                    await client.ack(frame)

    def check(self):
        assert self.heard == [f"echo: m{number}" for number in range(1, self.sent + 1)]


async def test_a_node_is_killed_in_a_thought_and_the_other_one_answers_once(tmp_path, postgres_url):  # noqa: F811
    book = Book()
    async with open_nodes(tmp_path, postgres_url, book, "a", "b") as nodes:
        async with nodes[0].client() as client:
            assert await client.ask("one") == "echo: one"
            a, b = await nodes_in_order(client, nodes)
        async with a.client(lastSeq=1) as client:
            book.hold()
            await client.say("two", "m-2")
            await book.waiting()
            # Another door of the same chat: the thought is at the other node, and ends there.
            async with b.client("web", "c2") as other:
                book.release()
                assert await other.ask("elsewhere") == "echo: elsewhere"
                book.hold()
            first = await client.reply()
            await client.say("three", "m-3")
            await book.waiting()
            a.kill()
        begin = trio.current_time()
        book.release()
        async with b.client(lastSeq=first["seq"]) as client:
            await client.post("three", "m-3")  # its client has seen no answer
            reply = await client.reply()
            assert (reply["text"], reply["seq"]) == ("echo: three", 3)
            assert trio.current_time() - begin < MOST
            assert await client.ask("four") == "echo: four"
        listed = await table(a)  # also where no agent runs
        states = {name: (node["state"], node["chats"] > 0) for name, node in listed.items()}
        assert states == {a.home.parent.name: ("gone", False), b.home.parent.name: ("up", True)}


async def test_what_is_said_at_one_node_is_shown_and_ended_there_while_another_works_on_it(tmp_path, postgres_url):  # noqa: F811
    book = Book()
    async with open_nodes(tmp_path, postgres_url, book, "a", "b") as (a, b):
        async with a.client() as client:
            assert await client.ask("hello") == "echo: hello"
            worker, door = await nodes_in_order(client, (a, b))
        async with door.client("control", "nodes") as control:
            await renewed(control, worker)
        async with door.client() as here, door.client("control", "nodes") as control:
            book.hold()
            await here.say("think")
            await book.waiting()
            await here.get("typing", active=True)
            await here.post("/status")
            assert f"\nNode: {worker.home.parent.name}" in (await here.reply())["text"]
            begin = trio.current_time()
            await here.post("/stop")
            assert "- thought: think" in (await here.reply())["text"]
            assert trio.current_time() - begin < 1.0
            for method in ("interrupt", "stop"):
                await here.say(f"think until {method}")
                await book.waiting()
                ended = await (here if method == "interrupt" else control).call(method)
                assert f"think until {method}" in str(ended)


async def test_a_task_is_stopped_from_another_node_and_goes_on_there_after_a_kill(tmp_path, postgres_url):  # noqa: F811
    go_on = trio.Event()
    jobs = {
        "dig": [act(shell("echo one >> dug")), later(go_on, answer("all dug"))],
        "sleep": [act(shell("sleep 600"))],
    }
    book = Office(jobs)
    async with open_nodes(tmp_path, postgres_url, book, "a", "b") as (a, b):
        async with a.client() as client:
            await client.say("do dig\ndo sleep")
            await until(lambda: len(book.of("dig")) == 2 and len(book.of("sleep")) == 1, "both tasks to work")
            works, other = await nodes_in_order(client, (a, b))
            assert [(await table(a))[node.home.parent.name]["tasks"] for node in (works, other)] == [2, 0]
        async with other.client("control", "other") as control:
            shown = {task["description"]: task for task in (await control.call("tasks.list"))["tasks"]}
            assert sorted(shown) == ["dig", "sleep"]
            begin = trio.current_time()
            await control.call("tasks.cancel", taskId=str(shown["sleep"]["number"]))
            assert trio.current_time() - begin < 2.0
            found = await control.call("tasks.show", taskId=shown["sleep"]["taskId"])
            assert "stopped" in str(found)
        works.kill()
        begin = trio.current_time()
        await until(lambda: len(book.of("dig")) == 3, "the task to go on elsewhere", MOST + 3)
        assert trio.current_time() - begin < MOST
        go_on.set()
        async with other.client() as client:
            said = await heard(client)
            while "completed: all dug" not in said:
                said += await heard(client)
        assert said.count("completed: all dug") == 1
        # A call whose result is in the log is not made again.
        assert [path.read_text() for path in tmp_path.rglob("dug")] == ["one\n"]


async def test_nodes_are_drained_and_upgraded_while_people_talk(tmp_path, postgres_url):  # noqa: F811
    async def readiness(node):
        async with httpx.AsyncClient(base_url=node.at.http) as http:
            answer = await http.get("/readyz")
            return answer.status_code, " ".join(answer.json()["down"])

    async def is_away():
        return (await readiness(a))[0] == 503

    book, door = Book(), {"http__enabled": True, "http__port": 0}
    async with open_nodes(tmp_path, postgres_url, book, "a", "b", **door) as (a, b):
        talkers = [Talker(f"t{number}", [a, b] if number % 2 else [b, a]) for number in range(4)]
        async with trio.open_nursery() as nursery:
            for talker in talkers:
                nursery.start_soon(talker.talk, 12)
            await trio.sleep(0.3)
            assert (await b.command("drain", "a")).code == 0
            await until_async(is_away, "a drained node that says so", LEASE)
            assert "gives everything back" in (await readiness(a))[1]
            doctor = await b.command("doctor")
            await until(lambda: all(talker.sent > 3 for talker in talkers), "traffic")
            for node in (a, b):  # each is replaced by its next version
                assert await node.stop(signal.SIGTERM) == 0
                await node.start()
        for talker in talkers:
            talker.check()
        assert "node a is drained" in doctor.out
        assert await readiness(a) == (200, "")
        nodes = await table(a)
        assert {name: node["state"] for name, node in nodes.items()} == {"a": "up", "b": "up"}
        assert (await a.command("drain", "nobody")).err == 'pegasus: no node called "nobody" runs\n'


async def test_a_service_is_polled_by_one_node_and_moves_when_it_dies(tmp_path, postgres_url):  # noqa: F811
    async with open_service(TelegramServer()) as telegram:
        settings = {key.replace(".", "__"): value for key, value in settings_for(telegram).items()}
        async with open_nodes(tmp_path, postgres_url, Book(), "a", "b", **settings) as nodes:
            telegram.say(OWNER, "hello")
            with trio.fail_after(10):
                assert (await telegram.next_message()).text == "echo: hello"
            states = {}
            for node in nodes:
                async with node.client("control", "nodes") as control:
                    states[(await control.call("channels.list"))["channels"][0]["state"]] = node
            assert sorted(states) == ["elsewhere", "up"]
            states["up"].kill()
            telegram.say(OWNER, "still there?")
            with trio.fail_after(MOST + 3):
                assert (await telegram.next_message()).text == "echo: still there?"
            assert [text for _, text in telegram.shown] == ["echo: hello", "echo: still there?"]


async def test_a_start_waits_for_the_database_and_two_nodes_of_one_name_are_refused(tmp_path, postgres_server):  # noqa: F811
    url, port = postgres_server.database(), free_port()
    postgres_server.stop()
    settings = {"models.default": "offline/stand-in", "storage.url": url, "node.name": "a", "node.lease": LEASE}
    node = Daemon(tmp_path / "home", {**settings, "http.enabled": True, "http.port": port})
    node.spawn()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:

        async def status(path):
            try:
                return (await http.get(path)).status_code
            except httpx.TransportError:
                return 0

        await until_async(partial(status, "/healthz"), "an answer", 10.0)
        assert (await status("/healthz"), await status("/readyz")) == (200, 503)
        assert "broken  database      the database cannot be reached" in (await node.command("doctor")).out
        postgres_server.start()
        await node.ready()

        async def is_ready():
            return await status("/readyz") == 200

        await until_async(is_ready, "a ready node", 10.0)
        doctor = (await node.command("doctor")).out
        assert "ok      database      PostgreSQL" in doctor
        assert "other settings" not in doctor
        doctor = (await node.command("--set", "agent.scope=chat", "doctor")).out
        assert "note    database      node a has other settings than this home, in agent\n" in doctor
    second = Daemon(tmp_path / "second" / "home", settings)
    second.home.parent.mkdir()
    with pytest.raises(Exited, match="another node has the name 'a'"):
        await second.start()
    node.kill()
