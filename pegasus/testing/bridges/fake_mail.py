"""`FakeMailServer`: IMAP (RFC 3501, IDLE of RFC 2177, special folders of RFC 6154) and SMTP (RFC 5321), as much as a bridge needs.

It is strict: a command that it does not know, or in the wrong state, is BAD, and `complaints` has it. A mail that is sent goes into
`outbox`; there is no network behind it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from email.parser import BytesHeaderParser
from email.policy import compat32
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from pegasus.testing.bridges.mail_proxy import LITERAL, ByteLines

USER: Final = "agent"
PASSWORD: Final = "mail-password"  # noqa: S105 of a fake
CAPABILITY: Final = b"* CAPABILITY IMAP4rev1 IDLE SPECIAL-USE\r\n"
HEADER_KEY: Final = re.compile(r'HEADER (\S+) "([^"]*)"')
FETCH: Final = re.compile(r"\(BODY\.PEEK\[(HEADER)?\](?:<0\.(\d+)>)?\)")


@attrs.define(eq=False)
class StoredMail:
    """A mail in a folder."""

    uid: int
    raw: bytes
    flags: set[str] = attrs.field(factory=set)


class FakeMailServer:
    """One account, and the mails that were sent."""

    def __init__(self) -> None:
        self.folders: dict[str, list[StoredMail]] = {"INBOX": []}
        self.outbox: list[bytes] = []
        """Mails that were taken, as they came."""
        self.recipients_refused: dict[str, str] = {}
        """By recipient, the answer to RCPT."""
        self.busy = 0
        """Number of the next mails that are not taken for the moment."""
        self.complaints: list[str] = []
        """Commands that are no IMAP, or not in this state."""
        self.imap_port = self.smtp_port = 0
        self._changed = trio.Event()

    @asynccontextmanager
    async def open(self, folder: Path | None = None) -> AsyncIterator[None]:
        """Listen on loopback for as long as the block lasts."""
        async with trio.open_nursery() as nursery:
            self.imap_port = await nursery.start(self._listen, self._serve_imap)
            self.smtp_port = await nursery.start(self._listen, self._serve_smtp)
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()

    async def _listen(
        self, serve: Callable[[trio.SocketStream], Awaitable[None]], task_status: trio.TaskStatus[int]
    ) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")

        async def handle(stream: trio.SocketStream) -> None:
            """Serve a connection until it ends."""
            try:
                async with stream:
                    await serve(stream)
            except* (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

        task_status.started(listeners[0].socket.getsockname()[1])
        await trio.serve_listeners(handle, listeners)

    # ---------------------------------------------------------------- for tests

    async def deliver(self, mail: bytes) -> None:
        """Put a mail into the inbox."""
        self.add("INBOX", mail)

    def add(self, folder: str, raw: bytes, flags: Sequence[str] = ()) -> None:
        """Put a mail into a folder."""
        mails = self.folders.setdefault(folder, [])
        mails.append(StoredMail(len(mails) + 1, raw, set(flags)))
        self.notify()

    def received(self) -> Sequence[bytes]:
        """Return the mails that were sent."""
        return self.outbox

    async def settle(self) -> None:
        """Return at once: nothing is on its way."""
        await trio.lowlevel.checkpoint()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until the condition holds. It is looked at whenever a mail or a flag came."""
        with trio.fail_after(20):
            while not condition():
                await self._changed.wait()

    def notify(self) -> None:
        """Wake up those who wait."""
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    # ---------------------------------------------------------------- IMAP

    async def _serve_imap(self, stream: trio.SocketStream) -> None:
        await stream.send_all(b"* OK " + CAPABILITY[2:])
        await _ImapSession(self, stream, ByteLines(stream)).serve()

    # ---------------------------------------------------------------- SMTP

    async def _serve_smtp(self, stream: trio.SocketStream) -> None:
        lines = ByteLines(stream)
        answer = partial(_answer, stream)
        await answer("220 mail.example.org ESMTP")
        while line := (await lines.line()).decode().rstrip("\r\n"):
            match line[:4].upper():
                case "EHLO":
                    await answer("250-mail.example.org\r\n250-8BITMIME\r\n250 AUTH PLAIN")
                case "AUTH":
                    token = base64.b64decode(line.rpartition(" ")[2]).decode()
                    await answer("235 ok" if token.endswith(f"\0{PASSWORD}") else "535 wrong password")
                case "RCPT":
                    recipient = line.partition("<")[2].partition(">")[0]
                    await answer(self.recipients_refused.get(recipient, "250 ok"))
                case "DATA":
                    await answer("354 go on")
                    await answer(await self._take_mail(lines))
                case "MAIL" | "RSET" | "NOOP":
                    await answer("250 ok")
                case "QUIT":
                    await answer("221 bye")
                    return
                case _:
                    self.complaints.append(line)
                    await answer("500 unknown command")

    async def _take_mail(self, lines: ByteLines) -> str:
        raw = b""
        while (line := await lines.line()) != b".\r\n":
            if not line:
                return "451 the connection ended"
            raw += line[1:] if line.startswith(b".") else line
        if self.busy:
            self.busy -= 1
            return "451 try again later"
        self.take(raw)
        return "250 taken"

    def take(self, mail: bytes) -> None:
        """Keep a mail that was sent."""
        self.outbox.append(mail)
        self.notify()


async def _answer(stream: trio.SocketStream, line: str) -> None:
    await stream.send_all(f"{line}\r\n".encode())


@attrs.define(eq=False)
class _ImapSession:
    """One connection of IMAP."""

    _server: FakeMailServer
    _stream: trio.SocketStream
    _lines: ByteLines
    _is_known: bool = False
    """True after LOGIN."""
    _folder: str = ""
    _announced: int = 0
    """Mails of the folder that the client was told of."""

    async def serve(self) -> None:
        """Answer commands until LOGOUT."""
        while line := await self._lines.line():
            tag, _, command = line.decode().rstrip("\r\n").partition(" ")
            literal = b""
            if (size := LITERAL.search(line)) is not None:
                await self._stream.send_all(b"+ go on\r\n")
                literal = await self._lines.exactly(int(size[1]))
                await self._lines.line()
            answer = await self._answer(command, literal)
            news = self._news() if self._folder and answer.startswith("OK") else b""
            await self._stream.send_all(news + f"{tag} {answer}\r\n".encode())
            if command.upper() == "LOGOUT":
                return

    def _news(self) -> bytes:
        """Return the announcement of new mails, as any command may carry it."""
        count = len(self._server.folders[self._folder])
        known, self._announced = self._announced, count
        return b"* %d EXISTS\r\n" % count if count > known else b""

    async def _answer(self, command: str, literal: bytes) -> str:
        """Carry out a command; return its result."""
        words = command.upper().split(" ")
        if not self._is_known:
            match words[0]:
                case "CAPABILITY":
                    await self._stream.send_all(CAPABILITY)
                    return "OK done"
                case "LOGIN":
                    self._is_known = [word.strip('"') for word in command.split(" ")[1:]] == [USER, PASSWORD]
                    return "OK done" if self._is_known else "NO wrong password"
                case "LOGOUT":
                    await self._stream.send_all(b"* BYE\r\n")
                    return "OK done"
            return self._complain(command)
        match words:
            case ["CAPABILITY"]:
                await self._stream.send_all(CAPABILITY)
            case ["NOOP"]:
                pass
            case ["SELECT" | "EXAMINE", name]:
                return await self._select(name.strip('"'))
            case ["LIST", *_]:
                for name in list(self._server.folders):
                    flags = "\\Sent" if name == "SENT" else "\\HasNoChildren"
                    await self._stream.send_all(f'* LIST ({flags}) "/" {name}\r\n'.encode())
            case ["CREATE", name]:
                self._server.folders.setdefault(name.strip('"'), [])
            case ["APPEND", name, *_]:
                if name.strip('"') not in self._server.folders:
                    return "NO [TRYCREATE] no such folder"
                self._server.add(name.strip('"'), literal, ["\\SEEN"])
            case ["IDLE"] if self._folder:
                return await self._idle()
            case ["UID", "SEARCH", *_] if self._folder:
                await self._search(command[len("UID SEARCH ") :])
            case ["UID", "FETCH", uid, part] if self._folder:
                return await self._fetch(uid, part)
            case ["UID", "STORE", uid, "+FLAGS", *flags] if self._folder:
                for mail in self._mails(uid):
                    mail.flags |= {flag.strip("()") for flag in flags}
                self._server.notify()
            case ["LOGOUT"]:
                await self._stream.send_all(b"* BYE\r\n")
            case _:
                return self._complain(command)
        return "OK done"

    def _complain(self, command: str) -> str:
        self._server.complaints.append(command)
        return "BAD unknown command, or not in this state"

    def _mails(self, uid: str = "") -> list[StoredMail]:
        """Return the mails of the folder, or the one with this UID."""
        return [mail for mail in self._server.folders[self._folder] if not uid or str(mail.uid) == uid]

    async def _select(self, name: str) -> str:
        if name not in self._server.folders:
            return "NO no such folder"
        self._folder = name
        self._announced = len(self._mails())
        await self._stream.send_all(b"* %d EXISTS\r\n* OK [UIDVALIDITY 1]\r\n" % self._announced)
        return "OK done"

    async def _search(self, condition: str) -> None:
        """Answer UNSEEN, or one or several HEADER with OR before them."""
        keys = HEADER_KEY.findall(condition)
        found = []
        for mail in self._mails():
            head = BytesHeaderParser(policy=compat32).parsebytes(mail.raw)
            if any(value in str(head.get(name, "")) for name, value in keys) or (
                condition.upper() == "UNSEEN" and "\\SEEN" not in mail.flags
            ):
                found.append(str(mail.uid))
        await self._stream.send_all(f"* SEARCH {' '.join(found)}\r\n".encode())

    async def _fetch(self, uid: str, part: str) -> str:
        wanted = FETCH.fullmatch(part)
        if wanted is None:
            return self._complain(f"UID FETCH {part}")
        for mail in self._mails(uid):
            raw = mail.raw.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if wanted[1] else mail.raw
            raw = raw[: int(wanted[2])] if wanted[2] else raw
            head = f"* {mail.uid} FETCH (UID {mail.uid} BODY[{wanted[1] or ''}] {{{len(raw)}}}\r\n"
            await self._stream.send_all(head.encode() + raw + b")\r\n")
        return "OK done"

    async def _idle(self) -> str:
        """Announce new mails until DONE."""
        await self._stream.send_all(b"+ idling\r\n")
        async with trio.open_nursery() as nursery:

            async def announce() -> None:
                """Announce what comes."""
                while True:
                    changed = self._server._changed
                    if news := self._news():
                        await self._stream.send_all(news)
                    await changed.wait()

            nursery.start_soon(announce)
            line = await self._lines.line()
            nursery.cancel_scope.cancel()
        return "OK done" if line in (b"DONE\r\n", b"") else self._complain(line.decode())
