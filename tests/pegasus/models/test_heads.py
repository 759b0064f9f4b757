"""Requests whose heads are made once are those that the SDK itself would make."""

from __future__ import annotations

import importlib
from typing import Any

import httpx2
import pytest

from pegasus.models.heads import reuse_heads
from pegasus.models.sdk import SdkHandle

SDKS = [("anthropic", "AsyncAnthropic"), ("openai", "AsyncOpenAI")]


class Calls:
    """An SDK's client whose requests are kept. answers: statuses, then 200 for ever."""

    def __init__(self, package: str, name: str, *answers: int, cookie: str = "", reuse: bool = True) -> None:
        self.requests: list[httpx2.Request] = []
        self._answers = list(answers)
        self._cookie = cookie
        self._sdk: Any = importlib.import_module(package)
        self.http = self._sdk.DefaultAsyncHttpxClient(transport=httpx2.MockTransport(self._answer))
        options = {"api_key": "k", "base_url": "http://there.example/v1", "http_client": self.http}
        self.client = getattr(self._sdk, name)(**options)
        if reuse:
            assert reuse_heads(self.client, self.http)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        headers = {"set-cookie": self._cookie} if self._cookie else {}
        status = self._answers.pop(0) if self._answers else 200
        return httpx2.Response(status, json={}, headers={**headers, "retry-after-ms": "1"})

    async def post(self, path: str, body: bytes, max_retries: int = 2) -> None:
        options = {"max_retries": max_retries}
        stream = {"stream": True, "stream_cls": self._sdk.AsyncStream}
        response = await self.client.post(path, cast_to=httpx2.Response, content=body, options=options, **stream)
        await response.aread()


def seen(request: httpx2.Request) -> tuple[str, str, list[tuple[str, str]], bytes, dict[str, Any]]:
    """All that goes out, and how long it may take."""
    return request.method, str(request.url), sorted(request.headers.multi_items()), request.content, request.extensions


@pytest.mark.parametrize(("package", "name"), SDKS)
async def test_every_request_is_as_the_sdk_makes_it(package: str, name: str) -> None:
    found = []
    for reuse in (True, False):
        calls = Calls(package, name, 200, 503, 200, cookie="to=be; Path=/", reuse=reuse)
        for path, body in [("/a", b"1"), ("/a", b"twenty-two"), ("/b", b""), ("/a", "später".encode()), ("/b", b"4")]:
            await calls.post(path, body)
        found.append([seen(request) for request in calls.requests])
    assert found[0] == found[1]
    assert len(found[0]) == 6  # one was sent again


@pytest.mark.parametrize(("package", "name"), SDKS)
async def test_a_head_is_made_once_for_each_path(package: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(package, name, reuse=False)
    made = []
    build = calls.client._build_request
    monkeypatch.setattr(calls.client, "_build_request", lambda *a, **more: made.append(a[0].url) or build(*a, **more))
    assert reuse_heads(calls.client, calls.http)
    for path in ("/a", "/b", "/a", "/a"):
        await calls.post(path, b"1")
    assert made == ["/a", "/b"]
    assert len(calls.requests) == 4


@pytest.mark.parametrize(("package", "name"), SDKS)
async def test_the_handle_asks_as_the_sdks_own_post_does(package: str, name: str) -> None:
    found = []
    for built_otherwise in (False, True):
        calls = Calls(package, name, 200, 503, 503)
        handle = SdkHandle(importlib.import_module(package), calls.client, ())
        if built_otherwise:
            handle._options = None
        await (await handle.post("/a", b"1", max_retries=1)).aread()
        with pytest.raises(handle.status_errors):
            await handle.post("/a", b"2", max_retries=1)
        found.append([seen(request) for request in calls.requests])
    assert found[0] == found[1]
    assert len(found[0]) == 3


def test_a_client_that_is_built_otherwise_is_left_alone() -> None:
    assert not reuse_heads(object(), httpx2.AsyncClient())
