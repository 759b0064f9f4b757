"""A local model: found without a word in the settings, asked in Ollama's own format, and its window learned."""

from __future__ import annotations

import json

from pegasus.testing.provider import open_provider
from pegasus.testing.provider.answers import Call, ProviderAnswer
from pegasus.testing.provider.ollama import OllamaHost, OllamaModel, prompt_tokens
from tests.blackbox.support import SILENCE, Book, Thought, reply, say, thinks_with
from tests.blackbox.support.daemon import Daemon

ZONES = "what time is it?"


async def test_a_model_is_found_and_uses_a_tool_and_is_used_after_a_restart(tmp_path):
    book = Book({ZONES: [Thought("Let me look.", (Call("current_time", {}),)), Thought(calls=(reply("It is late."),))]})
    nothing = OllamaModel("nomic-embed-text", 2048, ("embedding",))
    host = OllamaHost(nothing, OllamaModel("qwen3:8b", 20_480, ("completion", "tools", "vision")))
    async with open_provider(book, ollama=host) as server:
        daemon = Daemon(tmp_path / "home", env={"OLLAMA_BASE_URL": f"{server.url}/v1/"})
        await daemon.start()
        async with daemon.client() as client:
            assert await client.ask(ZONES) == "It is late."
            asked = server.requests[-1]
            assert asked.raw["options"]["num_ctx"] == 20_480
            assert asked.format == "ollama"
            assert "current_time" in asked.tools
            assert "ollama/qwen3:8b" in await client.ask("/model")
            assert "nomic" not in await client.ask("/model")
        await daemon.restart()
        async with daemon.client("web", "c2") as client:
            assert await client.ask("again") == "echo: again"
        assert host.loads == 1
        assert server.invalid == []
    daemon.kill()


async def test_a_refusal_that_names_the_window_makes_the_prompt_lean_in_the_same_turn_and_after_a_restart(tmp_path):
    window = 3000
    book = Book()

    async def small(request):
        if (tokens := prompt_tokens(request.raw)) > window:
            error = {
                "code": 400,
                "message": f"request ({tokens} tokens) exceeds the available context size ({window} tokens)",
            }
            error |= {"type": "exceed_context_size_error", "n_prompt_tokens": tokens, "n_ctx": window}
            return ProviderAnswer(
                status=400, body=json.dumps({"error": error}).encode(), content_type="application/json"
            )
        return await book(request)

    async with open_provider(small) as server:
        daemon = Daemon(tmp_path / "home", {**thinks_with(server.url), "models.context_window": 100_000})
        await daemon.start()
        async with daemon.client() as client:
            assert await client.ask("hello") == "echo: hello"
            full, lean = server.requests[0], server.requests[1]
            assert prompt_tokens(full.raw) > window > prompt_tokens(lean.raw)
            assert 0 < len(lean.tools) < len(full.tools)
        await daemon.restart()
        before = server.count
        async with daemon.client("web", "c2") as client:
            assert await client.ask("once more") == "echo: once more"
        assert all(prompt_tokens(request.raw) < window for request in list(server.requests)[before:])
        assert server.invalid == []
    daemon.kill()


async def test_the_owner_is_told_of_a_server_that_cuts_the_prompt(tmp_path):
    """An old Ollama, which knows no `truncate`, and a window that somebody has set too large for it."""
    host = OllamaHost(OllamaModel("old", 4096), truncates=True)
    settings = {"models.default": "ollama/old", "models.context_window": 15_000}
    book = Book(otherwise=lambda view: SILENCE if view.replied else say("ok"))
    async with open_provider(book, ollama=host) as server:
        daemon = Daemon(tmp_path / "home", settings, env={"OLLAMA_BASE_URL": server.url})
        await daemon.start()
        async with daemon.client("cli", "main") as client:
            await client.say("some words that mean nothing at all " * 700)
            texts = {(await client.reply())["text"] for _ in range(2)}
            (notice,) = texts - {"ok"}
            assert "dropped the rest without saying so. I keep to 4,096 tokens from now on" in notice
        assert host.cut
        assert server.invalid == []
    daemon.kill()
