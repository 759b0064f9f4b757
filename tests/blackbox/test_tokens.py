"""A token for each client: what it is bound to, what it may do, and its end."""

from __future__ import annotations

import base64
import json
import stat
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
import trio
from trio_websocket import ConnectionClosed, open_websocket_url

from tests.blackbox.support import SILENCE, Book, Closed, Thought, connect, running, say, serving
from tests.blackbox.support.model import reply
from tests.blackbox.support.waiting import until_async

HTTP = {"http.enabled": True, "http.port": 0}
STAND_IN = {"models.default": "offline/stand-in"}
WEB = {"type": "web", "channelId": "c1"}


async def add(daemon, name, *options):
    """Make a token with the command line; the token."""
    done = await daemon.command("token", "add", name, *options)
    assert done.code == 0, done
    [token] = done.out.split()
    return token


@asynccontextmanager
async def greeted(daemon, token, type="web", channel_id=None, **more):
    async with connect(daemon.url) as peer:
        await peer.hello(token, type, channel_id, **more)
        yield peer


async def assert_refused(daemon, token, channel, says):
    async with connect(daemon.url) as peer:
        await peer.send({"type": "hello", "token": token, "channel": channel})
        assert says in (await peer.error("unauthorized"))["message"]
        assert await peer.closed() == 4401


async def refused(peer, frame, says):
    """Send a frame that is refused; the connection goes on."""
    await peer.send(frame)
    error = await peer.error("bad_frame")
    assert says in error["message"]
    return error


async def test_a_client_with_a_token_of_its_own_talks_as_what_it_is_bound_to(tmp_path):
    async with serving(tmp_path, Book()) as daemon:
        token = await add(daemon, "phone", "--type", "web", "--channel", "phone")
        async with greeted(daemon, token, channel_id="phone") as peer:
            assert await peer.ask("hello") == "echo: hello"
        async with greeted(daemon, token, channel_id=None) as peer:  # what is fixed need not be said
            assert peer.welcome["channel"]["channelId"] == "phone"
            assert await peer.ask("again") == "echo: again"
        await assert_refused(daemon, token, {"type": "web", "channelId": "c1"}, 'is for channelId "phone"')
        await assert_refused(daemon, token, {"type": "cli", "channelId": "phone"}, 'is for channel type "web"')
        async with greeted(daemon, token, channel_id="phone") as peer:
            await refused(
                peer,
                {"type": "message", "id": "m", "text": "hi", "channel": {"type": "cli", "channelId": "main"}},
                "message.channel",
            )


@pytest.mark.parametrize("scopes", ["message", "read", "message,read", "message,control"])
async def test_a_token_without_a_conversation_has_one_of_its_own_at_every_door(tmp_path, scopes):
    """It hears nothing of others, and speaks as nobody else."""
    async with serving(tmp_path, Book(), HTTP) as daemon:
        token = await add(daemon, "app", "--scope", scopes)
        other = await add(daemon, "app2", "--scope", "message")
        stored = json.loads((daemon.home / "data" / "tokens.json").read_text())["tokens"][0]
        assert not stored.get("channelId")  # as it was when such a token could name any conversation
        async with daemon.client("cli", "main") as owner, daemon.client("api", "owners") as api:
            assert await owner.ask("a secret") == "echo: a secret"
            assert await api.ask("another") == "echo: another"
        for type, id in (
            ("cli", "main"),
            ("api", "owners"),
            ("web", "token-app2"),
            ("api", "token-app2/x"),
            ("web", "token-app-"),
        ):
            await assert_refused(daemon, token, {"type": type, "channelId": id}, 'is for channelId "token-app"')
        async with greeted(daemon, token, "cli") as peer:
            assert peer.welcome["channel"]["channelId"] == "token-app"
        async with greeted(daemon, token, "api", "token-app/7") as peer:
            assert peer.welcome["channel"]["channelId"] == "token-app/7"
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=daemon.at.http, headers=headers, timeout=20) as http:
            for query in (
                "channelId=main&type=cli",
                "channelId=owners",
                "channelId=token-app2",
                "channelId=owners&wait=5",
            ):
                assert (await http.get(f"/api/replies?{query}")).status_code == 403
            assert (await http.get("/api/replies")).json() == {"replies": [], "seq": 0}
            if "message" not in scopes:
                return
            message = {"text": "hi", "channel": {"type": "cli", "channelId": "main"}}
            for path in ("/api/messages", "/api/messages?wait=5"):
                assert (await http.post(path, json=message)).status_code == 403
            turn = (await http.post("/api/messages?wait=20", json={"text": "hello"})).json()
            assert [reply["channel"]["channelId"] for reply in turn["replies"]] == ["token-app"]
            chat = {"model": "x", "messages": [{"role": "user", "content": "mine"}], "user": "owners"}
            answer = (await http.post("/v1/chat/completions", json=chat)).json()
            assert answer["choices"][0]["message"]["content"] == "echo: mine"  # and nothing that was said to the owner
            replies = (await http.get("/api/replies?channelId=token-app/owners")).json()["replies"]
            assert [reply["text"] for reply in replies] in ([], ["echo: mine"])
        async with greeted(daemon, other, "api") as peer:
            assert await peer.ask("yours") == "echo: yours"


async def test_the_page_of_a_token_is_its_own_conversation(tmp_path):
    async with serving(tmp_path, Book(), HTTP) as daemon:
        token = await add(daemon, "tablet", "--scope", "message,read")
        async with httpx.AsyncClient(base_url=daemon.at.http, timeout=20) as browser:
            signed = await browser.post("/api/login", json={"token": token})
        cookie = ("cookie", signed.headers["set-cookie"].partition(";")[0])
        url = f"{daemon.at.http.replace('http', 'ws')}/ws"
        async with open_websocket_url(url, subprotocols=["pegasus.v1"], extra_headers=[cookie]) as page:
            await page.send_message(json.dumps({"type": "hello", "channel": {"type": "web", "channelId": "main"}}))
            welcome = json.loads(await page.get_message())
            assert welcome["channel"] == {"type": "web", "channelId": "token-tablet"}


async def test_a_token_of_a_bridge(tmp_path):
    async with serving(tmp_path, Book()) as daemon:
        token = await add(daemon, "slack", "--type", "slack", "--bridge")
        async with greeted(daemon, token, "slack", None) as bridge:
            await bridge.say("hello", channel={"type": "slack", "channelId": "#a", "userId": "u1"})
            assert (await bridge.reply())["text"] == "echo: hello"
            await refused(
                bridge,
                {"type": "message", "id": "m", "text": "hi", "channel": {"type": "cli", "channelId": "main"}},
                "message.channel",
            )
        await assert_refused(daemon, token, {"type": "sms"}, 'is for channel type "slack"')
        one = {"type": "slack", "channelId": "#a"}  # as if it were the client of one conversation
        await assert_refused(daemon, token, one, "leave channelId out of the hello")
        other = await add(daemon, "plain", "--type", "slack")
        async with greeted(daemon, other, "slack", None) as peer:  # a client, with a conversation of its own
            assert peer.welcome["channel"]["channelId"] == "token-plain"


@pytest.mark.parametrize("kind", ["web", "cli"])
async def test_allow_from_counts_on_the_page_and_in_the_terminal_too(tmp_path, kind):
    """A token lets nobody in whom the settings do not name, and what such a person writes reaches no model."""
    async with serving(tmp_path, book := Book()) as daemon:
        token = await add(daemon, "kiosk", "--type", kind, "--channel", "kiosk")
        daemon.configure(**{f"channels__{kind}__allow_from": ["ann"]})
        await daemon.restart()
        await assert_refused(daemon, token, {"type": kind, "channelId": "kiosk", "userId": "bob"}, "allow_from")
        async with greeted(daemon, token, kind, "kiosk", userId="ann") as peer:
            assert await peer.ask("hello") == "echo: hello"
        assert len(book.asked) == len(book.about("hello"))


async def test_scopes(tmp_path):
    async with serving(tmp_path, Book()) as daemon:
        tokens = {scope: await add(daemon, scope, "--scope", scope) for scope in ("message", "read", "control")}
        async with greeted(daemon, tokens["message"]) as peer:
            assert await peer.ask("hello") == "echo: hello"
            for method in ("status", "stop", "tokens.list"):
                await refused(peer, {"type": "call", "id": "1", "method": method, "params": {}}, "has not the scope")
            await peer.send({"type": "call", "id": "2", "method": "nonsense", "params": {}})
            assert (await peer.get("error"))["code"] in ("unknown_method", "bad_frame")
        async with greeted(daemon, tokens["read"]) as peer:
            assert "waiting" in await peer.call("status")
            await refused(peer, {"type": "call", "id": "1", "method": "stop", "params": {}}, '"control"')
            await refused(peer, {"type": "message", "id": "m", "text": "hi"}, '"message"')
            await refused(peer, {"type": "ack", "seq": 1}, '"message"')
        async with greeted(daemon, tokens["control"]) as peer:
            assert await peer.call("stop") == {"ended": []}
            await refused(
                peer, {"type": "call", "id": "1", "method": "tokens.list", "params": {}}, "only the owner's token"
            )
            await refused(
                peer,
                {"type": "call", "id": "2", "method": "tokens.add", "params": {"name": "x"}},
                "only the owner's token",
            )


async def test_a_reader_takes_no_reply_from_its_client(tmp_path):
    """It hears them too, and what it claims to have counts for nobody."""
    async with serving(tmp_path, Book()) as daemon:
        token = await add(daemon, "board", "--scope", "read", "--type", "web", "--channel", "c1")
        async with daemon.client("web", "c1") as client:
            await client.say("hello")
            assert (await client.reply())["seq"] == 1
        async with greeted(daemon, token, lastSeq=1_000) as reader:
            assert (await reader.reply())["text"] == "echo: hello"
        async with daemon.client("web", "c1") as client:
            assert (await client.reply())["seq"] == 1


@pytest.mark.parametrize(
    ("options", "hello", "is_owner"),
    [
        (["--type", "web", "--channel", "c1"], ("web", "c1"), False),
        (["--type", "web", "--scope", "message,read"], ("web",), False),
        (["--channel", "main"], ("cli", "main"), False),
        (["--type", "web", "--scope", "message,control"], ("web",), True),
        (["--type", "sms", "--scope", "message,control"], ("sms",), False),
    ],
)
async def test_only_a_token_that_may_control_makes_its_channel_the_owners(tmp_path, options, hello, is_owner):
    async with serving(tmp_path, Book()) as daemon:
        token = await add(daemon, "client", *options)
        async with greeted(daemon, token, *hello) as peer:
            told = await peer.ask("/persona")  # a guest may begin their own conversation anew, and no more
            assert ("only my owner" in told.lower()) != is_owner


async def test_a_client_that_claims_the_owners_name_is_not_the_owner_but_a_bridge_vouches_for_its_users(tmp_path):
    owners = {"agent.owners": ["cli:*", "telegram:42", "web:ann"]}
    async with serving(tmp_path, Book(), owners) as daemon:
        client = await add(daemon, "client", "--type", "telegram", "--channel", "77")
        async with greeted(daemon, client, "telegram", "77", userId="42") as peer:
            assert "only my owner" in (await peer.ask("/persona")).lower()
        bridge = await add(daemon, "bridge", "--type", "telegram", "--bridge")
        async with greeted(daemon, bridge, "telegram", None) as peer:
            await peer.say("/persona", channel={"type": "telegram", "channelId": "42", "userId": "42"})
            assert "only my owner" not in (await peer.reply())["text"].lower()
        page = await add(daemon, "page", "--type", "web", "--bridge")
        async with greeted(daemon, page, "web", None) as peer:
            await peer.say("/persona", channel={"type": "web", "channelId": "x", "userId": "ann"})
            assert "only my owner" in (await peer.reply())["text"].lower()


async def test_what_is_stored_is_private_and_no_token(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon:
        token = await add(daemon, "phone")
        path = daemon.home / "data" / "tokens.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert token not in path.read_text()
        [stored] = json.loads(path.read_text())["tokens"]
        assert (stored["name"], len(stored["hash"])) == ("phone", 64)
        assert token not in daemon.stderr
        listed = await daemon.command("token", "list")
        assert "phone" in listed.out
        assert token not in listed.out
        assert stored["hash"] not in listed.out + (await daemon.command("token", "list", "--json")).out
        await assert_refused(daemon, stored["hash"], WEB, "wrong token")


async def test_a_token_survives_kill_9_and_the_owners_goes_on_counting(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon:
        token = await add(daemon, "phone", "--scope", "read")
        await daemon.restart()
        async with greeted(daemon, token) as peer:
            await peer.fence()
        async with daemon.client() as client:
            await client.fence()


async def test_a_revoked_token_ends_its_connections_at_once_and_counts_no_more(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon:
        token, other = (
            await add(daemon, "phone", "--scope", "message,read"),
            await add(daemon, "other", "--scope", "read"),
        )
        async with (
            greeted(daemon, token) as first,
            greeted(daemon, token, channel_id="token-phone/2") as second,
            greeted(daemon, other) as stays,
        ):
            assert (await daemon.command("token", "revoke", "phone")).code == 0
            for peer in (first, second):
                assert "was revoked" in (await peer.error("unauthorized"))["message"]
                assert await peer.closed() == 4401
            await stays.fence()
        await assert_refused(daemon, token, WEB, "wrong token")
        await daemon.restart()
        await assert_refused(daemon, token, WEB, "wrong token")
        again = await daemon.command("token", "revoke", "phone")
        assert (again.code, 'there is no token "phone"' in again.err) == (1, True)


async def test_a_name_counts_once_also_for_two_commands_at_the_same_time(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon:
        codes = []

        async def make():
            codes.append((await daemon.command("token", "add", "phone")).code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(make)
            nursery.start_soon(make)
        assert sorted(codes) == [0, 1]


@pytest.mark.files("with a database a running agent changes what its nodes know")
async def test_tokens_without_a_daemon(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon:
        daemon.kill()
        token = await add(daemon, "phone", "--type", "web", "--scope", "read")
        assert "web" in (await daemon.command("token", "list")).out
        gone = await add(daemon, "gone")
        assert (await daemon.command("token", "revoke", "gone")).code == 0
        await daemon.start()
        async with greeted(daemon, token) as peer:
            await peer.fence()
        await assert_refused(daemon, gone, WEB, "wrong token")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["add", "no/name"], 1),
        (["add", "x", "--scope", "all"], 1),
        (["add", "x", "--type", "cli\u200b"], 1),
        (["add", "x", "--channel", "c", "--bridge"], 1),
        (["add"], 2),
        (["revoke", "nobody"], 1),
    ],
)
async def test_mistakes_are_named(shared, arguments, code):
    done = await shared.command("token", *arguments)
    assert (done.code, bool(done.err.strip())) == (code, True)
    assert "Traceback" not in done.err
    assert (await shared.command("token", "list", "--json")).out.strip() == '{"tokens": []}'


@pytest.mark.files("files that were damaged by hand")
@pytest.mark.parametrize(
    "content",
    [
        "garbage",
        "[]",
        '{"tokens": 5}',
        '{"tokens": [{"name": "x", "hash": "short", "scopes": ["message"]}, 7]}',
        "\x00",
    ],
)
async def test_a_damaged_file_lets_nobody_in_and_is_kept_aside(tmp_path, content):
    async with running(tmp_path / "home", STAND_IN) as daemon:
        token = await add(daemon, "phone")
        daemon.kill()
        path = daemon.home / "data" / "tokens.json"
        path.write_text(content)
        await daemon.start()
        await assert_refused(daemon, token, WEB, "wrong token")
        await assert_refused(daemon, "", WEB, "wrong token")
        assert [kept.read_text() for kept in path.parent.glob("tokens.json.bad-*")] == [content]
        async with daemon.client() as client:
            await client.fence()
        assert (await daemon.command("token", "add", "phone")).code == 0


@pytest.mark.files("files that were damaged by hand")
async def test_a_good_entry_beside_a_damaged_one_counts(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon:
        token = await add(daemon, "phone", "--scope", "read")
        daemon.kill()
        path = daemon.home / "data" / "tokens.json"
        path.write_text(json.dumps({"tokens": [{"name": 5}, *json.loads(path.read_text())["tokens"]]}))
        await daemon.start()
        async with greeted(daemon, token) as peer:
            await peer.fence()


async def test_a_revoked_client_is_heard_no_more(tmp_path):
    """What it sends behind the revocation is not accepted, whatever it has under way."""
    async with serving(tmp_path, book := Book()) as daemon:
        token = await add(daemon, "phone")
        async with greeted(daemon, token) as peer:
            await peer.ask("before")
            assert (await daemon.command("token", "revoke", "phone")).code == 0
            await peer.error("unauthorized")
            with suppress(Closed, ConnectionClosed):
                await peer.post("after")
        async with daemon.client() as client:
            await client.ask("fence")
        assert "after" not in [view.question.text for view in book.asked]


# ------------------------------------------------------------------ what is under way when a token is revoked


async def answer_of(http, method, path, **more):
    """Status and body of a response, also of one that breaks off."""
    body = b""
    async with http.stream(method, path, **more) as response:
        with suppress(httpx.RemoteProtocolError):
            async for part in response.aiter_raw():
                body += part
    return response.status_code, body


LONG = {"messages": [{"role": "user", "content": "a long story"}], "model": "x"}
UNDER_WAY = {
    "a long poll": ("GET", "/api/replies?wait=60", {}),
    "a message that waits": ("POST", "/api/messages?wait=60", {"json": {"text": "a long story"}}),
    "a completion": ("POST", "/v1/chat/completions", {"json": LONG}),
    "a completion that may be repeated": (
        "POST",
        "/v1/chat/completions",
        {"json": LONG, "headers": {"Idempotency-Key": "k-1"}},
    ),
    "a streamed completion": ("POST", "/v1/chat/completions", {"json": {**LONG, "stream": True}}),
    "events": ("GET", "/api/events", {}),
}


@pytest.mark.parametrize(("method", "path", "more"), UNDER_WAY.values(), ids=UNDER_WAY)
@pytest.mark.parametrize("is_page", [False, True])
async def test_what_is_under_way_ends_with_its_token_or_its_session(tmp_path, method, path, more, is_page):
    """Within a second, and without the answer, which comes later."""
    async with serving(tmp_path, book := Book({"a long story": say("once upon a time")}), HTTP) as daemon:
        book.hold()
        token = await add(daemon, "app", "--scope", "message,read")
        async with httpx.AsyncClient(base_url=daemon.at.http, timeout=30) as http:
            if is_page:
                origin = {"origin": daemon.at.http}
                signed = await http.post("/api/login", json={"token": token}, headers=origin)
                http.headers.update({"cookie": signed.headers["set-cookie"].partition(";")[0], **origin})
                http.cookies.clear()
            else:
                http.headers["authorization"] = f"Bearer {token}"
            answers = []

            async def ask():
                answers.append(await answer_of(http, method, path, **more))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                if "a long story" in str(more):
                    await book.waiting()
                else:
                    await trio.sleep(0.3)  # it waits for what does not come
                if is_page:
                    assert (await http.post("/api/logout")).status_code == 200
                else:
                    assert (await daemon.command("token", "revoke", "app")).code == 0
                nursery.cancel_scope.deadline = trio.current_time() + 1
            book.release()
        [(status, body)] = answers
        assert b"once upon a time" not in body
        assert b'"unauthorized"' in body
        assert status == (200 if path == "/api/events" or "stream" in str(more) else 401)


async def test_the_socket_of_a_page_ends_when_it_is_signed_out(tmp_path):
    async with running(tmp_path / "home", {**STAND_IN, **HTTP}) as daemon:
        origin = daemon.at.http
        async with httpx.AsyncClient(base_url=daemon.at.http, timeout=20, headers={"origin": origin}) as browser:
            signed = await browser.post("/api/login", json={"token": daemon.token})
            other = await browser.post("/api/login", json={"token": daemon.token})
            cookie = signed.headers["set-cookie"].partition(";")[0]
            url = f"{daemon.at.http.replace('http', 'ws')}/ws"
            fields = [("cookie", cookie), ("origin", origin)]
            stays = [("cookie", other.headers["set-cookie"].partition(";")[0]), ("origin", origin)]
            async with (
                open_websocket_url(url, subprotocols=["pegasus.v1"], extra_headers=fields) as page,
                open_websocket_url(url, subprotocols=["pegasus.v1"], extra_headers=stays) as second,
            ):
                for socket in (page, second):
                    await socket.send_message(
                        json.dumps({"type": "hello", "channel": {"type": "web", "channelId": "m"}})
                    )
                    assert json.loads(await socket.get_message())["type"] == "welcome"
                browser.cookies.clear()
                assert (await browser.post("/api/logout", headers={"cookie": cookie})).status_code == 200
                with trio.fail_after(1), suppress(ConnectionClosed):
                    while True:
                        await page.get_message()
                await second.send_message(json.dumps({"type": "message", "id": "m-1", "text": "hello"}))
                with trio.fail_after(10):
                    while json.loads(await second.get_message())["type"] != "reply":
                        pass
                await page._stream.aclose()


async def test_a_client_that_does_not_read_gets_no_reply_behind_the_revocation(tmp_path):
    async with serving(tmp_path, Book({"long": say("x" * 300_000)}), HTTP) as daemon:
        token = await add(daemon, "app")
        async with connect(daemon.url, lazy=True) as peer:
            await peer.hello(token, "api", None)
            for number in range(30):
                await peer.post("long", id=f"m-{number}")
            await trio.sleep(1)
            assert (await daemon.command("token", "revoke", "app")).code == 0
            since = trio.current_time()
            async with daemon.client("cli", "main") as owner:

                async def is_alone():
                    return (await owner.call("clients"))["clients"] == [{"type": "cli", "channelId": "main"}]

                await until_async(is_alone, "the end of the connection")
            assert trio.current_time() - since < 2


async def test_the_conversation_of_a_revoked_token_is_not_the_owners(tmp_path):
    """What an owner's work, which has read text from outside, would say there is a question, as it was while the token counted."""
    news = Thought(calls=(reply("the news", "token-app", "web"), reply("I have asked you")))
    note = {"name": "note.txt", "mime": "text/plain", "data": base64.b64encode(b"send it").decode()}
    settings = {"agent.owners": ["web:*", "cli:*"], "policy.rules": []}
    async with serving(tmp_path, Book({"tell them": [news, SILENCE]}), settings) as daemon:
        token = await add(daemon, "app", "--type", "web")
        async with greeted(daemon, token) as guest:
            assert await guest.ask("hello") == "echo: hello"
        assert (await daemon.command("token", "revoke", "app")).code == 0
        await daemon.restart()
        async with daemon.client("cli", "main") as owner:
            await owner.ask("look at this", media=[note])
            await owner.say("tell them")
            shown = await owner.get("approval", state="open")
            assert shown["arguments"]["channelId"] == "token-app"
            await owner.get("reply", text="I have asked you")
        # A token of the same name finds nothing of the owner's there.
        token = await add(daemon, "app", "--type", "web")
        async with greeted(daemon, token, lastSeq=0) as guest:
            await guest.ask("again")
            assert "the news" not in guest.texts()
        # Of an owner's own client it is the owner's.
        assert (await daemon.command("token", "revoke", "app")).code == 0
        await add(daemon, "app", "--type", "web", "--scope", "message,control")
        async with daemon.client("cli", "main") as owner, daemon.client("web", "token-app") as page:
            await owner.say("tell them", id="again")
            await page.get("reply", text="the news")  # behind what the token's client may have left unacknowledged
