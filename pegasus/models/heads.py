"""The head of a request, made once for each path: an SDK puts its URL and its fifteen headers together anew for every call.

That is a good part of what a call costs on this side (0.1 ms of it; the rest of the same request takes a seventh). What may
differ from call to call is not reused: the body, cookies, and all of a request that is sent again. Imported only with an SDK.
"""

from __future__ import annotations

from typing import Any

import httpx2


class Heads:
    """Makes requests as `build` does, the method `_build_request` of an SDK's client whose options differ in path and body only."""

    def __init__(self, build: Any, http_client: httpx2.AsyncClient) -> None:
        self._build = build
        self._http_client = http_client
        self._made: dict[str, httpx2.Request] = {}

    def __call__(self, options: Any, *, retries_taken: int = 0) -> httpx2.Request:
        """A request with the options' URL and content (bytes)."""
        first = self._made.get(options.url)
        if retries_taken or not options.content:
            return self._new(options, retries_taken)
        if first is None:
            first = self._made[options.url] = self._new(options, 0)
            return first
        headers = first.headers.copy()
        headers.pop("Cookie", None)
        headers["Content-Length"] = str(len(options.content))
        stream = httpx2.ByteStream(options.content)  # said so, it is not looked at again
        request = httpx2.Request(first.method, first.url, headers=headers, stream=stream, extensions=first.extensions)
        if cookies := self._http_client.cookies:
            cookies.set_cookie_header(request)
        return request

    def _new(self, options: Any, retries_taken: int) -> httpx2.Request:
        request: httpx2.Request = self._build(options, retries_taken=retries_taken)
        return request


def reuse_heads(client: Any, http_client: httpx2.AsyncClient) -> bool:
    """Let an SDK's client make its requests like that; False if it is built otherwise. The one private name that this needs."""
    build = getattr(client, "_build_request", None)
    if build is None:
        return False
    client._build_request = Heads(build, http_client)
    return True
