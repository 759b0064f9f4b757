"""A conversation of its own for each chat, in the real process: models, lists of sessions, budgets, power failures."""

from __future__ import annotations

import json

import httpx

from tests.blackbox.support.serving import Book, serving

CHATS = {"agent.scope": "chat", "http.enabled": True, "http.port": 0}


async def test_a_model_that_is_chosen_in_a_chat_answers_there_alone_also_after_a_kill(tmp_path):
    book = Book()
    async with serving(tmp_path, book, CHATS) as daemon:
        async with daemon.client("cli", "one") as one, daemon.client("cli", "two") as two:
            assert "Now using test/model-2" in await one.ask("/model test/model-2")
            assert "model-2" not in await two.ask("/model")
            assert "nobody" in await two.ask("/model nobody/x")
        daemon.kill()
        await daemon.start()
        async with daemon.client("cli", "one", lastSeq=9) as one, daemon.client("cli", "two", lastSeq=9) as two:
            models = {}
            for client, name in ((one, "one"), (two, "two")):
                await client.ask(f"hello from {name}")
                models[name] = book.asked[-1].body["model"]
                assert f"Model: test/{models[name]}" in await client.ask("/status")
            assert models == {"one": "model-2", "two": "model-1"}
            await one.ask("/model default")
            await one.ask("hello again")
            assert book.asked[-1].body["model"] == "model-1"


async def test_the_sessions_of_all_chats_are_listed_and_shown_whether_or_not_it_runs(tmp_path):
    book = Book()
    async with serving(tmp_path, book, CHATS) as daemon:
        async with daemon.client("cli", "c/1") as one, daemon.client("cli", "two") as two:
            await one.ask("the first word")
            await one.ask("/new")
            await one.ask("the second word")
            await two.ask("something else")
        token = (daemon.home / "token").read_text().strip()
        async with httpx.AsyncClient(base_url=daemon.at.http, headers={"Authorization": f"Bearer {token}"}) as http:
            page = (await http.get("/api/sessions?chat=c/1&limit=1")).json()
            assert (page["sessions"][0]["chat"], page["total"], page["next"]) == ("cli:c/1", 2, 1)
            shown = (await http.get(f"/api/sessions/{page['sessions'][0]['file'].replace('%', '%25')}")).json()
            assert "the second word" in json.dumps(shown["lines"])
            assert shown["chat"] == "cli:c/1"
        for is_running in (True, False):
            listed = json.loads((await daemon.command("sessions", "list", "--json")).out)["sessions"]
            assert sorted((row["chat"], row["archive"]) for row in listed) == [
                ("cli:c/1", False),
                ("cli:c/1", True),
                ("cli:two", False),
            ]
            shown = await daemon.command("sessions", "show", "cli:c/1")
            assert "the second word" in shown.out
            assert "something else" not in shown.out
            if is_running:
                daemon.kill()


async def test_what_one_chat_has_spent_the_others_cannot_spend_again(tmp_path):
    book = Book()
    async with serving(tmp_path, book, {**CHATS, "budget.daily_tokens": 100_000}) as daemon:
        async with daemon.client("cli", "one") as one:
            await one.ask("hello")
        await daemon.stop()
        [file] = (daemon.home / "data" / "usage").iterdir()
        file.write_text(json.dumps({**json.loads(file.read_text()), "promptTokens": 99_999}) + "\n")
        await daemon.start()
        async with daemon.client("cli", "two") as two:
            assert "budget.daily_tokens" in await two.ask("hello")
        assert len(book.asked) == 1
