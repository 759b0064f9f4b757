"""Settings on the web page: what a key means, changing it, and what is refused."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.test_page import go


def test_a_setting_is_changed_with_its_meaning_and_mistakes_are_told(site):
    file = site.daemon.home / "pegasus.toml"
    file.write_text("# mine\n" + file.read_text())
    page = site.open()
    go(page, "settings")
    page.get_by_label("Filter settings").fill("max_replies")
    edit = page.get_by_role("button", name="Change agent.max_replies")
    edit.click()
    field = page.get_by_label("agent.max_replies", exact=True)
    expect(field).to_be_focused()
    form = page.locator(".key-form")
    expect(form).to_contain_text("Allowed: a whole number")
    expect(form).to_contain_text("Counts at once")
    field.fill("many")
    page.keyboard.press("Enter")
    expect(form.get_by_role("alert")).to_contain_text('agent.max_replies: found "many"; allowed: a whole number')
    field.fill("9")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="In force now: agent.max_replies")).to_be_visible()
    expect(edit).to_be_focused()
    expect(page.locator(".key-value .value")).to_have_text("9")
    assert file.read_text().startswith("# mine\n")
    assert "max_replies = 9" in file.read_text()

    edit.click()
    file.write_text(file.read_text().replace("max_replies = 9", "max_replies = 4"))
    field.fill("5")
    page.keyboard.press("Enter")
    expect(form.get_by_role("alert")).to_contain_text("changed meanwhile: it is 4 in the file")
    page.keyboard.press("Escape")
    expect(edit).to_be_focused()
    page.get_by_role("button", name="Reload the file").click()
    expect(page.locator(".key-value .value")).to_have_text("4")
    edit.click()
    page.get_by_role("button", name="Back to the default").click()
    expect(edit).to_be_focused()
    expect(page.locator(".key-value .origin")).to_have_count(0)
    assert "max_replies" not in file.read_text()

    page.get_by_label("Filter settings").fill("gateway")
    expect(page.get_by_role("button", name="Change gateway")).to_have_count(0)
    page.get_by_label("Filter settings").fill("log.level")
    page.get_by_role("button", name="Change log.level").click()
    page.get_by_label("log.level", exact=True).select_option("debug")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".key-value .value")).to_have_text('"debug"')
    page.get_by_role("button", name="Change log.level").click()
    page.get_by_role("button", name="Back to the default").click()
    expect(page.locator(".key-value .value")).to_have_text('"info"')
    assert page.problems == []
