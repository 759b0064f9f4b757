"""The bridge for e-mail, against a fake mail server."""

from __future__ import annotations

from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
import trio

from pegasus.messages import ChannelInfo, Media
from tests.examples.conftest import load, run_without_variables, texts_of
from tests.examples.mail_server import open_mail
from tests.pegasus.gateway.world import TOKEN, world

email_bridge = load("email_bridge")
ANNA = "anna@example.org"
VOUCHED = {"Authentication_Results": "mail.example.org; dkim=pass; dmarc=pass header.from=example.org"}


@asynccontextmanager
async def running(mail, gateway, authserv="mail.example.org"):
    mailbox = email_bridge.Mailbox(
        urlsplit(f"imap://agent@127.0.0.1:{mail.imap_port}"),
        urlsplit(f"smtp://agent@127.0.0.1:{mail.smtp_port}"),
        "mail-password",
        "agent@example.org",
        authserv,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(email_bridge.run, mailbox, gateway.url, TOKEN, 0.01)
        yield
        nursery.cancel_scope.cancel()


async def test_a_mail_reaches_the_agent_and_the_reply_its_writer():
    async with open_mail() as mail, world() as gateway, running(mail, gateway):
        mail.receive("What is up?\r\n> quoted\r\n", Subject="News", **VOUCHED)
        await mail.until(lambda: mail.seen == {1})
        ((message, _),) = gateway.journal.accepted
        assert message.text == "News\n\nWhat is up?"
        assert message.channel == ChannelInfo("email", ANNA, ANNA, "<m0@example.org>")
        file = Media("a.txt", "text/plain", "aGk=")
        await gateway.say(ChannelInfo("email", ANNA, reply_to="<m0@example.org>"), "All **well**.", media=(file,))
        await mail.until(lambda: mail.sent)
        (sent,) = mail.sent
        assert (sent["To"], sent["Subject"], sent["In-Reply-To"]) == (ANNA, "Re: News", "<m0@example.org>")
        assert sent.get_body(("plain",)).get_content().strip() == "All **well**."
        assert "<strong>well</strong>" in sent.get_body(("html",)).get_content()
        assert [part.get_content().strip() for part in sent.iter_attachments()] == ["hi"]
        await gateway.journal.until(lambda: not gateway.journal.outbox[message.channel.address] or gateway.journal.acks)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authentication_Results": "mail.example.org; dmarc=fail"},
        {"Authentication_Results": "evil.example; dmarc=pass"},
        {"Authentication_Results": 'mail.example.org; dmarc=fail reason="x dmarc=passed"'},
        {**VOUCHED, "Auto_Submitted": "auto-replied"},
        {**VOUCHED, "Precedence": "bulk"},
        {**VOUCHED, "List_Id": "<list.example.org>"},
        {**VOUCHED, "Return_Path": "<>"},
        {**VOUCHED, "From": "agent@example.org"},
        {**VOUCHED, "Content_Type": "text/plain; charset=no-such-charset"},
    ],
)
async def test_mails_of_machines_and_of_nobody_knows_whom_are_not_heard(headers):
    async with open_mail() as mail, world() as gateway, running(mail, gateway):
        mail.receive("let me in", **headers)
        mail.receive("hello", **VOUCHED)
        await mail.until(lambda: mail.seen == {1, 2})
        assert texts_of(gateway) == ["hello"]


async def test_files_and_html_are_read():
    parts = (
        'Content-Type: multipart/mixed; boundary="b"\r\n\r\n--b\r\nContent-Type: text/html\r\n\r\n<style>x{}</style><p>Hello</p>\r\n'
        '--b\r\nContent-Type: image/png\r\nContent-Disposition: attachment; filename="a.png"\r\n'
        "Content-Transfer-Encoding: base64\r\n\r\ncGljdHVyZQ==\r\n--b--\r\n"
    )
    async with open_mail() as mail, world() as gateway, running(mail, gateway):
        mail.receive(parts.encode(), Subject="Re: News", **VOUCHED)
        await mail.until(lambda: mail.seen == {1})
        ((message, _),) = gateway.journal.accepted
        assert message.text == "Hello"
        assert message.media == (Media("a.png", "image/png", "cGljdHVyZQ=="),)


async def test_a_mail_that_was_not_marked_any_more_is_one_message():
    async with open_mail() as mail, world() as gateway:
        for _ in range(2):
            mail.seen.clear()
            async with running(mail, gateway):
                if not mail.inbox:
                    mail.receive("hello", **VOUCHED)
                await mail.until(lambda: mail.seen)
        assert texts_of(gateway) == ["hello"]


async def test_a_recipient_that_does_not_exist_holds_up_nobody_and_a_busy_server_is_tried_again(monkeypatch):
    monkeypatch.setattr(email_bridge, "FIRST_PAUSE", 0.01)
    async with open_mail() as mail, world() as gateway, running(mail, gateway):
        mail.refuses["nobody@example.org"] = "550 no such user"
        mail.busy = 2
        await gateway.say(ChannelInfo("email", "nobody@example.org"), "lost")
        await gateway.say(ChannelInfo("email", ANNA), "heard")
        await mail.until(lambda: mail.sent)
        assert [sent["To"] for sent in mail.sent] == [ANNA]


async def test_a_reply_that_is_sent_twice_has_the_same_id():
    async with open_mail() as mail, world() as gateway:
        channel = ChannelInfo("email", ANNA)
        reply = await gateway.say(channel, "hi")
        for count in (1, 2):
            gateway.journal.outbox[channel.address] = [reply]  # as if the bridge had died before it could acknowledge
            async with running(mail, gateway):
                await mail.until(lambda wanted=count: len(mail.sent) == wanted)
        first, second = mail.sent
        assert first["Message-ID"] == second["Message-ID"]


def test_without_its_variables_it_says_which_are_missing():
    assert run_without_variables("email_bridge") == (
        1,
        "not set: IMAP_URL, SMTP_URL, MAIL_PASSWORD, MAIL_ADDRESS, PEGASUS_TOKEN; the beginning of this file shows how to start it\n",
    )
