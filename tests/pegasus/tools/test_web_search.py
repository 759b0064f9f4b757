"""Search services, each as its documentation shows its answers, on a server of the test's own."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest
import trio

from pegasus.settings import WebSearchSettings
from pegasus.tools import ToolContext
from pegasus.tools.web.search import web_search, with_environment
from tests.pegasus.tools.calling import run_tool
from tests.pegasus.tools.web import answer_of, open_web, redirect

TAVILY = {
    "query": "trio",
    "follow_up_questions": None,
    "answer": None,
    "images": [],
    "results": [
        {
            "title": "Trio",
            "url": "https://trio.example/",
            "content": "A  friendly\nlibrary",
            "score": 0.9,
            "raw_content": None,
        },
        {"title": "Other", "url": "https://other.example/", "content": "x" * 2000, "score": 0.5},
        {"title": "Third", "url": "https://third.example/", "content": "c"},
    ],
    "response_time": 0.7,
}
BRAVE = {
    "type": "search",
    "query": {"original": "trio", "more_results_available": True},
    "web": {
        "type": "search",
        "results": [
            {
                "title": "<strong>Trio</strong> &amp; more",
                "url": "https://trio.example/",
                "description": "A <b>b</b>&#x27;s",
            },
            {"title": "No description", "url": "https://other.example/"},
        ],
    },
}
SEARXNG = {
    "query": "trio",
    "number_of_results": 0,
    "results": [
        {"url": "https://trio.example/", "title": "Trio", "engine": "x", "content": "A library", "score": 1.0},
        {"title": "without an address"},
    ],
    "answers": [],
    "unresponsive_engines": [],
}
DUCKDUCKGO = """<html><body><div id="links" class="results">
<div class="result results_links result--ad"><h2 class="result__title"><a rel="nofollow" class="result__a"
 href="https://duckduckgo.com/y.js?ad_domain=shop.example&amp;ad_provider=bingv7aa">Buy a trio</a></h2>
 <a class="result__snippet" href="https://duckduckgo.com/y.js?x">Cheap</a></div>
<div class="result results_links results_links_deep web-result "><div class="links_main links_deep result__body">
 <h2 class="result__title"><a rel="nofollow" class="result__a"
 href="//duckduckgo.com/l/?uddg=https%3A%2F%2Ftrio.example%2Fa%3Fb%3D1%26c%3D2&amp;rut=8a1f">Trio: a &lt;friendly&gt; library</a></h2>
 <div class="result__extras"><a class="result__url" href="//duckduckgo.com/l/?uddg=x">trio.example/a</a></div>
 <a class="result__snippet" href="//duckduckgo.com/l/?uddg=x">The <b>Trio</b> project &amp; its
 friends</a></div></div>
<div class="result"><h2><a class="result__a" href="https://direct.example/">Direct</a></h2></div>
</div></body></html>"""
NOTHING = '<html><body><div class="no-results">No results.</div></body></html>'
CAPTCHA = '<html><body><form id="challenge-form"><div class="anomaly-modal__title">Select all squares</div></form></body></html>'


@pytest.fixture
async def web():
    async with open_web() as web:
        yield web


@pytest.fixture
def search(web):
    async def search(provider, query="trio", *, path=None, **arguments):
        settings = WebSearchSettings(provider=provider, api_key="key-1", base_url=path or web.url(""), max_results=3)
        outcome = await run_tool(web_search(settings), {"query": query, **arguments}, 20.0, ToolContext())
        return outcome.content if outcome.failed else json.loads(outcome.content)

    return search


def as_json(value):
    return answer_of(json.dumps(value).encode(), content_type="application/json")


async def test_tavily(web, search):
    web.answers["/search"] = as_json(TAVILY)
    found = await search("tavily", "trio ü", limit=2)
    assert (found["provider"], found["query"], found["count"]) == ("tavily", "trio ü", 2)
    assert found["results"][0] == {"title": "Trio", "url": "https://trio.example/", "snippet": "A friendly library"}
    assert len(found["results"][1]["snippet"]) == 500
    [seen] = web.seen
    assert (seen.method, seen.headers["authorization"]) == ("POST", "Bearer key-1")
    assert json.loads(seen.body) == {"query": "trio ü", "max_results": 2}


async def test_brave(web, search):
    web.answers["/res/v1/web/search"] = as_json(BRAVE)
    found = await search("brave", "a&b c")
    assert found["results"] == [
        {"title": "Trio & more", "url": "https://trio.example/", "snippet": "A b's"},
        {"title": "No description", "url": "https://other.example/", "snippet": ""},
    ]
    [seen] = web.seen
    query = parse_qs(urlsplit(seen.target).query)
    assert (seen.headers["x-subscription-token"], query["q"], query["count"]) == ("key-1", ["a&b c"], ["3"])


async def test_brave_without_results_for_the_web(web, search):
    web.answers["/res/v1/web/search"] = as_json({"type": "search", "query": {}, "web": None})
    assert (await search("brave"))["results"] == []


async def test_searxng(web, search):
    """Its address may have a path, and it may be on this machine: the user has said so."""
    web.answers["/searx/search"] = as_json(SEARXNG)
    found = await search("searxng", "a b", path=web.url("/searx/"))
    assert found["results"] == [{"title": "Trio", "url": "https://trio.example/", "snippet": "A library"}]
    assert parse_qs(urlsplit(web.seen[0].target).query) == {"q": ["a b"], "format": ["json"]}


async def test_duckduckgo(web, search):
    web.answers["/html/"] = answer_of(DUCKDUCKGO.encode(), content_type="text/html; charset=UTF-8")
    assert (await search("duckduckgo", "a b"))["results"] == [
        {
            "title": "Trio: a <friendly> library",
            "url": "https://trio.example/a?b=1&c=2",
            "snippet": "The Trio project & its friends",
        },
        {"title": "Direct", "url": "https://direct.example/", "snippet": ""},
    ]
    assert parse_qs(web.seen[0].body.decode()) == {"q": ["a b"]}
    assert "authorization" not in web.seen[0].headers


@pytest.mark.parametrize(
    ("page", "outcome"),
    [(NOTHING, []), (CAPTCHA, "takes Pegasus for a robot"), ("<html>", "no results in it"), ("", "no results in it")],
)
async def test_duckduckgo_without_results(web, search, page, outcome):
    web.answers["/html/"] = answer_of(page.encode(), content_type="text/html")
    found = await search("duckduckgo")
    assert outcome in found if isinstance(outcome, str) else found["results"] == outcome


@pytest.mark.parametrize("answer", [CAPTCHA, "<html>nonsense", "\0" * 100, ""])
async def test_a_service_that_does_not_help_is_named_with_what_does(web, search, answer):
    web.answers["/html/"] = answer_of(answer.encode(), content_type="text/html")
    told = await search("duckduckgo")
    assert "chooses another service by tools.web_search.provider in pegasus.toml (tavily, brave, searxng)" in told


async def test_so_is_one_that_is_not_reached(search):
    assert "(duckduckgo, brave, searxng)" in await search("tavily", path="http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (WebSearchSettings(provider="none"), "searching is switched off by tools.web_search.provider"),
        (WebSearchSettings(provider="tavily"), "tavily needs a key: the user sets tools.web_search.api_key"),
        (WebSearchSettings(provider="brave"), "brave needs a key"),
        (WebSearchSettings(provider="searxng"), "searxng needs its address: the user sets tools.web_search.base_url"),
    ],
)
async def test_what_is_not_set_up_says_how(settings, problem):
    outcome = await run_tool(web_search(settings), {"query": "x"}, 20.0, ToolContext())
    assert outcome.content.startswith(f"Error: {problem}")


@pytest.mark.parametrize("provider", ["tavily", "brave", "searxng"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'"text"',
        b'{"results": 5, "web": 5}',
        b'{"results": [1], "web": {"results": [1]}}',
        b"[" * 100_000,
    ],
)
async def test_an_answer_that_is_no_list_of_results(web, search, provider, body):
    web.answers["/search"] = web.answers["/res/v1/web/search"] = answer_of(body, content_type="application/json")
    assert "is not a list of results" in await search(provider)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ("401 Unauthorized", "does not accept the key"),
        ("429 X", "too many searches"),
        ("503 Busy", "Busy"),
        ("202 X", "robot"),
    ],
)
async def test_a_refusal_is_told_without_the_key(web, search, status, why):
    web.answers["/search"] = answer_of(b"key-1", status)
    told = await search("tavily")
    assert f"failed with status {status[:3]}: " in told
    assert why in told
    assert "key-1" not in told


async def test_the_key_goes_to_the_service_alone(web, search):
    web.answers["/search"] = redirect(web.url("/search", host="127.0.0.2"), "307 X")
    assert "status 307" in await search("tavily")
    assert len(web.seen) == 1


async def test_a_service_that_sends_to_the_inside_is_refused(web, search):
    web.answers["/res/v1/web/search"] = redirect("http://169.254.169.254/")
    assert "is refused" in await search("brave")


@pytest.mark.parametrize("arguments", [{"query": "  "}, {"query": "x", "limit": 0}, {"query": "x", "limit": "many"}])
async def test_questions_that_are_none(search, arguments):
    assert (await search("tavily", **arguments)).startswith("Error: ")


# ------------------------------------------------------------------ ages


@pytest.mark.parametrize(
    ("provider", "path", "answer", "age"),
    [
        (
            "brave",
            "/res/v1/web/search",
            {"web": {"results": [{"url": "u", "age": "2 days ago", "page_age": "2026-01-01T00:00:00"}]}},
            "2 days ago",
        ),
        (
            "brave",
            "/res/v1/web/search",
            {"web": {"results": [{"url": "u", "page_age": "2026-01-01T00:00:00"}]}},
            "2026-01-01T00:00:00",
        ),
        (
            "tavily",
            "/search",
            {"results": [{"url": "u", "published_date": "Thu, 13 Nov 2025 09:00:00 GMT"}]},
            "Thu, 13 Nov 2025 09:00:00 GMT",
        ),
        (
            "searxng",
            "/search",
            {"results": [{"url": "u", "publishedDate": "2026-01-01T00:00:00"}]},
            "2026-01-01T00:00:00",
        ),
        ("searxng", "/search", {"results": [{"url": "u", "publishedDate": None}]}, None),
    ],
)
async def test_the_age_of_a_page(web, search, provider, path, answer, age):
    web.answers[path] = as_json(answer)
    [result] = (await search(provider))["results"]
    assert result.get("age") == age


async def test_the_date_on_duckduckgos_page(web, search):
    page = DUCKDUCKGO.replace(
        "trio.example/a</a>", "trio.example/a</a><span>&nbsp; &nbsp; 2026-01-12T00:00:00.0000000</span>"
    )
    web.answers["/html/"] = answer_of(page.encode(), content_type="text/html")
    assert [result.get("age") for result in (await search("duckduckgo"))["results"]] == ["2026-01-12", None]


# ------------------------------------------------------------------ the service that the environment names


@pytest.mark.parametrize(
    ("settings", "environment", "chosen"),
    [
        ({}, {}, ("duckduckgo", "", "")),
        ({"provider": "none"}, {"TAVILY_API_KEY": "t"}, ("none", "", "")),
        ({}, {"TAVILY_API_KEY": "t", "BRAVE_API_KEY": "b"}, ("tavily", "t", "")),
        ({}, {"BRAVE_API_KEY": "b", "SEARXNG_BASE_URL": "http://s"}, ("brave", "b", "")),
        ({}, {"SEARXNG_BASE_URL": "http://s"}, ("searxng", "", "http://s")),
        ({"provider": "brave"}, {"TAVILY_API_KEY": "t", "BRAVE_API_KEY": "b"}, ("brave", "b", "")),
        ({"provider": "brave", "api_key": "mine"}, {"BRAVE_API_KEY": "b"}, ("brave", "mine", "")),
        ({"provider": "duckduckgo"}, {"TAVILY_API_KEY": "t"}, ("duckduckgo", "", "")),
        (
            {"provider": "searxng", "base_url": "http://own"},
            {"SEARXNG_BASE_URL": "http://s"},
            ("searxng", "", "http://own"),
        ),
    ],
)
def test_what_the_environment_adds(settings, environment, chosen):
    found = with_environment(WebSearchSettings(**settings), environment)
    assert (found.provider, found.api_key, found.base_url) == chosen


# ------------------------------------------------------------------ pages that are made to harm


@pytest.mark.parametrize(
    "piece",
    [
        "<a ",
        "<!--",
        "</",
        "<?",
        '<a href="',
        "<a a=b ",
        "<",
        "<a class=result__a>x",
        '<a class="result__a" href="x">',
        "<a '",
        "&",
        "<a " + "x" * 3000,
    ],
)
async def test_a_page_of_duckduckgo_does_not_hold_the_loop(web, search, piece):
    """With Python's own parser a page of 64 kB took half a minute, in one piece."""
    web.answers["/html/"] = answer_of((piece * (1_000_000 // len(piece))).encode(), content_type="text/html")
    with trio.fail_after(15):
        await search("duckduckgo")
