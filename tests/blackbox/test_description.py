"""`/openapi.json` against a real daemon: each route is asked, and its answer is what the description says."""

from __future__ import annotations

import json
import re

import httpx
import jsonschema
import trio

from pegasus.testing.services.server import FakeService
from tests.blackbox.support import serving
from tests.blackbox.support.mcp_settings import server
from tests.blackbox.support.waiting import until_async
from tests.blackbox.support.work import Office, act, answer, shell
from tests.blackbox.test_pairing import by, code_for
from tests.pegasus.push.service import Browser

HOOK = {"hooks.ci.secret": "s3cret-s3cret-s3cret"}
SETTINGS = {
    "http.enabled": True,
    "http.port": 0,
    "push.allowed_hosts": ["127.0.0.1"],
    "channels.matrix.access": "pairing",
    "policy.rules": [{"tool": "shell_exec", "decision": "ask"}],
    **HOOK,
    **server("lab"),
}
MANY = 30
"""Seconds that the agent may need for what the routes show."""


class Checked:
    """A client that holds each answer against the description, and notes which operations it has asked."""

    def __init__(self, http, document):
        self.http, self.document = http, document
        self.asked = set()

    def operation(self, method, url):
        path = url.partition("?")[0]
        for known, methods in self.document["paths"].items():
            # The file of a memory has slashes in it.
            pattern = re.sub(r"\\\{path\\\}", ".+", re.escape(known))
            if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", pattern), path) and method.lower() in methods:
                if known != path and path in self.document["paths"]:
                    continue
                return known, methods[method.lower()]
        raise AssertionError(f"{method} {path} is not described")

    async def ask(self, method, url, body=None, *, status=None, **more):
        known, operation = self.operation(method, url)
        response = await self.http.request(method, url, json=body, **more)
        said = f"{method} {url}: {response.status_code} {response.text[:500]}"
        assert response.status_code == (status or response.status_code), said
        assert str(response.status_code) in operation["responses"], said
        described = operation["responses"][str(response.status_code)]
        if "$ref" in described:
            described = self.document["components"]["responses"][described["$ref"].rpartition("/")[2]]
        described = described.get("content", {})
        kind = response.headers.get("content-type", "").partition(";")[0]
        if kind == "application/json":
            schema = {**described["application/json"]["schema"], "components": self.document["components"]}
            jsonschema.Draft202012Validator(schema).validate(response.json())
        elif response.content:
            assert kind in described or "application/octet-stream" in described, said
        if response.is_success or response.is_redirect:
            self.asked.add(f"{method} {known}")
        if body is not None and response.is_success:
            [content] = operation["requestBody"]["content"].values()
            schema = {**content["schema"], "components": self.document["components"]}
            jsonschema.Draft202012Validator(schema).validate(body)
        return response.json() if kind == "application/json" else response.text


async def ask_of_agents(ask):
    """The routes for other agents."""
    await ask("GET", "/.well-known/agent-card.json", status=200)
    await ask("GET", "/a2a/keys.json", status=200)
    version = {"headers": {"a2a-version": "1.0"}}
    message = {"messageId": "a-1", "role": "ROLE_USER", "parts": [{"text": "work"}]}
    sent = {"message": message, "configuration": {"returnImmediately": True}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": sent}
    await ask("POST", "/a2a/", call, status=200, **version)
    task = (await ask("POST", "/a2a", call, status=200, **version))["result"]["task"]["id"]
    assert (await ask("POST", "/a2a/message:send", sent, status=200, **version))["task"]["id"] == task
    await ask("POST", "/a2a/message:send", {"message": {**message, "parts": []}}, status=400, **version)
    await ask("GET", f"/a2a/tasks/{task}?historyLength=1", status=200, **version)
    await ask("GET", "/a2a/tasks?pageSize=2&includeArtifacts=true", status=200, **version)
    await ask("GET", "/a2a/tasks/0000000000000000", status=404, **version)
    await ask("GET", "/a2a/extendedAgentCard", status=200, **version)
    configs = f"/a2a/tasks/{task}/pushNotificationConfigs"
    await ask("POST", configs, {"id": "p", "url": "https://agent.example/push"}, status=200, **version)
    await ask("GET", configs, status=200, **version)
    await ask("GET", f"{configs}/p", status=200, **version)
    await ask("DELETE", f"{configs}/p", status=200, **version)
    await ask("POST", f"/a2a/tasks/{task}:cancel", status=200, **version)
    for method in ("GET", "POST"):
        await ask(method, f"/a2a/tasks/{task}:subscribe", status=400, **version)
    ask.__self__.asked |= {f"{method} /a2a/tasks/{{id}}:subscribe" for method in ("GET", "POST")}
    await ask("POST", "/a2a/message:stream", sent, status=200, **version)


async def test_each_route_answers_as_the_description_says(tmp_path):
    book = Office({"work": [act(shell("true")), lambda view: answer(view.last)]})
    async with serving(tmp_path, book, SETTINGS) as daemon:
        token = {"authorization": f"Bearer {daemon.token}"}
        async with httpx.AsyncClient(base_url=daemon.at.http, timeout=MANY, headers=token) as http:
            document = (await http.get("/openapi.json")).json()
            ask = Checked(http, document).ask
            asked = ask.__self__.asked
            for path in (
                "/",
                "/sw.js",
                "/static/app.css",
                "/healthz",
                "/readyz",
                "/metrics",
                "/openapi.json",
                "/api/login",
            ):
                await ask("GET", path, status=200 if path != "/static/app.css" else None)
            style = re.search(r'(/static/[^"]+)', (await http.get("/")).text)[1]
            await ask("GET", style, status=200)
            await ask("GET", "/ws", status=426)
            await ask("GET", "/login?code=x", status=401)

            channel = {"type": "cli", "channelId": "main"}
            await ask("POST", "/api/messages?wait=20", {"text": "hello", "id": "m-1", "channel": channel}, status=200)
            await ask("POST", "/api/messages", {"text": "do work", "id": "m-2", "channel": channel}, status=202)
            await ask("GET", "/api/replies?type=cli&channelId=main&wait=1", status=200)

            async def has_approval():
                return (await http.get("/api/approvals")).json()["approvals"]

            await until_async(has_approval, "an approval", MANY)
            [approval] = (await ask("GET", "/api/approvals"))["approvals"]
            for path in (
                "status",
                "tree",
                "usage",
                "usage?days=true",
                "channels",
                "mcp",
                "mcp/lab",
                "nodes",
                "skills",
                "memory",
            ):
                await ask("GET", f"/api/{path}", status=200)
            await ask("POST", "/api/nodes/a/drain", status=404)
            await ask("POST", "/api/mcp/lab", {"trust": "hints", "asks": ["echo"]}, status=200)
            [task] = (await ask("GET", "/api/tasks"))["tasks"]
            await ask("GET", f"/api/tasks/{task['taskId']}", status=200)
            await ask("GET", f"/api/tasks/{task['number']}/log", status=200)
            await ask("POST", "/api/push/seen", {"approvals": [approval["id"]]}, status=200)
            decision = {"decision": "allow", "scope": "arguments"}
            await ask("POST", f"/api/approvals/{approval['id']}", decision, status=200)
            [grant] = (await ask("GET", "/api/approvals/granted"))["granted"]
            await ask("DELETE", f"/api/approvals/granted/{grant['id']}", status=200)

            async def is_over():
                return (await http.get(f"/api/tasks/{task['number']}")).json()["state"] == "completed"

            await until_async(is_over, "the end of the task", MANY)
            await ask("POST", f"/api/tasks/{task['number']}/suspend", status=409)
            book.hold()
            await ask("POST", f"/api/tasks/{task['number']}/resume", {"input": "again"}, status=200)
            await book.waiting()
            await ask("POST", f"/api/tasks/{task['number']}/suspend", status=200)
            await ask("POST", f"/api/tasks/{task['number']}/continue", status=200)
            await ask("POST", f"/api/tasks/{task['number']}/cancel", status=200)
            book.release()
            await ask("POST", "/api/tasks/999/cancel", status=404)

            await ask("PUT", "/api/memory/facts/user.md", {"content": "# User\n\n- likes tea\n"}, status=200)
            await ask("PUT", "/api/memory/facts/user.md", {"content": "x", "was": "y"}, status=409)
            await ask("GET", "/api/memory/facts/user.md", status=200)
            await ask("GET", "/api/memory", status=200)
            changes = (await ask("GET", "/api/memory/log?limit=5"))["changes"]
            await ask("POST", "/api/memory/undo", {"n": changes[0]["n"]}, status=200)
            await ask("GET", "/api/memory/facts/none.md", status=404)
            assert (await ask("GET", "/api/memory/search?query=tea&limit=3&in=facts", status=200))["results"] == []

            await ask("GET", "/api/addresses", status=200)
            async with daemon.bridge("matrix") as bridge:
                code = await code_for(bridge, by("@ann:example.org", "!room", "matrix"))
            assert (await ask("GET", "/api/people", status=200))["codes"][0]["code"] == code
            who = (await ask("POST", "/api/people", {"code": code}, status=200))["who"]
            await ask("POST", "/api/people", {"code": code}, status=404)
            await ask("DELETE", f"/api/people/{who}", status=200)

            tables = (await ask("GET", "/api/settings", status=200))["sections"]
            [level] = [
                key for table in tables if table["name"] == "log" for key in table["keys"] if key["key"] == "level"
            ]
            change = {"path": ["log", "level"], "was": level["value"], "value": "debug"}
            assert (await ask("POST", "/api/settings", change, status=200))["value"] == '"debug"'
            await ask("POST", "/api/settings", change, status=400)
            await ask("POST", "/api/settings/reload", status=200)
            log = await ask("GET", "/api/log", status=200)
            await ask("GET", f"/api/log?after={log['end']}", status=200)
            await ask("GET", "/api/completions", status=200)
            await ask("POST", "/api/markdown", {"texts": ["*hello*"]}, status=200)

            session = (await ask("GET", "/api/sessions?limit=5"))["sessions"][0]
            await ask("GET", f"/api/sessions/{session['file']}?limit=3", status=200)
            await ask("GET", "/api/conversations?find=hello", status=200)
            await ask("GET", "/api/conversations/current/messages?limit=50", status=200)
            await ask("POST", "/api/conversations/current/rename", {"name": "Plans"}, status=200)
            await ask("POST", "/api/conversations/current/retry", status=202)
            await ask("POST", "/api/conversations/current/edit", {"id": "m-1", "text": "hello again"}, status=202)
            await ask("POST", "/api/interrupt", {"channel": channel}, status=200)

            job = {"schedule": {"every": 900}, "prompt": "look", "channel": "cli:main"}
            id = (await ask("POST", "/api/cron", job, status=201))["id"]
            await ask("GET", "/api/cron", status=200)
            for change in ("pause", "resume", "run"):
                await ask("POST", f"/api/cron/{id}/{change}", status=200)
            await ask("DELETE", f"/api/cron/{id}", status=200)
            await ask("DELETE", f"/api/cron/{id}", status=404)

            completion = {"model": "pegasus", "messages": [{"role": "user", "content": "hello"}]}
            await ask("POST", "/v1/chat/completions", completion, status=200)
            await ask("POST", "/v1/chat/completions", {**completion, "stream": True}, status=200)
            await ask("POST", "/v1/responses", {"input": "hello"}, status=200)
            await ask("POST", "/v1/responses", {"input": "hello", "stream": True}, status=200)
            await ask("POST", "/v1/embeddings", {"input": "tea"}, status=501)
            await ask("POST", "/v1/audio/speech", {"input": "hello", "voice": "alloy"}, status=501)
            await ask("GET", "/v1/models", status=200)
            await ask("GET", "/v1/models/pegasus", status=200)
            await ask("GET", "/v1/models/gpt", status=404)
            await ask("POST", "/hooks/ci", {"text": "x"}, status=401)
            asked.add("POST /hooks/{name}")

            await ask_of_agents(ask)
            async with http.stream("GET", "/api/events") as events:
                assert events.headers["content-type"].startswith("text/event-stream")
                asked.add("GET /api/events")
            await ask("POST", "/api/login", {"token": daemon.token}, status=200)
            await ask("POST", "/api/login", {"token": "wrong"}, status=401)
            await ask("GET", "/api/push", status=403)  # a token has no browser
            http.headers["origin"] = daemon.at.http
            authorization = http.headers.pop("authorization")
            await ask("GET", "/api/push", status=200)
            service = FakeService()
            service.base_url = "http://127.0.0.1:9"
            subscription = await ask("POST", "/api/push", Browser("x").subscription(service), status=200)
            await ask("DELETE", f"/api/push/{subscription['id']}", status=200)
            await ask("DELETE", f"/api/push/{subscription['id']}", status=404)
            http.headers["authorization"] = authorization
            del http.headers["origin"]
            http.cookies.clear()
            await ask("POST", "/api/logout", status=200)
            open_link = await daemon.command("open", "--print")
            code = open_link.out.strip().rpartition("code=")[2]
            await ask("GET", f"/login?code={code}", status=200)
            await ask("POST", "/login", status=303, data={"code": code})
            http.cookies.clear()

            # What needs a token says so, and a body that is none has its status everywhere.
            http.headers.pop("authorization")
            for path, methods in document["paths"].items():
                for method, operation in methods.items():
                    url = re.sub(r"\{\w+\}", "x", path)
                    if "security" in operation:
                        await ask(method.upper(), url, status=401)
                    elif "requestBody" in operation:
                        await ask(method.upper(), url, content=b"[")
            everything = {
                f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods
            }
            never = {
                "GET /ws",
                "POST /api/nodes/{name}/drain",
                "POST /v1/embeddings",
                "POST /v1/audio/transcriptions",
                "POST /v1/audio/speech",
                "GET /channels/{type}/{rest}",
                "POST /channels/{type}/{rest}",
                "GET /mcp",
                "POST /mcp",
                "DELETE /mcp",
                "GET /.well-known/oauth-protected-resource",
                "GET /.well-known/oauth-protected-resource/mcp",
            }  # no answer of its own here
            assert everything - asked == never
            assert len(json.dumps(document)) < 200_000
            await trio.lowlevel.checkpoint()
