"""A bridge between e-mail and the agent: it reads a mailbox by IMAP and answers by SMTP.

    pegasus token add email --type email --bridge
    IMAP_URL=imaps://agent@mail.example.org SMTP_URL=smtps://agent@mail.example.org MAIL_PASSWORD=… \
        MAIL_ADDRESS=agent@example.org MAIL_AUTHSERV=mail.example.org PEGASUS_TOKEN=… python examples/email_bridge.py

Each correspondent is a conversation, each mail that is answered a thread. `[channels.email]` in pegasus.toml decides who may write.

**Who has written?** Anybody can put any address into From. So only mails count of which your own mail server says that the domain of
the sender vouches for them: `dmarc=pass` in the line Authentication-Results that it has signed with the name MAIL_AUTHSERV. Without
MAIL_AUTHSERV every mail counts, which is only right for a mailbox that strangers cannot reach.

How nothing gets lost: a mail is marked as seen when it is on the agent's disk, and a reply is acknowledged when the mail server has
taken it. A reply that is sent twice after a crash has the same Message-ID both times, by which mail programs recognise it.

Mails of machines (lists, out-of-office notes, bounces) are not answered, so that two programs never write to each other for ever.
"""

from __future__ import annotations

import email.policy
import imaplib
import logging
import os
import re
import smtplib
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from email.parser import BytesParser
from email.utils import formatdate, parseaddr
from hashlib import sha256
from urllib.parse import SplitResult, unquote, urlsplit

import anyio
import attrs
from anyio import to_thread
from markdown_it import MarkdownIt

from pegasus.bridge import Bridge, BridgeRefused, files_of, reply_id
from pegasus.messages import OutboundMessage

LOOK_EVERY = 30.0
"""Seconds between two looks into the mailbox."""
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 300.0
TIMEOUT = 60.0
MOST_MAILS = 20
"""Mails that are read at one look."""
MOST_FILES = 10
MOST_FILE_BYTES = 500_000
"""Bytes of all files of a mail; a frame of the gateway has 1 MiB unless `gateway.max_frame_bytes` says otherwise."""

log = logging.getLogger("email")
markdown = MarkdownIt("commonmark", {"html": False})


@attrs.frozen
class Mailbox:
    """An account of a mail server."""

    imap_url: SplitResult
    """imaps://USER@HOST, or imap:// on this machine."""
    smtp_url: SplitResult
    """smtps://USER@HOST, smtp:// with STARTTLS where the server has it."""
    password: str = attrs.field(repr=False)
    address: str
    authserv: str = ""
    """Name of the server whose Authentication-Results count."""

    # These functions block, and are called in threads.

    @contextmanager
    def imap(self) -> Iterator[imaplib.IMAP4]:
        """Open the mailbox."""
        url = self.imap_url
        if url.scheme == "imaps":
            server: imaplib.IMAP4 = imaplib.IMAP4_SSL(url.hostname or "", url.port or 993, timeout=TIMEOUT)
        else:
            server = imaplib.IMAP4(url.hostname or "", url.port or 143, timeout=TIMEOUT)
        with server:
            server.login(unquote(url.username or self.address), self.password)
            server.select("INBOX")
            yield server

    def unseen(self) -> list[tuple[bytes, bytes]]:
        """Return the oldest mails that are not marked as seen, with their numbers."""
        with self.imap() as server:
            _, (found, *_) = server.uid("SEARCH", "UNSEEN")
            mails = []
            for uid in (found or b"").split()[:MOST_MAILS]:
                _, parts = server.uid("FETCH", uid.decode(), "(BODY.PEEK[])")
                mails.append((uid, next((part[1] for part in parts if isinstance(part, tuple)), b"")))
            return mails

    def mark_seen(self, uid: bytes) -> None:
        """Mark a mail, so that it is not read again."""
        with self.imap() as server:
            server.uid("STORE", uid.decode(), "+FLAGS", "(\\Seen)")

    def send(self, mail: EmailMessage) -> None:
        """Send a mail. Raises smtplib.SMTPException, OSError."""
        url = self.smtp_url
        if url.scheme == "smtps":
            server: smtplib.SMTP = smtplib.SMTP_SSL(url.hostname or "", url.port or 465, timeout=TIMEOUT)
        else:
            server = smtplib.SMTP(url.hostname or "", url.port or 587, timeout=TIMEOUT)
        with server:
            server.ehlo()
            if url.scheme == "smtp" and server.has_extn("starttls"):
                server.starttls(context=ssl.create_default_context())
            if server.has_extn("auth"):
                server.login(unquote(url.username or self.address), self.password)
            server.send_message(mail)


# ------------------------------------------------------------------ reading a mail


@attrs.frozen
class Letter:
    """What somebody wrote to us."""

    id: str
    sender: str
    subject: str
    text: str
    files: list[tuple[str, str, bytes]]


def read_letter(raw: bytes, own_address: str, authserv: str) -> Letter | None:
    """Return what somebody wrote, None for a mail that is not to be heard. May raise anything: mails of strangers hold anything."""
    mail = BytesParser(EmailMessage, policy=email.policy.default).parsebytes(raw)
    sender = parseaddr(str(mail.get("From", "")))[1].lower()
    if not sender or sender == own_address.lower() or is_from_machine(mail):
        return None
    if not is_vouched_for(mail, authserv):
        log.warning("a mail that claims to be of %s is not heard: nobody vouches for that", sender)
        return None
    id = str(mail.get("Message-ID", "")).strip() or f"<{sha256(raw).hexdigest()}>"
    return Letter(id[:256], sender, str(mail.get("Subject", "")).strip(), text_of(mail), files_in(mail))


def is_from_machine(mail: EmailMessage) -> bool:
    """Return whether a program has sent this by itself (RFC 3834)."""
    return (
        str(mail.get("Auto-Submitted", "no")).lower() != "no"
        or str(mail.get("Precedence", "")).lower() in {"bulk", "list", "junk"}
        or "List-Id" in mail
        or str(mail.get("Return-Path", "<x>")).strip() == "<>"
    )


def is_vouched_for(mail: EmailMessage, authserv: str) -> bool:
    """Return whether our mail server says that the domain of From vouches for the mail. Only its own line, the first, counts."""
    if not authserv:
        return True
    result = str(next(iter(mail.get_all("Authentication-Results", [])), ""))
    server, _, rest = result.partition(";")
    return server.strip().split(" ")[0].lower() == authserv.lower() and bool(re.search(r"\bdmarc=pass\b", rest))


def text_of(mail: EmailMessage) -> str:
    """Return the text of a mail without what it quotes from us, and with a new subject as its first line."""
    body = mail.get_body(preferencelist=("plain", "html"))
    text = str(body.get_content()) if body is not None else ""
    if body is not None and body.get_content_type() == "text/html":
        text = re.sub(r"<(style|script)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not line.startswith(">")]
    subject = str(mail.get("Subject", "")).strip()
    head = [subject, ""] if subject and not subject.lower().startswith("re:") else []
    return "\n".join(head + lines).strip()


def files_in(mail: EmailMessage) -> list[tuple[str, str, bytes]]:
    """Return name, MIME type and content of the files of a mail, as far as they fit."""
    files, room = [], MOST_FILE_BYTES
    for part in list(mail.iter_attachments())[:MOST_FILES]:
        data = part.get_payload(decode=True)
        if isinstance(data, bytes) and len(data) <= room:
            room -= len(data)
            files.append((part.get_filename() or "file", part.get_content_type(), data))
    return files


def is_refused(error: Exception) -> bool:
    """Return whether the mail server will never take this mail, while it takes others."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(code >= 500 for code, _ in error.recipients.values())
    return isinstance(error, smtplib.SMTPDataError) and error.smtp_code >= 500


# ------------------------------------------------------------------ the two ways


@attrs.define
class EmailBridge:
    """The two ways between a mailbox and the agent."""

    mailbox: Mailbox
    bridge: Bridge
    subjects: dict[str, str] = attrs.field(factory=dict)
    """By Message-ID, the subject of mails that may be answered."""

    async def hear(self, look_every: float = LOOK_EVERY) -> None:
        """Hand over new mails, for ever."""
        pause = look_every
        while True:
            try:
                for uid, raw in await to_thread.run_sync(self.mailbox.unseen):
                    await self.hear_mail(raw)
                    await to_thread.run_sync(self.mailbox.mark_seen, uid)
                pause = look_every
            except (OSError, imaplib.IMAP4.error) as error:
                log.warning("the mailbox cannot be read: %s", error)
                pause = min(2 * pause, LONGEST_PAUSE)
            await anyio.sleep(pause)

    async def hear_mail(self, raw: bytes) -> None:
        """Hand over one mail, if a person wrote it; return when it is on the agent's disk."""
        try:
            letter = read_letter(raw, self.mailbox.address, self.mailbox.authserv)
        except Exception:
            log.exception("a mail cannot be read")
            return
        if letter is None:
            return
        self.subjects[letter.id] = letter.subject
        while len(self.subjects) > 1000:
            del self.subjects[next(iter(self.subjects))]
        who = letter.sender
        try:
            await self.bridge.send(letter.text, who, user_id=who, reply_to=letter.id, id=letter.id, files=letter.files)
        except BridgeRefused as error:
            log.warning("%s was not heard: %s", who, error)

    async def speak(self) -> None:
        """Send the replies as mails, for ever. The next one is asked for when the mail server has taken the one before."""
        async for reply in self.bridge:
            pause, mail = FIRST_PAUSE, self.compose(reply)
            while True:
                try:
                    await to_thread.run_sync(self.mailbox.send, mail)
                    break
                except (OSError, smtplib.SMTPException) as error:
                    log.warning("the mail to %s was not sent: %s", reply.channel.channel_id, error)
                    if is_refused(error):
                        break
                await anyio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def compose(self, reply: OutboundMessage) -> EmailMessage:
        """Return the mail of a reply."""
        mail = EmailMessage()
        mail["From"], mail["To"] = self.mailbox.address, reply.channel.channel_id
        mail["Date"] = formatdate(localtime=False)
        mail["Message-ID"] = f"<{reply_id(reply)}@{self.mailbox.address.rpartition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-replied"
        thread = reply.channel.reply_to or ""
        subject = " ".join(self.subjects.get(thread, "").split())
        mail["Subject"] = subject if subject.lower().startswith("re:") else f"Re: {subject or 'your message'}"
        if re.fullmatch(r"<[^<>\s]+>", thread):
            mail["In-Reply-To"] = mail["References"] = thread
        mail.set_content(reply.text)
        mail.add_alternative(markdown.render(reply.text), subtype="html")
        for name, mime, data in files_of(reply):
            kind, _, subtype = mime.partition("/")
            mail.add_attachment(data, maintype=kind, subtype=subtype or "octet-stream", filename=name)
        return mail


async def run(mailbox: Mailbox, pegasus_url: str, pegasus_token: str, look_every: float = LOOK_EVERY) -> None:
    """Run the bridge until cancelled."""
    async with Bridge(pegasus_url, pegasus_token, "email") as bridge, anyio.create_task_group() as tasks:
        both = EmailBridge(mailbox, bridge)
        tasks.start_soon(both.hear, look_every)
        tasks.start_soon(both.speak)


def require_variables(*names: str) -> None:
    """End the program with a sentence if variables of the environment are missing."""
    if missing := [name for name in names if not os.environ.get(name)]:
        sys.exit(f"not set: {', '.join(missing)}; the beginning of this file shows how to start it")


if __name__ == "__main__":
    require_variables("IMAP_URL", "SMTP_URL", "MAIL_PASSWORD", "MAIL_ADDRESS", "PEGASUS_TOKEN")
    logging.basicConfig(level=logging.INFO)
    account = Mailbox(
        urlsplit(os.environ["IMAP_URL"]),
        urlsplit(os.environ["SMTP_URL"]),
        os.environ["MAIL_PASSWORD"],
        os.environ["MAIL_ADDRESS"],
        os.environ.get("MAIL_AUTHSERV", ""),
    )
    anyio.run(run, account, os.environ.get("PEGASUS_URL", "ws://127.0.0.1:7717"), os.environ["PEGASUS_TOKEN"])
