"""Web tools and secrets in the real process: what a task reads, saves and is shown, and what the daemon writes down of it."""

from __future__ import annotations

import gzip
import json

import pytest

from pegasus.testing.provider.answers import Call
from tests.blackbox.support.serving import standing
from tests.blackbox.support.work import Effects, Office, Workplace, act, answer, below, heard
from tests.pegasus.tools.web import answer_of, open_web, redirect

pytestmark = pytest.mark.usefixtures("own_programs")  # its memory is measured

HTML = {"content_type": "text/html; charset=utf-8"}
SECRETS = {
    "GitHub": "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "OpenAI": "sk-proj-0123456789abcdefghijABCDEFGHIJT3BlbkFJ0123456789",
    "AWS": "AKIAIOSFODNN7EXAMPLE",
    "Slack": "xoxb-123456789012-1234567890123-abcdefghijABCDEFGHIJ1234",
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLW9mLWEtdG9rZW4",
    "PEM": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDb",
}
KEYS = "\n".join(
    [
        *(secret for name, secret in SECRETS.items() if name != "PEM"),
        "-----BEGIN PRIVATE KEY-----",
        SECRETS["PEM"],
        "-----END PRIVATE KEY-----",
    ]
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """With web tools that may reach this machine. What was read does not matter to later calls."""
    settings = {"tools.allowed_hosts": ["127.0.0.1"], "policy.after_untrusted": "allow", "tasks.max_iterations": 20}
    place = Workplace(tmp_path_factory.mktemp("web"), settings)
    yield from standing(place.daemon, place, finish=place.finish)


async def outcome(place, name, *thoughts):
    """What is told of a task with these thoughts, and the results that its model was shown."""
    seen = []

    def watched(page):
        def look(view):
            seen[:] = view.results
            return page

        return look

    book = Office({name: [*map(watched, thoughts), watched(answer("done"))]})
    async with place.play(book, name) as daemon, daemon.client() as client:
        await client.say(f"do {name}")
        (told,) = await heard(client, 1)
    return told, seen


async def test_a_page_is_read_as_markdown_and_a_file_saved(place, name):
    async with open_web() as web:
        web.answers["/page"] = answer_of(b"<title>T</title><h1>Hello</h1><ul><li>a<li><a href=b>b</a></ul>", **HTML)
        web.answers["/data.bin"] = answer_of(b"x" * 100_000)
        thoughts = (
            act(Call("web_fetch", {"url": web.url("/page")})),
            act(Call("download", {"url": web.url("/data.bin")})),
        )
        told, (page, saved) = await outcome(place, name, *thoughts)
    assert told == "completed: done"
    assert json.loads(page)["content"] == f"# Hello\n\n- a\n- [b]({web.url('/b')})"
    assert json.loads(saved)["size"] == 100_000
    assert (place.daemon.home / "workspace" / json.loads(saved)["path"]).read_bytes() == b"x" * 100_000


async def test_pages_that_are_made_to_harm_cost_little(place, name):
    """A bomb, an endless page, a page nested a million times, a redirect inside: each is answered, and the daemon stays small."""

    async def endless(stream, request):
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 500000000\r\n\r\n")
        for _ in range(5000):
            await stream.send_all(b"<p>x</p>" * 12_500)

    async with open_web() as web:
        web.answers["/endless"] = endless
        web.answers["/bomb"] = answer_of(gzip.compress(b"<p>x</p>" * 12_000_000, 9), content_encoding="gzip", **HTML)
        web.answers["/deep"] = answer_of(b"<div>" * 800_000 + b"x", **HTML)
        web.answers["/inside"] = redirect("http://169.254.169.254/latest/meta-data/")
        calls = [Call("web_fetch", {"url": web.url(path)}) for path in web.answers]
        told, results = await outcome(place, name, act(*calls))
    assert told == "completed: done"
    assert ["only the first 4 MiB" in results[0], "only the first 4 MiB" in results[1]] == [True, True]
    assert json.loads(results[2])["content"] == "x"
    assert "169.254.169.254" in results[3]
    assert "is refused" in results[3]
    assert place.daemon.peak_memory() < 160 << 20
    assert below(place.daemon.pid) == set(), "no process is left of it"


async def test_keys_in_files_pages_and_output_reach_neither_model_nor_disk(place, name):
    """Keys that nobody told Pegasus: they are recognised by their formats, in results, task logs and the daemon's log."""
    await outcome(place, f"{name}-begin", act(Call("current_time")))  # the daemon has started, and there is a workspace
    (place.daemon.home / "workspace/keys.txt").write_text(KEYS)
    async with open_web() as web:
        web.answers["/keys"] = answer_of(f"<pre>{KEYS}</pre>".encode(), **HTML)
        web.answers["/echo"] = answer_of(b"you sent: Authorization: Bearer 0123456789abcdefghij")
        calls = (
            Call("read_file", {"path": "keys.txt"}),
            Call("shell_exec", {"command": "cat keys.txt"}),
            Call("web_fetch", {"url": web.url("/keys")}),
            Call("http_get", {"url": web.url("/echo")}),
        )
        told, results = await outcome(place, name, act(*calls))
    assert told == "completed: done"
    assert len(results) == 4
    for result in results:
        assert "***" in result
        assert not [kind for kind, secret in SECRETS.items() if secret in result]
    assert "0123456789abcdefghij" not in results[3]
    for path in place.daemon.home.rglob("*"):
        if path.is_file() and path.name != "keys.txt":
            data = path.read_bytes()
            assert not [kind for kind, secret in SECRETS.items() if secret.encode() in data], path


async def test_the_same_call_for_ever_is_carried_out_three_times(place, name, tmp_path):
    work = Effects(tmp_path)
    told, results = await outcome(place, name, *[act(work.shell("again"))] * 10)
    assert work.count("again") == 3
    assert "went in circles" in told
    assert results[-1].startswith("Error: not carried out")
