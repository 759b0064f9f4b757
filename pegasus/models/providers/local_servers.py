"""Model servers on the user's own machine or network: which are running, which models they have, how large their windows are.

Three programs are looked for at their usual addresses: Ollama, llama.cpp and LM Studio. `find_local_models` asks all of them at the
same time and returns the models that can hold a conversation, the best one first:

    models = await find_local_models()
    models[0].spec, models[0].server, models[0].context_window  # "ollama/qwen3:8b", "Ollama", 40960

`describe_models` asks one server, whose address the settings give. It recognises vLLM as well. What each server tells about a model:

* Ollama: `GET /api/tags` lists the models; `POST /api/show` tells the model's own limit (`model_info`,
  "<architecture>.context_length") and its capabilities. How many tokens it really takes is the client's choice (`options.num_ctx`,
  see `ollama.py`). https://docs.ollama.com/api/tags, https://docs.ollama.com/api-reference/show-model-details
* llama.cpp: `GET /props` has the window of one request (`default_generation_settings.n_ctx`). The number in `/v1/models` may be the
  sum over all slots, so it only counts where there is no other.
  https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
* LM Studio: `GET /api/v0/models` has `loaded_context_length` of loaded models, and their largest possible window
  (`max_context_length`). https://lmstudio.ai/docs/developer/rest/endpoints
* vLLM: `GET /v1/models` has `max_model_len`. https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html

Nothing here raises or takes longer than two seconds: a server that does not answer, or answers nonsense, has no models. A port is
tried by a plain TCP connection first, so that a machine without local models does not even pay for importing an HTTP client.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlsplit

import attrs
import trio

from pegasus.messages import Json
from pegasus.models.providers.connections import is_local_address, read_at_most

_CONNECT_TIMEOUT: Final = 0.5
"""Seconds to connect to a port of this machine."""
_PATIENCE: Final = 2.0
"""Seconds for everything that one server is asked."""
_LARGEST_BODY: Final = 4 * 1024 * 1024
"""Bytes of one description. `/api/show` contains licences and templates."""
_MOST_MODELS: Final = 40
"""Models of one server that are described."""
SMALLEST_WINDOW: Final = 256
_LARGEST_WINDOW: Final = 1 << 26
"""Bounds of a window, in tokens, that is taken for true. A smaller number is about something else, or stands for "not known"."""


@attrs.frozen(eq=False, repr=False)
class LocalServer:
    """Program that serves models on the user's own machine."""

    provider: str
    """Provider in the settings, before the "/" of a model's name."""
    name: str
    """Name for people."""
    base_url: str
    """Usual address, as `base_url` of the provider."""


LOCAL_SERVERS: Final = (
    LocalServer("ollama", "Ollama", "http://localhost:11434"),
    LocalServer("llamacpp", "llama.cpp", "http://localhost:8080/v1"),
    LocalServer("lmstudio", "LM Studio", "http://localhost:1234/v1"),
)
"""In the order in which their models are preferred."""


@attrs.frozen
class LocalModel:
    """Model of a server, as the server describes it."""

    provider: str
    """Provider in the settings, before the "/" of the model's name."""
    name: str
    """Name of the model at its server."""
    server: str
    """Program that serves it: "Ollama", "llama.cpp", "LM Studio", "vLLM", or "" if it is another one."""
    base_url: str
    """Address of the server, as `base_url` of a provider."""
    context_window: int = 0
    """Tokens that fit into it; for Ollama the largest number that can be asked for. 0 if the server does not say."""
    default_window: int = 0
    """Window that was set for this model at Ollama (`num_ctx` in its Modelfile); 0 for none."""
    has_tools: bool | None = None
    """True if it can call tools; None if the server does not say."""
    is_chat: bool = True
    """False for models that cannot hold a conversation: embeddings, rerankers."""
    is_remote: bool = False
    """True for models that the server passes on to a service elsewhere (Ollama's cloud models, which need an account)."""
    is_loaded: bool = False
    """True if the server has it in memory."""

    @property
    def spec(self) -> str:
        """`<provider>/<model>` for the settings."""
        return f"{self.provider}/{self.name}"


# ------------------------------------------------------------------ finding


async def find_local_models(base_urls: Mapping[str, str] | None = None) -> list[LocalModel]:
    """Return the models of the local servers that answer, the best one for a conversation first.

    Takes at most two seconds and never raises.

    base_urls: addresses by provider that replace the usual ones; "" for the usual one. An address elsewhere than on this machine or a
    private network is not asked.

    Models that can call tools come first, those of which it is not known next; among them those in memory, then in the order of the
    servers. Models that are passed on to a service elsewhere come last. Models that only make embeddings are left out.
    """
    given = base_urls or {}
    servers = [attrs.evolve(server, base_url=given.get(server.provider) or server.base_url) for server in LOCAL_SERVERS]
    found: dict[str, list[LocalModel]] = {}

    async def ask(server: LocalServer) -> None:
        """Ask a server for its models, if something listens there."""
        if is_local_address(server.base_url) and await _is_listening(server.base_url):
            found[server.provider] = await describe_models(
                server.provider, server.base_url, server.provider == "ollama"
            )

    async with trio.open_nursery() as nursery:
        for server in servers:
            nursery.start_soon(ask, server)
    models = [model for server in servers for model in found.get(server.provider, ())]
    # A program that happens to listen on a usual port is only used if it is recognised.
    chat = [model for model in models if model.is_chat and model.server]
    rank = {True: 0, None: 1, False: 2}
    return sorted(chat, key=lambda model: (model.is_remote, rank[model.has_tools], not model.is_loaded))


async def _is_listening(base_url: str) -> bool:
    """Return whether a connection to the address can be made."""
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        with trio.move_on_after(_CONNECT_TIMEOUT):
            stream = await trio.open_tcp_stream(host, port)
            await stream.aclose()
            return True
    except (OSError, ValueError):
        pass
    return False


# ------------------------------------------------------------------ asking one server


async def describe_models(
    provider: str, base_url: str, is_ollama: bool, *, model: str = "", key: str = ""
) -> list[LocalModel]:
    """Return the models of a server. Takes at most two seconds; never raises.

    is_ollama: speak Ollama's own API; otherwise the server speaks OpenAI's, and is recognised by what it tells. model: the only one to
    describe, "" for all. key: sent as a bearer token if it is not empty.
    """
    models: list[LocalModel] = []
    with trio.move_on_after(_PATIENCE):
        async with _open_server(base_url, key) as server:
            describe = _describe_ollama if is_ollama else _describe_openai
            models = await describe(server, provider, base_url.rstrip("/"), model)
    return models


async def refuses_key(base_url: str, key: str) -> bool:
    """Return whether a server in OpenAI's format does not tell its models with this key, "" for none. Takes at most two seconds."""
    with trio.move_on_after(_PATIENCE):
        async with _open_server(base_url, key) as server:
            await server.get(f"{base_url.rstrip('/')}/models")
            return server.status in (401, 403)
    return False


@asynccontextmanager
async def _open_server(base_url: str, key: str) -> AsyncIterator[_Server]:
    """Open a client for a server. key: sent as a bearer token if it is not empty."""
    httpx = await trio.to_thread.run_sync(importlib.import_module, "httpx2")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    # Proxies of the environment are for the world outside; certificates cost 50 ms to load.
    verify = base_url.startswith("https")
    async with httpx.AsyncClient(trust_env=False, verify=verify, headers=headers, timeout=_PATIENCE) as client:
        yield _Server(client, httpx.HTTPError, httpx.InvalidURL)


class _Server:
    """JSON over HTTP from a server that may not be there. client: of httpx; errors: what it raises."""

    def __init__(self, client: Any, *errors: type[BaseException]) -> None:
        self.status = 0
        """Status of the last answer, 0 before there is one."""
        self._client = client
        self._errors: tuple[type[BaseException], ...] = (*errors, ValueError, RecursionError)

    async def get(self, url: str, body: Json = None) -> Mapping[str, Any]:
        """Return the JSON object at an address, {} if there is none. body: sent by POST."""
        try:
            method = "GET" if body is None else "POST"
            async with self._client.stream(method, url, json=body) as response:
                self.status = response.status_code
                if response.status_code != 200:
                    return {}
                data = await read_at_most(response, _LARGEST_BODY)
            value = json.loads(data)
        except self._errors:
            return {}
        return value if isinstance(value, dict) else {}

    async def get_all(self, *addresses: tuple[str, Json]) -> list[Mapping[str, Any]]:
        """Return the JSON objects at several addresses, asked at the same time."""
        answers: list[Mapping[str, Any]] = [{} for _ in addresses]

        async def ask(index: int, url: str, body: Json) -> None:
            """Put the answer of an address into its place."""
            answers[index] = await self.get(url, body)

        async with trio.open_nursery() as nursery:
            for index, (url, body) in enumerate(addresses):
                nursery.start_soon(ask, index, url, body)
        return answers


def _rows(answer: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    rows = answer.get(key)
    return [row for row in rows if isinstance(row, Mapping)][:_MOST_MODELS] if isinstance(rows, list) else []


def _window(*candidates: object) -> int:
    """Return the first of these that can be a window, 0 if none can."""
    sizes = (value for value in candidates if type(value) is int and SMALLEST_WINDOW <= value <= _LARGEST_WINDOW)
    return next(sizes, 0)


# ------------------------------------------------------------------ Ollama


def ollama_root(base_url: str) -> str:
    """Return the address that Ollama's paths begin at. People write it with and without `/v1`, `/api` or a slash at the end."""
    return re.sub(r"(/v1|/api)?/*$", "", base_url)


async def _describe_ollama(server: _Server, provider: str, base_url: str, model: str) -> list[LocalModel]:
    root = ollama_root(base_url)
    rows: list[Mapping[str, Any]] = [{"name": model}]
    if not model:
        rows = _rows(await server.get(f"{root}/api/tags"), "models")
    names = [str(row.get("name") or row.get("model") or "") for row in rows]
    shown = await server.get_all(*((f"{root}/api/show", {"model": name}) for name in names))
    return [
        _ollama_model(provider, name, root, row, details)
        for name, row, details in zip(names, rows, shown, strict=True)
        if name and (details or not model)
    ]


def _ollama_model(
    provider: str, name: str, root: str, row: Mapping[str, Any], details: Mapping[str, Any]
) -> LocalModel:
    """Return a model by its row in the list and its description. Servers before 0.6 do not tell capabilities; their templates do."""
    info = details.get("model_info")
    info = info if isinstance(info, Mapping) else {}
    sizes = (value for key, value in info.items() if key.endswith(".context_length"))
    chosen = re.search(r"(?m)^num_ctx\s+(\d{1,9})\b", str(details.get("parameters") or ""))
    listed = details.get("capabilities")
    can: dict[str, bool] = {}
    if isinstance(listed, list) and listed:
        can = {word: word in listed for word in ("completion", "tools")}
    elif isinstance(details.get("template"), str):
        can = {"tools": ".Tools" in details["template"]}
    return LocalModel(
        provider,
        name,
        "Ollama",
        root,
        context_window=_window(*sizes),
        default_window=_window(int(chosen[1])) if chosen else 0,
        has_tools=can.get("tools"),
        is_chat=can.get("completion", True),
        is_remote=bool(row.get("remote_host") or details.get("remote_host")),
    )


# ------------------------------------------------------------------ servers that speak OpenAI's format


async def _describe_openai(server: _Server, provider: str, base_url: str, model: str) -> list[LocalModel]:
    """Return the models of llama.cpp, LM Studio, vLLM, or another server that speaks OpenAI's format.

    A llama.cpp that serves several models tells the window of one only if it is named.
    """
    root = base_url.removesuffix("/v1")
    named = f"?model={quote(model, safe='')}" if model else ""
    listed, props, studio = await server.get_all(
        (f"{base_url}/models", None), (f"{root}/props{named}", None), (f"{root}/api/v0/models", None)
    )
    studio_rows = {
        str(row.get("id")): row for row in _rows(studio, "data") if "max_context_length" in row or "type" in row
    }
    models = []
    for row in _rows(listed, "data"):
        identifier = str(row.get("id") or "")
        if identifier in studio_rows:
            models.append(_studio_model(provider, base_url, studio_rows[identifier]))
        elif identifier:
            models.append(_openai_model(provider, base_url, row, props))
    return [found for found in models if not model or found.name == model] or (models[:1] if len(models) == 1 else [])


def _openai_model(provider: str, base_url: str, row: Mapping[str, Any], props: Mapping[str, Any]) -> LocalModel:
    """Return a model of llama.cpp, vLLM or an unknown server."""
    name = str(row["id"])
    generation, meta = props.get("default_generation_settings"), row.get("meta")
    generation = generation if isinstance(generation, Mapping) else {}
    meta = meta if isinstance(meta, Mapping) else {}
    program = ""
    if generation or row.get("owned_by") == "llamacpp":
        program = "llama.cpp"
        # It is named after its file, with the whole path; a server with a single model answers to any name.
        name = re.split(r"[/\\]", name)[-1] if name.endswith(".gguf") else name
    elif "max_model_len" in row:
        program = "vLLM"
    abilities = props.get("chat_template_caps")
    has_tools = abilities.get("supports_tools") if isinstance(abilities, Mapping) else None
    return LocalModel(
        provider,
        name,
        program,
        base_url,
        context_window=_window(
            generation.get("n_ctx"), row.get("max_model_len"), meta.get("n_ctx"), row.get("context_length")
        ),
        has_tools=has_tools if isinstance(has_tools, bool) else None,
        is_chat=not re.search(r"(?i)embed|rerank", name),
        is_loaded=program == "llama.cpp",
    )


def _studio_model(provider: str, base_url: str, row: Mapping[str, Any]) -> LocalModel:
    """Return a model of LM Studio. One that is not in memory is loaded with the length that its user has chosen, which is not told."""
    is_loaded = row.get("state") == "loaded"
    capabilities = row.get("capabilities")
    return LocalModel(
        provider,
        str(row["id"]),
        "LM Studio",
        base_url,
        context_window=_window(row.get("loaded_context_length")) if is_loaded else 0,
        has_tools="tool_use" in capabilities if isinstance(capabilities, list) else None,
        is_chat=row.get("type") in ("llm", "vlm"),
        is_loaded=is_loaded,
    )
