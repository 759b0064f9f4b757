"""The control plane behind the command line: status, tree, stop, config.reload."""

from __future__ import annotations

import json
import os

from tests.blackbox.support import HANG, Book, serving


async def test_status(stage, name):
    async with stage.play(book := Book({"a long thought": HANG}), name) as daemon, daemon.client() as client:
        idle = await client.call("status")
        assert idle["model"] == "test/model-1"
        assert idle["waiting"] == 0
        await client.say("a long thought")
        await client.say("next")
        await book.reached(1)
        busy = await client.call("status")
        assert "a long thought" in json.dumps(busy)
        assert busy["waiting"] == 2


async def test_tree_shows_every_actor(shared, name):
    async with shared.client("web", name) as client:
        text = json.dumps(await client.call("tree"))
    for actor in ("journal", "main-agent", "channels", "gateway"):
        assert actor in text


async def test_stop_with_nothing_to_stop(shared, name):
    async with shared.client("web", name) as client:
        assert (await client.call("stop"))["ended"] == []


async def test_a_call_does_not_wait_for_the_model(stage, name):
    async with stage.play(book := Book({"a long thought": HANG}), name) as daemon, daemon.client() as client:
        await client.say("a long thought")
        await book.reached(1)
        for method in ("status", "tree"):
            await client.call(method, timeout=5)


async def test_calls_are_answered_to_the_one_who_asked(shared, name):
    async with shared.client("web", name) as one, shared.client("web", name) as two:
        await one.call("status")
        await two.fence()
        assert sum(frame["type"] == "result" for frame in two.seen) == 1


async def test_reload_takes_a_new_model_at_once(tmp_path):
    async with serving(tmp_path, book := Book()) as daemon, daemon.client() as client:
        await client.ask("one")
        daemon.configure(models__default="test/model-2")
        result = await client.call("config.reload")
        assert "models.default" in json.dumps(result)
        await client.ask("two")
        assert [view.body["model"] for view in book.asked] == ["model-1", "model-2"]


async def test_reload_of_a_file_with_a_mistake_changes_nothing(tmp_path):
    async with serving(tmp_path, Book()) as daemon, daemon.client() as client:
        daemon.configure(models__timeout="soon")
        await client.send({"type": "call", "id": "r", "method": "config.reload", "params": {}})
        error = await client.get("error", id="r")
        assert "models.timeout" in error["message"]
        assert await client.ask("hello") == "echo: hello"


async def test_the_daemon_says_which_process_it_is(tmp_path):
    async with serving(tmp_path, Book()) as daemon:
        assert daemon.at.pid == daemon.pid != os.getpid()
