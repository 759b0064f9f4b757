"""The tool web_search, answered by the service that the settings name: DuckDuckGo, Tavily, Brave or an own SearXNG.

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
from typing import Any, Final
from urllib.parse import parse_qs, quote_plus, urlsplit

import attrs
import trio

from pegasus.messages import Json
from pegasus.models import ToolSpec
from pegasus.outside import Untrusted
from pegasus.settings import WebSearchSettings
from pegasus.tools.base import Effect, Reach, Tool, ToolContext, ToolError, parameters
from pegasus.tools.web.addresses import AddressGuard
from pegasus.tools.web.http_client import HttpAnswer, fetch
from pegasus.wire import decode_json, encode_json

_MAX_TEXT: Final = 500
"""Characters of a title, of a snippet and of a date."""
_MAX_ADDRESS: Final = 2000
"""Characters of an address."""
_AGES: Final = ("age", "page_age", "published_date", "publishedDate")
"""Fields that tell when a page was written, in the words of the services: `2 days ago`, or a date."""
_SPEC: Final = ToolSpec(
    "web_search",
    "Search the web. Returns results with title, url, snippet and, if known, age; read a page itself with web_fetch.",
    parameters(
        {
            "query": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1, "description": "How many results, at most; 10 by default"},
        },
        "query",
    ),
)
"""Points to web_fetch, as snippets are often taken for the page."""


@attrs.frozen(eq=False, repr=False)
class _SearchRequest:
    """A request to a service."""

    method: str
    """Method of HTTP."""
    path: str
    """Path and query, behind the address of the service."""
    headers: Mapping[str, str]
    """Headers; the key of a service is among them."""
    body: bytes | None = None
    """Body, None for none."""


@attrs.frozen(eq=False, repr=False)
class _SearchService:
    """A search service and its wire format.

    A service is two functions without I/O, so that a new one needs no code besides them, and both can be tested with
    stored answers.
    """

    base_url: str
    """The address, or "" if only the user knows it."""
    needs_key: bool
    """True if it answers only with a key of the settings."""
    make_request: Callable[[str, int, str], _SearchRequest]
    """Takes the query, the number of results and the key."""
    read_results: Callable[[HttpAnswer], Sequence[Mapping[str, Any]]]
    """Returns title, url and snippet of each result. Raises ToolError if the answer has another
    form."""


_KEY_VARIABLES: Final = {"tavily": "TAVILY_API_KEY", "brave": "BRAVE_API_KEY"}
"""Variables of the environment that hold keys of services."""
_SEARXNG_VARIABLE: Final = "SEARXNG_BASE_URL"
"""Variable of the environment with the address of an own SearXNG."""


def with_environment(settings: WebSearchSettings, environment: Mapping[str, str]) -> WebSearchSettings:
    """Return the settings with what they leave open and the environment tells: the service, its key, its address.

    DuckDuckGo is what is left, since it asks for no key: an agent finds something from its first minute on.
    """
    keys = {name: environment.get(variable, "") for name, variable in _KEY_VARIABLES.items()}
    address = environment.get(_SEARXNG_VARIABLE, "")
    found = [*(name for name in keys if keys[name]), *(["searxng"] if address else [])]
    provider = settings.provider or next(iter(found), "duckduckgo")
    return attrs.evolve(
        settings,
        provider=provider,
        api_key=settings.api_key or keys.get(provider, ""),
        base_url=settings.base_url or (address if provider == "searxng" else ""),
    )


def web_search(settings: WebSearchSettings, environment: Mapping[str, str] | None = None) -> Tool:
    """Return the tool `web_search(query, limit?)`.

    An address that the settings name may be on this machine or in the local network; redirects away
    from it may not.

    settings: read at each call, so that a missing key is reported when a search is asked for and not at the
    start. environment: chooses the service where the settings do not.
    """
    settings = with_environment(settings, environment or {})
    # The user has named this host, so it may be inside. A redirect is chosen by somebody else.
    host = urlsplit(settings.base_url).hostname
    guard = AddressGuard([host] if host else [])

    async def run(arguments: Any, context: ToolContext) -> Json:
        """Ask the service of the settings, and return its results in one form for all services."""
        query = arguments["query"].strip()
        if not query:
            raise ToolError("query is empty")
        # The owner pays for searches, so the setting is the upper bound.
        limit = min(arguments.get("limit", settings.max_results), settings.max_results)
        service, base_url = _configured_service(settings)
        request = service.make_request(query, limit, settings.api_key)
        try:
            answer = await fetch(guard, request.method, base_url + request.path, request.headers, request.body)
            _require_success(settings.provider, answer)
            # In a thread, since an answer may be a megabyte.
            read = await trio.to_thread.run_sync(service.read_results, answer)
        except ToolError as error:
            raise ToolError(f"{error}. {_remedy(settings.provider)}") from error
        # Advertisements have no address (`_link_target`), and nobody could read on without one.
        found = [result for result in read if result.get("url")]
        results: list[Json] = [_clean(result) for result in found[:limit]]
        return {"query": query, "provider": settings.provider, "results": results, "count": len(results)}

    more = "Ask for fewer results with limit."
    return Tool(_SPEC, run, "network", Effect.PURE, more, reach=Reach.FETCH, source=Untrusted.WEB)


def _configured_service(settings: WebSearchSettings) -> tuple[_SearchService, str]:
    """Return the service of the settings and its address. Raises ToolError, which names the missing setting."""
    if settings.provider == "none":
        raise ToolError(
            "searching is switched off by tools.web_search.provider in pegasus.toml; "
            "pages whose address is known can be read with web_fetch"
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


def _remedy(provider: str) -> str:
    """Return the sentence that says what helps where a service does not."""
    others = ", ".join(name for name in _SERVICES if name != provider)
    return (
        f"If it stays so, the user chooses another service by tools.web_search.provider in pegasus.toml ({others}); "
        "pages whose address is known can be read with web_fetch"
    )


_REFUSALS: Final = {
    202: "it takes Pegasus for a robot",
    400: "it did not understand the question",
    401: "it does not accept the key (tools.web_search.api_key)",
    402: "the account has no credit left",
    403: "it refuses access (a wrong key, or a SearXNG that does not list json in search.formats)",
    422: "it does not accept the key or the question",
    429: "too many searches in a short time, or the month's are used up",
    432: "the plan's searches are used up",
    433: "the limit of the pay-as-you-go plan is reached",
    500: "it has an error of its own",
    502: "it is out of order",
    504: "it took too long",
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
    age = next((_plain_text(str(result[key]))[:_MAX_TEXT] for key in _AGES if result.get(key)), "")
    cleaned: dict[str, Json] = {
        "title": title[:_MAX_TEXT],
        "url": str(result["url"])[:_MAX_ADDRESS],
        "snippet": snippet[:_MAX_TEXT],
    }
    return {**cleaned, "age": age} if age else cleaned


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

_TOKEN: Final = re.compile(
    r"""<(?:/(?P<end>[a-zA-Z][a-zA-Z0-9]{0,20})[^<>]{0,100}>"""
    r"""|(?P<begin>[a-zA-Z][a-zA-Z0-9]{0,20})(?P<attributes>(?:[^<>"']|"[^"<>]{0,4000}"|'[^'<>]{0,4000}'){0,4000})>)|[^<]+|<"""
)
"""A tag, or text. Nothing in a tag reaches over `<`, so each part of a page is looked at a few times at most."""
_ATTRIBUTE: Final = re.compile(r"""([a-zA-Z-]{1,30})\s{0,5}=\s{0,5}(?:"([^"]{0,4000})"|'([^']{0,4000})')""")
_DATE: Final = re.compile(r"\b\d{4}-\d\d-\d\d(?=T\d)")
"""Day of a time such as 2026-01-12T00:00:00, which stands behind the address of a result."""
_MAX_PAGE_TEXT: Final = 4 * _MAX_TEXT
"""Characters that are collected of one text."""


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
    parser = _ResultPage(page)
    # Only without results: the words may stand in the text of one.
    if not parser.results and "anomaly" in page:
        raise ToolError("DuckDuckGo takes Pegasus for a robot and shows a captcha")
    if not parser.results and "no-results" not in page and "No results" not in page:
        raise ToolError("DuckDuckGo answered with a page that has no results in it")
    return [
        {**result, "title": html.escape(result["title"]), "snippet": html.escape(result["snippet"])}
        for result in parser.results
    ]


class _ResultPage:
    """A reader of DuckDuckGo's result page. A result begins with a link of class result__a; advertisements get no url.

    The page is read tag by tag, in time that grows with its length. Python's own parser needs minutes for a few kilobytes of
    `<a <a <a`, and the service is not the only one who may have written the page.
    """

    def __init__(self, page: str) -> None:
        self.results: list[dict[str, str]] = []
        self._field = ""
        """The field of the last result that text now belongs to."""
        for token in _TOKEN.finditer(page):
            if token["end"]:
                if token["end"].lower() in ("a", "h2", "div"):
                    self._field = ""
            elif token["begin"]:
                self._begin(token["attributes"])
            elif self.results:
                self._add_text(html.unescape(token[0]))

    def _begin(self, written: str) -> None:
        """Begin a result or its snippet."""
        # Most tags of the page are something else, so their attributes are not read.
        if "result__" not in written:
            return
        values = {found[1].lower(): found[2] or found[3] or "" for found in _ATTRIBUTE.finditer(written)}
        classes = values.get("class", "").split()
        if "result__a" in classes:
            target = _link_target(html.unescape(values.get("href", "")))
            self.results.append({"url": target, "title": "", "snippet": "", "age": ""})
            self._field = "title"
        elif "result__snippet" in classes and self.results:
            self._field = "snippet"

    def _add_text(self, text: str) -> None:
        """Add text to the current field. A date beside the fields is that of the page."""
        result = self.results[-1]
        if self._field:
            result[self._field] = (result[self._field] + text)[:_MAX_PAGE_TEXT]
        elif not result["age"] and (date := _DATE.search(text[:200])):
            result["age"] = date[0]


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
    "duckduckgo": _SearchService("https://html.duckduckgo.com", False, _ask_duckduckgo, _read_duckduckgo),
    "tavily": _SearchService("https://api.tavily.com", True, _ask_tavily, partial(_read_json, ("results",), "content")),
    "brave": _SearchService(
        "https://api.search.brave.com", True, _ask_brave, partial(_read_json, ("web", "results"), "description")
    ),
    "searxng": _SearchService("", False, _ask_searxng, partial(_read_json, ("results",), "content")),
}
