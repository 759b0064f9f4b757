"""What models cost, seen from outside: counted over restarts, told, and limited; and models that are changed or dead."""

from __future__ import annotations

import json

import httpx

from pegasus.testing.provider import open_provider
from tests.blackbox.support import Book, serving, until

PRICED = {'prices."test/model-1".input': 1000.0, 'prices."test/model-1".output': 1000.0}


async def used(client):
    return (await client.call("usage"))["today"]


async def test_calls_are_counted_and_still_known_after_a_restart(tmp_path):
    async with serving(tmp_path, Book(), PRICED) as daemon:
        async with daemon.client() as client:
            await client.ask("one")
            await client.ask("two")
            before = await used(client)
            assert before["calls"] == 2
            assert before["cost"] > 0
        await daemon.stop()
        await daemon.start()
        async with daemon.client() as client:
            assert await used(client) == before


async def test_an_openai_client_is_told_what_its_turn_has_used(tmp_path):
    async with serving(tmp_path, Book(), {"http.enabled": True, "http.port": 0}) as daemon, daemon.client() as client:
        await client.ask("something else before")
        before = (await client.call("usage"))["today"]
        request = {"model": "pegasus", "messages": [{"role": "user", "content": "hello"}]}
        async with httpx.AsyncClient(base_url=daemon.at.http, timeout=20) as http:
            headers = {"authorization": f"Bearer {daemon.token}"}
            told = (await http.post("/v1/chat/completions", json=request, headers=headers)).json()["usage"]
        after = (await client.call("usage"))["today"]
        assert told["prompt_tokens"] == after["promptTokens"] - before["promptTokens"] > 0
        assert told["completion_tokens"] == after["completionTokens"] - before["completionTokens"] > 0
        assert told["total_tokens"] == told["prompt_tokens"] + told["completion_tokens"]


async def test_pegasus_status_tells_what_today_has_cost(tmp_path):
    async with serving(tmp_path, Book(), {**PRICED, "budget.daily_cost": 500.0}) as daemon, daemon.client() as client:
        await client.ask("hello")
        shown = await daemon.command("status")
        assert "Today    1 call, " in shown.out
        assert "of $500.00 used" in shown.out


async def test_a_budget_refuses_a_call_before_it_is_made_and_says_so(tmp_path):
    book = Book()
    async with serving(tmp_path, book, {**PRICED, "budget.daily_cost": 0.5}) as daemon, daemon.client() as client:
        answer = await client.ask("hello")
        assert "budget.daily_cost" in answer
        assert "limit $0.50 today" in answer
        assert book.asked == []
        daemon.configure(budget__daily_cost=500.0)
        await client.call("config.reload")
        assert await client.ask("hello again") == "echo: hello again"


async def test_a_restart_is_no_way_around_a_budget(tmp_path):
    book = Book()
    async with serving(tmp_path, book, {"budget.daily_tokens": 100_000}) as daemon:
        month = daemon.home / "data" / "usage"
        async with daemon.client() as client:
            assert await client.ask("hello") == "echo: hello"
        await daemon.stop()
        [file] = month.iterdir()
        line = json.loads(file.read_text())
        file.write_text(json.dumps({**line, "promptTokens": 99_999}) + "\n")
        await daemon.start()
        async with daemon.client() as client:
            assert "budget.daily_tokens" in await client.ask("hello")
        assert len(book.asked) == 1


async def test_a_dead_first_model_costs_nobody_a_turn(tmp_path):
    async with open_provider() as dead:
        url = f"{dead.url}/v1"
    settings = {
        "models.default": "dead/x",
        "models.fallback": ["test/model-1"],
        "models.breaker_failures": 1,
        "providers.dead.type": "openai",
        "providers.dead.base_url": url,
    }
    async with serving(tmp_path, Book(), settings) as daemon, daemon.client() as client:
        for text in ("one", "two"):
            assert await client.ask(text) == f"echo: {text}"
        [failing] = (await client.call("status"))["failingModels"]
        assert (failing["model"], failing["breaker"]) == ("dead/x", "open")
        await until(lambda: "dead/x" in daemon.stderr, "a line in the log")


async def test_a_rule_sends_calls_to_another_model(tmp_path):
    rules = {"models.routes.long.model": "test/model-2", "models.routes.long.min_tokens": 20_000}
    async with serving(tmp_path, book := Book(), rules) as daemon, daemon.client() as client:
        await client.ask("hello")
        await client.ask("a long story " * 8000)
        assert [view.body["model"] for view in book.asked] == ["model-1", "model-2"]
        models = {each["model"]: each["calls"] for each in (await client.call("usage"))["models"]}
        assert models == {"test/model-1": 1, "test/model-2": 1}
