"""One history in the browser: what is said at other doors, lines, saying it again, and the list of conversations."""

from __future__ import annotations

import json
import re

import httpx
from playwright.sync_api import expect

from tests.browser.test_page import answers, go, say


def say_elsewhere(site, text):
    """Send a message as a program with the owner's token, and wait for the answer."""
    headers = {"authorization": f"Bearer {site.daemon.token}"}
    body = {"text": text, "channel": {"type": "cli", "channelId": "other"}}
    answer = httpx.post(f"{site.daemon.at.http}/api/messages?wait=30", json=body, headers=headers, timeout=40)
    assert answer.status_code == 200, answer.text


def test_what_is_said_elsewhere_stands_in_the_chat_at_once_and_after_a_reload(site):
    page = site.open()
    say_elsewhere(site, "hello from the terminal")
    own = page.locator(".message.user .body", has_text="hello from the terminal")
    expect(own).to_have_count(1)
    expect(page.locator(".message .door").last).to_have_text("cli:other")
    count = answers(page).count()
    page.reload()
    expect(own).to_have_count(1)
    assert answers(page).count() >= min(count, 1)
    say(page, "/new")
    expect(page.locator(".day.begins")).to_have_count(1)
    say(page, "behind the line")
    expect(page.locator(".message.user .body").last).to_have_text("behind the line")
    expect(answers(page).last).to_be_visible()
    page.reload()
    expect(page.locator(".day.begins + .message .body, .day.begins + .day + .message .body").first).to_have_text(
        "behind the line"
    )
    assert page.problems == []


def test_a_message_is_edited_and_answered_again(site):
    page = site.open()
    say(page, "/new")
    expect(page.locator(".day.begins").last).to_be_visible()
    say(page, "first words")
    expect(page.get_by_role("button", name="Answer again")).to_have_count(1)
    before = page.locator(".message.agent:not(.draft)").count()
    page.get_by_role("button", name="Answer again").click()
    expect(page.locator(".message.user .body", has_text="first words")).to_have_count(1)
    expect(page.get_by_role("button", name="Edit this message")).to_have_count(1)
    assert page.locator(".message.agent:not(.draft)").count() <= before
    page.get_by_role("button", name="Edit this message").click()
    field = page.get_by_label("Edit this message")
    expect(field.last).to_have_value("first words")
    page.keyboard.press("Control+A")
    page.keyboard.type("other words")
    page.keyboard.press("Enter")
    expect(page.locator(".message.user .body", has_text="other words")).to_have_count(1)
    expect(page.locator(".message.user .body", has_text="first words")).to_have_count(0)
    assert page.problems == []


def test_conversations_are_listed_found_and_read(site):
    say_elsewhere(site, "an otter in the garden")
    page = site.open()
    go(page, "conversations")
    rows = page.get_by_role("list", name="Conversations").get_by_role("listitem")
    expect(rows.first).to_be_visible()
    page.get_by_label("Search in all conversations").fill("OTTER in the")
    expect(rows).to_have_count(1)
    rows.first.get_by_role("link").click()
    expect(page.locator(".lines .line.user .body", has_text="an otter in the garden")).to_have_count(1)
    page.get_by_label("Search in all conversations").fill("nobody has said this ever")
    expect(page.get_by_role("status").filter(has_text=re.compile("Nobody"))).to_be_visible()
    assert page.problems == [], json.dumps(page.problems)
