"""A fake mail server: IMAP (RFC 3501) and SMTP (RFC 5321), as much as one mailbox needs."""

from __future__ import annotations

import email.policy
from contextlib import asynccontextmanager, suppress
from email.parser import BytesParser

import trio


class FakeMail:
    """One mailbox, and what was sent through the server."""

    def __init__(self):
        self.inbox = []
        """Raw mails."""
        self.seen = set()
        """Numbers of those that are marked, from 1."""
        self.sent = []
        """Mails that were taken, parsed."""
        self.refuses = {}
        """By recipient, the answer to RCPT."""
        self.busy = 0
        """How many of the next mails are not taken for the moment."""
        self.changed = trio.Event()
        self.imap_port = self.smtp_port = 0

    def notify(self):
        changed, self.changed = self.changed, trio.Event()
        changed.set()

    async def until(self, condition):
        with trio.fail_after(20):
            while not condition():
                await self.changed.wait()

    def receive(self, text, sender="Anna <Anna@example.org>", **headers):
        """Let a mail arrive."""
        lines = {
            "From": sender,
            "To": "agent@example.org",
            "Message-ID": f"<m{len(self.inbox)}@example.org>",
            **headers,
        }
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
        self.inbox.append((head + "\r\n" + text).encode() if isinstance(text, str) else head.encode() + text)

    async def serve_imap(self, stream):
        lines = LineReader(stream)
        async with stream:
            await stream.send_all(b"* OK ready\r\n")
            while line := await lines.next():
                tag, command, *rest = line.split(" ")
                answer, result = b"", b"OK done"
                words = [word.upper() for word in rest]
                if command == "CAPABILITY":
                    answer = b"* CAPABILITY IMAP4rev1\r\n"
                elif command == "LOGIN" and rest[-1].strip('"') != "mail-password":
                    result = b"NO wrong password"
                elif command == "SELECT":
                    answer = b"* %d EXISTS\r\n" % len(self.inbox)
                elif command == "UID" and words[0] == "SEARCH":
                    found = [str(n) for n in range(1, len(self.inbox) + 1) if n not in self.seen]
                    answer = f"* SEARCH {' '.join(found)}\r\n".encode()
                elif command == "UID" and words[0] == "FETCH":
                    raw = self.inbox[int(rest[1]) - 1]
                    answer = (
                        b"* %s FETCH (UID %s BODY[] {%d}\r\n" % (rest[1].encode(), rest[1].encode(), len(raw))
                        + raw
                        + b")\r\n"
                    )
                elif command == "UID" and words[0] == "STORE":
                    self.seen.add(int(rest[1]))
                    self.notify()
                elif command == "LOGOUT":
                    answer = b"* BYE\r\n"
                await stream.send_all(answer + tag.encode() + b" " + result + b"\r\n")

    async def serve_smtp(self, stream):
        lines = LineReader(stream)
        async with stream:
            await stream.send_all(b"220 ready\r\n")
            while line := await lines.next():
                command, answer = line[:4].upper(), "250 ok"
                if command == "EHLO":
                    answer = "250-fake\r\n250 AUTH PLAIN"
                elif command == "AUTH":
                    answer = "235 ok"
                elif command == "RCPT":
                    answer = self.refuses.get(line.partition("<")[2].partition(">")[0], "250 ok")
                elif command == "DATA":
                    await stream.send_all(b"354 go on\r\n")
                    raw = b""
                    while (part := await lines.next_raw()) != b".\r\n":
                        raw += part.removeprefix(b".")
                    if self.busy:
                        self.busy -= 1
                        answer = "451 later"
                    else:
                        self.sent.append(BytesParser(policy=email.policy.default).parsebytes(raw))
                        self.notify()
                elif command == "QUIT":
                    answer = "221 bye"
                await stream.send_all(answer.encode() + b"\r\n")


class LineReader:
    """Lines of a stream."""

    def __init__(self, stream):
        self._stream = stream
        self._rest = b""

    async def next_raw(self):
        while b"\n" not in self._rest:
            data = await self._stream.receive_some(65536)
            if not data:
                return b""
            self._rest += data
        line, mark, self._rest = self._rest.partition(b"\n")
        return line + mark

    async def next(self):
        return (await self.next_raw()).decode().rstrip("\r\n")


@asynccontextmanager
async def open_mail():
    """A mail server on loopback."""
    mail = FakeMail()
    async with trio.open_nursery() as nursery:
        for name in ("imap", "smtp"):
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            setattr(mail, f"{name}_port", listeners[0].socket.getsockname()[1])

            async def serve(stream, handler=getattr(mail, f"serve_{name}")):
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await handler(stream)

            nursery.start_soon(trio.serve_listeners, serve, listeners)
        yield mail
        nursery.cancel_scope.cancel()
