"""Notifications of browsers, from the real process to a strict push service on this machine."""

from __future__ import annotations

from contextlib import asynccontextmanager

import httpx
import pytest

from pegasus.testing.services.server import ServiceResponse, open_service
from tests.blackbox.support import Book, serving, until
from tests.blackbox.support.ports import free_port
from tests.blackbox.support.waiting import until_async
from tests.blackbox.support.work import Office, act, answer, shell
from tests.pegasus.push.service import PushServer

SETTINGS = {"http.enabled": True, "push.allowed_hosts": ["127.0.0.1"]}


class Page:
    """A browser that is signed in."""

    def __init__(self, http):
        self.http = http

    @classmethod
    @asynccontextmanager
    async def open(cls, daemon, token=None):
        async with httpx.AsyncClient(base_url=daemon.at.http, headers={"origin": daemon.at.http}, timeout=20) as http:
            assert (await http.post("/api/login", json={"token": token or daemon.token})).status_code == 200
            yield cls(http)

    async def subscribe(self, service, name="phone", **more):
        service.application_key = (await self.http.get("/api/push")).json()["key"]
        answer = await self.http.post("/api/push", json={**service.browser(name).subscription(service), **more})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def subscriptions(self):
        return [each["id"] for each in (await self.http.get("/api/push")).json()["subscriptions"]]

    async def say(self, text, channel="main"):
        message = {"text": text, "channel": {"type": "web", "channelId": channel}}
        assert (await self.http.post("/api/messages", json=message)).status_code == 202


@asynccontextmanager
async def scene(tmp_path, book=None, settings=None):
    port = free_port()
    async with open_service(PushServer()) as service:
        wanted = {**SETTINGS, "http.port": port, **(settings or {})}
        async with serving(tmp_path, book or Book(), wanted) as daemon, Page.open(daemon) as page:
            yield daemon, service, page
        assert service.refused == []


@pytest.mark.deadline(60)
async def test_what_nobody_has_seen_is_told_once_over_a_crash_and_what_was_seen_is_not(tmp_path):
    async with scene(tmp_path) as (daemon, service, page):
        assert not (daemon.home / "push.key").exists()
        await page.subscribe(service)
        assert (daemon.home / "push.key").stat().st_mode & 0o777 == 0o600
        # The page is open and acknowledges: nothing is told.
        async with daemon.client("web", "main", path="/ws") as client:
            assert await client.ask("one") == "echo: one"
        # It is gone before the answer comes.
        service.fault = lambda request: ServiceResponse(503)
        await page.say("two")
        await until(lambda: service.requests, "an attempt", 15)
        daemon.kill()
        service.fault = lambda request: None
        await daemon.start()
        await until(lambda: service.told(), "the notification", 20)
        [message] = service.told()
        assert (message["kind"], message["body"]) == ("reply", "echo: two")
        [(_, headers, _)] = service.taken
        assert headers["topic"] == "reply"
        # What the service has taken is not sent again by the next start.
        daemon.kill()
        await daemon.start()
        async with Page.open(daemon) as other:
            await other.http.post(
                "/api/messages", json={"text": "three", "channel": {"type": "web", "channelId": "main"}}
            )
        await until(lambda: len(service.told()) > 1, "the next notification", 20)
        assert [message["body"].splitlines()[0] for message in service.told()] == ["echo: two", "echo: three"]


@pytest.mark.deadline(60)
async def test_each_browser_is_told_what_its_session_may_hear_for_as_long_as_it_lasts(tmp_path):
    book = Office({"work": [act(shell("true")), answer("done")]})
    settings = {"policy.rules": [{"tool": "shell_exec", "decision": "ask"}]}
    async with scene(tmp_path, book, settings) as (daemon, service, phone):
        token = (await daemon.command("token", "add", "friend", "--type", "web", "--channel", "friend")).out.strip()
        async with Page.open(daemon, token) as friend, Page.open(daemon) as desk:
            await phone.subscribe(service, about="approvals")
            await desk.subscribe(service, "desk", text=False)
            await friend.subscribe(service, "friend")
            assert (await friend.http.post("/api/push/seen", json={"approvals": ["a-1"]})).status_code == 403

            await phone.say("do work")
            await until(lambda: service.told("phone"), "the question", 20)
            [question] = service.told("phone")
            assert (question["kind"], question["title"], question["decisions"]) == (
                "approval",
                "Pegasus asks: shell_exec",
                ["allow", "deny"],
            )
            assert question["body"] == "command: true"
            [headers] = [headers for name, headers, _ in service.taken if name == "phone"]
            assert (headers["urgency"], headers["topic"]) == ("high", question["tag"])
            decision = {"decision": "allow", "scope": "once"}
            assert (await phone.http.post(f"/api/approvals/{question['id']}", json=decision)).status_code == 200
            await until(lambda: len(service.told("phone")) > 1, "the end of the question", 20)
            assert [(each["kind"], each["body"]) for each in service.told("phone")[1:]] == [("answered", "Allowed")]

            # A browser that is to show no texts cannot allow what it does not show.
            def desk_told():
                return {message["kind"]: message for message in service.told("desk")}

            await until(lambda: desk_told().keys() == {"approval", "answered", "reply"}, "what the desk is told", 20)
            assert desk_told()["approval"]["decisions"] == ["deny"]
            assert desk_told()["reply"]["body"] in ("New message", "2 new messages")
            assert "shell_exec" not in str(desk_told())

            # Whoever signs out, or has lost the subscription, is told nothing more.
            assert (await phone.http.post("/api/logout")).status_code == 200
            service.gone.add("desk")
            await friend.say("hello", "friend")
            await until(lambda: service.told("friend"), "what the friend is told", 20)
            assert [(each["kind"], each["body"]) for each in service.told("friend")] == [("reply", "echo: hello")]
            assert len(service.told("phone")) == 2
            await desk.say("hello")
            await until_gone(desk)
            await daemon.command("token", "revoke", "friend")
            await desk.subscribe(service, "tablet")
            await desk.say("once more")
            await until(lambda: service.told("tablet"), "what the tablet is told", 20)
            assert len(service.told("friend")) == 1


async def until_gone(page):
    async def is_gone():
        return not await page.subscriptions()

    await until_async(is_gone, "the end of the subscription", 20)


async def test_an_address_inside_is_refused_and_a_redirect_is_not_followed(tmp_path):
    async with scene(tmp_path) as (daemon, service, page):
        subscription = service.browser("x").subscription(service)
        service.application_key = (await page.http.get("/api/push")).json()["key"]
        wrong = {
            "http://push.example/x": "https://",
            "ftp://127.0.0.1/x": "https://",
            "https://user:secret@push.example/x": "https://",
            "https://10.0.0.1/x": "push.allowed_hosts",
            "https://[::ffff:169.254.169.254]/x": "push.allowed_hosts",
            "https://2130706434/x": "four decimal numbers",
            "": "1 to 2000",
        }
        for endpoint, reason in wrong.items():
            answer = await page.http.post("/api/push", json={**subscription, "endpoint": endpoint})
            assert (answer.status_code, reason in answer.text) == (400, True), answer.text
        for keys in ({}, {"p256dh": "AAAA", "auth": "AAAA"}, {**subscription["keys"], "auth": "AAAA"}):
            assert (await page.http.post("/api/push", json={**subscription, "keys": keys})).status_code == 400
        assert (await page.http.post("/api/push", json={**subscription, "about": "some"})).status_code == 400

        # Too many of one browser are at the cost of that browser alone.
        async with Page.open(daemon) as other:
            for name in "abcdefg":
                await page.subscribe(service, name, about="approvals")
                if name == "a":
                    kept = await other.subscribe(service, "other", about="approvals")
            assert len(await page.subscriptions()) == 5
            assert await other.subscriptions() == [kept["id"]]

        await page.subscribe(service, "phone")
        service.browser("elsewhere")
        place = {"location": f"{service.base_url}/push/elsewhere"}
        service.fault = lambda request: ServiceResponse(307, headers=place) if request.path.endswith("phone") else None
        await page.say("hello")
        await until(lambda: service.requests, "an attempt", 20)
        service.fault = lambda request: None
        await page.say("again")
        await until(lambda: service.taken, "the next message", 20)
        assert {request.path for request in service.requests} == {"/push/phone"}
        assert service.told()[0]["body"].startswith("echo: again")
