"""Local model servers: found at their addresses, recognised by what they tell, and never waited for."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import pytest
import trio

from pegasus.models.providers import LocalModel, ServerWantsKey, find_local_models, find_offers_at
from pegasus.models.providers.connections import is_local_address
from pegasus.models.providers.local_servers import describe_models, ollama_root
from pegasus.settings import Settings
from pegasus.testing.provider import ProviderServer, open_provider
from pegasus.testing.provider.answers import refuse
from pegasus.testing.provider.ollama import OllamaHost, OllamaModel

NOBODY = "http://127.0.0.1:1"
NOWHERE = {"ollama": NOBODY, "llamacpp": NOBODY, "lmstudio": NOBODY}
LLAMA_PAGES: dict[str, Any] = {
    "/props": {
        "default_generation_settings": {"n_ctx": 2048, "params": {}},
        "total_slots": 2,
        "modalities": {"vision": False},
        "chat_template_caps": {"supports_tools": True},
    },
    "/v1/models": {
        "object": "list",
        "data": [
            {"id": "/home/ann/Small-Q4.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 4096, "n_ctx_train": 8192}}
        ],
    },
}
STUDIO_PAGES: dict[str, Any] = {
    "/v1/models": {"data": [{"id": "qwen3-4b"}, {"id": "gemma"}, {"id": "nomic-embed"}], "object": "list"},
    "/api/v0/models": {
        "data": [
            {"id": "gemma", "type": "vlm", "state": "not-loaded", "max_context_length": 131072},
            {
                "id": "qwen3-4b",
                "type": "llm",
                "state": "loaded",
                "max_context_length": 40960,
                "loaded_context_length": 8192,
                "capabilities": ["tool_use"],
            },
            {"id": "nomic-embed", "type": "embeddings", "state": "not-loaded", "max_context_length": 2048},
        ]
    },
}


async def test_models_of_ollama_are_described() -> None:
    host = OllamaHost(
        OllamaModel("nomic-embed-text", 2048, ("embedding",)),
        OllamaModel("gemma3:1b", 32_768, ("completion", "vision"), num_ctx=8192),
        OllamaModel("qwen3:8b", 40_960, ("completion", "tools", "thinking")),
        OllamaModel("old:7b", 4096, ()),
    )
    async with open_provider(ollama=host) as server:
        found = await find_local_models({**NOWHERE, "ollama": f"{server.url}/v1/"})
    assert [model.spec for model in found] == ["ollama/qwen3:8b", "ollama/gemma3:1b", "ollama/old:7b"]
    assert found[0] == LocalModel("ollama", "qwen3:8b", "Ollama", server.url, 40_960, has_tools=True)
    assert (found[1].has_tools, found[1].default_window) == (False, 8192)
    assert found[2].has_tools is False


async def test_llama_cpp_tells_the_window_of_one_request_and_is_named_by_its_file() -> None:
    async with open_provider() as server:
        server.pages = LLAMA_PAGES
        found = await find_local_models({**NOWHERE, "llamacpp": server.openai_url})
    assert found == [
        LocalModel(
            "llamacpp", "Small-Q4.gguf", "llama.cpp", server.openai_url, 2048,
            has_tools=True, is_loaded=True,
        )
    ]  # fmt: skip


async def test_lm_studio_tells_the_window_of_loaded_models_only() -> None:
    async with open_provider() as server:
        server.pages = STUDIO_PAGES
        found = await find_local_models({**NOWHERE, "lmstudio": server.openai_url})
    assert [(model.spec, model.server, model.context_window, model.has_tools) for model in found] == [
        ("lmstudio/qwen3-4b", "LM Studio", 8192, True),
        ("lmstudio/gemma", "LM Studio", 0, None),
    ]


async def test_vllm_is_recognised_behind_an_address() -> None:
    async with open_provider() as server:
        server.pages = {
            "/v1/models": {"data": [{"id": "a"}, {"id": "org/b", "owned_by": "vllm", "max_model_len": 16_384}]}
        }
        found = await describe_models("lab", server.openai_url, is_ollama=False, model="org/b")
    assert [(model.spec, model.server, model.context_window) for model in found] == [("lab/org/b", "vLLM", 16_384)]


async def test_a_server_that_is_not_recognised_is_not_used_by_itself() -> None:
    async with open_provider() as server:
        server.pages = {"/v1/models": {"data": [{"id": "a"}]}}
        assert await find_local_models({**NOWHERE, "llamacpp": server.openai_url}) == []


async def test_the_models_of_all_servers_come_with_the_best_first() -> None:
    host = OllamaHost(OllamaModel("plain", 8192, ("completion",)))
    async with open_provider(ollama=host) as ollama, open_provider() as studio:
        studio.pages = STUDIO_PAGES
        found = await find_local_models({**NOWHERE, "ollama": ollama.url, "lmstudio": studio.openai_url})
    assert [model.spec for model in found] == ["lmstudio/qwen3-4b", "lmstudio/gemma", "ollama/plain"]


async def test_no_server_is_no_model() -> None:
    assert await find_local_models(NOWHERE) == []


async def test_an_address_in_the_internet_is_not_asked(server: ProviderServer) -> None:
    assert await find_local_models({**NOWHERE, "ollama": "https://ollama.example.com"}) == []


async def test_a_server_that_does_not_answer_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    listening = socket.create_server(("127.0.0.1", 0))  # the kernel accepts, nobody answers
    with listening:
        began = trio.current_time()
        assert await find_local_models({**NOWHERE, "ollama": f"http://127.0.0.1:{listening.getsockname()[1]}"}) == []
        assert trio.current_time() - began <= 3


@pytest.mark.parametrize(
    "page",
    [
        [1, 2],
        "text",
        {"data": 7},
        {"data": [None, {"id": None}, {"id": ["x"]}]},
        {"data": [{"id": "x", "max_model_len": -4}]},
    ],
)
async def test_nonsense_is_no_model(page: Any) -> None:
    async with open_provider() as server:
        server.pages = {"/v1/models": page, "/props": page, "/api/v0/models": page, "/api/tags": page}
        for name in ("llamacpp", "ollama"):
            for model in await describe_models(name, server.openai_url, is_ollama=name == "ollama"):
                assert model.context_window == 0


async def test_a_refusal_is_no_model() -> None:
    async with open_provider(lambda request: refuse(500), ollama=OllamaHost()) as server:
        assert await describe_models("ollama", server.url, is_ollama=True, model="missing") == []


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://localhost:11434", True),
        ("http://127.0.0.1:8080/v1", True),
        ("http://[::1]:1", True),
        ("http://10.1.2.3", True),
        ("http://172.20.0.2:8000", True),
        ("http://100.101.1.2:11434", True),
        ("http://[fe80::1%eth0]:1/", True),
        ("http://gpubox:8000/v1", True),
        ("http://host.docker.internal:11434", True),
        ("http://mac.local.:1234", True),
        ("https://api.openai.com/v1", False),
        ("http://8.8.8.8", False),
        ("https://local.example.com", False),
        ("", False),
        ("http://[broken", False),
    ],
)
def test_addresses_of_ones_own_are_known(address: str, expected: bool) -> None:
    assert is_local_address(address) is expected


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "/api", "/api//"])
def test_ollamas_address_may_end_in_any_usual_way(end: str) -> None:
    assert ollama_root(f"http://localhost:11434{end}") == "http://localhost:11434"
    assert ollama_root(f"https://example.org/ollama{end}") == "https://example.org/ollama"


@pytest.mark.parametrize("told", [1, 0, -1, 10**18, "4096", True, 4096.5, None, [4096]])
async def test_a_window_that_cannot_be_one_is_not_believed(told: object) -> None:
    """With a window of one token nothing could ever be said."""
    pages: dict[str, Any] = {"/v1/models": {"data": [{"id": "liar", "max_model_len": told}]}}
    async with open_provider() as server:
        server.pages = pages
        [found] = await describe_models("local", f"{server.url}/v1", False)
    assert (found.server, found.context_window) == ("vLLM", 0)


async def test_a_server_that_wants_a_key_says_so() -> None:
    async def answer(connection: trio.SocketStream) -> None:
        asked = await connection.receive_some(4096)
        status = b"200 OK" if b"Bearer sk-lab" in asked else b"401 Unauthorized"
        body = b'{"data": [{"id": "echo"}]}'
        await connection.send_all(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        with pytest.raises(ServerWantsKey):
            await find_offers_at(url, Settings())
        with pytest.raises(ServerWantsKey):
            await find_offers_at(url, Settings(), "sk-wrong")
        [offer] = await find_offers_at(url, Settings(), "sk-lab")
        nursery.cancel_scope.cancel()
    assert offer.spec == "server/echo"
    assert offer.section == {"type": "openai", "base_url": f"{url}/v1", "api_key": "sk-lab"}
    assert await find_offers_at("http://127.0.0.1:1", Settings()) == []
