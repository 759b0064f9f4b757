"""A bridge between e-mail and the agent: it reads a mailbox of its own by IMAP and answers by SMTP.

    pegasus token add email --type email --bridge
    IMAP_URL=imaps://agent@mail.example.org SMTP_URL=smtps://agent@mail.example.org MAIL_PASSWORD=… \
        MAIL_ADDRESS=agent@example.org MAIL_AUTHSERV=mail.example.org PEGASUS_TOKEN=… python examples/email_bridge.py

Each correspondent is a conversation, and each thread of mails a thread in it. `[channels.email]` in pegasus.toml decides who may
write.

**Who has written?** Anybody can put any address into From. So a mail counts only if your own mail server says, in the first line
Authentication-Results and under the name MAIL_AUTHSERV, that the domain in From vouches for it: DMARC, or where that says nothing,
DKIM or SPF for the same domain. `MAIL_AUTHSERV=anybody` believes every From, which is right only for a mailbox that strangers cannot
reach.

**Delivery** is at-least-once. A mail is marked as seen when it is on the agent's disk; until then it is read again, and its Message-ID
makes it the same message. A reply has a Message-ID made of its number. Before a mail is sent, the folder of sent mails is asked for
that id, and a copy is put there afterwards; only a crash between these two sends a mail twice, and both have the same Message-ID.

**Encryption.** `imaps` and `smtps`, or STARTTLS. A server elsewhere that offers neither gets no password, unless MAIL_CLEAR=yes.

Mails of machines (lists, out-of-office notes, bounces) are not heard, so two programs never write to each other for ever. A mail that
cannot be read is flagged for a person.
"""

from __future__ import annotations

import email.policy
import imaplib
import logging
import re
import select
import smtplib
import ssl
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, contextmanager
from email.message import EmailMessage
from email.parser import BytesParser
from email.utils import formatdate
from hashlib import sha256
from html.parser import HTMLParser
from ipaddress import ip_address
from urllib.parse import SplitResult, unquote, urlsplit

import attrs
from anyio import CapacityLimiter, to_thread
from markdown_it import MarkdownIt

from pegasus.bridge import Incoming, Messenger, Outgoing, Undeliverable, variables

LOOK_EVERY = 300.0
"""Seconds after which the mailbox is looked at even if the server has not announced anything."""
TIMEOUT = 60.0
MOST_CONNECTIONS = 4
"""Replies on their way at the same time. Many servers let an account connect ten times."""
MOST_BYTES = 2_000_000
"""Bytes that are read of a mail."""
MOST_FILES, MOST_NAMES = 10, 20
"""Files of a mail that are carried, and names of others that are told."""
MOST_OF_THREAD = 100
"""Newest mails of a thread that are looked at for one of the person who is answered."""
MOST_FILE_BYTES = 500_000
"""Bytes of all files of a mail; a frame of the gateway has 1 MiB unless `gateway.max_frame_bytes` says otherwise."""
MOST_HEADER, MOST_PARTS, MOST_NESTED = 4_000, 500, 1_000
"""Bytes of a header, parts of a mail, and open elements of its HTML that are followed. To read them takes time by their square."""
READ_HEADER = re.compile(
    rb"^(?:from|authentication-results|auto-submitted|message-id|content-type|content-disposition)[ \t]*:.*(?:\n[ \t].*)*",
    re.IGNORECASE | re.MULTILINE,
)
"""A header that is read at such a price, of a mail or of a part of it."""
BOUNDARY = re.compile(rb"^--(?=\S)", re.MULTILINE)
ANYBODY = "anybody"
MESSAGE_ID = re.compile(r"<[!#-;=?-\[\]-~]{1,250}>")
"""Id of a mail. It has nothing that would end a quoted string of IMAP."""
MACHINES = {"mailer-daemon", "postmaster", "noreply", "no-reply", "donotreply", "do-not-reply"}

log = logging.getLogger("email")
markdown = MarkdownIt("commonmark", {"html": False})


# ------------------------------------------------------------------ the mail server


@attrs.frozen
class Mailbox:
    """An account of a mail server. Its methods block, and are called in threads."""

    imap_url: SplitResult
    """imaps://USER@HOST, or imap:// with STARTTLS; on this machine without."""
    smtp_url: SplitResult
    """smtps://USER@HOST, or smtp:// with STARTTLS; on this machine without where the server has none."""
    password: str = attrs.field(repr=False)
    address: str
    may_be_clear: bool = False
    """The password may go to another machine without encryption."""

    def open(self) -> imaplib.IMAP4:
        """Log in and choose the inbox."""
        url = self.imap_url
        if url.scheme == "imaps":
            server: imaplib.IMAP4 = imaplib.IMAP4_SSL(
                url.hostname or "", url.port or 993, ssl_context=ssl.create_default_context(), timeout=TIMEOUT
            )
        else:
            server = imaplib.IMAP4(url.hostname or "", url.port or 143, timeout=TIMEOUT)
        with ExitStack() as connected:
            connected.callback(server.shutdown)
            if url.scheme != "imaps" and not self.is_clear_allowed(url):
                if "STARTTLS" not in server.capabilities:
                    raise not_encrypted(url)
                server.starttls(ssl_context=ssl.create_default_context())
            server.login(unquote(url.username or self.address), self.password)
            server.select("INBOX")
            connected.pop_all()
        return server

    @contextmanager
    def opened(self) -> Iterator[imaplib.IMAP4]:
        """Have the mailbox open for a block."""
        server = self.open()
        try:
            yield server
        finally:
            try:
                server.logout()
            except (OSError, imaplib.IMAP4.error):
                server.shutdown()

    def send(self, mail: EmailMessage) -> None:
        """Send a mail, unless the folder of sent mails has it already. Raises smtplib.SMTPException, imaplib.IMAP4.error, OSError."""
        with self.opened() as server:
            folder = sent_folder(server)
            if find(server, folder, f'HEADER Message-ID "{mail["Message-ID"]}"'):
                return
            with self.submission() as smtp:
                smtp.send_message(mail)
            server.append(folder, "(\\Seen)", "", mail.as_bytes(policy=email.policy.SMTP))

    @contextmanager
    def submission(self) -> Iterator[smtplib.SMTP]:
        """Open the server that takes mails."""
        url = self.smtp_url
        if url.scheme == "smtps":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                url.hostname or "", url.port or 465, timeout=TIMEOUT, context=ssl.create_default_context()
            )
        else:
            server = smtplib.SMTP(url.hostname or "", url.port or 587, timeout=TIMEOUT)
        with server:
            server.ehlo()
            if url.scheme != "smtps":
                if server.has_extn("starttls"):
                    server.starttls(context=ssl.create_default_context())
                    server.ehlo()
                elif not self.is_clear_allowed(url):
                    raise not_encrypted(url)
            if server.has_extn("auth"):
                server.login(unquote(url.username or self.address), self.password)
            yield server

    def is_clear_allowed(self, url: SplitResult) -> bool:
        """Return whether the password may go to this server without encryption."""
        try:
            is_here = ip_address(url.hostname or "").is_loopback
        except ValueError:
            is_here = url.hostname == "localhost"
        return is_here or self.may_be_clear

    def thread_of(self, root: str, person: str, authserv: str) -> tuple[str, list[str], str]:
        """Return Message-ID, References and subject of the newest mail of a person in a thread; the root alone if there is none.

        Anybody can name any thread in a mail of his own, which must change nothing of what others are answered.
        """
        with self.opened() as server:
            uids = find(server, "INBOX", f'OR HEADER Message-ID "{root}" HEADER References "{root}"')
            for uid in uids[: -MOST_OF_THREAD - 1 : -1]:
                head = fetch(server, uid, f"BODY.PEEK[HEADER]<0.{MOST_BYTES}>")
                try:
                    require_small(head)
                    mail = parse(head)
                    if writer_of(mail, authserv) == person:
                        return message_id(mail) or root, ids_in(mail, "References") or [root], subject_of(mail)
                except Exception as error:
                    log.info("a mail of a thread cannot be read: %s", error)
        return root, [root], ""


def not_encrypted(url: SplitResult) -> OSError:
    """Return the error for a server that would get the password in clear."""
    return OSError(
        f"{url.hostname} offers no encryption, so it gets no password; "
        f"use {url.scheme}s://, or set MAIL_CLEAR=yes where nobody else can read the network"
    )


def find(server: imaplib.IMAP4, folder: str, condition: str) -> list[str]:
    """Return the UIDs of the mails in a folder for which a condition holds, the oldest first."""
    state, answer = server.select(folder, readonly=True)
    if state != "OK":
        raise imaplib.IMAP4.error(f"{folder}: {answer[0]!r}")
    _, (uids, *_) = server.uid("SEARCH", condition)
    return (uids or b"").decode().split()


def fetch(server: imaplib.IMAP4, uid: str, part: str) -> bytes:
    """Return a part of a mail; b"" if it is gone."""
    _, parts = server.uid("FETCH", uid, f"({part})")
    return next((bytes(found[1]) for found in parts if isinstance(found, tuple)), b"")


def sent_folder(server: imaplib.IMAP4) -> str:
    """Return the folder of sent mails (RFC 6154); a new one if there is none."""
    _, folders = server.list()
    lines = [line.decode(errors="replace") for line in folders if isinstance(line, bytes)]
    for line in sorted(lines, key=lambda line: "\\Sent" not in line):
        name = line.rpartition(") ")[2].partition(" ")[2]
        if "\\Sent" in line or name.strip('"') == "Sent":
            return name
    server.create("Sent")
    return "Sent"


def wait_for_mail(server: imaplib.IMAP4) -> None:
    """Wait until the server announces something (RFC 2177), or for a while if it cannot."""
    server.noop()
    if server.untagged_responses.pop("EXISTS", None):  # announced while we looked
        return
    if "IDLE" not in server.capabilities:
        select.select([], [], [], 30)
        return
    server.send(b"IDLE1 IDLE\r\n")
    said = b""
    while b"+" not in said:
        # Not by readline: what it has read beyond the line is nothing that select sees.
        if not (data := server.sock.recv(4096)):
            raise imaplib.IMAP4.abort("the connection is closed")
        said += data
    if b"EXISTS" not in said:
        select.select([server.sock], [], [], LOOK_EVERY)
    server.send(b"DONE\r\n")
    line = b"*"
    while line.startswith(b"*"):
        line = server.readline()
    if not line:
        raise imaplib.IMAP4.abort("the connection is closed")


# ------------------------------------------------------------------ reading a mail


def parse(raw: bytes) -> EmailMessage:
    """Return a mail that came as bytes."""
    return BytesParser(EmailMessage, policy=email.policy.default).parsebytes(raw)


def read_letter(raw: bytes, own_address: str, authserv: str) -> Incoming | None:
    """Return what somebody wrote, None for a mail that is not to be heard. May raise anything: mails of strangers hold anything."""
    require_small(raw)
    mail = parse(raw)
    sender = sender_of(mail)
    if not sender or sender == own_address.lower() or is_from_machine(mail, sender):
        return None
    if writer_of(mail, authserv) != sender:
        log.warning("a mail that claims to be of %s is not heard: nobody vouches for that", sender)
        return None
    id = message_id(mail) or f"<{sha256(raw).hexdigest()}>"
    thread = next(iter(ids_in(mail, "References") or ids_in(mail, "In-Reply-To")), id)
    files, left_out = files_in(mail, is_cut=len(raw) >= MOST_BYTES)
    text = f"{text_of(mail)}\n\n[too large to be carried: {left_out}]".strip() if left_out else text_of(mail)
    return Incoming(text, sender, sender, id=id, thread=thread, files=tuple(files))


def require_small(raw: bytes) -> None:
    """Raise ValueError for a mail that would take minutes to read."""
    text = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if any(len(found[0]) > MOST_HEADER for found in READ_HEADER.finditer(text)):
        raise ValueError(f"found a header of more than {MOST_HEADER:,} bytes")
    if len(BOUNDARY.findall(text)) > MOST_PARTS:
        raise ValueError(f"found more than {MOST_PARTS} parts")


def sender_of(mail: EmailMessage) -> str:
    """Return the address in From; "" if it is not exactly one."""
    [header] = mail.get_all("From", []) if len(mail.get_all("From", [])) == 1 else [None]
    addresses = getattr(header, "addresses", ())
    return addresses[0].addr_spec.lower() if len(addresses) == 1 else ""


def writer_of(mail: EmailMessage, authserv: str) -> str:
    """Return the address in From if our mail server vouches for it, or if everybody is believed; else ""."""
    sender = sender_of(mail)
    return sender if authserv == ANYBODY or is_vouched_for(mail, sender.rpartition("@")[2], authserv) else ""


def message_id(mail: EmailMessage) -> str:
    """Return the Message-ID; "" if there is none that can be used as an id."""
    return next(iter(ids_in(mail, "Message-ID")), "")


def ids_in(mail: EmailMessage, name: str) -> list[str]:
    """Return the ids of mails in a header."""
    return MESSAGE_ID.findall(str(mail.get(name, "")))


def subject_of(mail: EmailMessage) -> str:
    """Return the subject in one line."""
    return " ".join(str(mail.get("Subject", "")).split())


def is_from_machine(mail: EmailMessage, sender: str) -> bool:
    """Return whether a program has sent this by itself (RFC 3834)."""
    return (
        str(mail.get("Auto-Submitted", "no")).partition(";")[0].strip().lower() != "no"
        or str(mail.get("Precedence", "")).lower() in {"bulk", "list", "junk", "auto_reply"}
        or any(name in mail for name in ("List-Id", "X-Autoreply", "X-Autorespond"))
        or str(mail.get("Return-Path", "<x>")).strip() == "<>"
        or mail.get_content_type() == "multipart/report"
        or sender.partition("@")[0] in MACHINES
    )


def is_vouched_for(mail: EmailMessage, domain: str, authserv: str) -> bool:
    """Return whether our mail server says that the domain of From vouches for the mail (RFC 8601).

    Only the first line Authentication-Results counts: a server puts its own on top, and what is below may have come with the mail.
    Comments and quoted texts are removed first, since the sender of a mail chooses what stands in them. The line is read as it came:
    what is encoded in it is not decoded.
    """
    lines = (str(value) for name, value in mail.raw_items() if name.lower() == "authentication-results")
    line, before = re.sub(r'"(?:[^"\\]|\\.)*"', " ", next(lines, "").lower()), ""
    while line != before:  # comments may stand in comments
        line, before = re.sub(r"\([^()]*\)", " ", line), line
    server, *results = line.split(";")
    if server.split()[:1] != [authserv.lower()] or set(line) & set('()"\\'):
        return False
    verdicts: dict[str, list[str]] = {}
    for result in results:
        method, _, verdict = "".join(result.split()[:1]).partition("=")
        # A word of its own: the sender chooses what stands in others, such as the name of his key.
        about = re.findall(r"(?<!\S)(?:header\.(?:from|d|i)|smtp\.mailfrom)=(?:\S*@)?([^\s@]+)", result)
        verdicts.setdefault(method, []).extend(about if verdict == "pass" else [])
    if "dmarc" in verdicts:
        return domain in verdicts["dmarc"]
    return domain in [*verdicts.get("dkim", ()), *verdicts.get("spf", ())]


def text_of(mail: EmailMessage) -> str:
    """Return the text of a mail without the history below it, and with a new subject as its first line."""
    body = mail.get_body(preferencelist=("plain", "html"))
    text = decode(body) if body is not None else ""
    if body is not None and body.get_content_type() == "text/html":
        reader = HtmlReader()
        reader.feed(text)
        text = reader.text
    subject = subject_of(mail)
    is_answer = re.match(r"(re|aw|sv|antw|fwd?|wg)\s*(\[\d+\])?:", subject, re.IGNORECASE)
    head = "" if is_answer else f"{subject}\n\n"
    return f"{head}{without_history(text)}".strip()


def decode(part: EmailMessage) -> str:
    """Return the text of a part, whatever its charset claims to be."""
    data = part.get_payload(decode=True)
    raw = data if isinstance(data, bytes) else b""
    for charset in (part.get_content_charset("utf-8"), "utf-8", "cp1252"):
        try:
            return without_cr(raw.decode(charset))
        except (LookupError, UnicodeError):
            continue
    return without_cr(raw.decode("latin-1"))


def without_cr(text: str) -> str:
    """Return a text with plain ends of lines, and without NUL."""
    return text.replace("\r\n", "\n").replace("\0", "")


def without_history(text: str) -> str:
    """Return a text without signature and quoted mails at its end; quotes with answers below them stay, and all if nothing is left."""
    cut = re.split(r"(?m)^(?:-{2,} ?(?:Original Message|Ursprüngliche Nachricht) ?-{2,}|_{20,}|-- )$", text)[0]
    lines = cut.rstrip().splitlines()
    while lines and (lines[-1].startswith(">") or not lines[-1].strip()):
        lines.pop()
    if len(lines) < len(cut.rstrip().splitlines()):  # "On Monday Anna wrote:", which may be broken in two
        for count in (1, 2):
            if re.match(r"(?s)(On|Am|Le|El|Il|Op|Den)\b.{5,300}:\s*$", "\n".join(lines[-count:])):
                del lines[-count:]
                break
    return "\n".join(lines).strip() or text.strip()


class HtmlReader(HTMLParser):
    """Text of a mail in HTML, without what it hides and the mails that it quotes."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[str] = []
        self._hidden: list[str] = []
        """Open elements from the outermost one on that is not shown."""

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        if tag == "body":
            self._hidden.clear()
        if tag in {"br", "p", "div", "tr", "li", "h1", "h2", "h3", "blockquote"} and not self._hidden:
            self._pieces.append("\n")
        is_quote = tag == "blockquote" or "gmail_quote" in (dict(attrs).get("class") or "")
        begins = self._hidden or is_quote or tag in {"style", "script", "head", "title"}
        is_empty = tag in {"br", "img", "meta", "link", "hr", "input", "wbr", "col", "base"}
        if begins and not is_empty and len(self._hidden) < MOST_NESTED:
            self._hidden.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """End an element, and those in it that were not ended."""
        if tag in self._hidden:
            del self._hidden[len(self._hidden) - 1 - self._hidden[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        """Take text."""
        if not self._hidden:
            self._pieces.append(" ".join(data.split()) + (" " if data[-1:].isspace() else ""))


def files_in(mail: EmailMessage, is_cut: bool) -> tuple[list[tuple[str, str, bytes]], str]:
    """Return name, MIME type and content of the files of a mail, as far as they fit, and the names of the others.

    is_cut: the mail is longer than what was read of it, so its last file is not whole.
    """
    files: list[tuple[str, str, bytes]] = []
    others: list[str] = []
    room, parts = MOST_FILE_BYTES, list(mail.iter_attachments())
    for number, part in enumerate(parts, 1):
        name = "".join(c for c in part.get_filename() or "file" if c.isprintable() and c not in "/\\")[:200] or "file"
        inner = part.get_payload()
        is_mail = part.get_content_type() == "message/rfc822" and isinstance(inner, list)
        data = bytes(inner[0]) if is_mail else part.get_payload(decode=True)
        if not isinstance(data, bytes):
            continue
        if len(files) < MOST_FILES and len(data) <= room and not (is_cut and number == len(parts)):
            room -= len(data)
            files.append((name, part.get_content_type(), data))
        else:
            others.append(name)
    more = f" and {len(others) - MOST_NAMES} more" if len(others) > MOST_NAMES else ""
    cut = (" and what follows it" if others else "the end of the mail") if is_cut else ""
    return files, f"{', '.join(others[:MOST_NAMES])}{more}{cut}"


# ------------------------------------------------------------------ the two ways


class MailMessenger(Messenger):
    type = "email"
    delivery = "at-least-once"

    def __init__(self, mailbox: Mailbox, authserv: str) -> None:
        self.mailbox = mailbox
        self.places = CapacityLimiter(MOST_CONNECTIONS)
        self.authserv = authserv
        """Name of the server whose Authentication-Results count, or ANYBODY."""

    async def listen(self, cursor: str) -> AsyncGenerator[Incoming, None]:
        """Yield new mails. The mark of a seen mail is the acknowledgement, so no place in the mailbox has to be kept."""
        server = await to_thread.run_sync(self.mailbox.open)
        try:
            while True:
                server.untagged_responses.pop("EXISTS", None)
                _, (uids, *_) = await to_thread.run_sync(server.uid, "SEARCH", "UNSEEN")
                for uid in (uids or b"").decode().split():
                    flags = "(\\Seen)"
                    try:
                        raw = await to_thread.run_sync(fetch, server, uid, f"BODY.PEEK[]<0.{MOST_BYTES}>")
                        letter = await to_thread.run_sync(read_letter, raw, self.mailbox.address, self.authserv)
                    except (OSError, imaplib.IMAP4.error):
                        raise
                    except Exception:
                        log.exception("a mail cannot be read; it is flagged")
                        letter, flags = None, "(\\Seen \\Flagged)"
                    if letter is not None:
                        yield letter
                    await to_thread.run_sync(server.uid, "STORE", uid, "+FLAGS", flags)
                await to_thread.run_sync(wait_for_mail, server, abandon_on_cancel=True)
        finally:
            server.shutdown()

    async def send(self, reply: Outgoing) -> None:
        """Send a reply as a mail."""
        mail = await to_thread.run_sync(self.compose, reply, limiter=self.places)
        try:
            await to_thread.run_sync(self.mailbox.send, mail, limiter=self.places)
        except (smtplib.SMTPRecipientsRefused, smtplib.SMTPDataError) as error:
            codes = (
                [error.smtp_code]
                if isinstance(error, smtplib.SMTPDataError)
                else [c for c, _ in error.recipients.values()]
            )
            raise Undeliverable(str(error)) if min(codes) >= 500 else error from None

    def compose(self, reply: Outgoing) -> EmailMessage:
        """Return the mail of a reply, below the newest mail of its thread."""
        mail = EmailMessage()
        mail["From"], mail["To"] = self.mailbox.address, reply.channel_id
        mail["Date"] = formatdate(localtime=False)
        mail["Message-ID"] = f"<{reply.key}@{self.mailbox.address.rpartition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-replied"
        subject = ""
        if reply.thread and MESSAGE_ID.fullmatch(reply.thread):
            newest, references, subject = self.mailbox.thread_of(reply.thread, reply.channel_id, self.authserv)
            mail["In-Reply-To"] = newest
            mail["References"] = " ".join(dict.fromkeys([*references[:1], *references[-20:], newest]))
        mail["Subject"] = subject if subject.lower().startswith("re:") else f"Re: {subject or 'your message'}"
        mail.set_content(reply.text)
        mail.add_alternative(markdown.render(reply.text), subtype="html")
        for name, mime, data in reply.files:
            kind, _, subtype = mime.partition("/")
            mail.add_attachment(data, maintype=kind, subtype=subtype or "octet-stream", filename=name)
        return mail


if __name__ == "__main__":
    settings = variables(
        "IMAP_URL", "SMTP_URL", "MAIL_PASSWORD", "MAIL_ADDRESS", "MAIL_AUTHSERV", "PEGASUS_TOKEN", MAIL_CLEAR=""
    )
    account = Mailbox(
        urlsplit(settings["IMAP_URL"]),
        urlsplit(settings["SMTP_URL"]),
        settings["MAIL_PASSWORD"],
        settings["MAIL_ADDRESS"],
        may_be_clear=settings["MAIL_CLEAR"] == "yes",
    )
    MailMessenger(account, settings["MAIL_AUTHSERV"]).run()
