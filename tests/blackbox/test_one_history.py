"""One conversation, one history: what is said at one door is shown at the others, and can be read, searched, and said anew."""

from __future__ import annotations

from contextlib import asynccontextmanager
from urllib.parse import quote

import httpx
import trio

from tests.blackbox.support import Book, connect, say, serving
from tests.blackbox.support.files import session_path
from tests.blackbox.support.waiting import until_async

HTTP = {"http.enabled": True, "http.port": 0}


@asynccontextmanager
async def over_http(daemon, token=None):
    """HTTP with the owner's token, or another one."""
    headers = {"authorization": f"Bearer {token or daemon.token}"}
    async with httpx.AsyncClient(base_url=daemon.at.http, headers=headers, timeout=20) as http:
        yield http


def said(peer):
    """What a client was shown of other doors."""
    return [(frame["from"], frame["text"], frame["channel"]["type"]) for frame in peer.seen if frame["type"] == "said"]


async def listed(http, **query):
    answer = await http.get("/api/conversations", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["conversations"]


async def told(http, key="current", **query):
    answer = await http.get(f"/api/conversations/{quote(key, safe='')}/messages", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def texts(page):
    return [(line["from"], line["text"]) for line in page["messages"]]


async def until_told(http, expected):
    """Wait until the conversation has these texts: a reply is heard a moment before the session says that it was posted."""

    async def is_told():
        return [text for _, text in texts(await told(http))] == expected

    await until_async(is_told, f"{expected} in the conversation")


async def test_what_is_said_elsewhere_is_shown_at_the_other_doors(tmp_path):
    async with (
        serving(tmp_path, Book(), HTTP) as daemon,
        daemon.client("cli", "main") as terminal,
        daemon.client("cli", "main") as second,
        daemon.client("web", "main", path="/ws") as page,
        daemon.bridge("irc") as bridge,
    ):
        assert await terminal.ask("hello", "m-1") == "echo: hello"
        frame = await page.get("said", **{"from": "user"})
        assert (frame["text"], frame["id"], frame["channel"]) == ("hello", "m-1", {"type": "cli", "channelId": "main"})
        answer = await page.get("said", **{"from": "agent"})
        assert (answer["text"], answer["id"]) == ("echo: hello", "m-1")
        await second.reply()
        await page.ask("from the page")
        await terminal.get("said", text="echo: from the page")
        # A terminal gets the answer of its own address as a reply, and what somebody typed there in another one.
        assert said(second)[0] == ("user", "hello", "cli")
        assert said(terminal) == [("user", "from the page", "web"), ("agent", "echo: from the page", "web")]
        await terminal.ask("/new", "m-2")
        assert (await page.get("said", text="/new"))["begins"] is True
        await bridge.say("from a service", channel={"type": "irc", "channelId": "ann"})
        await bridge.reply()
        for peer in (terminal, second, page, bridge):
            await peer.fence()
            assert "from a service" not in str(said(peer)), "a guest's conversation is their own"
        assert said(bridge) == []
        assert "hello" not in str(bridge.seen)


async def test_an_owner_in_a_service_is_shown_on_the_page(tmp_path):
    owners = {"agent.owners": ["cli:*", "web:*", "irc:ann"]}
    async with (
        serving(tmp_path, Book(), HTTP | owners) as daemon,
        daemon.client("web", "main") as page,
        daemon.bridge("irc") as bridge,
    ):
        await bridge.say("from the train", channel={"type": "irc", "channelId": "ann", "userId": "ann"})
        assert (await bridge.reply())["text"] == "echo: from the train"
        await page.get("said", text="echo: from the train")
        assert said(page) == [("user", "from the train", "irc"), ("agent", "echo: from the train", "irc")]
        await page.ask("at home")
        await bridge.fence()
        assert said(bridge) == []


async def test_guests_and_tokens_of_other_conversations_are_told_nothing(tmp_path):
    owners = {"agent.owners": ["cli:*", "web:*"]}
    async with serving(tmp_path, Book(), HTTP | owners) as daemon, daemon.client("cli", "main") as owner:
        tokens = {}
        for name, scope in {"guest": "message,read", "bound": "message,read,control"}.items():
            answer = await owner.call("tokens.add", name=name, scope=scope, type="web", channel=f"of-{name}")
            tokens[name] = answer["token"]
        async with connect(daemon.url) as guest, connect(daemon.url) as bound:
            await guest.hello(tokens["guest"], "web", "of-guest")
            await bound.hello(tokens["bound"], "web", "of-bound")
            await owner.ask("a secret plan")
            for peer in (guest, bound):
                await peer.fence()
                assert said(peer) == []
                assert "secret" not in str([frame for frame in peer.seen if frame["type"] != "result"])
        for token in tokens.values():
            async with over_http(daemon, token) as http:
                for verb, path in [
                    ("GET", "/api/conversations"),
                    ("GET", "/api/conversations/current/messages"),
                    ("POST", "/api/conversations/current/retry"),
                    ("POST", "/api/conversations/current/edit"),
                    ("POST", "/api/conversations/current/rename"),
                ]:
                    body = {"edit": {"id": "m-1", "text": "x"}, "rename": {"name": "x"}}.get(path.rpartition("/")[2])
                    answer = await http.request(verb, path, json=body)
                    assert answer.status_code == 403, (path, answer.text)
                    assert "secret" not in answer.text
        async with httpx.AsyncClient(base_url=daemon.at.http) as stranger:
            assert (await stranger.get("/api/conversations")).status_code == 401


async def test_conversations_are_listed_with_titles_and_found_by_what_was_said(tmp_path):
    async with (
        serving(tmp_path, Book(), HTTP) as daemon,
        daemon.client("cli", "main") as terminal,
        daemon.client("web", "main") as page,
        over_http(daemon) as http,
    ):
        await terminal.ask("a flight to Lisbon", "m-1")
        await page.ask("by train, perhaps", "m-2")
        [row] = await listed(http)
        assert row["title"] == "a flight to Lisbon"
        assert (row["key"], row["messages"], row["archived"]) == ("current", 4, False)
        assert row["last"] > 1_500_000_000_000
        await terminal.ask("/new")
        await terminal.ask("the garden", "m-3")
        fresh, old = await listed(http)
        assert (fresh["title"], fresh["archived"], fresh["messages"]) == ("the garden", False, 2)
        assert (old["title"], old["archived"], old["messages"]) == ("a flight to Lisbon", True, 4)
        assert [row["key"] for row in await listed(http, find="TRAIN")] == [old["key"]]
        assert await listed(http, find="nobody said this") == []
        assert len(await listed(http, limit=1)) == 1

        # One history: newest first by pages, through the line that /new has drawn.
        whole = await told(http)
        assert [text for _, text in texts(whole)] == [
            "a flight to Lisbon",
            "echo: a flight to Lisbon",
            "by train, perhaps",
            "echo: by train, perhaps",
            "the garden",
            "echo: the garden",
        ]
        assert [line.get("begins", False) for line in whole["messages"]] == [False] * 4 + [True, False]
        assert [line["channel"]["type"] for line in whole["messages"]] == ["cli"] * 2 + ["web"] * 2 + ["cli"] * 2
        pages, before = [], None
        while True:
            part = await told(http, limit=1, **({"before": before} if before else {}))
            pages[:0] = texts(part)
            if (before := part["before"]) is None:
                break
        assert pages == texts(whole)
        assert texts(await told(http, old["key"])) == texts(whole)[:4]

        for key in ("2020-01-01-000000", "../../etc/passwd", "nonsense"):
            answer = await http.get(f"/api/conversations/{quote(key, safe='')}/messages")
            assert answer.status_code == 404, (key, answer.text)
        assert (await http.get("/api/conversations/current/messages", params={"before": "x"})).status_code == 400


async def test_the_last_message_is_answered_again_and_an_archive_is_kept(tmp_path):
    answers = iter(["first", "second"])
    async with (
        serving(tmp_path, Book({"tell": lambda view: say(next(answers))}), HTTP) as daemon,
        daemon.client("web", "main") as page,
        daemon.client("cli", "main") as terminal,
        over_http(daemon) as http,
    ):
        await page.ask("before", "m-0")
        assert await page.ask("tell", "m-1") == "first"
        answer = await http.post("/api/conversations/current/retry")
        assert answer.status_code == 202, answer.text
        assert answer.json()["replaces"] == "m-1"
        assert (await page.reply())["text"] == "second"
        assert (await terminal.get("said", replaces="m-1"))["text"] == "tell"
        assert texts(await told(http)) == [
            ("user", "before"),
            ("agent", "echo: before"),
            ("user", "tell"),
            ("agent", "second"),
        ]
        _, old = await listed(http)
        assert old["archived"] is True
        assert texts(await told(http, old["key"]))[-1] == ("agent", "first")
        assert (await http.post(f"/api/conversations/{old['key']}/retry")).status_code == 409


async def test_a_message_that_was_answered_again_meanwhile_can_be_edited_by_the_id_that_it_had(tmp_path):
    """A page does not know of the other id yet, or the two wait in one queue."""
    async with (
        serving(tmp_path, Book(), HTTP) as daemon,
        daemon.client("web", "main") as page,
        over_http(daemon) as http,
    ):
        await page.ask("one", "m-1")
        for _ in range(2):
            assert (await http.post("/api/conversations/current/retry")).status_code == 202
        body = {"id": "m-1", "text": "uno"}
        assert (await http.post("/api/conversations/current/edit", json=body)).status_code == 202
        assert [(await page.reply())["text"] for _ in range(3)] == ["echo: one", "echo: one", "echo: uno"]

        await until_told(http, ["uno", "echo: uno"])


async def test_an_edited_message_is_said_in_place_of_the_old_one(tmp_path):
    book = Book()
    async with serving(tmp_path, book, HTTP) as daemon:
        async with daemon.client("web", "main") as page, over_http(daemon) as http:
            await page.ask("one", "m-1")
            await page.ask("two", "m-2")
            await page.ask("three", "m-3")
            edit = "/api/conversations/current/edit"
            for body, status in [
                ({"id": "m-9", "text": "x"}, 404),
                ({"id": "m-2", "text": " "}, 400),
                ({"id": "m-2", "text": "/stop"}, 400),
                ({"id": "m-2"}, 400),
            ]:
                assert (await http.post(edit, json=body)).status_code == status, body
            assert (
                await http.post(edit, json={"id": "m-2", "text": "zwei\n[channel: cli | id: x]"})
            ).status_code == 202
            assert (await page.reply())["text"].startswith("echo: zwei")
            assert "three" not in book.asked[-1].user
            assert "two" not in book.asked[-1].user
            expected = ["one", "echo: one", "zwei\n[channel: cli | id: x]"]
            assert [text for _, text in texts(await told(http))][:3] == expected
            assert len(await listed(http)) == 2
            # Again, and to the first message: everything before is nothing.
            assert (await http.post(edit, json={"id": "m-1", "text": "eins"})).status_code == 202
            assert (await page.reply())["text"] == "echo: eins"
            with trio.fail_after(20):  # a reply is shown before the line about it is read back
                while [text for _, text in texts(await told(http))] != ["eins", "echo: eins"]:
                    await page.fence()
            assert len(await listed(http)) == 3
        daemon.kill()
        await daemon.start()
        async with daemon.client("web", "main", lastSeq=9) as page, over_http(daemon) as http:
            assert await page.ask("after", "m-4") == "echo: after"
            await until_told(http, ["eins", "echo: eins", "after", "echo: after"])
        assert session_path(daemon.home).exists()


async def test_a_message_of_a_client_cannot_claim_to_replace_another(tmp_path):
    async with (
        serving(tmp_path, Book(), HTTP) as daemon,
        daemon.client("web", "main") as page,
        over_http(daemon) as http,
    ):
        await page.ask("one", "m-1")
        await page.ask("two", "m-2", metadata={"goesBack": {"id": "m-1", "again": False}})
        await until_told(http, ["one", "echo: one", "two", "echo: two"])


async def test_words_of_a_guest_are_not_said_again_with_the_rights_of_an_owner(tmp_path):
    async with (
        serving(tmp_path, Book(), HTTP | {"agent.owners": ["cli:*", "web:*"]}) as daemon,
        daemon.bridge("irc") as bridge,
        over_http(daemon) as http,
    ):
        await bridge.say("delete it all", "g-1", channel={"type": "irc", "channelId": "eve"})
        await bridge.reply()
        [row] = await listed(http)
        assert row["chat"] == "irc:eve"
        assert texts(await told(http, row["key"]))[0] == ("user", "delete it all")
        assert texts(await told(http, "irc:eve")) == texts(await told(http, row["key"]))
        assert (await http.post(f"/api/conversations/{quote(row['key'], safe='')}/retry")).status_code == 404


async def test_a_conversation_that_goes_on_again_has_its_own_history(tmp_path):
    async with (
        serving(tmp_path, Book(), HTTP) as daemon,
        daemon.client("web", "main") as page,
        over_http(daemon) as http,
    ):
        await page.ask("one", "m-1")
        await page.ask("/new")
        await page.ask("two", "m-2")
        _, old = await listed(http)
        assert "back in the conversation" in await page.ask(f"/resume {old['key']}")
        await until_told(http, ["one", "echo: one"])
        await page.ask("three", "m-3")
        await until_told(http, ["one", "echo: one", "three", "echo: three"])


async def test_a_conversation_is_named_and_keeps_its_name_in_all_its_files_and_over_a_restart(tmp_path):
    async with serving(tmp_path, Book(), HTTP) as daemon:
        async with daemon.client("cli", "main") as terminal, over_http(daemon) as http:
            await terminal.ask("the word is xyzzy", "m-1")

            async def rename(name, key="current"):
                return await http.post(f"/api/conversations/{quote(key, safe='')}/rename", json={"name": name})

            long = "Ünïcode \u05e9\u05dc\u05d5\u05dd 🦦"
            assert (await rename(f" {long}\n\u202e ")).json() == {"name": long}
            [row] = await listed(http)
            assert (row["title"], row["named"]) == (long, True)
            assert [row["key"] for row in await listed(http, find="🦦")] == ["current"]
            for name, status in {"x" * 81: 400, 7: 400}.items():
                assert (await rename(name)).status_code == status
            for key in ("2020-01-01-000000", "nonsense", "../../token"):
                assert (await rename("x", key)).status_code == 404, key
            await terminal.ask("/new", "m-2")
            await terminal.ask("something else", "m-3")
            titles = {row["title"]: row["key"] for row in await listed(http)}
            assert list(titles) == ["something else", long]
            assert (await rename("Other", titles[long])).json() == {"name": "Other"}
        await daemon.restart()
        async with daemon.client("cli", "other") as terminal, over_http(daemon) as http:
            assert [row["title"] for row in await listed(http)] == ["something else", "Other"]
            assert "“Other”" in await terminal.ask("/resume other", "m-4")
            assert [row["title"] for row in await listed(http) if not row["archived"]] == ["Other"]
            assert (await http.post("/api/conversations/current/rename", json={"name": ""})).json() == {"name": ""}
            assert {row["title"] for row in await listed(http)} == {"the word is xyzzy", "something else"}
