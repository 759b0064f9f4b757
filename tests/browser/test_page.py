"""What people do on the web page: a first hour, long conversations, hostile texts, lost connections, reading without seeing."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import trio
from playwright.sync_api import expect

PAGES = [
    "chat",
    "conversations",
    "conversations/2026-01-02-030405",
    "schedule",
    "tasks",
    "tasks/1",
    "approvals",
    "memory",
    "memory/~changes",
    "skills",
]
PAGES += ["conversations/2026-01-02-030405/lines", "tree", "usage", "channels", "settings", "log"]


def say(page, text):
    page.locator(".foot").get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def go(page, where):
    page.evaluate("where => { location.hash = `#/${where}` }", where)


def answers(page):
    return page.locator(".message.agent:not(.draft) .body")


def test_a_first_hour(site):
    page = site.open(sign_in=False)

    # Sign in.
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("That token is not right.")
    page.get_by_label("Token").fill(site.daemon.token)
    page.get_by_role("button", name="Sign in").click()

    # Talk. The list of commands opens with "/"; the field has the focus from the beginning.
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    expect(page.locator(".model .mono")).to_be_attached()
    page.keyboard.type("/sta")
    expect(page.get_by_role("option")).to_have_text([re.compile("/status")])
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(answers(page).last).to_contain_text("Up for")
    say(page, "hello")
    expect(answers(page).last).to_contain_text("Hello")

    # Delegate, and allow what it asks for: the card shows the command exactly.
    say(page, "run echo some-output")
    card = page.get_by_role("region", name="Pegasus asks to run shell_exec")
    expect(card.locator("pre.call")).to_have_text("echo some-output")
    expect(page.get_by_role("link", name=re.compile("run: echo some-output"))).to_be_visible()
    card.get_by_role("button", name="Allow", exact=True).click()
    expect(card).to_have_count(0)
    expect(answers(page).last).to_contain_text("some-output")

    # Watch: the task as a picture, with its steps.
    go(page, "tasks")
    page.get_by_role("link", name=re.compile("run: echo some-output")).click()
    expect(page.locator(".state")).to_have_text("Done")
    expect(page.get_by_role("img", name=re.compile(r"thoughts, \d tool call"))).to_be_visible()
    step = page.get_by_role("list").locator("li.step.tool")
    step.locator("summary").click()
    expect(step.locator(".output")).to_have_text("some-output")

    # Stop.
    go(page, "chat")
    say(page, "run sleep 60")
    go(page, "approvals")
    page.get_by_role("button", name="Allow", exact=True).click()
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    go(page, "chat")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()  # no answer is being made
    say(page, "/stop")
    expect(answers(page).last).to_contain_text("sleep 60")

    # Deny.
    say(page, "run rm -rf important")
    page.get_by_role("button", name="Deny").click()
    expect(answers(page).last).to_contain_text(re.compile("den|refus|not allowed|failed", re.IGNORECASE))

    # Memory: what it was told to remember, edited, and taken back.
    say(page, "remember that I like tea")
    expect(answers(page).last).to_contain_text("Noted")
    go(page, "memory/facts%2Fuser.md")
    expect(page.locator("article")).to_contain_text("I like tea")
    page.get_by_role("button", name="Edit").click()
    field = page.get_by_label("Text (Markdown)")
    field.fill(field.input_value().replace("tea", "coffee"))
    page.get_by_role("button", name="Save").click()
    expect(page.locator("article")).to_contain_text("I like coffee")
    page.get_by_role("button", name="Undo").first.click()
    expect(page.locator("article")).to_contain_text("I like tea")

    # Schedule: a job that runs now, and whose reply is in the chat; paused, resumed, removed.
    go(page, "schedule")
    expect(page.get_by_text("Nothing is scheduled.")).to_be_visible()
    page.get_by_role("button", name="New job").click()
    page.get_by_label("What is to be done").fill("water the plants")
    page.get_by_label("When").fill("every now and then")
    page.locator("form").get_by_role("button", name="New job").click()
    expect(page.get_by_role("alert")).to_contain_text("allowed: in 10 minutes")
    page.get_by_label("When").fill("every day")
    page.locator("form").get_by_role("button", name="New job").click()
    job = page.locator("section.card").filter(has=page.get_by_role("heading", name="water the plants"))
    expect(job).to_contain_text("every 1 day")
    expect(job).to_contain_text("0 runs")
    job.get_by_role("button", name="Run now").click()
    expect(job).to_contain_text("1 run")
    go(page, "chat")
    expect(answers(page).last).to_have_text("Reminder: water the plants")
    go(page, "schedule")
    job.get_by_role("button", name="Pause").click()
    expect(job).to_contain_text("paused")
    job.get_by_role("button", name="Resume").click()
    expect(job).to_contain_text("next in")
    job.get_by_role("button", name="Remove").click()
    job.get_by_role("button", name="Really remove?").click()
    expect(job).to_have_count(0)
    expect(page.get_by_text("Nothing is scheduled.")).to_be_visible()

    # Pair: somebody unknown writes elsewhere, and is answered when they were let in with one click.
    asked_for = site.write_over_irc("joe", "let me in")
    go(page, "channels")
    row = page.get_by_role("listitem").filter(has=page.get_by_role("button", name="Let in"))
    expect(row).to_contain_text("irc:joe")
    assert row.get_by_role("code").inner_text() in asked_for
    row.get_by_role("button", name="Let in").click()
    expect(page.get_by_text("Nobody waits to be let in.")).to_be_visible()
    assert "Hello" in site.write_over_irc("joe", "hello")
    person = page.get_by_role("listitem").filter(has=page.get_by_role("button", name="Take back"))
    expect(person).to_contain_text("irc:joe")

    # The conversation is there again after a reload, in the same order, and on a phone.
    go(page, "chat")
    expect(page.locator(".message.user .body").last).to_have_text("remember that I like tea")
    page.reload()
    expect(page.locator(".message.user .body").last).to_have_text("remember that I like tea")
    asked = ["hello", "run echo some-output", "run sleep 60", "run rm -rf important", "remember that I like tea"]
    # Their text content: messages above the last ones have no inner text until the browser has laid them out.
    assert page.locator(".message.user .body").all_text_contents()[-len(asked) :] == asked, "commands are no part of it"
    expect(answers(page).last).to_have_text("Reminder: water the plants")
    expect(answers(page).nth(-2)).to_contain_text("Noted")

    # Sign out: the cookie counts no more.
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.problems == []


HOSTILE = [
    '<img src=x onerror="document.title=1">',
    "<script>document.body.remove()</script>",
    "[click](javascript:document.body.remove())",
    "</div></div><style>*{display:none}</style>",
    '<section class="approval"><button>Allow once</button></section>',
]


def test_a_job_whose_time_has_passed_is_over_and_no_line_of_the_log_is_squeezed(site):
    page = site.open()
    say(page, "remind me in 1 second to drink tea")
    expect(answers(page).last).to_have_text("Reminder: drink tea")
    go(page, "schedule")
    card = page.locator(".card", has_text="drink tea")
    expect(card).to_contain_text("does not run again")
    expect(card.get_by_role("button")).to_have_text(["Run now", "Remove"])

    with (site.daemon.home / "logs" / "pegasus.log").open("a") as log:
        log.write("a line that belongs to the one before\n")
    go(page, "log")
    lines = page.locator(".log li")
    expect(lines.filter(has_text="a line that belongs").locator(".event")).to_contain_text("a line that belongs")


def test_the_log_shows_its_newest_line_and_follows(site):
    """Also where lines are longer than the window is wide, so that the height of most is not known before they are shown."""

    def write(text):
        with (site.daemon.home / "logs" / "pegasus.log").open("a") as log:
            log.write(f"2026-01-02T03:04:05.000Z info    test: {text}\n")

    for number in range(200):
        write(f"{number} " + "long line " * 30)
    write("the newest line")
    page = site.open(phone=True)
    go(page, "log")
    expect(page.locator(".log li", has_text="the newest line")).to_be_in_viewport()
    write("a newer line")
    expect(page.locator(".log li", has_text="a newer line")).to_be_in_viewport()


def test_texts_of_others_stay_texts(site):
    """The stand-in repeats what it is told, so each text comes back in replies, as a task, as a tool's result and as an approval."""
    page = site.open()
    expect(page.locator(".message.agent .md").last).to_be_visible()
    say(page, " ".join(HOSTILE))
    expect(page.locator(".message.user .body").last).to_have_text(" ".join(HOSTILE))
    expect(answers(page).last).to_contain_text(HOSTILE[-1])
    say(page, f"run echo '{HOSTILE[0]}' \u202etxt.exe")
    card = page.get_by_role("region", name=re.compile("asks to run"))
    expect(card.locator("pre.call")).to_contain_text(f"echo '{HOSTILE[0]}'")
    card.get_by_role("link", name="Show the task").click()
    expect(page.locator(".task-head h2")).to_contain_text("<img src=x")
    page.get_by_role("button", name="Deny").click()
    expect(page.locator(".state")).to_have_text(re.compile("Done|Failed"))
    say_it = f"remember that {HOSTILE[1]}"
    go(page, "chat")
    say(page, say_it)
    expect(answers(page).last).to_contain_text("<script>")
    go(page, "memory/~changes")
    expect(page.locator(".diff").first).to_contain_text("<script>")
    for where in ("conversations/current/lines", "log", "tree"):
        go(page, where)
        expect(page.locator("main h1")).to_be_attached()
    assert page.evaluate("document.querySelectorAll('script, style, iframe, main img').length") == 1, (
        "only the page's own script"
    )
    assert page.evaluate(
        "[...document.querySelectorAll('main a')].every((a) => /^(https?:|mailto:|blob:)/.test(a.href))"
    )
    assert page.problems == []
    with pytest.raises(
        Exception, match="TrustedHTML"
    ):  # not even a script of the page's own can put a text into it as HTML
        page.evaluate("document.body.innerHTML = '<b>x</b>'")


def test_a_link_that_was_used_says_so_and_names_of_settings_are_whole(site):
    page = site.open(sign_in=False)
    page.goto(f"{site.daemon.at.http}/login?code=used")
    expect(page.get_by_role("alert")).to_have_text("This link was used already or is older than 5 minutes.")
    assert page.url == f"{site.daemon.at.http}/"
    expect(page.locator("pre code")).to_have_text(f"pegasus --home {site.daemon.home} open")
    page.get_by_label("Token").fill(site.daemon.token)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Chat").wait_for(state="attached")
    go(page, "settings")
    expect(page.get_by_text("guest_messages_per_minute", exact=True)).to_be_visible()
    page.goto(f"{site.daemon.at.http}/login?code=used")  # as by "back": whoever is signed in sees the page
    expect(page.locator(".model .mono")).to_be_attached()
    assert page.problems == []


def test_the_way_to_sign_in_stays_there_when_the_agent_cannot_say_it(site):
    page = site.open(sign_in=False)
    error = {"error": {"code": "unavailable", "message": "try again"}}
    page.route("**/api/login", lambda route: route.fulfill(status=503, json=error))
    with page.expect_response("**/api/login"):  # waiting for its end would never return if the page has read it before
        page.reload()
    page.evaluate("new Promise((done) => setTimeout(done, 100))")
    expect(page.locator("pre code")).to_have_text("pegasus open")


def test_conversations_of_many_chats_are_listed_in_parts_and_found_by_name(site):
    folder = site.daemon.home / "data" / "sessions"
    folder.mkdir(exist_ok=True)
    for number in range(150):
        content = f"[channel: web | id: c/{number}]\nthe words of {number}"
        line = {"ts": number, "role": "user", "content": content, "metadata": {"item": 1, "messageId": "m-1"}}
        (folder / f"web%3Ac%2F{number}.jsonl").write_text(json.dumps(line) + "\n")
    page = site.open()
    go(page, "conversations")
    rows = page.locator(".rows.select li")
    expect(rows).to_have_count(50)
    for count in (100, 150):
        page.get_by_role("button", name="Show more").first.click()
        expect(rows).to_have_count(count)
    page.get_by_role("searchbox", name="Search in all conversations").fill("C/149")
    expect(rows).to_have_count(1)
    expect(rows.first.locator(".facts")).to_contain_text("web:c/149")
    rows.first.get_by_role("link").click()
    expect(page.locator(".detail h2")).to_have_text("the words of 149")
    page.get_by_role("link", name="As Pegasus sees it").click()
    expect(page.locator(".detail .words")).to_contain_text("the words of 149")
    expect(page.get_by_role("link", name="Open the chat")).to_have_count(0)
    assert page.problems == []
    shutil.rmtree(folder)


def test_ten_thousand_messages(site):
    page = site.open()
    expect(page.locator(".message.agent .md").last).to_be_visible()
    loaded = page.evaluate("""async () => {
        window.drawn = new Set();  // asking each chunk whether it is would lay them out
        document.addEventListener("contentvisibilityautostatechange", ({ target, skipped }) => {
            if (skipped) drawn.delete(target); else drawn.add(target);
        });
        const scroller = document.querySelector(".scroller");
        const top = document.querySelector(".top");
        const changed = () => new Promise((done) => {
            new MutationObserver((_, all) => { all.disconnect(); done(); }).observe(top, { childList: true });
        });
        for (let n = 0; n < 3000 && !top.textContent.includes("beginning"); n++) {
            const more = changed();
            scroller.scrollTop = 0;
            await more;
            await new Promise(requestAnimationFrame);
        }
        return document.querySelectorAll(".message").length;
    }""")
    assert loaded >= 10_000
    days = page.locator(".day:not(.begins)").all_text_contents()
    assert len(days) == len(set(days)), "a day stands above its messages once"
    page.evaluate("document.querySelector('.scroller').scrollTop = 0")
    first = page.locator(".message").first
    expect(first).to_contain_text("question 1")
    expect(page.locator(".message.agent").first.locator("strong")).to_have_text("1")  # laid out when it comes into view
    assert 0 < page.evaluate("drawn.size") < 20, "what is not near the window is not laid out"
    page.locator(".foot").get_by_role("button", name="Latest messages").click()
    say(page, "still there?")
    expect(page.locator(".message.user").last).to_be_in_viewport()
    assert page.problems == []


def test_a_lost_connection_loses_nothing(site):
    page = site.open()
    expect(page.locator(".model .mono")).to_be_attached()
    say(page, "before the crash")
    expect(answers(page).last).to_contain_text("before the crash")
    site.daemon.kill()
    expect(page.locator(".banner")).to_contain_text("No connection")
    say(page, "what time is it?")
    expect(page.locator(".sent-state").last).to_have_text("Waits for the connection")
    site.daemon.start_blocking()
    expect(page.locator(".banner")).to_be_hidden(timeout=15_000)
    expect(answers(page).last).to_contain_text("UTC")
    page.reload()
    expect(answers(page).last).to_contain_text("UTC")
    assert page.locator(".message.user .body", has_text="what time is it?").count() == 1
    expect(answers(page).nth(-2)).to_contain_text("before the crash")  # nothing came twice
    assert answers(page).filter(has_text="before the crash").count() == 1


def test_a_page_that_gets_no_answer_says_so_and_connects_again(site):
    page, sockets = site.open(), []
    page.route_web_socket("**/ws", lambda socket: sockets.append(socket) or socket.connect_to_server())
    page.reload()
    expect(page.locator(".model .mono")).to_be_attached()
    page.route("**/api/status", lambda route: None)  # a network that drops everything
    sockets[-1].close()
    expect(page.locator(".banner")).to_be_visible(timeout=15_000)
    expect(page.locator(".banner")).to_be_hidden(timeout=15_000)
    assert len(sockets) == 2
    page.unroute("**/api/status")


def test_a_connection_that_is_not_welcomed_is_given_up_for_another_one(site):
    page, sockets = site.open(), []
    # The first one is answered by nobody.
    page.route_web_socket(
        "**/ws", lambda socket: sockets.append(socket) or (len(sockets) > 1 and socket.connect_to_server())
    )
    page.reload()
    expect(page.locator(".model .mono")).to_be_attached()
    assert len(sockets) == 2


@pytest.mark.parametrize(("phone", "dark"), [(False, False), (True, True)])
def test_every_page_can_be_used_without_seeing_it(site, axe, phone, dark):
    page = site.open(sign_in=False, phone=phone, dark=dark)
    expect(page.get_by_label("Token")).to_be_visible()
    found = judge(page, axe, "sign in")
    page.get_by_label("Token").fill(site.daemon.token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".model .mono")).to_be_attached()
    found += judge(page, axe, "the frame", "nav.tabs" if phone else "nav.side")
    for where in PAGES:
        go(page, where)
        expect(page.locator(f'main[data-page="{where.split("/")[0]}"] h1')).to_be_attached()
        page.evaluate("() => new Promise(requestIdleCallback)")
        if not dark or where in ("chat", "tasks/1", "usage", "log"):
            found += judge(page, axe, where, "main", only="color-contrast" if dark else None)
        width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert width <= 0, f"{where} is wider than the window"
    assert found == []
    assert page.problems == []


def judge(page, axe, where, part="body", only=None):
    """The serious findings of axe-core in a part of the page as it is."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(axe)
    options = {"resultTypes": ["violations"]} | ({"runOnly": [only]} if only else {})
    found = page.evaluate("([part, options]) => axe.run(part, options)", [part, options])["violations"]
    return [
        (where, each["id"], each["nodes"][0]["target"]) for each in found if each["impact"] in ("serious", "critical")
    ]


def test_everything_is_reached_by_keyboard(site):
    page = site.open()
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.evaluate("document.activeElement.blur()")
    focused = "() => document.activeElement.textContent.trim() || document.activeElement.getAttribute('aria-label')"
    page.locator(".skip").first.focus()
    assert page.evaluate(focused) == "Skip to content"
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Write a message"
    page.keyboard.press("Enter")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.locator(".skip").first.focus()
    reached = []
    for _ in range(18):
        page.keyboard.press("Tab")
        reached.append(re.sub(r"\d+$", "", page.evaluate(focused)))
    for name in ("Chat", "Conversations", "Tasks", "Approvals", "Memory", "Tree", "Settings", "Log", "Sign out"):
        assert name in reached
    page.get_by_role("link", name="Tree").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Tree")).to_be_visible()
    page.get_by_role("button", name=re.compile("^journal, up")).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Messages handled")).to_be_visible()
    outline = page.evaluate(
        "getComputedStyle(document.activeElement).outlineStyle + document.activeElement.className.baseVal"
    )
    assert "actor" in outline, "the focus stays where it was while the picture is drawn again"


def test_a_question_of_a_server_is_a_form(site):
    page = site.open()
    answer = page.evaluate("""async () => {
        const { approvalCard } = await import("/static/js/pages/approval_card.js");
        const question = {
            source: "MCP server hotel",
            text: "Which room?",
            url: "javascript:alert(1)",
            fields: [
                { name: "beds", kind: "integer", description: "How many beds", isRequired: true, least: 1 },
                { name: "view", kind: "choice", choices: [{ value: "sea" }, { value: "yard", title: "the yard" }] },
                { name: "late", kind: "boolean" },
            ],
        };
        const expires = Date.now() + 60000;
        const notice = { id: "a-1", tool: "hotel__book", arguments: {}, why: "w", who: "owner", expires, question };
        const given = [];
        const state = { answerApproval: async (...all) => given.push(all) };
        const card = approvalCard({ connection: { agent: "Pegasus" }, state, notify() {} }, notice);
        document.querySelector("main").prepend(card);
        const button = card.querySelector(".primary");
        const early = button.disabled;
        await new Promise((resolve) => setTimeout(resolve, 800));
        button.click();
        const refused = given.length === 0;
        card.querySelector("input[type=number]").value = "2";
        card.querySelector("select").value = "yard";
        card.querySelector("input[type=checkbox]").checked = true;
        button.click();
        await Promise.resolve();
        const links = card.querySelectorAll("a[target]").length;
        return { early, refused, given, links, always: card.textContent.includes("Always") };
    }""")
    values = {"beds": 2, "view": "yard", "late": True}
    assert answer == {
        "early": True,
        "refused": True,
        "given": [["a-1", "allow", "once", values, None]],
        "links": 0,
        "always": False,
    }


def test_a_change_of_a_file_is_shown_line_by_line(site):
    page = site.open()
    shown = page.evaluate("""async () => {
        const { callDetails } = await import("/static/js/pages/approval_card.js");
        const texts = { old_string: "a\\nb\\nc", new_string: "a\\n- x\\u202e\\nc" };
        const details = callDetails("edit_file", { path: "notes.md", ...texts });
        const lines = [...details.querySelectorAll(".diff span:not(.unseen)")];
        return [details.querySelector("dd").textContent, ...lines.map((line) => line.textContent)];
    }""")
    assert shown == ["notes.md", "  a", "− b", "+ - xU+202E", "  c"]


def test_a_yes_may_be_for_some_of_several_calls(site):
    page = site.open()
    answer = page.evaluate("""async () => {
        const { approvalCard } = await import("/static/js/pages/approval_card.js");
        const files = { "do.sh": "5f1d2c8a9b7e6d5c" };
        const calls = ["mail__send", "mail__delete"].map((tool) => ({ tool, arguments: { id: 7 }, why: "w", files }));
        const scopes = ["once", "arguments", "tool"];
        const facts = { words: "It is <b>fine</b>", notes: ["a\u202eb leads to c"], isPlan: true, scopes };
        const notice = { id: "a-1", ...calls[0], calls, who: "owner", expires: Date.now() + 60000, ...facts };
        const given = [];
        const state = { answerApproval: async (...all) => given.push(all) };
        const card = approvalCard({ connection: { agent: "Pegasus" }, state, notify() {} }, notice);
        document.querySelector("main").prepend(card);
        await new Promise((resolve) => setTimeout(resolve, 800));
        const [first, second] = card.querySelectorAll("input[type=checkbox]");
        first.click();
        second.click();
        const none = card.querySelector(".primary").disabled;
        second.click();
        const select = card.querySelector("select");
        const quiet = card.querySelector("[role=status]").hidden;
        select.value = "tool";
        select.dispatchEvent(new Event("change"));
        const warned = !card.querySelector("[role=status]").hidden;
        card.querySelector(".primary").click();
        await Promise.resolve();
        return { given, none, quiet, warned, text: card.textContent, bold: card.querySelectorAll("b").length };
    }""")
    text = answer.pop("text")
    assert answer == {
        "given": [["a-1", "allow", "tool", None, [1]]],
        "none": True,
        "quiet": True,
        "warned": True,
        "bold": 0,
    }
    for part in (
        "asks beforehand for 2 calls",
        "do.sh (5f1d2c8a9b7e)",
        "Look twice: aU+202Eb leads to c",
        "It is <b>fine</b>",
    ):
        assert part in text


def test_what_was_allowed_for_later_is_listed_and_can_be_revoked(site):
    page = site.open()
    say(page, "run echo one")
    go(page, "approvals")
    page.get_by_label("How far the yes reaches").select_option("hour")
    page.get_by_role("button", name="Allow", exact=True).click()
    expect(page.get_by_text("Allowed for later calls")).to_be_visible()
    expect(page.get_by_text("the tool, for an hour")).to_be_visible()
    go(page, "chat")
    say(page, "run echo two")
    # What the command wrote, without a question. The answer before it names the command as well, and the grant must outlive that.
    expect(answers(page).last).to_have_text("two")
    go(page, "approvals")
    page.get_by_role("button", name="Revoke shell_exec").click()
    expect(page.get_by_text("Allowed for later calls")).to_be_hidden()
    go(page, "chat")
    say(page, "run echo three")
    go(page, "approvals")
    expect(page.get_by_role("button", name="Allow", exact=True)).to_be_visible()
    page.get_by_role("button", name="Deny").click()  # nothing waits for the tests that follow
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()


def test_a_message_that_is_too_large_is_not_sent(site):
    """The gateway would close the connection, and the message would be sent again with each new one."""
    page = site.open()
    said = page.evaluate("""async () => {
        const { Connection } = await import("/static/js/connection.js");
        const connection = new Connection();
        return [connection.say("m-1", "x".repeat(1_100_000), []), connection.outbox.size];
    }""")
    assert said == [False, 0]


def test_a_link_of_the_command_line_signs_in_by_its_button(site):
    """A form without a script: the answer to its button sets the cookie and leads to the page."""
    with ThreadPoolExecutor(1) as thread:
        opened = thread.submit(trio.run, site.daemon.command, "open", "--print").result()
    page = site.open(sign_in=False)
    page.goto(opened.out.strip())
    page.reload()  # as a look ahead: it uses nothing up
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Chat").wait_for(state="attached")
    assert page.url.startswith(f"{site.daemon.at.http}/")
    assert "code=" not in page.url
    assert page.problems == []


def test_a_task_is_paused_and_goes_on_and_one_that_is_ended_is_stopped(site):
    page = site.open()
    say(page, "run sleep 15")  # long enough to be paused, however slow the machine is
    page.get_by_role("button", name="Allow", exact=True).click()
    go(page, "tasks")
    page.get_by_role("link", name=re.compile("run: sleep 15")).first.click()
    page.get_by_role("button", name="Pause").click()
    state = page.locator(".detail .state")
    expect(state).to_have_text("Pausing")
    expect(state).to_have_text("Paused", timeout=60_000)
    page.get_by_role("button", name="Continue", exact=True).click()
    expect(state).to_have_text("Done")

    go(page, "chat")
    say(page, "run sleep 61")
    page.get_by_role("button", name="Allow", exact=True).click()
    expect(page.get_by_role("button", name="Allow", exact=True)).to_have_count(0)
    chip = site.open(phone=True).locator(".chip", has_text="run: sleep 61")
    name, facts = (chip.locator(part).bounding_box() for part in (".chip-name", ".chip-facts"))
    assert name["y"] + name["height"] <= facts["y"], "what a task is about has a line of its own on a phone"
    go(page, "tasks")
    page.get_by_role("link", name=re.compile("run: sleep 61")).first.click()
    page.get_by_role("button", name="Cancel task").click()
    page.get_by_role("button", name="Really cancel?").click()
    expect(state).to_have_text("Stopped")
    expect(page.locator(".steps")).not_to_contain_text("Failed")
    assert page.problems == []
