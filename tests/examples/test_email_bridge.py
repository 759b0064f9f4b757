"""The bridge for e-mail: pure reading of mails, and both ways against a strict fake and against Dovecot and Postfix."""

from __future__ import annotations

import email.policy
import ssl
import sys
from contextlib import asynccontextmanager
from email.parser import BytesParser
from typing import ClassVar
from urllib.parse import urlsplit

import pytest
import trio

from pegasus.bridge import BridgeState
from pegasus.messages import ChannelInfo, Media
from pegasus.testing.bridges.debian_mail import missing_programs
from pegasus.testing.bridges.fake_mail import FakeMailServer
from pegasus.testing.bridges.mail import DebianMailService, MailService
from pegasus.testing.bridges.steps import Step
from pegasus.testing.bridges.suite import examine_bridge
from pegasus.testing.bridges.verdict import DeliveryClass
from tests.examples.conftest import EXAMPLES, load, run_without_variables, texts_of
from tests.pegasus.gateway.world import TOKEN, world

email_bridge = load("email_bridge")
ANNA, AUTHSERV = "anna@example.org", "mail.example.org"
VOUCHED = {"Authentication-Results": f"{AUTHSERV}; dkim=pass; dmarc=pass header.from=example.org"}
HTML = {"Content-Type": "text/html"}


def mail(text="hello", **headers):
    """Return a mail that Anna may have sent; a header of None is left out."""
    names = {"From": "Anna <Anna@example.org>", "Subject": "Re: News", "Message-ID": "<m1@example.org>", **VOUCHED}
    names |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in names.items() if value is not None)
    return head.encode("latin-1") + b"\r\n" + (text.encode() if isinstance(text, str) else text)


def read(raw, authserv=AUTHSERV):
    return email_bridge.read_letter(raw, "agent@example.org", authserv)


@pytest.mark.parametrize(
    "headers",
    [
        {"Authentication_Results": None},
        {"Authentication_Results": f"{AUTHSERV}; dmarc=fail header.from=example.org; dkim=pass header.d=example.org"},
        {"Authentication_Results": f"{AUTHSERV}; dmarc=pass header.from=evil.example"},
        {"Authentication_Results": "evil.example; dmarc=pass header.from=example.org"},
        {"Authentication_Results": f'{AUTHSERV}; spf=fail reason="x; dmarc=pass header.from=example.org"'},
        {"Authentication_Results": f"{AUTHSERV}; spf=fail (; dmarc=pass header.from=example.org )"},
        {"Authentication_Results": f"{AUTHSERV}; spf=fail ((x) ; dmarc=pass header.from=example.org )"},
        {
            "Authentication_Results": f"{AUTHSERV}; spf=fail smtp.mailfrom==?utf-8?q?;_dmarc=3Dpass_header.from=3Dexample.org?=@x"
        },
        {"Authentication_Results": f"{AUTHSERV}; spf=pass smtp.mailfrom=me@evil.example"},
        {"Authentication_Results": f"{AUTHSERV}; dkim=pass header.d=evil.example header.s=header.d=example.org"},
        {
            "Authentication_Results": f"{AUTHSERV}; none\r\n"
            + f"Authentication-Results: {VOUCHED['Authentication-Results']}"
        },
        {"From": "owner@example.org, anna@example.org"},
        {"From": "anna@example.org\r\nFrom: owner@example.org"},
        {"Auto_Submitted": "auto-replied; owner-email=x"},
        {"Precedence": "bulk"},
        {"List_Id": "<list.example.org>"},
        {"Return_Path": "<>"},
        {"From": "agent@example.org"},
        {"From": "MAILER-DAEMON@example.org"},
        {"Content_Type": "multipart/report; boundary=b"},
    ],
)
def test_mails_of_machines_and_of_nobody_knows_whom_are_not_heard(headers):
    assert read(mail(**headers)) is None


@pytest.mark.parametrize(
    "result",
    ["dkim=pass header.d=Example.org", "dkim=pass header.i=@example.org", "spf=pass smtp.mailfrom=x@example.org"],
)
def test_without_a_verdict_of_dmarc_the_same_domain_must_have_signed_or_sent_it(result):
    assert read(mail(Authentication_Results=f"{AUTHSERV}; {result}")).user_id == ANNA
    assert read(mail(Authentication_Results=None), email_bridge.ANYBODY).user_id == ANNA


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (mail("Hello\r\n\r\nOn Monday, 3 May, Agent wrote:\r\n> old\r\n>\r\n> older\r\n"), "Hello"),
        (mail("Hello\r\n\r\nAm Montag schrieb\r\nAgent <agent@example.org>:\r\n> old\r\n"), "Hello"),
        (mail("> Is it?\r\nYes.\r\n-- \r\nAnna, CEO\r\n"), "> Is it?\nYes."),
        (mail("Hello\r\n-----Original Message-----\r\nFrom: x\r\n"), "Hello"),
        (mail("> only a quote\r\n"), "> only a quote"),
        (mail("What is up?", Subject="News"), "News\n\nWhat is up?"),
        (mail(b"caf\xe9", Content_Type="text/plain; charset=no-such-charset"), "café"),
        (mail(b"caf\xe9", Content_Type="text/plain; charset=utf-8"), "café"),
        (mail(b"Gr\xc3\xbc\xc3\x9fe\0"), "Grüße"),
        (
            mail("<head><title>x</title></head><style>x{}</style><p>Hello <b>you</b></p><p>Bye</p>", **HTML),
            "Hello you\nBye",
        ),
        (mail('Yes<div class="gmail_quote">On Monday<blockquote>old<br>er</blockquote></div>', **HTML), "Yes"),
        (mail("<html><head><body>never ended", **HTML), "never ended"),
    ],
)
def test_what_a_person_wrote_is_read(raw, text):
    assert read(raw).text == text


@pytest.mark.parametrize(
    "raw",
    [
        mail(Authentication_Results=f"{AUTHSERV}; {'(' * 10_000}{')' * 10_000}"),
        mail(From="a." * 10_000 + "@example.org"),
        mail(Content_Type="text/plain;" + " a*0=b;" * 2_000),
        mail(Content_Type="text/plain;" + "\r\n a*0=b;" * 2_000),
        mail("--b\n\nx\n" * 10_000, Content_Type="multipart/mixed; boundary=b"),
    ],
    ids=["comments", "address", "parameters", "folded", "parts"],
)
def test_a_mail_that_would_take_minutes_to_read_is_not_read(raw):
    with pytest.raises(ValueError, match="found"):
        read(raw)


def test_html_of_any_depth_is_read_at_once():
    assert read(mail("<p>hi</p><head>" + "<a>" * 50_000 + "</b>" * 2_000, **HTML)).text == "hi"


@pytest.mark.parametrize("scheme", ["imaps", "smtps"])
def test_a_mail_server_without_a_valid_certificate_gets_no_password(scheme, monkeypatch):
    contexts = []

    def connect(*_, **options):
        contexts.append(options.get("ssl_context") or options.get("context"))
        raise ConnectionRefusedError

    monkeypatch.setattr("imaplib.IMAP4_SSL", connect)
    monkeypatch.setattr("smtplib.SMTP_SSL", connect)
    url = urlsplit(f"{scheme}://anna@mail.example.org")
    account = email_bridge.Mailbox(url, url, "secret", "anna@example.org")
    with pytest.raises(ConnectionRefusedError), account.opened() if scheme == "imaps" else account.submission():
        pass
    assert contexts[0].verify_mode == ssl.CERT_REQUIRED
    assert contexts[0].check_hostname


def test_a_thread_is_named_by_its_first_mail_and_an_id_is_one_that_can_be_used():
    answer = read(mail(References="<root@x> <m0@x>", In_Reply_To="<m0@x>"))
    assert (answer.id, answer.thread) == ("<m1@example.org>", "<root@x>")
    assert read(mail(In_Reply_To="<m0@x>")).thread == "<m0@x>"
    strange = read(mail(Message_ID='<a" OR ALL "b>'))
    assert strange.id == strange.thread
    assert email_bridge.MESSAGE_ID.fullmatch(strange.id)


def test_files_are_read_with_names_that_are_none_of_a_path():
    picture = 'image/png\r\nContent-Disposition: attachment; filename="../a.png"\r\nContent-Transfer-Encoding: base64'
    parts = [("text/plain", "look"), (picture, "cGljdHVyZQ=="), ("message/rfc822", "Subject: x\r\n\r\ninner")]
    body = "".join(f"--b\r\nContent-Type: {kind}\r\n\r\n{content}\r\n" for kind, content in parts)
    letter = read(mail(f"{body}--b--\r\n", Content_Type='multipart/mixed; boundary="b"'))
    assert letter.text == "look"
    assert letter.files[0] == ("..a.png", "image/png", b"picture")
    assert b"inner" in letter.files[1][2]


def attached(*names, size=10, text="look"):
    """Return a mail with files of so many bytes."""
    head = '--b\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment; filename="{}"\r\n\r\n{}\r\n'
    files = "".join(head.format(name, "x" * size) for name in names)
    return mail(f"--b\r\n\r\n{text}\r\n{files}--b--\r\n", Content_Type='multipart/mixed; boundary="b"')


@pytest.mark.parametrize(
    ("raw", "kept", "note"),
    [
        (attached("film.pdf", size=600_000), [], "film.pdf"),
        (attached("a.pdf", "../b.pdf", size=300_000), ["a.pdf"], "..b.pdf"),
        (attached(*"abcdefghijkl"), list("abcdefghij"), "k, l"),
        (attached(*"ab", size=50)[:-30], ["a"], "b and what follows it"),
    ],
    ids=["one", "together", "many", "cut"],
)
def test_files_that_are_not_carried_are_named(raw, kept, note, monkeypatch):
    if "follows" in note:
        monkeypatch.setattr(email_bridge, "MOST_BYTES", len(raw))
    letter = read(raw)
    assert [name for name, _, _ in letter.files] == kept
    assert letter.text == f"look\n\n[too large to be carried: {note}]"


class UnsafeServer:
    """A mail server that takes a password from anybody who sends one."""

    capabilities = ()
    passwords: ClassVar = []

    def __init__(self, *_, **__): ...

    def __enter__(self):
        return self

    def __exit__(self, *_): ...

    def ehlo(self): ...

    def select(self, *_): ...

    logout = shutdown = ehlo

    def has_extn(self, name):
        return name == "auth" or name.upper() in self.capabilities

    def starttls(self, ssl_context=None, context=None):
        self.passwords.append((ssl_context or context).verify_mode)

    def login(self, *words):
        self.passwords.append(words)


@pytest.mark.parametrize("way", ["imap", "smtp"])
def test_a_password_goes_in_clear_to_this_machine_alone_unless_that_is_wanted(way, monkeypatch):
    monkeypatch.setattr("imaplib.IMAP4", UnsafeServer)
    monkeypatch.setattr("smtplib.SMTP", UnsafeServer)
    UnsafeServer.passwords.clear()

    def log_in(host, **options):
        url = urlsplit(f"{way}://anna@{host}")
        account = email_bridge.Mailbox(url, url, "secret", "anna@example.org", **options)
        with account.opened() if way == "imap" else account.submission():
            pass

    with pytest.raises(OSError, match=f"mail.example.org offers no encryption.*{way}s://.*MAIL_CLEAR"):
        log_in("mail.example.org")
    assert UnsafeServer.passwords == []
    for host, options in (
        ("127.0.0.1", {}),
        ("[::1]", {}),
        ("localhost", {}),
        ("mail.example.org", {"may_be_clear": True}),
    ):
        log_in(host, **options)
    assert UnsafeServer.passwords == [("anna", "secret")] * 4
    monkeypatch.setattr(UnsafeServer, "capabilities", ("STARTTLS",))
    log_in("mail.example.org")
    assert UnsafeServer.passwords[4:] == [ssl.CERT_REQUIRED, ("anna", "secret")]


# ------------------------------------------------------------------ both ways


@asynccontextmanager
async def running(server, gateway, tmp_path):
    mailbox = email_bridge.Mailbox(
        urlsplit(f"imap://agent@127.0.0.1:{server.imap_port}"),
        urlsplit(f"smtp://agent@127.0.0.1:{server.smtp_port}"),
        "mail-password",
        "agent@example.org",
    )
    messenger = email_bridge.MailMessenger(mailbox, AUTHSERV)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(messenger.serve, gateway.url, TOKEN, BridgeState.load(tmp_path / "state.json"))
        yield
        nursery.cancel_scope.cancel()


def sent(server):
    return [BytesParser(policy=email.policy.default).parsebytes(raw) for raw in server.outbox]


async def test_a_reply_goes_below_the_newest_mail_of_its_thread_with_its_files(tmp_path):
    server = FakeMailServer()
    async with server.open(), world() as gateway, running(server, gateway, tmp_path):
        await server.deliver(mail("What is up?", Subject="News", Message_ID="<root@x>"))
        await server.deliver(mail("Well?", Message_ID="<second@x>", References="<root@x>"))
        await server.until(lambda: all("\\SEEN" in kept.flags for kept in server.folders["INBOX"]))
        assert texts_of(gateway) == ["News\n\nWhat is up?", "Well?"]
        assert {message.channel for message, _ in gateway.journal.accepted} == {
            ChannelInfo("email", ANNA, ANNA, "<root@x>")
        }
        file = Media("a.txt", "text/plain", "aGk=")
        channel = ChannelInfo("email", ANNA, reply_to="<root@x>")
        first = await gateway.say(channel, "All **well**.", media=(file,))
        await gateway.journal.until(lambda: gateway.journal.acks)
        (reply,) = sent(server)
        assert (reply["To"], reply["Subject"], reply["In-Reply-To"]) == (ANNA, "Re: News", "<second@x>")
        assert reply["References"].split() == ["<root@x>", "<second@x>"]
        assert reply.get_body(("plain",)).get_content().strip() == "All **well**."
        assert "<strong>well</strong>" in reply.get_body(("html",)).get_content()
        assert [part.get_content().strip() for part in reply.iter_attachments()] == ["hi"]
        assert reply["Auto-Submitted"] == "auto-replied"
    # As if the bridge had died before it could note anything: the folder of sent mails has it.
    (tmp_path / "state.json").unlink()
    async with server.open(), world() as gateway, running(server, gateway, tmp_path):
        gateway.journal.last[channel.address] = first.seq - 1
        await gateway.say(channel, "All **well**.")
        await gateway.journal.until(lambda: gateway.journal.acks)
        assert len(sent(server)) == 1
    assert server.complaints == []


async def test_a_mail_of_somebody_else_changes_nothing_of_a_thread(tmp_path):
    server, evil = FakeMailServer(), f"{AUTHSERV}; dmarc=pass header.from=evil.example"
    async with server.open(), world() as gateway, running(server, gateway, tmp_path):
        await server.deliver(mail("What is up?", Subject="News", Message_ID="<root@x>"))
        for number, headers in enumerate(
            [
                {"From": "eve@evil.example", "Authentication_Results": evil},
                {"Authentication_Results": evil},  # says that Anna has written it
                {"From": "a." * 10_000 + "@evil.example"},
            ]
        ):
            await server.deliver(mail(Subject="Pay", Message_ID=f"<e{number}@x>", References="<root@x>", **headers))
        await server.until(lambda: all("\\SEEN" in kept.flags for kept in server.folders["INBOX"]))
        for room in (ANNA, "eve@evil.example"):
            await gateway.say(ChannelInfo("email", room, reply_to="<root@x>"), "All well.")
        await server.until(lambda: len(server.outbox) == 2)
        found = {reply["To"]: (reply["Subject"], reply["In-Reply-To"]) for reply in sent(server)}
        assert found == {ANNA: ("Re: News", "<root@x>"), "eve@evil.example": ("Re: Pay", "<e0@x>")}


async def test_who_is_refused_holds_up_nobody_and_what_cannot_be_read_is_flagged(tmp_path, monkeypatch):
    monkeypatch.setattr("pegasus.bridge.messenger.FIRST_PAUSE", 0.01)
    monkeypatch.setattr(email_bridge, "sender_of", lambda parsed: {}["no"] if "bad" in parsed["Subject"] else ANNA)
    server = FakeMailServer()
    server.recipients_refused["nobody@example.org"] = "550 no such user"
    server.busy = 2
    async with server.open(), world() as gateway, running(server, gateway, tmp_path):
        await server.deliver(mail(Subject="bad"))
        await server.until(lambda: "\\FLAGGED" in server.folders["INBOX"][0].flags)
        await gateway.say(ChannelInfo("email", "nobody@example.org"), "lost")
        await gateway.say(ChannelInfo("email", ANNA), "heard")
        await server.until(lambda: server.outbox)
        assert [reply["To"] for reply in sent(server)] == [ANNA]


PROGRAM = [sys.executable, str(EXAMPLES / "email_bridge.py")]


async def test_a_mail_may_come_twice_and_is_never_lost():
    found = await examine_bridge(PROGRAM, MailService(), steps={Step.SENT})
    assert (found.delivery, found.declared) == (DeliveryClass.AT_LEAST_ONCE, DeliveryClass.AT_LEAST_ONCE)


@pytest.mark.skipif(bool(missing_programs()), reason=missing_programs())
@pytest.mark.tried("services", "Dovecot and Postfix of Debian", "at-least-once, whatever is killed")
async def test_dovecot_and_postfix_carry_mails_both_ways():
    found = await examine_bridge(PROGRAM, DebianMailService(), steps={Step.CONFIRMING})
    assert (found.delivery, found.complaints) == (DeliveryClass.EXACTLY_ONCE, ())
    assert [trial.arrivals for trial in found.inward] == [1, 1]


def test_without_its_variables_it_says_which_are_missing():
    assert run_without_variables("email_bridge") == (
        1,
        "not set: IMAP_URL, SMTP_URL, MAIL_PASSWORD, MAIL_ADDRESS, MAIL_AUTHSERV, PEGASUS_TOKEN; "
        "the beginning of the program shows how to start it\n",
    )
