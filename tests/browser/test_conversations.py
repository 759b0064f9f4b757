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


def test_a_line_and_a_day_stand_once_in_every_window_also_after_the_connection_was_lost(site):
    page, sockets = site.open(), []
    page.route_web_socket("**/ws", lambda socket: sockets.append(socket) or socket.connect_to_server())
    page.reload()
    phone = site.open(phone=True)
    say(page, "above the line")
    expect(answers(phone).last).to_contain_text("above the line")
    windows, before = (page, phone), [window.locator(".day.begins").count() for window in (page, phone)]
    say(page, "/new")
    for window, lines in zip(windows, before, strict=True):
        expect(answers(window).last).to_contain_text("fresh conversation")
        expect(window.locator(".day.begins")).to_have_count(lines + 1)
    for text in ("", "below the line"):
        if text:
            say(page, text)
        for window, lines in zip(windows, before, strict=True):
            expect(answers(window).last).to_contain_text(text or "fresh conversation")
            expect(window.locator(".day.begins")).to_have_count(lines + 1)
        sockets[-1].close()
        expect(page.locator(".banner")).to_be_visible()
        expect(page.locator(".banner")).to_be_hidden()
        page.evaluate("new Promise((done) => setTimeout(done, 500))")  # the history is read again
        expect(page.locator(".day.begins")).to_have_count(before[0] + 1)
    for window in windows:
        days = window.locator(".day:not(.begins)").all_text_contents()
        assert len(days) == len(set(days))
        assert window.locator(".message").last.evaluate("(it) => it.getBoundingClientRect().top < innerHeight")
    page.reload()
    expect(page.locator(".day.begins + .message .body, .day.begins + .day + .message .body").last).to_have_text(
        "below the line"
    )


def test_a_message_is_edited_and_answered_again(site):
    page = site.open()
    say(page, "/new")
    expect(page.get_by_role("button", name="Answer again")).to_have_count(0)  # also before it is answered
    expect(answers(page).last).to_contain_text("fresh conversation")
    say(page, "first words")
    expect(page.get_by_role("button", name="Answer again")).to_have_count(1)
    page.get_by_role("button", name="Answer again").click()
    expect(page.locator(".message.user .body", has_text="first words")).to_have_count(1)
    expect(page.get_by_role("button", name="Edit this message")).to_have_count(1)
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


def test_a_model_is_chosen_from_a_list(site):
    page = site.open()
    page.get_by_role("button", name=re.compile("Choose a model")).click()
    dialog = page.get_by_role("dialog", name="Choose a model")
    dialog.get_by_role("button", name="default").click()
    expect(dialog).to_have_count(0)
    expect(page.locator(".message.user .body").last).to_have_text("/model default")
    expect(answers(page).last).to_contain_text(re.compile("using|offline/stand-in"))
    assert page.problems == []


def test_code_has_colours_and_stays_the_text_that_it_was(site):
    page = site.open()
    codes = {
        "python": "def f(x):\n    # why </code><img src=x onerror=alert(1)>\n    return 'a<b>' + str(12)",
        "js": "const a = `<script>${b}`; // end\nfunction go() { return null; }",
        "html": "<!-- no --><a href='x'>y</a><script>alert(1)</script>",
        "diff": "-old\n+new\n@@ 1 @@",
        "unheard-of": "def x",
        "constructor": "__proto__ toString",
    }
    drawn = page.evaluate(
        """async (codes) => {
            const { insert } = await import("/static/js/markdown.js");
            const made = {};
            for (const [language, text] of Object.entries(codes)) {
                const code = document.createElement("code");
                code.className = `language-${language}`;
                code.textContent = text;
                const element = document.createElement("div");
                insert(element, `<pre>${code.outerHTML}</pre>`);
                const drawn = element.querySelector("code");
                made[language] = {
                    text: drawn.textContent,
                    tags: [...new Set([...drawn.querySelectorAll("*")].map((part) => part.tagName))],
                    kinds: [...new Set([...drawn.querySelectorAll("span")].map((part) => part.className))].sort(),
                };
            }
            return made;
        }""",
        codes,
    )
    assert {language: made["text"] for language, made in drawn.items()} == codes
    assert {tag for made in drawn.values() for tag in made["tags"]} <= {"SPAN"}
    assert drawn["python"]["kinds"] == ["tok-call", "tok-comment", "tok-number", "tok-string", "tok-word"]
    assert drawn["diff"]["kinds"] == ["tok-added", "tok-comment", "tok-removed"]
    assert drawn["html"]["kinds"] == ["tok-comment", "tok-string", "tok-word"]
    assert drawn["unheard-of"]["kinds"] == drawn["constructor"]["kinds"] == []
    assert page.problems == []


def test_a_conversation_is_named_found_by_its_name_and_gone_on_with(site):
    page = site.open()
    for text in ("/new", "a heron at the pond", "/new"):
        say(page, text)
        expect(page.locator(".message.user .body").last).to_have_text(text)
        expect(answers(page).last).to_contain_text("fresh conversation" if text == "/new" else "heron")
    go(page, "conversations")
    page.get_by_label("Search in all conversations").fill("heron at the")
    rows = page.get_by_role("list", name="Conversations").get_by_role("listitem")
    expect(rows).to_have_count(1)
    rows.first.get_by_role("link").click()
    page.get_by_role("button", name="Rename").click()
    field = page.get_by_label("Name of the conversation")
    expect(field).to_be_focused()
    page.keyboard.type("שלום <b>birds</b>")
    page.keyboard.press("Enter")
    expect(page.locator(".detail h2")).to_have_text("שלום <b>birds</b>")
    expect(page.get_by_role("button", name="Rename")).to_be_focused()
    expect(rows.first).to_contain_text("שלום <b>birds</b>")
    page.get_by_role("button", name="Rename").click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Go on with it").click()
    expect(answers(page).last).to_contain_text("You are back in the conversation “שלום <b>birds</b>”")
    expect(page.locator(".message.user .body", has_text="a heron at the pond")).to_have_count(1)
    assert page.problems == []


def test_what_is_written_in_place_of_a_message_stays_when_it_was_sent_once_more_elsewhere(site):
    page, other = site.open(), site.open()
    say(page, "/new")
    expect(answers(page).last).to_contain_text("fresh conversation")
    say(page, "an old wording")
    expect(page.get_by_role("button", name="Answer again")).to_have_count(1)
    page.get_by_role("button", name="Edit this message").click()
    page.keyboard.press("End")
    page.keyboard.type(" and half")
    other.get_by_role("button", name="Answer again").click()
    expect(other.get_by_role("button", name="Answer again")).to_have_count(1)
    expect(page.locator(".message.user.editing")).to_have_count(1)
    expect(page.locator("textarea.rewrite")).to_be_focused()
    page.keyboard.type(" a new one")
    page.keyboard.press("Enter")
    said = "an old wording and half a new one"
    expect(page.locator(".message.user .body", has_text=said)).to_have_count(1)
    expect(other.locator(".message.user .body", has_text=said)).to_have_count(1)
    expect(other.locator(".message.user .body").last).to_have_text(said)
    assert page.problems == other.problems == []


class ScriptedGateway:
    """The gateway as a window meets it: replies 1 and 2 are of before, and come when the first message was sent."""

    def __init__(self, page):
        self.history = []
        self.sockets = []
        page.route_web_socket("**/ws", self.serve)

    def serve(self, socket):
        self.sockets.append(socket)
        socket.on_message(lambda text: self.answer(socket, json.loads(text)))

    def answer(self, socket, frame):
        channel = {"type": "web", "channelId": "main"}
        match frame:
            case {"type": "hello"}:
                socket.send(
                    json.dumps({"type": "welcome", "protocol": 1, "agent": "Peggy", "channel": channel, "seq": 2})
                )
            case {"type": "call", "id": id, "method": method}:
                known = {"history.show": {"messages": self.history, "before": None}, "events.subscribe": {"n": 0}}
                known |= {"approvals.list": {"approvals": []}, "status": {"running": [], "model": "x"}}
                answer = {"type": "result", "id": id, "result": known[method]} if method in known else None
                refusal = {"type": "error", "code": "internal", "message": "not here", "id": id}
                socket.send(json.dumps(answer or refusal))
            case {"type": "message", "id": id}:
                socket.send(json.dumps({"type": "accepted", "id": id}))
                before = {"inReplyTo": "p-0", "question": "/model"}
                for seq, text, metadata in ((1, "one", before), (2, "two", {}), (3, "three", {"inReplyTo": id})):
                    reply = {"type": "reply", "seq": seq, "text": text, "channel": channel, "metadata": metadata}
                    socket.send(json.dumps(reply))


def test_what_was_said_before_stands_above_what_was_typed_before_it_came(site):
    page = site.open()
    gateway = ScriptedGateway(page)
    page.reload()
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    say(page, "hello")
    bodies = page.locator(".message:not(.draft) .body")
    expect(bodies).to_have_text(["/model", "one", "two", "hello", "three"])
    gateway.sockets[-1].close()
    expect(page.locator(".banner")).to_be_visible()
    say(page, "are you back?")
    gateway.history = [{"from": "agent", "text": "while you were away", "ts": 1772029800000, "seq": 4}]
    expect(bodies).to_have_text(
        ["/model", "one", "two", "hello", "three", "while you were away", "are you back?"], timeout=20_000
    )
    page.context.close()
