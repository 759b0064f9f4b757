"""The tool `web_search`, answered by the service that the settings name: Tavily, Brave, DuckDuckGo or a SearXNG of one's own.

Sources of the wire formats: docs.tavily.com (POST /search), api-dashboard.search.brave.com (web search API),
html.duckduckgo.com (the page without JavaScript), docs.searxng.org (search API, format=json).
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs, quote_plus, urlsplit

import attrs

from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.settings import WebSearchSettings
from pegasus.tools.addresses import AddressGuard, Resolve
from pegasus.tools.base import Effect, Tool, ToolContext, ToolError, parameters
from pegasus.tools.fetch import Fetched, fetch

_SNIPPET: Final = 500  # characters of one result's text
_SPEC: Final = ToolSpec(
    "web_search",
    "Search the web. Returns results with title, url and snippet; read a page itself with http_get.",
    parameters(
        {
            "query": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1, "description": "How many results, at most; 10 by default"},
        },
        "query",
    ),
)


@attrs.frozen(eq=False)
class _Question:
    """What to send to a service."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None = None


@attrs.frozen(eq=False)
class _Service:
    """base_url: "" where only the user knows it. ask: query, limit, key → question; read: the answer → results."""

    base_url: str
    needs_key: bool
    ask: Callable[[str, int, str], _Question]
    read: Callable[[Fetched], Sequence[Mapping[str, Any]]]


def web_search(settings: WebSearchSettings, resolve: Resolve | None = None) -> Tool:
    """The tool `web_search(query, limit?)`. resolve: how host names are looked up, instead of the system's way."""

    async def run(arguments: Metadata, context: ToolContext) -> Json:
        query = str(arguments["query"]).strip()
        if not query:
            raise ToolError("query is empty")
        asked: Any = arguments.get("limit") or settings.max_results
        limit = min(asked, settings.max_results)
        service, base = _service(settings)
        question = service.ask(query, limit, settings.api_key)
        guard = AddressGuard([urlsplit(base).hostname or ""] if settings.base_url else [], resolve)
        answer = await fetch(question.method, base + question.path, question.headers, question.body, guard)
        _check(settings.provider, answer)
        results: list[Json] = [_clean(result) for result in service.read(answer) if result.get("url")][:limit]
        return {"query": query, "provider": settings.provider, "results": results, "count": len(results)}

    return Tool(_SPEC, run, "network", Effect.PURE, more="Ask for fewer results with limit.")


def _service(settings: WebSearchSettings) -> tuple[_Service, str]:
    """Who is asked, and where. Raises ToolError where nobody is set up."""
    if not settings.provider:
        raise ToolError(
            "no search service is set up: the user chooses one by tools.web_search.provider in pegasus.toml "
            f"({', '.join(_SERVICES)}); pages whose address is known can be read with http_get"
        )
    service = _SERVICES[settings.provider]
    if service.needs_key and not settings.api_key:
        raise ToolError(f"{settings.provider} needs a key: the user sets tools.web_search.api_key in pegasus.toml")
    base = settings.base_url or service.base_url
    if not base:
        raise ToolError(
            f"{settings.provider} needs its address: the user sets tools.web_search.base_url in pegasus.toml"
        )
    return service, base.rstrip("/")


_REFUSALS: Final = {
    202: "it takes this for a robot; try later, or let the user set up another service",
    400: "it did not understand the question",
    401: "it does not accept the key (tools.web_search.api_key)",
    402: "the account has no credit left",
    403: "it refuses access (a wrong key, or a SearXNG that does not list json in search.formats)",
    422: "it does not accept the key or the question",
    429: "too many searches in a short time, or the month's are used up; try later",
    432: "the plan's searches are used up",
}


def _check(provider: str, answer: Fetched) -> None:
    if answer.status != 200:
        why = _REFUSALS.get(answer.status, answer.reason or "it gives no reason")
        raise ToolError(f"the search at {provider} failed with status {answer.status}: {why}")
    if not answer.complete:
        raise ToolError(f"the search at {provider} failed: {answer.note or 'the answer is too long'}")


def _clean(result: Mapping[str, Any]) -> Json:
    """Texts without marks of HTML, entities or line breaks."""
    title, snippet = (_plain(str(result.get(key) or "")) for key in ("title", "snippet"))
    return {"title": title[:_SNIPPET], "url": str(result["url"]), "snippet": snippet[:_SNIPPET]}


def _plain(text: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]{0,200}>", "", text)).split())


# ------------------------------------------------------------------ services that answer in JSON


def _json_results(answer: Fetched, path: Sequence[str], snippet: str) -> list[Mapping[str, Any]]:
    """The list at `path`, its texts under `snippet`. Raises ToolError for anything else."""
    try:
        found: Any = json.loads(answer.body)
        for name in path:
            found = found.get(name) or {}
        return [{**each, "snippet": each.get(snippet)} for each in found]
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ToolError("the search failed: the service answered with something that is no list of results") from error


def _ask_tavily(query: str, limit: int, key: str) -> _Question:
    body = json.dumps({"query": query, "max_results": min(limit, 20)}).encode()
    return _Question("POST", "/search", {"authorization": f"Bearer {key}", "content-type": "application/json"}, body)


def _ask_brave(query: str, limit: int, key: str) -> _Question:
    path = f"/res/v1/web/search?q={quote_plus(query[:400])}&count={min(limit, 20)}&text_decorations=false"
    return _Question("GET", path, {"x-subscription-token": key, "accept": "application/json"})


def _ask_searxng(query: str, limit: int, key: str) -> _Question:
    headers = {"accept": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    return _Question("GET", f"/search?q={quote_plus(query)}&format=json", headers)


# ------------------------------------------------------------------ DuckDuckGo's page


def _ask_duckduckgo(query: str, limit: int, key: str) -> _Question:
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}
    return _Question("POST", "/html/", headers, f"q={quote_plus(query)}".encode())


def _read_duckduckgo(answer: Fetched) -> list[Mapping[str, Any]]:
    page = answer.body.decode("utf-8", "replace")
    results = results_of_page(page)
    if not results and "anomaly" in page:
        raise ToolError(
            "DuckDuckGo takes this for a robot and wants a riddle solved; try later, or set up another service"
        )
    if not results and "no-results" not in page and "No results" not in page:
        raise ToolError("DuckDuckGo answered with a page that has no results in it")
    return results


def results_of_page(page: str) -> list[Mapping[str, Any]]:
    """The results on DuckDuckGo's HTML page, advertisements left out."""
    from html.parser import HTMLParser

    results: list[dict[str, str]] = []

    class Parser(HTMLParser):
        into = ""

        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            given = dict(attributes)
            classes = (given.get("class") or "").split()
            if "result__a" in classes:
                results.append({"url": _target(given.get("href") or ""), "title": "", "snippet": ""})
                self.into = "title"
            elif "result__snippet" in classes and results:
                self.into = "snippet"

        def handle_endtag(self, tag: str) -> None:
            if tag in ("a", "h2", "div"):
                self.into = ""

        def handle_data(self, data: str) -> None:
            if self.into:
                results[-1][self.into] += data

    parser = Parser()
    parser.feed(page)
    parser.close()
    return [{name: html.escape(value) if name != "url" else value for name, value in each.items()} for each in results]


def _target(href: str) -> str:
    """Where a link leads: results go by way of duckduckgo.com/l/?uddg=…, advertisements by way of y.js, which gives ""."""
    parts = urlsplit(href)
    if parts.path == "/l/" and (targets := parse_qs(parts.query).get("uddg")):
        href = targets[0]
        parts = urlsplit(href)
    if parts.scheme not in ("http", "https") or (parts.hostname or "").endswith("duckduckgo.com"):
        return ""
    return href


_SERVICES: Final = {
    "tavily": _Service(
        "https://api.tavily.com", True, _ask_tavily, lambda a: _json_results(a, ("results",), "content")
    ),
    "brave": _Service(
        "https://api.search.brave.com", True, _ask_brave, lambda a: _json_results(a, ("web", "results"), "description")
    ),
    "duckduckgo": _Service("https://html.duckduckgo.com", False, _ask_duckduckgo, _read_duckduckgo),
    "searxng": _Service("", False, _ask_searxng, lambda a: _json_results(a, ("results",), "content")),
}
