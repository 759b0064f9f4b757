"""The page as a program of the phone: its manifest, its service worker, notifications and their buttons, and no connection.

Chromium reaches no push service here, so a push is delivered by the DevTools protocol, as the browser would do it.
"""

from __future__ import annotations

import json

from playwright.sync_api import expect

from tests.browser.test_page import answers, go, say

NOTIFICATIONS = """async (wanted) => {
  const registration = await navigator.serviceWorker.ready;
  let shown;
  for (let times = 0; times < 1500; times++) {
    const found = (await registration.getNotifications()).sort((one, other) => one.tag.localeCompare(other.tag));
    shown = found.map(({ title, body, tag, actions }) => ({ title, body, tag, actions: actions.map(({ action }) => action) }));
    if (JSON.stringify(shown.map(({ body }) => body.split(":")[0])) === JSON.stringify(wanted)) break;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return shown;
}"""
"""Returns the notifications when their texts, up to a colon, are these; what there is otherwise."""


class Worker:
    """The service worker of a page, by the DevTools protocol."""

    def __init__(self, page, address):
        self.page, self.address = page, address
        page.context.grant_permissions(["notifications"], origin=address)
        self.cdp = page.context.new_cdp_session(page)
        self.registrations = []
        self.cdp.on(
            "ServiceWorker.workerRegistrationUpdated", lambda event: self.registrations.extend(event["registrations"])
        )
        self.cdp.send("ServiceWorker.enable")
        page.evaluate("() => navigator.serviceWorker.ready.then(() => true)")
        page.wait_for_function("() => navigator.serviceWorker.controller !== null")

    def push(self, **notice):
        origin = self.address.rstrip("/")
        self.cdp.send(
            "ServiceWorker.deliverPushMessage",
            {"origin": origin, "registrationId": self.registrations[-1]["registrationId"], "data": json.dumps(notice)},
        )

    def shown(self, *bodies):
        """The notifications, when these are shown."""
        found = self.page.evaluate(NOTIFICATIONS, list(bodies))
        assert [each["body"].partition(":")[0] for each in found] == list(bodies)
        return found

    def click(self, tag, action=""):
        """Click a notification, or a button on it, as the browser tells the service worker."""
        [worker] = self.page.context.service_workers
        worker.evaluate(
            """async ([tag, action]) => {
              const [notification] = await registration.getNotifications({ tag });
              const event = new NotificationEvent("notificationclick", { notification, action });
              const done = [];
              event.waitUntil = (work) => done.push(work);
              dispatchEvent(event);
              await Promise.all(done);
            }""",
            [tag, action],
        )


def test_the_page_is_a_program_of_the_phone(site):
    page = site.open(phone=True)
    manifest = page.evaluate("async () => (await fetch(document.querySelector('link[rel=manifest]').href)).json()")
    assert {"id", "name", "start_url", "scope", "display", "icons"} <= manifest.keys()
    assert {icon["purpose"] for icon in manifest["icons"]} == {"any", "maskable"}
    apple = page.get_attribute("link[rel=apple-touch-icon]", "href")
    wanted = {icon["src"]: icon["sizes"] for icon in manifest["icons"] if icon["type"] == "image/png"} | {
        apple: "180x180"
    }
    sizes = page.evaluate(
        """async (paths) => Promise.all(paths.map(async (path) => {
          const image = await createImageBitmap(await (await fetch(path)).blob());
          return `${image.width}x${image.height}`;
        }))""",
        list(wanted),
    )
    assert sizes == list(wanted.values())
    cdp = page.context.new_cdp_session(page)
    page.evaluate("() => navigator.serviceWorker.ready.then(() => true)")
    assert cdp.send("Page.getAppManifest")["errors"] == []
    problems = {error["errorId"] for error in cdp.send("Page.getInstallabilityErrors")["installabilityErrors"]}
    assert problems <= {"in-incognito"}

    # What another program shares stands in the field, and not in the address.
    page.goto(f"{site.daemon.at.http}/?title=Look&text=at+this&url=https%3A%2F%2Fexample.org%2F")
    expect(page.get_by_role("combobox", name="Message")).to_have_value("Look\nat this\nhttps://example.org/")
    assert "Look" not in page.url
    assert page.problems == []


def test_a_call_is_allowed_from_its_notification_and_what_is_seen_is_taken_back(site):
    page = site.open()
    worker = Worker(page, site.daemon.at.http)
    worker.push(kind="reply", tag="reply", title="Pegasus", body="Hello", seq=1, url="/#/chat")
    worker.push(kind="reply", tag="reply", title="Pegasus", body="Hello again", seq=2, url="/#/chat")
    assert worker.shown("Hello again") == [{"title": "Pegasus", "body": "Hello again", "tag": "reply", "actions": []}]
    go(page, "memory")
    expect(page.get_by_role("heading", name="Memory")).to_be_attached()
    worker.click("reply")
    expect(page.get_by_role("heading", name="Chat")).to_be_attached()
    worker.shown()

    say(page, "run echo from-a-notification")
    go(page, "approvals")
    card = page.get_by_role("region", name="Pegasus asks to run shell_exec")
    id = card.locator(".id").inner_text()
    worker.push(
        kind="approval", tag="approval", title="?", body="echo", id=id, decisions=["allow", "deny"], url="/#/approvals"
    )
    worker.shown("echo")
    worker.click("approval", "allow")
    expect(card).to_have_count(0)
    worker.shown("Allowed")
    go(page, "chat")
    expect(answers(page).last).to_contain_text("from-a-notification")

    question = {"kind": "approval", "title": "Pegasus asks: shell_exec", "body": "command: ls", "url": "/#/approvals"}
    worker.push(**question, tag="approval-a-none", id="a-none", decisions=["allow", "deny"])
    assert worker.shown("Allowed", "command")[1]["actions"] == ["allow", "deny"]
    worker.click("approval-a-none", "deny")
    [_, answered] = worker.shown("Allowed", "Not answered")
    assert answered["actions"] == []
    worker.push(kind="answered", tag="approval-a-none", id="a-none", title="Pegasus", body="Denied")
    worker.shown("Allowed", "Denied")


def test_without_a_connection_the_page_opens_and_says_so_and_signing_out_leaves_nothing(site):
    page = site.open()
    worker = Worker(page, site.daemon.at.http)
    kept = page.evaluate(
        """async () => {
          const [name] = await caches.keys();
          return (await (await caches.open(name)).keys()).map(({ url }) => new URL(url).pathname);
        }"""
    )
    assert "/" in kept
    assert all(path == "/" or path.startswith("/static/") for path in kept)
    page.context.set_offline(True)
    page.reload()
    expect(page.locator(".banner")).to_contain_text("No connection")
    expect(page.get_by_role("combobox", name="Message")).to_be_visible()
    page.context.set_offline(False)
    page.get_by_role("button", name="Try now").click()
    expect(page.locator(".banner")).to_be_hidden()
    worker.push(kind="reply", tag="reply", title="Pegasus", body="Hello", seq=1, url="/#/chat")
    worker.shown("Hello")
    page.get_by_role("button", name="Sign out").first.click()
    expect(page.get_by_label("Token")).to_be_visible()
    left = page.evaluate(
        """async () => {
          const workers = await navigator.serviceWorker.getRegistrations();
          return [await caches.keys(), workers.length, localStorage["pegasus.push"] ?? ""];
        }"""
    )
    assert left == [[], 0, ""]


def test_where_there_is_no_push_service_the_settings_say_so(site):
    page = site.open(phone=True)
    Worker(page, site.daemon.at.http)
    page.goto(f"{site.daemon.at.http}/#/settings")
    card = page.locator(".card", has_text="Notifications on this device")
    card.get_by_label("Tell me of").select_option("approvals")
    card.get_by_role("button", name="Apply").click()
    expect(card.get_by_role("alert")).to_contain_text("That did not work")
    expect(card.get_by_label("Tell me of")).to_have_value("off")
    page.set_viewport_size({"width": 320, "height": 640})
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert card.evaluate("card => card.scrollWidth <= card.clientWidth"), "the card is cut at its right side"
