"""The web page in a real browser (Chromium), served by a real daemon. Skipped where Chromium is missing.

Playwright's synchronous interface owns the thread that it was started in, so the tests here are no coroutines.
"""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import attrs
import pytest
import trio
from axe_playwright_python.base import AXE_FILE_PATH

from pegasus.bridge import Bridge, BridgeRefused
from tests.blackbox.support.daemon import Daemon
from tests.blackbox.support.ports import free_port

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PATIENCE = 30_000
"""Milliseconds until something must be on the page."""
MESSAGES = 10_000
"""Messages of the conversation before the test."""


def pytest_itemcollected(item):
    item.add_marker(pytest.mark.blackbox)
    if CHROMIUM is None:
        item.add_marker(pytest.mark.skip(reason="Chromium is not installed"))


@attrs.frozen(eq=False)
class Site:
    """The page as somebody sees who has just come to it."""

    daemon: Daemon
    browser: object
    cookies: list = attrs.Factory(list)
    """Those of the window that signed in first; the others are signed in by them, as the form is a third of what opening one costs."""

    def open(self, *, sign_in=True, phone=False, dark=False):
        """Return a new window, signed in or not. Its `problems` are what the browser has complained about."""
        size = {"width": 390, "height": 844} if phone else {"width": 1280, "height": 800}
        scheme = "dark" if dark else "light"
        context = self.browser.new_context(
            viewport=size, color_scheme=scheme, is_mobile=phone, has_touch=phone, reduced_motion="reduce"
        )
        if sign_in:
            context.add_cookies(self.cookies)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda message: _note_problem(page, message))
        page.on("request", lambda request: _note_request(page, request, self.daemon.at.http))
        page.goto(self.daemon.at.http)
        if sign_in:
            form, chat = page.get_by_label("Token"), page.get_by_role("heading", name="Chat")
            form.or_(chat).wait_for(state="attached")
            if form.count():
                form.fill(self.daemon.token)
                page.get_by_role("button", name="Sign in").click()
                chat.wait_for(state="attached")
                self.cookies[:] = context.cookies()
        return page

    def write_over_irc(self, nick, text):
        """Write to the agent as somebody in a chat network that a bridge serves; return what they get to read."""

        async def exchange():
            with trio.fail_after(PATIENCE / 1000):
                async with Bridge(self.daemon.url, self.daemon.token, "irc") as bridge:
                    with suppress(BridgeRefused):  # as of somebody unknown, who gets an answer all the same
                        await bridge.send(text, nick, user_id=nick)
                    reply = await anext(bridge)
                    await bridge.acknowledge(reply)
                    assert reply.channel.channel_id == nick
                    return reply.text

        with ThreadPoolExecutor(1) as thread:  # the browser's interface owns this one
            return thread.submit(trio.run, exchange).result()


def _note_problem(page, message):
    if message.type == "error" and "401" not in message.text and "WebSocket connection" not in message.text:
        page.problems.append(message.text)


def _note_request(page, request, home):
    """A request to another host is a problem: the page loads nothing from elsewhere."""
    if not request.url.startswith((home, home.replace("http", "ws"), "blob:")):
        page.problems.append(f"loaded {request.url}")


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture
def site(served):
    """The site, whose windows are closed after the test: an open one takes part in all that happens, and draws it."""
    yield served
    for window in served.browser.contexts:
        window.close()


@pytest.fixture(scope="session")
def served(browser, tmp_path_factory):
    """A daemon whose conversation has a long history and that asks before it runs a command."""
    home = tmp_path_factory.mktemp("browser") / "home"
    settings = {
        "models.default": "offline/stand-in",
        "gateway.port": 0,
        "http.enabled": True,
        "http.port": free_port(),  # a test restarts the daemon, and it must be found again at the same address
        "policy.rules": [{"tool": "shell_exec", "decision": "ask"}],
        "channels.irc.access": "pairing",
    }
    daemon = Daemon(home, settings)
    daemon.configure()
    archive = home / "data" / "main" / "2026-01-02-030405.jsonl"
    archive.parent.mkdir(parents=True)
    archive.write_text("".join(_past_lines(MESSAGES)))
    outbox = home / "data" / "outbox" / "outbox.jsonl"
    outbox.parent.mkdir()
    outbox.write_text(_numbering_line(MESSAGES // 2))
    daemon.start_blocking()
    yield Site(daemon, browser)
    daemon.kill()


def _past_lines(messages):
    """The lines of a session with so many messages, half of them replies."""
    for n in range(1, messages // 2 + 1):
        question = f"[channel: web | id: main]\nquestion {n}"
        yield _line(ts=n * 1000, role="user", content=question, metadata={"item": n, "messageId": f"old-{n}"})
        arguments = {"channelId": "main", "text": f"Answer **{n}**.\n\n- one\n- two"}
        yield _line(
            ts=n * 1000 + 1, role="assistant", toolCalls=[{"id": f"c{n}", "name": "reply", "arguments": arguments}]
        )
        result = json.dumps({"queued": True, "channelType": "web", "channelId": "main", "seq": n})
        yield _line(ts=n * 1000 + 2, role="tool", content=result, toolCallId=f"c{n}")


def _numbering_line(replies):
    """The line of the outbox after so many replies, all acknowledged.

    New replies are numbered from there on. The page recognises a reply by its number and shows each number once, so that a
    new reply with the number of a past one would hide it.
    """
    return _line(type="address", channel={"type": "web", "channelId": "main"}, seq=replies, acked=replies)


def _line(**fields):
    return json.dumps(fields) + "\n"


@pytest.fixture(scope="session")
def axe():
    """The accessibility rules of axe-core, as a script."""
    return AXE_FILE_PATH.read_text()
