"""Notifications of browsers, from the real process to a strict push service on this machine."""

from __future__ import annotations

from contextlib import asynccontextmanager

import httpx
import pytest

from pegasus.testing.services.server import ServiceResponse, open_service
from tests.blackbox.support import Book, serving, until
from tests.blackbox.support.ports import free_port
from tests.pegasus.push.service import PushServer

SETTINGS = {"http.enabled": True, "push.allowed_hosts": ["127.0.0.1"]}


class Page:
    """A browser that is signed in."""

    def __init__(self, daemon, http):
        self.daemon, self.http = daemon, http

    @classmethod
    @asynccontextmanager
    async def open(cls, daemon, token=None):
        async with httpx.AsyncClient(base_url=daemon.at.http, headers={"origin": daemon.at.http}, timeout=20) as http:
            page = cls(daemon, http)
            assert (await http.post("/api/login", json={"token": token or daemon.token})).status_code == 200
            yield page

    async def subscribe(self, service, name="phone", **more):
        service.application_key = (await self.http.get("/api/push")).json()["key"]
        answer = await self.http.post("/api/push", json={**service.browser(name).subscription(service), **more})
        assert answer.status_code == 200, answer.text
        return answer.json()


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
        await page.http.post("/api/messages", json={"text": "two", "channel": {"type": "web", "channelId": "main"}})
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
