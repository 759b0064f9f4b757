"""MCP servers on the web page: their tools in four groups, and a way to trust them."""

from __future__ import annotations

import json
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor

import pytest
import trio
from playwright.sync_api import expect

from tests.blackbox.support.mcp_settings import SCRIPT
from tests.blackbox.test_mcp_add import TOOLS


@pytest.fixture
def mail(site, tmp_path):
    """A server that nobody has sorted."""
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([*TOOLS, {"name": "<img src=x onerror=alert(1)>", "inputSchema": {"type": "object"}}]))
    command = (sys.executable, "-S", str(SCRIPT), f"tools={path}")

    def run(*arguments):
        with ThreadPoolExecutor(1) as thread:  # the browser's interface owns this one
            return thread.submit(trio.run, lambda: site.daemon.command(*arguments)).result()

    added = run("mcp", "add", "mail", "--", *command)
    assert added.code == 0, added
    yield
    assert run("config", "unset", "mcp.servers.mail").code == 0


def settings_of(site):
    return tomllib.loads((site.daemon.home / "pegasus.toml").read_text())["mcp"]["servers"]["mail"]


def test_a_server_is_trusted_and_a_tool_is_sorted(site, mail, axe):
    page = site.open()
    page.get_by_role("link", name="Channels").click()
    card = page.locator("section.card", has_text="MCP servers")
    card.get_by_text("mail", exact=True).click()
    expect(card).to_contain_text("Nobody has said what these tools do")
    readers = card.locator("section", has_text="Private readers")
    expect(readers).to_contain_text("get_mail")
    expect(readers).to_contain_text("only reads, reaches nobody else")
    expect(card.locator("section", has_text="Destructive acts")).to_contain_text("<img src=x onerror=alert(1)>")

    card.get_by_role("button", name="Trust what it says").click()
    card.get_by_role("button", name="Really trust it?").click()
    expect(card).to_contain_text("You trust what this server says of its tools")
    assert settings_of(site)["trust"] == "hints"

    card.get_by_label("What send_mail does").select_option("always ask")
    expect(card.locator("section", has_text="Destructive acts")).to_contain_text("send_mail")
    assert settings_of(site)["asks"] == ["send_mail"]
    page.evaluate(axe)
    found = page.evaluate("axe.run('main', { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] })")
    assert [violation["id"] for violation in found["violations"]] == []

    card.get_by_role("button", name="Trust it no more").click()
    expect(card).to_contain_text("does not count")
    assert settings_of(site)["trust"] == "none"
    assert page.problems == []
