"""What each sender reaches: each route of HTTP, method of the control plane, tool and resource of MCP, and method of A2A.

The tables say who may do what, in words of their own. A route, a method or a tool that stands in none of them fails the test.
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager

import attrs
import httpx
import pytest
import trio
from mcp.shared.exceptions import MCPError

from tests.blackbox.support import Daemon, connect
from tests.blackbox.support.mcp_client import mcp_client
from tests.blackbox.support.serving import standing

SETTINGS = {
    "models.default": "offline/stand-in",
    "http.enabled": True,
    "http.port": 0,
    "http.public_url": "https://pegasus.example",
    "hooks.ci.secret": "s3cret-s3cret-s3cret",
    "limits.guest_messages_per_minute": 60,
}
EVERYTHING = "message,read,control"
TOKENS = {
    "message": {"scope": "message"},
    "read": {"scope": "read"},
    "control": {"scope": "control"},
    "talker": {"scope": "message,read"},
    "assistant": {"scope": "message,control"},
    "operator": {"scope": EVERYTHING},
    "desk": {"scope": EVERYTHING, "channel": "desk"},
    "irc": {"scope": EVERYTHING, "type": "irc", "bridge": True},
    "revoked": {"scope": EVERYTHING},
}


@attrs.frozen
class Sender:
    """What somebody has shown. writes: False for a browser that does not say which page sends what changes something."""

    scopes: frozenset[str] = frozenset()
    is_known: bool = True
    is_home: bool = False
    is_page: bool = False
    is_bridge: bool = False
    is_bound: bool = False
    writes: bool = True

    @property
    def is_owner(self):
        """Whoever may control is an owner; a bridge has people behind it, of whom each is looked at."""
        return "control" in self.scopes and not self.is_bridge

    @property
    def sees_all(self):
        """May see what was said in conversations of others."""
        return "control" in self.scopes and not self.is_bound

    def may(self, needs, method="POST"):
        """Whether the sender may use a row of a table."""
        if not self.is_known or (method != "GET" and not self.writes):
            return False
        return {
            "known": True,
            "replies": self.scopes & {"message", "read"},
            "program": not self.is_page,
            "message of a page": "message" in self.scopes and self.is_page,
            "message as owner": "message" in self.scopes and self.is_owner,
            "read as owner": "read" in self.scopes and self.is_owner,
            "read of all": "read" in self.scopes and self.sees_all,
            "read unbound": "read" in self.scopes and not self.is_bound,
            "tasks": self.scopes & {"message", "read"},
            "changes of tasks": "message" in self.scopes or self.sees_all,
            "owner": self.is_owner,
            "control of all": self.sees_all,
            "home": self.is_home,
        }.get(needs, needs in self.scopes)


def holder(scopes, **more):
    return Sender(frozenset(scopes.split(",")), **more)


STRANGER = Sender(is_known=False)
PROGRAMS = {
    "home": holder(EVERYTHING, is_home=True),
    **{
        name: holder(options["scope"], is_bridge="bridge" in options, is_bound=len(options) > 1)
        for name, options in TOKENS.items()
        if name != "revoked"
    },
}
PAGES = {
    "page": holder(EVERYTHING, is_home=True, is_page=True),
    "page without origin": holder(EVERYTHING, is_home=True, is_page=True, writes=False),
    "page of message": holder("message", is_page=True),
    "page of desk": holder(EVERYTHING, is_page=True, is_bound=True),
}
STRANGERS = dict.fromkeys(("nobody", "wrong", "revoked", "page of others", "signed out page"), STRANGER)
SENDERS = {**STRANGERS, **PROGRAMS, **PAGES}

ROUTES = {
    "everybody": """
        GET / GET /sw.js GET /static/{path} GET /healthz GET /readyz GET /ws GET /openapi.json GET /metrics
        GET /api/login POST /api/login GET /login POST /login POST /api/logout
        POST /hooks/{name} POST /channels/{type}/{rest} GET /channels/{type}/{rest}
        GET /.well-known/agent-card.json GET /a2a/keys.json
        GET /.well-known/oauth-protected-resource GET /.well-known/oauth-protected-resource/mcp
    """,
    "known": "GET /v1/models GET /v1/models/{id}",
    "replies": "GET /api/replies",
    "program": "POST /mcp GET /mcp DELETE /mcp",
    "message": """
        POST /api/messages POST /v1/chat/completions POST /v1/responses POST /v1/embeddings
        POST /v1/audio/transcriptions POST /v1/audio/speech
        POST /a2a POST /a2a/ POST /a2a/message:send POST /a2a/message:stream GET /a2a/tasks GET /a2a/tasks/{id}
        POST /a2a/tasks/{id}:cancel GET /a2a/tasks/{id}:subscribe POST /a2a/tasks/{id}:subscribe
        POST /a2a/tasks/{id}/pushNotificationConfigs GET /a2a/tasks/{id}/pushNotificationConfigs
        GET /a2a/tasks/{id}/pushNotificationConfigs/{config} DELETE /a2a/tasks/{id}/pushNotificationConfigs/{config}
        GET /a2a/extendedAgentCard
    """,
    "message as owner": "POST /api/interrupt",
    "message of a page": "GET /api/push POST /api/push DELETE /api/push/{id}",
    "read": """
        GET /api/status GET /api/tree GET /api/usage GET /api/channels GET /api/nodes GET /api/mcp GET /api/mcp/{name}
        GET /api/tasks GET /api/tasks/{id} GET /api/tasks/{id}/log GET /api/events
        GET /api/memory GET /api/memory/log GET /api/memory/search GET /api/completions POST /api/markdown
        GET /api/memory/{path} GET /api/skills GET /api/cron
    """,
    "control": """
        POST /api/tasks/{id}/cancel POST /api/tasks/{id}/suspend POST /api/tasks/{id}/continue POST /api/tasks/{id}/resume
        POST /api/memory/undo PUT /api/memory/{path} POST /api/push/seen
        GET /api/settings POST /api/settings/reload GET /api/log GET /api/addresses
    """,
    "control of all": """
        GET /api/conversations GET /api/conversations/{key}/messages POST /api/conversations/{key}/retry
        POST /api/conversations/{key}/edit POST /api/conversations/{key}/rename
        GET /api/sessions GET /api/sessions/{file}
    """,
    "read as owner": "GET /api/people",
    "owner": """
        POST /api/people DELETE /api/people/{who}
        GET /api/approvals POST /api/approvals/{id} GET /api/approvals/granted DELETE /api/approvals/granted/{id}
        POST /api/nodes/{name}/drain
        POST /api/cron POST /api/cron/{id}/run POST /api/cron/{id}/pause POST /api/cron/{id}/resume DELETE /api/cron/{id}
    """,
    "home": "POST /api/mcp/{name} POST /api/settings",
}
"""Routes of HTTP by who may use them."""
OTHERS = {"type": "cli", "channelId": "main"}
"""The conversation of somebody else."""
BODIES = {
    "/api/messages": {"text": "hello"},
    "/api/interrupt": {"channel": OTHERS},
    "/api/conversations/{key}/edit": {"id": "x", "text": "x"},
    "/api/conversations/{key}/rename": {"name": "x"},
    "/api/approvals/{id}": {"decision": "deny"},
    "/api/cron": {"schedule": {"every": 900}, "prompt": ""},
    "/api/mcp/{name}": {"trust": "hints"},
    "/api/markdown": {"texts": []},
    "/api/people": {"code": "x"},
    "/api/settings": {"path": ["log", "level"], "was": "none"},
}
"""What is sent where an empty object is refused before anybody looks at who sends it."""
METHODS = {
    "message as owner": "interrupt",
    "read": """
        status usage tree conversation markdown completions tasks.list tasks.show tasks.replay tasks.log cron.list
        events.subscribe memory.list memory.show memory.log memory.search mcp.list mcp.tools channels.list nodes.list skills.list
    """,
    "read of all": "history",
    "read as owner": "persona.list pair.list",
    "control": """
        stop config.reload clients tasks.cancel tasks.resume tasks.suspend tasks.continue memory.write memory.undo
        config.show conversations.list log.tail
    """,
    "control of all": "history.list history.show history.retry history.edit history.rename sessions.list sessions.show",
    "owner": """
        tools.offer tools.result persona.accept persona.reject approvals.list approvals.answer approvals.allow
        approvals.deny approvals.granted approvals.revoke pair.approve pair.revoke
        cron.add cron.remove cron.pause cron.resume cron.run nodes.drain
    """,
    "home": "tokens.list tokens.add tokens.revoke http.link mcp.trust config.set",
}
"""Methods of the control plane by who may call them."""
PARAMS = {
    "interrupt": {"channel": OTHERS},
    "history": OTHERS,
    "history.edit": {"id": "x", "text": "x"},
    "tools.result": {"call": "x", "result": {}},
    "mcp.trust": {"name": "x", "trust": "hints"},
}
REFUSED = re.compile(
    "has not the scope|only an owner|only the owner|only the token of the home|the owner's; this|its own conv"
)
TOOLS = {
    "message": "send_message",
    "tasks": "list_tasks get_task",
    "changes of tasks": "cancel_task answer_task",
    "read unbound": "search_memory",
}
"""Tools of the MCP server by whose token has them."""
RESOURCES = {"read unbound": "memory", "tasks": "task-log", "control of all": "archive"}
A2A_METHODS = (
    *("SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask"),
    *("CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs"),
    *("DeleteTaskPushNotificationConfig", "GetExtendedAgentCard"),
)


def rows_of(table, names=str.split):
    return {name: needs for needs, text in table.items() for name in names(text)}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    yield from standing(Daemon(tmp_path_factory.mktemp("reach") / "home", SETTINGS), start=True)


@pytest.fixture(scope="module")
def made():
    """What `credentials` has made, for all tests."""
    return {}


async def credentials(daemon, made):
    """The tokens by name, and the header fields of the browsers."""
    if not made:
        origin = {"origin": daemon.at.http}
        tokens = made["tokens"] = {"home": daemon.token, "wrong": f"pgs_{'x' * 43}"}
        async with daemon.client("control", "reach") as owner:
            for name, options in TOKENS.items():
                tokens[name] = (await owner.call("tokens.add", name=name, **options))["token"]
            await owner.call("tokens.revoke", name="revoked")

        async def session(token):
            async with httpx.AsyncClient(base_url=daemon.at.http, headers=origin) as browser:
                signed = await browser.post("/api/login", json={"token": token})
                return {"cookie": signed.headers["set-cookie"].partition(";")[0]}

        page, gone = await session(daemon.token), await session(daemon.token)
        async with httpx.AsyncClient(base_url=daemon.at.http, headers=gone | origin) as browser:
            assert (await browser.post("/api/logout")).status_code == 200
        made["pages"] = {
            "page": page | origin,
            "page without origin": page,
            "page of others": page | {"origin": "https://evil.example"},
            "page of message": await session(tokens["message"]) | origin,
            "page of desk": await session(tokens["desk"]) | origin,
            "signed out page": gone | origin,
        }
    return made["tokens"], made["pages"]


async def for_each(senders, ask):
    """Ask for all senders at a time; what `ask` has returned."""
    found = []
    async with trio.open_nursery() as nursery:

        async def one(name, sender):
            found.extend(await ask(name, sender))

        for name, sender in senders.items():
            nursery.start_soon(one, name, sender)
    return sorted(found)


async def test_no_route_reaches_further_than_its_sender(daemon, made):
    tokens, pages = await credentials(daemon, made)
    headers = {"nobody": {}, **{name: {"authorization": f"Bearer {token}"} for name, token in tokens.items()}, **pages}
    assert headers.keys() == SENDERS.keys()
    rows = rows_of(ROUTES, lambda text: re.findall(r"[A-Z]+ \S+", text))
    async with httpx.AsyncClient(base_url=daemon.at.http) as http:
        described = (await http.get("/openapi.json")).json()["paths"]
    assert {f"{method.upper()} {path}" for path, methods in described.items() for method in methods} == rows.keys()
    rows = {row: needs for row, needs in rows.items() if needs != "everybody"}

    async def ask(name, sender):
        wrong = []
        async with httpx.AsyncClient(base_url=daemon.at.http, headers=headers[name], timeout=30) as http:
            for row, needs in rows.items():
                method, path = row.split()
                body = None if method == "GET" else BODIES.get(path, {})
                async with http.stream(method, re.sub(r"\{\w+\}", "x", path), json=body) as answer:
                    if path != "/api/events":
                        await answer.aread()
                is_refused = answer.status_code in (401, 403)
                if is_refused == bool(sender.may(needs, method)):
                    wrong.append((row, name, answer.status_code))
        return wrong

    assert await for_each(SENDERS, ask) == []


@asynccontextmanager
async def greeted(daemon, name, tokens, pages):
    """A connection of a sender, whose hello was sent."""
    url, headers, token = daemon.url, (), tokens.get(name)
    if name in pages:
        url = f"{daemon.at.http.replace('http', 'ws')}/ws"
        headers = [(key.encode(), value.encode()) for key, value in pages[name].items()]
    type = {"home": "cli", "irc": "irc"}.get(name, "web" if name in pages else "api")
    channel = {"type": type, **({} if name == "irc" or name in TOKENS else {"channelId": "page"})}
    async with connect(url, headers=headers) as peer:
        await peer.send({"type": "hello", "channel": channel, **({"token": token} if token else {})})
        yield peer


async def test_no_method_of_the_gateway_reaches_further_than_its_sender(daemon, made):
    tokens, pages = await credentials(daemon, made)
    rows = rows_of(METHODS)

    async def ask(name, sender):
        wrong = []
        async with greeted(daemon, name, tokens, pages) as peer:
            if not sender.is_known:
                await peer.error("unauthorized")
                return []
            await peer.get("welcome")
            await peer.send({"type": "call", "id": "none", "method": "none", "params": {}})
            says = (await peer.get("error"))["message"]
            if "read" in sender.scopes:
                assert set(says.partition("allowed: ")[2].split(", ")) == rows.keys()
            for method, needs in rows.items():
                await peer.send({"type": "call", "id": method, "method": method, "params": PARAMS.get(method, {})})
                answer = await peer.get("result", "error", id=method)
                is_refused = bool(REFUSED.search(answer.get("message", "")))
                if is_refused == bool(sender.may(needs, "GET")):
                    wrong.append((method, name, str(answer)[:200]))
        return wrong

    senders = {name: sender for name, sender in SENDERS.items() if name != "page of others"}
    assert await for_each(senders, ask) == []


async def test_no_tool_and_no_resource_of_mcp_reaches_further_than_its_token(daemon, made):
    tokens, _ = await credentials(daemon, made)
    rows, resources = rows_of(TOOLS), rows_of(RESOURCES)

    async def ask(name, sender):
        wrong = []
        async with mcp_client(daemon, tokens[name]) as client:
            shown = {tool.name for tool in (await client.list_tools()).tools}
            assert shown <= rows.keys()
            shown |= {form.name for form in (await client.list_resource_templates()).resource_templates}
            for row, needs in {**rows, **resources}.items():
                if (row in shown) != bool(sender.may(needs)):
                    wrong.append((row, name, "is listed" if row in shown else "is not listed"))
            # What is not shown cannot be used either.
            for tool in rows.keys() - shown:
                with pytest.raises(MCPError, match="no tool"):
                    await client.call_tool(tool, {})
            if not sender.may("read unbound"):
                with pytest.raises(MCPError, match="not found"):
                    await client.read_resource("pegasus://memory/USER.md")
            if not sender.may("control of all"):
                with pytest.raises(MCPError, match="not found"):
                    await client.read_resource("pegasus://archives/current")
        return wrong

    assert await for_each(PROGRAMS, ask) == []


async def test_no_method_of_a2a_reaches_further_than_its_token(daemon, made):
    tokens, _ = await credentials(daemon, made)

    async def ask(name, sender):
        wrong = []
        headers = {"authorization": f"Bearer {tokens[name]}", "a2a-version": "1.0"}
        async with httpx.AsyncClient(base_url=daemon.at.http, headers=headers, timeout=30) as http:
            for method in A2A_METHODS:
                call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "x", "taskId": "x"}}
                status = (await http.post("/a2a", json=call)).status_code
                if (status == 200) != bool(sender.may("message")) or (status != 200 and status != 403):
                    wrong.append((method, name, status))
        return wrong

    assert await for_each(PROGRAMS, ask) == []


async def test_a_guest_is_a_guest_at_every_door(daemon, made):
    """A token that may only send messages says what an owner alone may decide."""
    tokens, _ = await credentials(daemon, made)
    headers = {"authorization": f"Bearer {tokens['talker']}"}
    async with httpx.AsyncClient(base_url=daemon.at.http, headers=headers, timeout=30) as http:
        chat = {"model": "x", "messages": [{"role": "user", "content": "/persona"}]}
        said = {
            "messages": (await http.post("/api/messages?wait=20", json={"text": "/persona"})).text,
            "completions": (await http.post("/v1/chat/completions", json=chat)).text,
            "responses": (await http.post("/v1/responses", json={"model": "x", "input": "/persona"})).text,
        }
    async with mcp_client(daemon, tokens["talker"]) as client:
        said["mcp"] = str((await client.call_tool("send_message", {"text": "/persona"})).content)
    async with connect(daemon.url) as peer:
        await peer.hello(tokens["talker"], "api", "token-talker/gateway")
        said["gateway"] = await peer.ask("/persona")
    assert {door for door, text in said.items() if "only my owner" not in text.lower()} == set(), said
