"""Who may send what: Host, tokens, scopes, signing in, cookies and Origins."""

import json

import httpx
import pytest
import trio
from trio_websocket import ConnectionClosed

from pegasus.storage import StorageError
from tests.pegasus.web.world import HANDSHAKE, TOKEN, Clock, Journal, ask, exchange, world

HELLO = {"type": "hello", "channel": {"type": "web", "channelId": "main"}}


async def sign_in(there, client, token=TOKEN):
    response = await client.post("/api/login", json={"token": token}, headers={"origin": there.origin})
    assert response.status_code == 200, response.text
    return response


# ------------------------------------------------------------------ Host


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:1", "localhost", "LOCALHOST:80", "[::1]:7718", "127.0.0.53", "pegasus.example", "a.example:8443"],
)
async def test_the_server_answers_to_its_own_names(host):
    async with world(allowed_hosts=["pegasus.example", "a.example:8443"]) as there, there.client() as client:
        assert (await client.get("/healthz", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil",
        "10.0.0.1",
        "a.example",
        "user@localhost",
        "x:y:z",
        "",
    ],
)
async def test_a_page_that_points_its_own_name_at_this_machine_gets_nothing(host):
    async with world(allowed_hosts=["a.example:8443"]) as there, there.owner() as client:
        for path in ("/", "/healthz", "/api/status", "/ws"):
            response = await client.get(path, headers={"host": host})
            assert (response.status_code, response.json()["error"]["code"]) == (421, "wrong_host")


async def test_the_public_address_is_a_name_of_the_server():
    async with world(public_url="https://chat.example:8443") as there, there.client() as client:
        assert (await client.get("/healthz", headers={"host": "chat.example:8443"})).status_code == 200


# ------------------------------------------------------------------ tokens


async def test_without_a_token_nothing_is_shown_but_the_page_and_the_health():
    async with world() as there, there.client() as client:
        for path in ("/", "/healthz", "/readyz"):
            assert (await client.get(path)).status_code == 200
        for path in ("/api/status", "/api/tree"):
            response = await client.get(path)
            assert (response.status_code, response.json()["error"]["code"]) == (401, "unauthorized")
            assert response.headers["www-authenticate"] == "Bearer"


async def test_a_token_that_cannot_be_looked_up_is_no_wrong_one():
    class UnreadableJournal:
        async def ask(self, kind, *args):
            raise StorageError("I/O error")

    async with world() as there, there.client() as client:
        await there.tokens.load(UnreadableJournal(), lambda: 0)
        headers = {"authorization": "Bearer of-a-phone"}
        for response in (
            await client.get("/api/status", headers=headers),
            await client.post("/api/login", json={"token": "of-a-phone"}, headers={"origin": there.origin}),
        ):
            assert (response.status_code, "I/O error" in response.text) == (503, True)
        await sign_in(there, client)


@pytest.mark.parametrize("value", ["Bearer wrong", "Bearer", "bearer " + TOKEN[:-1], "Bearer é"])
async def test_a_wrong_token_is_refused(value):
    async with world() as there, there.client() as client:
        headers = {"authorization": value.encode("latin-1")}
        assert (await client.get("/api/status", headers=headers)).status_code == 401


async def test_a_token_needs_the_scope_of_the_method():
    async with world() as there:
        reading = await there.tokens.add("reader", scopes=("read",), type="api", channel_id="r1")
        sending = await there.tokens.add("sender", scopes=("message",))
        async with there.client(reading) as client:
            assert (await client.get("/api/status")).json() == {"caller": "api", "channelId": "r1", "name": "reader"}
        async with there.client(sending) as client:
            response = await client.get("/api/status")
            assert (response.status_code, response.json()["error"]["code"]) == (403, "forbidden")
            await there.tokens.revoke("sender")
            assert (await client.get("/api/status")).status_code == 401


# ------------------------------------------------------------------ signing in


async def test_the_cookie_holds_no_token_and_no_script_can_read_it():
    async with world() as there, there.client() as client:
        cookie = (await sign_in(there, client)).headers["set-cookie"]
        name, _, attributes = cookie.partition("; ")
        assert TOKEN not in cookie
        assert name.startswith(f"pegasus_session_{there.port}=")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes.split("; "))
        assert (await client.get("/api/status")).json()["name"] == "home"
        assert TOKEN.encode() not in there.journal.files["web/sessions.json"]
        assert name.partition("=")[2].encode() not in there.journal.files["web/sessions.json"]


@pytest.mark.parametrize(
    ("body", "status"),
    [({"token": "wrong"}, 401), ({}, 400), ({"token": 1}, 400), ([], 400), ("x", 400), ({"token": ""}, 401)],
)
async def test_a_sign_in_that_makes_no_sense_gives_no_cookie(body, status):
    async with world() as there, there.client() as client:
        response = await client.post("/api/login", json=body)
        assert response.status_code == status
        assert "set-cookie" not in response.headers


async def test_a_link_leads_to_a_button_and_the_button_to_the_page_with_a_cookie():
    async with world() as there, there.client() as client:
        code = await there.sessions.make_code()
        assert (await client.head(f"/login?code={code}")).status_code == 405
        for _ in range(3):  # a look ahead does not use the link up
            response = await client.get(f"/login?code={code}")
            assert response.status_code == 200
            assert "set-cookie" not in response.headers
            assert f'name="code" value="{code}"' in response.text
        assert (await client.get("/api/status")).status_code == 401
        response = await client.post("/login", data={"code": code}, headers={"origin": "null"})
        assert (response.status_code, response.headers["location"]) == (303, "/")
        assert (await client.get("/api/status")).status_code == 200
        assert (await client.get(f"/login?code={code}")).status_code == 401
        assert (await client.post("/login", data={"code": code})).status_code == 401


@pytest.mark.parametrize("body", [b"", b"code=", b"code=%22%3E%3Cscript%3E", b"\xff", b"code=a&code=b"])
async def test_a_code_that_is_none_signs_nobody_in(body):
    async with world() as there, there.client() as client:
        await there.sessions.make_code()
        assert (await client.post("/login", content=body)).status_code == 401
        assert (await client.get(f"/login?{body.decode('latin-1')}")).status_code == 401


async def test_a_browser_with_a_used_link_is_led_to_the_page():
    """A person reads no JSON: the page says what has happened, or shows the conversation if they are signed in."""
    async with world() as there, there.client() as client:
        response = await client.get("/login?code=used", headers={"accept": "text/html,*/*;q=0.8"})
        assert (response.status_code, response.headers["location"]) == (303, "/?link=used")
        assert "set-cookie" not in response.headers
        assert (await client.get("/api/status")).status_code == 401


async def test_the_page_names_the_command_that_signs_in_as_it_can_be_typed_on_this_machine(monkeypatch):
    monkeypatch.setenv("PEGASUS_COMMAND", "./scripts/run --home /home/ann/work")
    async with world(allowed_hosts=["pegasus.example"]) as there, there.client() as client:
        assert (await client.get("/api/login")).json() == {"command": "./scripts/run --home /home/ann/work open"}
        # Through a proxy anybody may read it, and a path of this machine is nothing for them.
        answer = await client.get("/api/login", headers={"host": "pegasus.example"})
        assert answer.json() == {"command": "pegasus open"}


async def test_signing_out_ends_the_session():
    async with world() as there, there.client(origin=there.origin) as client:
        await sign_in(there, client)
        kept = dict(client.cookies)
        response = await client.post("/api/logout")
        assert "Max-Age=0" in response.headers["set-cookie"]
        async with httpx.AsyncClient(base_url=there.url, cookies=kept) as thief:
            assert (await thief.get("/api/status")).status_code == 401


async def test_a_session_survives_a_restart_and_ends_after_thirty_days():
    journal, clock = Journal(), Clock()
    async with world(journal=journal, clock=clock) as there, there.client() as client:
        await sign_in(there, client)
        [session] = client.cookies.values()
    async with world(journal=journal, clock=clock) as there, there.client() as client:
        cookie = {"cookie": f"pegasus_session_{there.port}={session}"}
        assert (await client.get("/api/status", headers=cookie)).status_code == 200
        clock.now += 30 * 86_400_000
        assert (await client.get("/api/status", headers=cookie)).status_code == 401


async def test_a_session_ends_with_its_token():
    async with world() as there, there.client() as client:
        token = await there.tokens.add("phone", scopes=("read",))
        assert (await sign_in(there, client, token)).json() == {"name": "phone", "scopes": ["read"]}
        assert (await client.get("/api/status")).json()["caller"] == "web"
        await there.tokens.revoke("phone")
        assert (await client.get("/api/status")).status_code == 401
        await there.tokens.add("phone", scopes=("read",))  # another one of this name
        assert (await client.get("/api/status")).status_code == 401


async def test_a_damaged_file_of_sessions_only_signs_people_out():
    journal = Journal()
    journal.files["web/sessions.json"] = b'{"sessions": [{"hash": 1}]}'
    async with world(journal=journal) as there, there.client() as client:
        await sign_in(there, client)
        assert (await client.get("/api/status")).status_code == 200


async def test_old_sessions_make_room_for_new_ones():
    async with world() as there:
        for _ in range(105):
            async with there.client() as client:
                await sign_in(there, client)
        assert len(json.loads(there.journal.files["web/sessions.json"])["sessions"]) == 100


# ------------------------------------------------------------------ Origin


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "http://127.0.0.1:1", "http://localhost:{port}", "null", "https://127.0.0.1:{port}"],
)
async def test_a_page_of_others_cannot_use_the_cookie(origin):
    origin_header = {"origin": ""}
    async with world() as there, there.client() as client:
        await sign_in(there, client)
        origin_header["origin"] = origin.format(port=there.port)
        for method, path in (("GET", "/api/status"), ("POST", "/api/logout")):
            response = await client.request(method, path, headers=origin_header)
            assert (response.status_code, response.json()["error"]["code"]) == (403, "forbidden")
        assert (await client.post("/api/login", json={"token": TOKEN}, headers=origin_header)).status_code == 403
        fields = (
            f"Host: 127.0.0.1:{there.port}\r\nOrigin: {origin_header['origin']}\r\nAuthorization: Bearer {TOKEN}\r\n"
        )
        status, body = await exchange(there, f"{HANDSHAKE}{fields}\r\n")
        assert (status, json.loads(body)["error"]["code"]) == (403, "forbidden")
        assert (await client.get("/api/status")).status_code == 200


@pytest.mark.parametrize("origin", ["null", "https://evil.example"])
async def test_a_page_of_others_gets_no_permission_to_show_a_token_or_to_read_an_answer(origin):
    """A token says who sends, whatever page it is in; but a browser asks first, and is told nothing that lets a page do so."""
    async with world() as there, there.client() as client:
        asks = {
            "origin": origin,
            "access-control-request-method": "GET",
            "access-control-request-headers": "authorization",
        }
        for path in ("/api/status", "/v1/chat/completions"):
            preflight = await client.options(path, headers=asks)
            assert not preflight.is_success
            assert not [name for name in preflight.headers if name.startswith("access-control-")]
        response = await client.get("/api/status", headers={"origin": origin, "authorization": f"Bearer {TOKEN}"})
        assert response.status_code == 200
        assert not [name for name in response.headers if name.startswith("access-control-")]
        assert (await client.get("/api/status", headers={"origin": origin})).status_code == 401


async def test_what_changes_something_with_the_cookie_needs_an_origin():
    async with world() as there, there.client() as client:
        await sign_in(there, client)
        assert (await client.post("/api/logout")).status_code == 403
        assert (await client.post("/api/logout", headers={"origin": there.origin})).status_code == 200


async def test_allowed_origins_of_the_gateway_and_the_public_address_are_allowed():
    origins = {"origins": frozenset({"https://other.example"})}
    async with world(gateway=origins, public_url="https://chat.example") as there, there.client() as client:
        await sign_in(there, client)
        for origin in ("https://other.example", "https://chat.example", there.origin):
            assert (await client.get("/api/status", headers={"origin": origin})).status_code == 200


async def test_behind_tls_the_cookie_is_for_tls_only():
    async with world(public_url="https://chat.example") as there, there.client(host="chat.example") as client:
        response = await client.post("/api/login", json={"token": TOKEN}, headers={"origin": "https://chat.example"})
        assert "; Secure" in response.headers["set-cookie"]
        foreign = {"origin": "http://chat.example"}
        assert (await client.post("/api/login", json={"token": TOKEN}, headers=foreign)).status_code == 403


# ------------------------------------------------------------------ /ws


async def test_on_ws_the_cookie_stands_for_the_token():
    async with world() as there, there.client() as client:
        await sign_in(there, client)
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        async with there.socket(("cookie", cookie), ("origin", there.origin)) as socket:
            welcome = await ask(socket, **HELLO)
            assert (welcome["type"], welcome["agent"]) == ("welcome", "Peggy")
            result = await ask(socket, type="call", id="1", method="status")
            assert result["result"]["name"] == "home"


@pytest.mark.parametrize("headers", [(), (("cookie", "pegasus_session_1=x"),), (("authorization", "Bearer wrong"),)])
async def test_on_ws_without_a_token_the_gateway_says_unauthorized(headers):
    async with world() as there, there.socket(*headers) as socket:
        assert (await ask(socket, **HELLO))["code"] == "unauthorized"
        with pytest.raises(ConnectionClosed) as closed:
            await socket.get_message()
        assert closed.value.reason.code == 4401


async def test_ws_takes_a_token_in_the_hello_or_the_handshake():
    async with world() as there:
        async with there.socket() as socket:
            assert (await ask(socket, **HELLO, token=TOKEN))["type"] == "welcome"
        async with there.socket(("authorization", f"Bearer {TOKEN}")) as socket:
            assert (await ask(socket, **HELLO))["type"] == "welcome"


async def test_a_message_over_ws_is_accepted_and_its_reply_delivered():
    from pegasus.messages import ChannelInfo

    async with world() as there, there.socket() as socket:
        await ask(socket, **HELLO, token=TOKEN)
        assert await ask(socket, type="message", id="m-1", text="hi") == {"type": "accepted", "id": "m-1"}
        await there.say(ChannelInfo("web", "main"), "hello")
        with trio.fail_after(20):
            assert json.loads(await socket.get_message())["text"] == "hello"
