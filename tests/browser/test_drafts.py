"""Drafts, reasoning and usage in the chat of the web page: frames as the gateway sends them, put among the real ones."""

from __future__ import annotations

import json

from playwright.sync_api import expect

DRAFT = {"type": "progress", "channel": {"type": "web", "channelId": "main"}}


def open_with_frames(site):
    """A page, and a function that sends it a frame."""
    page, sockets = site.open(), []
    page.sent = []

    def connect(socket):
        server = socket.connect_to_server()
        server.on_message(socket.send)
        socket.on_message(lambda message: page.sent.append(message) or server.send(message))
        sockets.append(socket)

    page.route_web_socket("**/ws", connect)
    page.reload()
    expect(page.get_by_label("Message", exact=True)).to_be_enabled()
    expect(page.locator(".model .mono")).to_be_attached()
    return page, lambda **frame: sockets[-1].send(json.dumps(frame))


def test_a_draft_grows_and_its_reasoning_stands_apart(site):
    page, send = open_with_frames(site)
    draft, thoughts = page.locator(".message.draft .body"), page.locator(".message.draft .reasoning")
    send(**DRAFT, text="", reasoning="Let me see")
    expect(thoughts).to_have_text("Let me see")
    send(**DRAFT, text="Once")
    expect(draft).to_have_text("Once")
    expect(thoughts).to_be_hidden()
    send(**DRAFT, text="Once upon a time")
    expect(draft).to_have_text("Once upon a time")
    send(**DRAFT, text="")
    expect(page.locator(".message.draft")).to_have_count(0)


def test_a_draft_that_was_cut_off_stays_and_says_so(site):
    page, send = open_with_frames(site)
    send(**DRAFT, text="Once upon")
    expect(page.locator(".message.draft .body")).to_have_text("Once upon")
    for _ in range(2):  # the same beginning may be cut off twice
        send(**DRAFT, text="Once upon", cut=True)
    expect(page.locator(".message.draft")).to_have_count(0)
    cut = page.locator(".message.agent.cut", has_text="Once upon")
    expect(cut).to_have_count(2)
    expect(cut.first.locator(".cut-mark")).to_have_text("Ended here")


def test_another_attempt_is_told_in_place_of_thinking(site):
    page, send = open_with_frames(site)
    typing, thinking = {"type": "typing", "channel": DRAFT["channel"]}, page.locator(".message.thinking")
    send(**typing, active=True)
    send(**DRAFT, text="", activity="retrying (429), attempt 2")
    expect(thinking.locator(".activity")).to_have_text("retrying (429), attempt 2")
    send(**DRAFT, text="")
    expect(thinking).to_contain_text("is thinking")
    expect(thinking.locator(".activity")).to_have_count(0)
    send(**DRAFT, text="Once")
    expect(thinking).to_have_count(0)
    send(**typing, active=False)


def test_stop_ends_the_answer_that_is_being_made(site):
    page, send = open_with_frames(site)
    typing = {"type": "typing", "channel": DRAFT["channel"]}
    stop = page.get_by_role("button", name="Stop")
    expect(stop).to_be_hidden()
    send(**typing, active=True)
    stop.click()
    expect(page.locator(".toast")).to_have_text("No answer was being made.")
    expect(page.locator(".toast")).to_have_count(0)
    page.get_by_label("Message", exact=True).focus()
    page.keyboard.press("Escape")
    expect(page.locator(".toast")).to_have_text("No answer was being made.")
    assert sum(json.loads(message).get("method") == "interrupt" for message in page.sent) == 2
    assert not any("/stop" in message for message in page.sent)
    send(**typing, active=False)
    expect(stop).to_be_hidden()


def test_what_a_message_has_used_stands_below_its_reply(site):
    page, send = open_with_frames(site)
    usage = {"inputTokens": 1204, "outputTokens": 80, "cost": 0.0031}
    channel = DRAFT["channel"]
    send(type="reply", seq=900_000, text="An expensive answer", channel=channel, metadata={"usage": usage})
    message = page.locator(".message.agent", has_text="An expensive answer")
    expect(message.locator("footer .usage")).to_have_text("1,204 tokens in, 80 out, $0.0031")


def test_a_reply_whose_layout_a_lost_connection_cut_off_is_laid_out_with_the_next(site):
    page, cut = site.open(), []

    def connect(socket):
        server = socket.connect_to_server()
        server.on_message(socket.send)

        def pass_on(message):
            if '"markdown"' in message and not cut:
                cut.append(message)
                socket.close()
                server.close()
            else:
                server.send(message)

        socket.on_message(pass_on)

    page.route_web_socket("**/ws", connect)
    page.reload()
    newest = page.locator(".chunk:last-child .message.agent .body")
    expect(newest.last).to_be_visible()
    expect(newest.and_(page.locator(":not(.md)"))).to_have_count(0)
    assert cut


def test_a_reply_that_comes_of_work_for_a_guest_says_so(site):
    page, send = open_with_frames(site)
    reply = {"type": "reply", "channel": DRAFT["channel"], "messageId": "r-1"}
    send(**reply, seq=900_001, text="*Ann* asks for you", metadata={"who": "guest"})
    send(**reply, seq=900_002, text="Mine", metadata={})
    message = page.locator(".message.agent", has_text="Ann asks for you")
    expect(message.locator("footer")).to_contain_text("from work for a guest")
    expect(page.locator(".message.agent", has_text="Mine").locator("footer")).not_to_contain_text("guest")


def test_a_screen_reader_is_read_a_reply_as_it_looks(site):
    page, send = open_with_frames(site)
    text = "## Plan\n\n- **one** of `these`\n- [two](https://example.com/)"
    send(type="reply", channel=DRAFT["channel"], messageId="r-2", seq=900_003, text=text, metadata={})
    announcer = page.locator("#announcer")
    expect(announcer).to_contain_text("one of these")
    assert not set("#*`[") & set(announcer.text_content())
