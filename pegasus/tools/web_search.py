"""The tool web_search, answered by the service that the settings name: Tavily, Brave, DuckDuckGo or an own SearXNG.

A service is a row of `_SERVICES`: its address, whether it needs a key, a function that makes the
request, and one that reads the results. Adding a service means adding a row. The key is sent to the
service only: a redirect elsewhere is not followed with it.

Wire formats: docs.tavily.com (POST /search), api-dashboard.search.brave.com (web search API),
html.duckduckgo.com (the page for browsers without JavaScript), docs.searxng.org (search API,
format=json).
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import parse_qs, quote_plus, urlsplit

import attrs

from pegasus.messages import Json
from pegasus.models import ToolSpec
from pegasus.outside import Outside
from pegasus.settings import WebSearchSettings
from pegasus.tools.addresses import AddressGuard
from pegasus.tools.base import Effect, Reach, Tool, ToolContext, ToolError, parameters
from pegasus.tools.http_client import HttpAnswer, fetch
from pegasus.wire import decode_json, encode_json

_MAX_TEXT: Final = 500
"""Characters of a title and of a snippet."""
_SPEC: Final = ToolSpec(
    "web_search",
    "Search the web. Returns results with title, url and snippet; read a page itself with web_fetch.",
    parameters(
        {
            "query": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1, "description": "How many results, at most; 10 by default"},
        },
        "query",
    ),
)
"""Points to web_fetch, as snippets are often taken for the page."""


@attrs.frozen(eq=False)
class _SearchRequest:
    """A request to a service."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None = None


@attrs.frozen(eq=False)
class _SearchService:
    """A search service and its wire format."""

    base_url: str
    """The address, or "" if only the user knows it."""
    needs_key: bool
    """True if it answers only with a key of the settings."""
    make_request: Callable[[str, int, str], _SearchRequest]
    """Takes the query, the number of results and the key."""
    read_results: Callable[[HttpAnswer], Sequence[Mapping[str, Any]]]
    """Returns title, url and snippet of each result. Raises ToolError if the answer has another
    form."""


def web_search(settings: WebSearchSettings) -> Tool:
    """Return the tool `web_search(query, limit?)`.

    An address that the settings name may be on this machine or in the local network; redirects away
    from it may not.

    settings: read at each call, so that a missing key is reported when a search is asked for and not at the
    start.
    """
    # The user has named this host, so it may be inside. A redirect is chosen by somebody else.
    host = urlsplit(settings.base_url).hostname
    guard = AddressGuard([host] if host else [])

    async def run(arguments: Any, context: ToolContext) -> Json:
        query = arguments["query"].strip()
        if not query:
            raise ToolError("query is empty")
        limit = min(arguments.get("limit", settings.max_results), settings.max_results)
        service, base_url = _configured_service(settings)
        request = service.make_request(query, limit, settings.api_key)
        answer = await fetch(guard, request.method, base_url + request.path, request.headers, request.body)
        _require_success(settings.provider, answer)
        found = [result for result in service.read_results(answer) if result.get("url")]
        results: list[Json] = [_clean(result) for result in found[:limit]]
        return {"query": query, "provider": settings.provider, "results": results, "count": len(results)}

    more = "Ask for fewer results with limit."
    return Tool(_SPEC, run, "network", Effect.PURE, more, reach=Reach.FETCH, source=Outside.WEB)


def _configured_service(settings: WebSearchSettings) -> tuple[_SearchService, str]:
    """Return the service of the settings and its address. Raises ToolError, which names the missing setting."""
    if not settings.provider:
        raise ToolError(
            "no search service is set up: the user chooses one by tools.web_search.provider in pegasus.toml "
            f"({', '.join(_SERVICES)}); pages whose address is known can be read with web_fetch"
        )
    service = _SERVICES[settings.provider]
    if service.needs_key and not settings.api_key:
        raise ToolError(f"{settings.provider} needs a key: the user sets tools.web_search.api_key in pegasus.toml")
    base_url = settings.base_url or service.base_url
    if not base_url:
        raise ToolError(
            f"{settings.provider} needs its address: the user sets tools.web_search.base_url in pegasus.toml"
        )
    return service, base_url.rstrip("/")


_REFUSALS: Final = {
    202: "it takes Pegasus for a robot; try later, or let the user set up another service",
    400: "it did not understand the question",
    401: "it does not accept the key (tools.web_search.api_key)",
    402: "the account has no credit left",
    403: "it refuses access (a wrong key, or a SearXNG that does not list json in search.formats)",
    422: "it does not accept the key or the question",
    429: "too many searches in a short time, or the month's are used up; try later",
    432: "the plan's searches are used up",
}
"""Explanations of status codes, collected from the services' documentation."""


def _require_success(provider: str, answer: HttpAnswer) -> None:
    """Raise ToolError if the service refused or the answer is incomplete.

    The text does not quote the answer, which could repeat the key.
    """
    if answer.status != 200:
        reason = _REFUSALS.get(answer.status, answer.reason or "it gives no reason")
        raise ToolError(f"the search at {provider} failed with status {answer.status}: {reason}")
    if not answer.complete:
        raise ToolError(f"the search at {provider} failed: {answer.note or 'the answer is too long'}")


def _clean(result: Mapping[str, Any]) -> Json:
    """Return a result with plain texts: no HTML tags, entities or line breaks, and not too long."""
    title, snippet = (_plain_text(str(result.get(key) or "")) for key in ("title", "snippet"))
    return {"title": title[:_MAX_TEXT], "url": str(result["url"]), "snippet": snippet[:_MAX_TEXT]}


def _plain_text(text: str) -> str:
    """Return a text without tags, entities and line breaks. Tags are bounded, so that one `<` does not eat the text."""
    return " ".join(html.unescape(re.sub(r"<[^>]{0,200}>", "", text)).split())


# ------------------------------------------------------------------ services that answer in JSON


def _read_json(path: Sequence[str], snippet: str, answer: HttpAnswer) -> list[Mapping[str, Any]]:
    """Return the list at `path`, with the field named `snippet` as the snippet. Raises ToolError for any other form.

    A part of the path may be missing or null, as `web` of Brave is if only other kinds of results were found.
    """
    try:
        found: Any = decode_json(answer.body)
        for name in path:
            found = found.get(name) or {}
        return [{**result, "snippet": result.get(snippet)} for result in found]
    except (ValueError, AttributeError, TypeError) as error:
        raise ToolError("the search failed: the answer of the service is not a list of results") from error


def _ask_tavily(query: str, limit: int, key: str) -> _SearchRequest:
    """Return the request to Tavily, which takes JSON by POST and the key as a bearer token.

    It gives at most 20 results.
    """
    body = encode_json({"query": query, "max_results": min(limit, 20)}).encode()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    return _SearchRequest("POST", "/search", headers, body)


def _ask_brave(query: str, limit: int, key: str) -> _SearchRequest:
    """Return the request to Brave, which takes parameters in the address and the key in a header.

    It refuses queries of more than 400 characters, and gives at most 20 results. Without
    decorations the texts hold no marks around the words of the query.
    """
    path = f"/res/v1/web/search?q={quote_plus(query[:400])}&count={min(limit, 20)}&text_decorations=false"
    return _SearchRequest("GET", path, {"x-subscription-token": key, "accept": "application/json"})


def _ask_searxng(query: str, limit: int, key: str) -> _SearchRequest:
    """Return the request to a SearXNG. A key is sent if there is one, for instances behind a proxy that wants it."""
    headers = {"accept": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    return _SearchRequest("GET", f"/search?q={quote_plus(query)}&format=json", headers)


# ------------------------------------------------------------------ DuckDuckGo's page


def _ask_duckduckgo(query: str, limit: int, key: str) -> _SearchRequest:
    """Return the request for the result page, which is a form without a key."""
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}
    return _SearchRequest("POST", "/html/", headers, f"q={quote_plus(query)}".encode())


def _read_duckduckgo(answer: HttpAnswer) -> list[Mapping[str, Any]]:
    """Return the results of the page.

    A page without results can mean three things: nothing was found, the service wants a captcha
    solved, or the page has changed. Only the first is an answer; the others are errors, so that the
    model does not conclude that nothing exists. Texts are escaped here because `_clean` removes the
    escapes of all services.
    """
    page = answer.body.decode("utf-8", "replace")
    parser = _ResultPage()
    parser.feed(page)
    parser.close()
    if not parser.results and "anomaly" in page:
        raise ToolError(
            "DuckDuckGo takes Pegasus for a robot and shows a captcha; try later, or set up another service"
        )
    if not parser.results and "no-results" not in page and "No results" not in page:
        raise ToolError("DuckDuckGo answered with a page that has no results in it")
    return [
        {"url": result["url"], "title": html.escape(result["title"]), "snippet": html.escape(result["snippet"])}
        for result in parser.results
    ]


class _ResultPage(HTMLParser):
    """A parser of DuckDuckGo's result page. A result begins with a link of class result__a; advertisements get no url."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[dict[str, str]] = []
        self._field = ""
        """The field of the last result that text now belongs to."""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Begin a result or its snippet."""
        values = dict(attributes)
        classes = (values.get("class") or "").split()
        if "result__a" in classes:
            self.results.append({"url": _link_target(values.get("href") or ""), "title": "", "snippet": ""})
            self._field = "title"
        elif "result__snippet" in classes and self.results:
            self._field = "snippet"

    def handle_endtag(self, tag: str) -> None:
        """End the current field."""
        if tag in ("a", "h2", "div"):
            self._field = ""

    def handle_data(self, data: str) -> None:
        """Add text to the current field."""
        if self._field:
            self.results[-1][self._field] += data


def _link_target(href: str) -> str:
    """Return the address that a link leads to.

    Results go through duckduckgo.com/l/?uddg=…; advertisements through y.js, for which this returns
    "".
    """
    parts = urlsplit(href)
    if parts.path == "/l/" and (targets := parse_qs(parts.query).get("uddg")):
        href = targets[0]
        parts = urlsplit(href)
    if parts.scheme not in ("http", "https") or (parts.hostname or "").endswith("duckduckgo.com"):
        return ""
    return href


_SERVICES: Final = {
    "tavily": _SearchService("https://api.tavily.com", True, _ask_tavily, partial(_read_json, ("results",), "content")),
    "brave": _SearchService(
        "https://api.search.brave.com", True, _ask_brave, partial(_read_json, ("web", "results"), "description")
    ),
    "duckduckgo": _SearchService("https://html.duckduckgo.com", False, _ask_duckduckgo, _read_duckduckgo),
    "searxng": _SearchService("", False, _ask_searxng, partial(_read_json, ("results",), "content")),
}
