"""`MailService`: a mail server as the service of `examples/email_bridge.py`, behind a `MailProxy`."""

from __future__ import annotations

import email.policy
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from typing import Final, Protocol

from pegasus.testing.bridges.debian_mail import DebianMailServer
from pegasus.testing.bridges.fake_mail import FakeMailServer
from pegasus.testing.bridges.mail_proxy import MailProxy
from pegasus.testing.bridges.service import BridgeService
from pegasus.testing.bridges.steps import StepPoints

AGENT: Final = "agent@example.org"
ANNA: Final = "anna@example.org"
AUTHSERV: Final = "mail.example.org"
PASSWORD: Final = "mail-password"  # noqa: S105 of a server on loopback


class MailServer(Protocol):
    """A server with a mailbox for AGENT and one for ANNA."""

    imap_port: int
    smtp_port: int

    def open(self, folder: Path) -> AbstractAsyncContextManager[None]:
        """Run it on loopback for as long as the block lasts. folder: an empty one."""

    async def deliver(self, mail: bytes) -> None:
        """Put a mail into AGENT's inbox."""

    def received(self) -> Sequence[bytes]:
        """Return the mails in ANNA's inbox."""

    async def settle(self) -> None:
        """Wait until no mail is on its way any more."""


class MailService(BridgeService):
    """Mailboxes of the agent and of Anna."""

    channel_type = "email"

    def __init__(self, server: MailServer | None = None) -> None:
        """server: the fake one by default."""
        self.server: MailServer = FakeMailServer() if server is None else server
        self._count = 0

    @asynccontextmanager
    async def open(self, folder: Path, points: StepPoints) -> AsyncIterator[Mapping[str, str]]:
        """Run the server and the proxy."""
        proxy = MailProxy(points)
        async with self.server.open(folder), proxy.open(self.server.imap_port, self.server.smtp_port):
            yield {
                "IMAP_URL": f"imap://agent@127.0.0.1:{proxy.imap_port}",
                "SMTP_URL": f"smtp://agent@127.0.0.1:{proxy.smtp_port}",
                "MAIL_PASSWORD": PASSWORD,
                "MAIL_ADDRESS": AGENT,
                "MAIL_AUTHSERV": AUTHSERV,
            }

    async def write(self, text: str) -> None:
        """Let Anna write a mail, all of them in one thread."""
        self._count += 1
        mail = EmailMessage()
        mail["Authentication-Results"] = f"{AUTHSERV}; dmarc=pass header.from=example.org"
        mail["From"], mail["To"], mail["Subject"] = ANNA, AGENT, "A question"
        mail["Message-ID"] = f"<mail-{self._count}@example.org>"
        if self._count > 1:
            mail["References"] = "<mail-1@example.org>"
        mail.set_content(text)
        await self.server.deliver(mail.as_bytes(policy=email.policy.SMTP))

    async def settle(self) -> None:
        """Wait until the server has delivered what it has taken."""
        await self.server.settle()

    def seen(self) -> Sequence[str]:
        """Return the texts of the mails in Anna's inbox. That two of them have one Message-ID does not make them one."""
        texts = []
        for raw in self.server.received():
            body = BytesParser(EmailMessage, policy=email.policy.default).parsebytes(raw).get_body(("plain",))
            texts.append("" if body is None else str(body.get_content()))
        return texts


class DebianMailService(MailService):
    """The same with Dovecot and Postfix."""

    def __init__(self) -> None:
        super().__init__(DebianMailServer())
