"""The HTTP tools against a server on loopback, which the guard of these tests permits."""

import base64
import gzip
import json
import ssl
import tracemalloc
import zlib

import pytest
import trio

from pegasus.tools import Effect, ToolContext
from pegasus.tools.web import http_exchange
from pegasus.tools.web.addresses import AddressGuard
from pegasus.tools.web.http_client import MAX_PARTS
from pegasus.tools.web.http_tools import fetch_tools
from tests.pegasus.tools.calling import run_tool
from tests.pegasus.tools.web import answer_of, certificate, open_web, redirect

TEXT = {"content_type": "text/plain; charset=utf-8"}


@pytest.fixture
async def web():
    async with open_web() as web:
        yield web


async def use(guard, name, context=None, **arguments):
    """The result of a call, or its error as text."""
    tools = {tool.name: tool for tool in fetch_tools(guard)}
    outcome = await run_tool(tools[name], arguments, 20.0, context or ToolContext(max_result=100_000))
    return outcome.content if outcome.failed else json.loads(outcome.content)


@pytest.fixture
def get(web):
    async def get(path="/", host="127.0.0.1", **arguments):
        return await use(web.guard(), "http_get", url=web.url(path, host), **arguments)

    return get


def test_what_running_again_does():
    """Only a GET may be done again unasked."""
    effects = {tool.name: tool.effect for tool in fetch_tools(AddressGuard())}
    assert effects == {"http_get": Effect.PURE, "http_post": Effect.ONCE, "http_request": Effect.ONCE}


# ------------------------------------------------------------------ requests and answers


async def test_what_a_get_gives(web, get):
    web.answers["/a"] = answer_of("grün".encode(), x_one="1", **TEXT)
    result = await get("/a?q=1")
    headers = result.pop("headers")
    assert result == {"url": web.url("/a?q=1"), "status": 200, "statusText": "OK", "body": "grün"}
    assert headers["x-one"] == "1"
    [seen] = web.seen
    assert (seen.method, seen.target, seen.headers["host"]) == ("GET", "/a?q=1", f"127.0.0.1:{web.port}")
    assert seen.headers["user-agent"].startswith("Pegasus/")


@pytest.mark.parametrize("status", ["404 Not Found", "500 Internal Server Error", "418 I'm a teapot"])
async def test_an_error_status_is_a_result(web, get, status):
    web.answers["/"] = answer_of(b"sorry", status, **TEXT)
    result = await get()
    assert (f"{result['status']} {result['statusText']}", result["body"]) == (status, "sorry")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
async def test_every_method(web, method):
    web.answers["/"] = b"HTTP/1.1 204 No Content\r\n\r\n"
    assert (await use(web.guard(), "http_request", method=method, url=web.url()))["status"] == 204
    assert web.seen[0].method == method


async def test_other_methods_are_refused(web):
    assert "Error: method" in await use(web.guard(), "http_request", method="TRACE", url=web.url())


@pytest.mark.parametrize(
    ("body", "sent", "kind"),
    [
        ("plain ü", "plain ü".encode(), "text/plain; charset=utf-8"),
        ({"a": ["ü"]}, '{"a":["ü"]}'.encode(), "application/json"),
        ([1, 2], b"[1,2]", "application/json"),
        ('{"a": 1}', b'{"a": 1}', "application/json"),
        ("{not json", b"{not json", "text/plain; charset=utf-8"),
    ],
)
async def test_what_is_posted(web, body, sent, kind):
    web.answers["/"] = answer_of(b"ok", **TEXT)
    await use(web.guard(), "http_post", url=web.url(), body=body)
    assert (web.seen[0].method, web.seen[0].body, web.seen[0].headers["content-type"]) == ("POST", sent, kind)


async def test_headers_of_the_caller_win(web):
    web.answers["/"] = answer_of(b"ok", **TEXT)
    mine = {"Content-Type": "text/csv", "User-Agent": "me", "Idempotency-Key": "mine"}
    await use(web.guard(), "http_post", ToolContext(key="k-1"), url=web.url(), body="a,b", headers=mine)
    assert mine.items() <= {name.title(): value for name, value in web.seen[0].headers.items()}.items()


@pytest.mark.parametrize(("name", "arguments", "key"), [("http_post", {}, "k-1"), ("http_get", {}, None)])
async def test_a_server_can_know_that_a_post_is_the_same(web, name, arguments, key):
    web.answers["/"] = answer_of(b"ok", **TEXT)
    await use(web.guard(), name, ToolContext(key="k-1"), url=web.url(), **arguments)
    assert web.seen[0].headers.get("idempotency-key") == key


@pytest.mark.parametrize(
    "headers", [{"Host": "a"}, {"content-length": "1"}, {"A": "b\r\nC: d"}, {"A\n": "b"}, {"": "b"}, {"a b": "c"}]
)
async def test_headers_that_are_refused(web, get, headers):
    assert (await get(headers=headers)).startswith("Error: headers: ")
    assert web.seen == []


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://a/",
        "gopher://a/",
        "//a",
        "a",
        "http://",
        "http:///a",
        "http://[::1",
        "",
        "javascript:1",
    ],
)
async def test_what_is_no_web_address(url):
    assert (await use(AddressGuard(), "http_get", url=url)).startswith("Error: ")


async def test_a_port_where_nobody_listens(web):
    guard = web.guard()
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    assert "failed: all attempts to connect" in await use(guard, "http_get", url=f"http://127.0.0.1:{port}/")


async def test_an_answer_that_is_no_http(web, get):
    web.answers["/"] = b"SSH-2.0-OpenSSH_9.6\r\n"
    assert (await get()).startswith(f"Error: GET {web.url()} failed: ")


async def test_a_connection_that_breaks_off(web, get):
    web.answers["/"] = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"
    assert "failed" in await get()


async def test_a_server_that_says_nothing_costs_the_deadline_only(web):
    async def silent(stream, seen):
        await trio.sleep_forever()

    web.answers["/"] = silent
    [tool, *_] = fetch_tools(web.guard())
    outcome = await run_tool(tool, {"url": web.url()}, 0.3, ToolContext())
    assert "took longer than 0.3 s" in outcome.content


async def test_a_name_and_password_of_the_address_go_to_the_server_and_not_into_the_result(web):
    web.answers["/"] = answer_of(b"ok", **TEXT)
    result = await use(web.guard(), "http_get", url=f"http://ann:secret@127.0.0.1:{web.port}/")
    assert web.seen[0].headers["authorization"] == "Basic " + base64.b64encode(b"ann:secret").decode()
    assert result["url"] == web.url()


async def test_proxies_of_the_environment_are_not_used(web, get, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    web.answers["/"] = answer_of(b"direct", **TEXT)
    assert (await get())["body"] == "direct"


# ------------------------------------------------------------------ where it may go


async def test_loopback_is_refused_unless_permitted(web):
    refusal = await use(AddressGuard(), "http_get", url=web.url())
    assert refusal.startswith("Error: 127.0.0.1 is refused: it is this machine")
    assert web.seen == []


async def test_what_was_checked_is_what_is_connected_to(web):
    """The name is in no DNS, is asked for once, and a second answer (rebinding) would be another machine."""
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])

    async def resolve(name, port):
        return next(answers)

    web.answers["/"] = answer_of(b"here", **TEXT)
    guard = AddressGuard(["127.0.0.1"], resolve)
    assert (await use(guard, "http_get", url=web.url(host="rebind.invalid")))["body"] == "here"
    assert web.seen[0].headers["host"] == f"rebind.invalid:{web.port}"
    assert next(answers) == ["10.0.0.1"]


async def test_the_next_address_where_one_does_not_answer(web):
    web.answers["/"] = answer_of(b"second", **TEXT)

    async def resolve(name, port):
        return ["127.0.0.3", "127.0.0.1"]

    guard = AddressGuard(["127.0.0.0/8"], resolve)
    assert (await use(guard, "http_post", url=web.url(host="two.invalid"), body="x"))["body"] == "second"
    assert len(web.seen) == 1


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest",
        "http://[::1]/",
        "http://10.0.0.1/",
        "http://inside.invalid/",
        "//0x7f.1/",
        "http://0/",
    ],
)
async def test_a_redirect_inside_is_refused(web, location):
    web.answers["/"] = redirect(location)
    guard = web.guard(**{"inside.invalid": ["192.168.1.1"]})
    result = await use(guard, "http_get", url=web.url())
    assert result.startswith(f"Error: {web.url()} redirects to ")
    assert "is refused" in result


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://a/", "javascript:alert(1)", "http://[", "http://"])
async def test_a_redirect_to_what_is_no_web_address(web, get, location):
    web.answers["/"] = redirect(location)
    assert (await get()).startswith(f"Error: {web.url()} redirects")


async def test_every_hop_is_resolved_and_checked(web):
    web.answers["/"] = redirect(web.url("/next", host="b.invalid"))
    web.answers["/next"] = redirect(web.url("/last", host="c.invalid"))
    web.answers["/last"] = answer_of(b"there", **TEXT)
    result = await use(web.guard(), "http_get", url=web.url(host="a.invalid"))
    assert (result["url"], result["body"]) == (web.url("/last", host="c.invalid"), "there")
    assert web.resolved == ["a.invalid", "b.invalid", "c.invalid"]


# ------------------------------------------------------------------ redirects


async def test_a_relative_redirect(web, get):
    web.answers["/a/b"] = redirect("../c?x=1#part")
    web.answers["/c"] = answer_of(b"c", **TEXT)
    assert (await get("/a/b"))["url"] == web.url("/c?x=1")


async def test_redirects_in_a_circle_end(web, get):
    web.answers["/"] = redirect("/")
    assert await get() == f"Error: {web.url()} redirects more than 10 times"
    assert len(web.seen) == 11


async def test_a_redirect_without_a_place_is_the_answer(web, get):
    web.answers["/"] = answer_of(b"", "302 Found")
    assert (await get())["status"] == 302


@pytest.mark.parametrize(
    ("status", "method", "then", "body"),
    [
        (301, "POST", "GET", b""),
        (302, "POST", "GET", b""),
        (303, "POST", "GET", b""),
        (303, "PUT", "GET", b""),
        (301, "PUT", "PUT", b"data"),
        (307, "POST", "POST", b"data"),
        (308, "PATCH", "PATCH", b"data"),
        (303, "HEAD", "HEAD", b""),
        (307, "DELETE", "DELETE", b""),
    ],
)
async def test_the_method_after_a_redirect(web, status, method, then, body):
    """RFC 9110, 15.4: as browsers do it."""
    web.answers["/"] = redirect("/next", f"{status} X")
    web.answers["/next"] = b"HTTP/1.1 204 No Content\r\n\r\n"
    given = {"body": "data"} if method in ("POST", "PUT", "PATCH") else {}
    await use(web.guard(), "http_request", method=method, url=web.url(), **given)
    assert (web.seen[1].method, web.seen[1].body) == (then, body)
    assert ("content-type" in web.seen[1].headers) == bool(body)


SECRET = {"Authorization": "Bearer s", "Cookie": "s", "X-Api-Key": "s", "Accept-Language": "de"}


async def test_headers_stay_within_an_origin(web, get):
    web.answers["/"] = redirect("/next", set_cookie="session=s")
    web.answers["/next"] = redirect(web.url("/last", host="other.invalid"))
    web.answers["/last"] = answer_of(b"ok", **TEXT)
    await get(headers=SECRET)
    first, second, third = ({name.title(): value for name, value in seen.headers.items()} for seen in web.seen)
    assert SECRET.items() <= first.items()
    assert SECRET.items() <= second.items()
    assert "s" not in third.values()
    assert "Bearer s" not in third.values()
    assert third["Accept-Language"] == "de"


async def test_no_cookie_is_kept(web, get):
    web.answers["/"] = redirect("/next", set_cookie="session=s")
    web.answers["/next"] = answer_of(b"ok", **TEXT)
    await get()
    await get()
    assert not [seen for seen in web.seen if "cookie" in seen.headers]


async def test_a_password_in_an_address_stays_there(web):
    web.answers["/"] = redirect(web.url("/next", host="other.invalid"))
    await use(web.guard(), "http_get", url=f"http://ann:secret@127.0.0.1:{web.port}/")
    assert "authorization" not in web.seen[1].headers


async def test_a_body_is_not_sent_on_to_another_origin(web):
    web.answers["/"] = redirect(web.url("/next", host="other.invalid"), "307 Temporary Redirect")
    result = await use(web.guard(), "http_post", url=web.url(), body="data")
    assert (result["status"], result["headers"]["location"]) == (307, web.url("/next", host="other.invalid"))
    assert len(web.seen) == 1


# ------------------------------------------------------------------ bodies


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        ("ä€".encode(), "text/html", "ä€"),
        ("ä€".encode("cp1252"), "text/html; charset=ISO-8859-1", "ä€"),
        ("ä".encode("latin-1"), "text/plain; charset=latin1", "ä"),
        ("日本".encode("shift_jis"), "text/html; charset=Shift_JIS", "日本"),
        ('<meta charset="euc-jp">日本'.encode("euc-jp"), "text/html", '<meta charset="euc-jp">日本'),
        (b'<?xml version="1.0" encoding="koi8-r"?>' + "да".encode("koi8-r"), "application/xml", None),
        ("\ufeffä".encode(), "text/plain; charset=latin1", "ä"),
        ("\ufeffä".encode("utf-16-le"), "text/plain", "ä"),
        (b"a\xffb", "text/plain", "a\ufffdb"),
        ("ä".encode(), "text/plain; charset=no-such", "ä"),
        (b"+AGEAYg-", "text/plain; charset=utf-7", "+AGEAYg-"),
        (b"616263", "text/plain; charset=hex", "616263"),
        (b'{"a":1}', "application/problem+json; charset=utf-8", '{"a":1}'),
        (b"<svg/>", "image/svg+xml", "<svg/>"),
        ("naïve".encode(), "", "naïve"),
        (b"text", "application/octet-stream", "text"),
    ],
)
async def test_character_sets(web, get, data, kind, text):
    web.answers["/"] = answer_of(data, **({"content_type": kind} if kind else {}))
    body = (await get())["body"]
    assert body == text if text is not None else body.endswith("да")


async def test_a_small_binary_is_base64(web, get):
    web.answers["/"] = answer_of(b"\x89PNG\0\1", content_type="image/png")
    result = await get()
    assert (base64.b64decode(result["body"]), result["encoding"]) == (b"\x89PNG\0\1", "base64")


async def test_a_large_binary_is_described(web, get):
    web.answers["/"] = answer_of(b"\0" * 100_000, content_type="image/png")
    result = await get()
    assert (result["body"], result["notice"]) == ("", "binary data (image/png, 100,000 bytes) is not shown")


async def test_a_long_text_is_cut_with_a_notice(web):
    web.answers["/"] = answer_of(b"x" * 500_000, **TEXT)
    context = ToolContext(max_result=10_000)
    result = await use(web.guard(), "http_get", context, url=web.url())
    assert result["truncated"]
    assert result["notice"] == "only the first 7,000 characters of the body are here"
    assert result["body"] == "x" * 7000


async def test_an_endless_body_is_not_read_on(web, get):
    """A server that never ends costs its first megabyte."""
    broken = trio.Event()

    async def endless(stream, seen):
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        try:
            while True:
                await stream.send_all(b"x" * 65536)
        finally:
            broken.set()

    web.answers["/"] = endless
    assert (await get())["truncated"]
    with trio.fail_after(5):
        await broken.wait()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda data: zlib.compress(data)[2:-4]),
        ("gzip", lambda data: gzip.compress(data[:5]) + gzip.compress(data[5:])),
        ("gzip", lambda data: gzip.compress(data) + b"\0" * 20),
        ("identity", bytes),
        ("", bytes),
    ],
)
async def test_compressed_bodies(web, get, encoding, pack):
    data = b"some text " * 1000
    web.answers["/"] = answer_of(pack(data), content_encoding=encoding, **TEXT)
    result = await get()
    assert result["body"] == data.decode()
    assert "notice" not in result


async def test_a_decompression_bomb_is_not_unpacked(web, get):
    """Some kilobytes that stand for 64 megabytes: what is unpacked is what may be read."""
    packer = zlib.compressobj(9)
    bomb = b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(64)) + packer.flush()
    web.answers["/"] = answer_of(bomb, content_encoding="deflate", **TEXT)
    await get("/warm")
    tracemalloc.start()
    try:
        result = await get()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result["truncated"]
    assert peak < 20_000_000


@pytest.mark.parametrize(
    ("encoding", "data", "notice"),
    [
        ("gzip", b"no gzip at all", "damaged"),
        ("deflate", b"\xff\xff\xff\xff", "damaged"),
        ("gzip", gzip.compress(b"abc" * 1000, mtime=0)[:20], "ends too early"),
        ("br", b"\x0b\x02\x80", "compressed in a way that is not read: br"),
        ("gzip, gzip", gzip.compress(gzip.compress(b"x", mtime=0), mtime=0), "compressed in a way that is not read"),
    ],
)
async def test_a_body_that_cannot_be_unpacked_says_so(web, get, encoding, data, notice):
    web.answers["/"] = answer_of(data, content_encoding=encoding, **TEXT)
    assert notice in (await get())["notice"]


async def test_a_body_that_is_damaged_in_the_middle_is_not_taken_for_whole(web, get):
    data = bytearray(gzip.compress(bytes(range(256)) * 4000, compresslevel=0))
    data[len(data) // 2 :] = b"\xff" * (len(data) - len(data) // 2)
    web.answers["/"] = answer_of(bytes(data), content_encoding="gzip", **TEXT)
    assert "damaged" in (await get())["notice"]


async def test_a_body_of_thousands_of_tiny_gzip_files_is_as_much_work_as_a_large_one(monkeypatch):
    """zlib copies everything that is behind the end of a file, so it must not be given the whole rest each time."""
    given, decompressobj = [], zlib.decompressobj

    def counted(window):
        inner = decompressobj(window)

        class Counted:
            eof = property(lambda self: inner.eof)
            unused_data = property(lambda self: inner.unused_data)
            unconsumed_tail = property(lambda self: inner.unconsumed_tail)

            def decompress(self, data, most):
                given.append(len(data))
                return inner.decompress(data, most)

        return Counted()

    file = gzip.compress(b"y")
    body = gzip.compress(b"x" * 900_000) + file * 10_000
    monkeypatch.setattr(http_exchange.zlib, "decompressobj", counted)
    unpacked = bytearray()

    async def keep(piece):
        unpacked.extend(piece)

    packed = http_exchange._Body(keep, 1 << 20, "gzip")
    await packed.take(body)
    assert (bytes(unpacked), packed.note_at_end) == (b"x" * 900_000 + b"y" * 10_000, "")
    assert sum(given) < 200 * len(body)


async def test_a_body_of_blocks_without_content_takes_no_memory():
    """A stream of deflate may consist of them, without end: they give nothing that a limit would count."""

    async def keep(piece):
        raise AssertionError(piece)

    body = http_exchange._Body(keep, 1 << 20, "deflate")
    await body.take(zlib.compress(b"")[:2])
    empty = b"\0\0\0\xff\xff" * 10_000
    tracemalloc.start()
    try:
        for _ in range(100):
            await body.take(empty)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


async def test_a_body_in_chunks_of_one_byte_is_not_read_without_end(web, get):
    """Each such chunk costs as much work as one of 64 KB. A megabyte of them would keep the event loop busy for a minute."""

    async def drip(stream, seen):
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(1 << 10):
            await stream.send_all(b"1\r\na\r\n" * (1 << 10))
        await stream.send_all(b"0\r\n\r\n")

    web.answers["/"] = drip
    result = await get()
    assert "too many small parts" in result["notice"]
    assert result["truncated"]
    assert len(result["body"]) == MAX_PARTS


async def test_other_tasks_run_while_small_chunks_arrive(web, get):
    """Thousands of chunks can arrive in one read; the library hands them out without a checkpoint."""
    chunks = b"1\r\na\r\n" * 10_000
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    web.answers["/"] = head + chunks + b"0\r\n\r\n"
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        assert len((await get())["body"]) == 10_000
        nursery.cancel_scope.cancel()
    assert turns > 10_000


# ------------------------------------------------------------------ TLS


@pytest.fixture
async def secure(tmp_path, monkeypatch):
    """An https server for the name secure.invalid, and nothing else, whose certificate is trusted."""
    cert, key = certificate(tmp_path, "DNS:secure.invalid")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    names = []
    context.sni_callback = lambda connection, name, context: names.append(name)
    trusted = ssl.create_default_context(cafile=str(cert))
    monkeypatch.setattr("pegasus.tools.web.http_exchange.system_trust", lambda: trusted)
    async with open_web(tls=context) as web:
        web.names = names
        yield web


async def test_the_name_is_what_the_certificate_is_checked_against(secure):
    secure.answers["/"] = answer_of(b"safe", **TEXT)
    url = secure.url(host="secure.invalid.", scheme="https")
    assert (await use(secure.guard(), "http_get", url=url))["body"] == "safe"
    assert secure.names == ["secure.invalid"]


@pytest.mark.parametrize("host", ["other.invalid", "127.0.0.1"])
async def test_another_name_is_refused(secure, host):
    result = await use(secure.guard(), "http_get", url=secure.url(host=host, scheme="https"))
    assert "CERTIFICATE_VERIFY_FAILED" in result
    assert secure.seen == []


async def test_a_certificate_nobody_vouches_for(secure, monkeypatch):
    monkeypatch.setattr("pegasus.tools.web.http_exchange.system_trust", ssl.create_default_context)
    result = await use(secure.guard(), "http_get", url=secure.url(host="secure.invalid", scheme="https"))
    assert "CERTIFICATE_VERIFY_FAILED" in result


async def test_from_http_to_https(secure):
    secure.answers["/"] = answer_of(b"safe", **TEXT)
    async with open_web() as web:
        web.answers["/"] = redirect(secure.url(host="secure.invalid", scheme="https"))
        assert (await use(web.guard(), "http_get", url=web.url()))["body"] == "safe"
