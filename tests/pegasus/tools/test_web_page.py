"""web_fetch against a server on loopback, and the conversion of pages, hostile ones among them."""

import gzip
import json
import time

import pytest
import trio

from pegasus.tools import Effect, ToolContext, ToolExecutor
from pegasus.tools.web import page as web_page
from pegasus.tools.web.addresses import AddressGuard
from pegasus.tools.web.page import MAX_PAGE, page_tool, to_markdown
from tests.pegasus.tools.calling import run_tool
from tests.pegasus.tools.web import answer_of, open_web, redirect

HTML = {"content_type": "text/html; charset=utf-8"}
FILLER = "<p>" + "Words that make the content long enough to be the main content of the page. " * 5 + "</p>"


@pytest.fixture
async def web():
    async with open_web() as web:
        yield web


@pytest.fixture
def read(web):
    async def read(path="/", host="127.0.0.1", guard=None, room=100_000, **arguments):
        tool = page_tool(guard or web.guard())
        outcome = await run_tool(tool, {"url": web.url(path, host), **arguments}, 60.0, ToolContext(max_result=room))
        return outcome.content if outcome.failed else json.loads(outcome.content)

    return read


async def content(page, address="https://example.org/docs/page"):
    return (await to_markdown(page, address)).content


def test_it_may_be_run_again():
    assert page_tool(AddressGuard()).effect is Effect.PURE


# ------------------------------------------------------------------ what a page becomes


async def test_a_page_has_its_title_and_its_content(web, read):
    page = f"<html><head><title> The\n page </title></head><body><h1>Hello</h1>{FILLER}</body></html>"
    web.answers["/a"] = answer_of(page.encode(), **HTML)
    result = await read("/a")
    assert (result["url"], result["status"], result["title"]) == (web.url("/a"), 200, "The page")
    assert result["content"].startswith("# Hello\n\nWords that make")


@pytest.mark.parametrize(
    ("page", "markdown"),
    [
        ("<p>a<br>b</p><p>c</p>", "a\nb\n\nc"),
        ("<p>a <b>bold</b>, <i>i</i> <code>x</code></p>", "a **bold**, *i* `x`"),
        ("<p><a href='../x?a=1&amp;b=2#c'>up</a></p>", "[up](https://example.org/x?a=1&b=2#c)"),
        ("<p><a href='#top'>here</a> <a href='javascript:x()'>run</a></p>", "here run"),
        ("<a href='/card'><div><h3>Card</h3><p>text</p></div></a>", "[Card text](https://example.org/card)"),
        ("<img src=p.png alt='A  picture'><img src=q.png>", "![A picture](https://example.org/docs/p.png)"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul><p>d", "- a\n- b\n  - c\n\nd"),
        ("<ol start=3><li>a</li><li><p>b</p><p>c</p></li></ol>", "3. a\n4. b\n\n   c"),
        ("<blockquote><p>a</p><p>b</p></blockquote>c", "> a\n>\n> b\n\nc"),
        ("<pre><code class='language-python'>if x:\n    y &lt; 1\n</code></pre>", "```python\nif x:\n    y < 1\n```"),
        ("<pre>a ``` b</pre>", "````\na ``` b\n````"),
        ("<dl><dt>a</dt><dd>b</dd></dl>", "**a**\n\n  b"),
        ("a<hr>b", "a\n\n---\n\nb"),
        (
            "<table><tr><th>a<th>b|c<tr><td rowspan=2>1<td><b>2</b><tr><td>3<br>4<tr><td colspan=2>5</table>",
            "| a | b\\|c |\n| --- | --- |\n| 1 | **2** |\n|  | 3 4 |\n| 5 |  |",
        ),
        ("<table><tr><td><p>layout</p><td><p>table</p></table>", "layout\n\ntable"),
        ("<script>x</script><style>y</style><p hidden>z</p><p style='color:red; display : none'>w</p><p>v</p>", "v"),
        ("<p>5 &lt; 6 &amp; 7&nbsp;é</p>", "5 < 6 & 7 é"),
        ("plain", "plain"),
        ("", ""),
    ],
)
async def test_what_markdown_is_made_of(page, markdown):
    assert await content(page) == markdown


async def test_a_base_address_counts_for_links():
    assert await content("<head><base href='/base/'></head><a href=x>x</a>") == "[x](https://example.org/base/x)"


@pytest.mark.parametrize("frame", ["<main>{}</main>", "<article>{}</article>", "<div role=main>{}</div>", "{}"])
async def test_the_main_content_comes_first(frame):
    page = f"<nav><a href=/a>Menu</a></nav><header>Top</header>{frame.format('<h1>News</h1>' + FILLER)}<footer>Imprint</footer>"
    found = await content(page)
    assert found.startswith("# News")
    rest = found.partition("(Rest of the page")[2]
    assert all(text in rest for text in ("[Menu](https://example.org/a)", "Top", "Imprint"))


async def test_several_articles_are_all_content():
    found = await content(f"<body><article>one {FILLER}</article><article>two {FILLER}</article></body>")
    assert found.index("one") < found.index("two")
    assert "Rest of the page" not in found


# ------------------------------------------------------------------ other texts, character sets


@pytest.mark.parametrize(
    ("kind", "body"), [("application/json", '{"a": [1, 2]}'), ("text/plain", "<b>no page"), ("text/markdown", "# a")]
)
async def test_other_texts_come_as_they_are(web, read, kind, body):
    web.answers["/"] = answer_of(body.encode(), content_type=kind)
    assert (await read())["content"] == body


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"content_type": "text/html; charset=iso-8859-1"}, "<p>grün</p>".encode("latin-1")),
        ({"content_type": "text/html"}, "<meta charset=shift_jis><p>日本</p>".encode("shift_jis")),
        ({"content_type": "text/html"}, "\ufeff<p>grün</p>".encode("utf-16")),
        ({"content_type": "text/html"}, "<p>grün ist es hier</p>".encode("cp1252")),
        ({}, "<!doctype html><p>grün</p>".encode()),
    ],
)
async def test_character_sets(web, read, headers, body):
    web.answers["/"] = answer_of(body, **headers)
    assert (await read())["content"] in ("grün", "日本", "grün ist es hier")


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("application/pdf", b"%PDF-1.7 ...", "is a PDF"),
        ("image/png", b"\x89PNG\r\n", "image/png"),
        ("", b"\0\1", "no text"),
    ],
)
async def test_what_is_no_text_is_refused_with_a_way_that_works(web, read, kind, body, words):
    web.answers["/"] = answer_of(body, content_type=kind)
    error = await read()
    assert words in error
    assert "download" in error


async def test_an_error_status_is_a_result(web, read):
    web.answers["/"] = answer_of(b"<p>gone</p>", "410 Gone", **HTML)
    result = await read()
    assert (result["status"], result["content"]) == (410, "gone")


# ------------------------------------------------------------------ parts


async def test_a_long_page_comes_in_parts_that_make_the_whole(web, read):
    lines = "".join(f"<p>line {n} of many</p>" for n in range(2000))
    web.answers["/"] = answer_of(lines.encode(), **HTML)
    parts, offset = [], 0
    while offset is not None:
        result = await read(room=10_000, offset=offset)
        assert len(json.dumps(result, ensure_ascii=False)) <= 10_000
        parts.append(result["content"])
        offset = result.get("nextOffset")
    assert "".join(parts) == "\n\n".join(f"line {n} of many" for n in range(2000))
    assert len(parts) > 3


@pytest.mark.parametrize("text", ['"quoted" \\' * 5000, "\x01\x02" * 20_000, "\n" * 30_000, "x" * 30_000])
async def test_no_part_is_lost_where_json_makes_a_text_longer(web, text):
    """Otherwise the executor would cut the end of a part off, and the next one begin behind it."""
    web.answers["/"] = answer_of(text.encode(), content_type="text/plain")
    tool = page_tool(web.guard())
    executor, found, offset = ToolExecutor([tool]), "", 0
    while offset is not None:
        outcome = await executor.run(tool, {"url": web.url(), "offset": offset}, ToolContext(max_result=10_000))
        assert len(outcome.content) <= 10_000
        result = json.loads(outcome.content)
        found, offset = found + result["content"], result.get("nextOffset")
    assert found == text


async def test_a_long_address_and_title_leave_room_for_the_content(web):
    page = f"<title>{'T&quot;' * 3000}</title>" + "<p>words</p>" * 3000
    web.answers["/"] = answer_of(page.encode(), **HTML)
    tool = page_tool(web.guard())
    outcome = await ToolExecutor([tool]).run(tool, {"url": web.url("/?" + "x" * 8000)}, ToolContext(max_result=4000))
    assert len(outcome.content) <= 4000
    assert len(json.loads(outcome.content)["content"]) > 1000


async def test_fewer_characters_can_be_asked_for(web, read):
    web.answers["/"] = answer_of(b"x" * 5000, content_type="text/plain")
    result = await read(offset=1000, max_chars=700)
    assert (result["content"], result["nextOffset"], result["totalChars"]) == ("x" * 700, 1700, 5000)
    assert "has 5,000 characters" in await read(offset=9000)


# ------------------------------------------------------------------ pages that are made to harm


LINE = b"<p>" + b"x" * 993 + b"</p>"
"""A thousand bytes that are converted quickly, since these tests are about how much of a page is read."""


async def test_of_a_page_of_500_mb_the_beginning_is_read(web, read):
    sent = 0

    async def endless(stream, request):
        nonlocal sent
        await stream.send_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 500000000\r\n\r\n<p>begin</p>"
        )
        for _ in range(500):
            await stream.send_all(LINE * 1000)
            sent += 1000 * len(LINE)

    web.answers["/"] = endless
    result = await read()
    assert result["content"].startswith("begin")
    assert "only the first 4 MiB" in result["notice"]
    assert sent < 100_000_000


async def test_a_compression_bomb_is_not_unpacked(web, read):
    bomb = gzip.compress(LINE * 64_000, 9)
    web.answers["/"] = answer_of(bomb, content_encoding="gzip", **HTML)
    result = await read()
    assert result["content"].startswith("x")
    assert "only the first 4 MiB" in result["notice"]


async def test_a_page_that_drips_is_read_as_far_as_it_came(web, read, monkeypatch):
    monkeypatch.setattr(web_page, "MAX_SECONDS", 0.5)

    async def drip(stream, request):
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await stream.send_all(b"3\r\nabc\r\n")
            await trio.sleep(0.05)

    web.answers["/"] = drip
    begun = time.monotonic()
    result = await read()
    assert result["content"].startswith("abcabc")
    assert "the server is slow" in result["notice"]
    assert time.monotonic() - begun < 10


async def test_a_flood_of_small_parts_ends_with_its_time(web, read, monkeypatch):
    """The time may be over between two parts that have arrived together."""
    monkeypatch.setattr(web_page, "MAX_SECONDS", 0.1)

    async def flood(stream, request):
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(100):
            await stream.send_all(b"1\r\na\r\n" * 5_000)

    web.answers["/"] = flood
    result = await read()
    assert set(result["content"]) == {"a"}
    assert "the server" in result["notice"]


@pytest.mark.parametrize(
    "target", ["http://10.0.0.1/", "http://169.254.169.254/latest", "http://[::1]:80/", "http://inside.example/"]
)
async def test_a_redirect_into_the_private_network_is_refused(web, read, target):
    web.answers["/"] = redirect(target)
    error = await read(guard=web.guard(**{"inside.example": ["192.168.1.1"]}))
    assert "redirects to" in error
    assert "is refused" in error


async def test_a_name_is_resolved_once_and_the_checked_address_is_connected_to(web, read):
    """A name server that changes its answer between check and connection gains nothing."""
    answers = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2"]]
    asked = []

    async def resolve(name, port):
        asked.append(name)
        return answers.pop(0)

    web.answers["/"] = answer_of(b"<p>x</p>", **HTML)
    assert (await read(host="changing.example", guard=AddressGuard(["127.0.0.1"], resolve)))["content"] == "x"
    assert asked == ["changing.example"]
    assert [seen.local for seen in web.seen] == ["127.0.0.1"]
    assert "is refused" in await read(host="changing.example", guard=AddressGuard(["127.0.0.1"], resolve))


HOSTILE = {
    "deep": lambda size: "<div>" * (size // 5) + "x",
    "formatting": lambda size: "".join(f"<b id={n}>x<p>" for n in range(size // 15)),
    "tables": lambda size: "<table><tr><td>" * (size // 15) + "x",
    "spans": lambda size: "<table>" + "<tr><td rowspan=1000 colspan=60>x" * (size // 34),
    "comments": lambda size: "<!--" * (size // 4),
    "brackets": lambda size: "x" + "<" * size,
    "entities": lambda size: "x&amp" * (size // 5),
    "attributes": lambda size: "<p " + "a=b " * (size // 4) + ">x",
    "quotations": lambda size: "<blockquote>x" * (size // 13),
    "scripts": lambda size: "x" + "<script>" * (size // 8),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_page_that_is_made_to_be_slow_does_not_hold_the_loop(kind):
    """It becomes text within the seconds of the converter, while the loop goes on."""
    page, turns = HOSTILE[kind](MAX_PAGE), 0

    async def count():
        nonlocal turns
        while True:
            await trio.sleep(0.01)
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        begun = trio.current_time()
        read = await to_markdown(page, "https://example.org/")
        seconds = trio.current_time() - begun
        nursery.cancel_scope.cancel()
    assert len(read.content) <= 2_000_000
    assert seconds < 40
    assert turns > seconds / 0.01 / 10


async def test_a_page_that_the_converter_cannot_bear_is_returned_as_its_text(monkeypatch, tmp_path):
    program = tmp_path / "converter.py"
    whole = web_page._CONVERTER.read_text()
    program.write_text(whole.replace("    main()\n", "    '--plain' in sys.argv or sys.exit(139)\n    main()\n"))
    monkeypatch.setattr(web_page, "_CONVERTER", program)
    read = await to_markdown("<title>T</title><p>a <b>b</b></p><script>no</script>c &amp; d", "https://example.org/")
    assert (read.title, read.content.split()) == ("T", ["a", "b", "c", "&", "d"])
    assert "too intricate" in read.notice


async def test_a_cancelled_conversion_leaves_no_process(monkeypatch, tmp_path):
    """The converter runs below a guard, which ends it with the call."""
    program = tmp_path / "converter.py"
    program.write_text("import signal; signal.pause()")
    monkeypatch.setattr(web_page, "_CONVERTER", program)
    begun = trio.current_time()
    with trio.move_on_after(0.5):
        await to_markdown("x", "https://example.org/")
    assert trio.current_time() - begun < 5


async def test_a_redirect_to_a_host_that_is_not_in_the_list_is_refused(web, read):
    async def resolve(name, port):
        return ["127.0.0.1"]

    guard = AddressGuard(["127.0.0.1"], resolve, only=["good.example"])
    web.answers["/"] = redirect(web.url("/b", "bad.example"))
    assert "tools.web_hosts" in await read(host="good.example", guard=guard)
    assert [seen.target for seen in web.seen] == ["/"]
