"""`DebianMailServer`: Dovecot and Postfix as Debian installs them, on free ports of loopback, with everything they keep in one folder.

Postfix needs root, as its processes change to another user. `missing_programs` says what keeps it from running.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import smtplib
import socket
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from email.parser import BytesHeaderParser
from email.policy import compat32
from pathlib import Path
from typing import Final

import trio

from pegasus.testing.bridges.fake_mail import PASSWORD, FakeMailServer

AGENT: Final = "agent@example.org"
ANNA: Final = "anna@example.org"
LOOK_AGAIN: Final = 0.05
"""Seconds between two looks at what other programs have written."""
DOVECOT: Final = """
protocols = imap
listen = 127.0.0.1
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/dovecot.log
ssl = no
disable_plaintext_auth = no
mail_location = maildir:{folder}/mail/%n
first_valid_uid = {uid}
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={folder}/mail/%n
}}
service imap-login {{
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
namespace inbox {{
  inbox = yes
  mailbox Sent {{
    auto = create
    special_use = \\Sent
  }}
}}
"""
POSTFIX: Final = """
compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
maillog_file = {folder}/postfix.log
maillog_file_prefixes = {folder}
myhostname = mail.example.org
mydestination =
local_recipient_maps =
alias_maps =
in_flow_delay = 0
smtpd_client_connection_count_limit = 0
smtpd_client_connection_rate_limit = 0
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
smtpd_relay_restrictions = permit_mynetworks, reject
virtual_mailbox_domains = example.org
virtual_mailbox_maps = inline:{{agent@example.org=agent, anna@example.org=anna}}
virtual_transport = smtp:[127.0.0.1]:{maildir_port}
default_transport = error:there is no network
"""
MASTER: Final = """
127.0.0.1:{port} inet n - n - - smtpd
postlog unix-dgram n - n - 1 postlogd
cleanup unix n - n - 0 cleanup
qmgr unix n - n - 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
error unix - - n - - error
retry unix - - n - - error
smtp unix - - n - - smtp
"""
"""Processes of Postfix that a mail meets here."""


def missing_programs() -> str:
    """Return a sentence about what keeps the servers from running here; "" if nothing does."""
    missing = [name for name in ("dovecot", "postfix") if shutil.which(name, path=_path()) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: dovecot-imapd, postfix)"
    return "" if os.geteuid() == 0 else "Postfix needs root"


class MaildirWriter(FakeMailServer):
    """The end of Postfix's way: it puts mails into the folders that Dovecot reads."""

    def __init__(self, boxes: Path, owner: pwd.struct_passwd) -> None:
        super().__init__()
        self._boxes, self._owner = boxes, owner

    def take(self, mail: bytes) -> None:
        """Put a mail into the folder of its recipient."""
        super().take(mail)
        recipient = str(BytesHeaderParser(policy=compat32).parsebytes(mail)["To"]).partition("@")[0]
        new = self._boxes / recipient / "tmp" / f"{len(self.outbox):06}.mail"
        new.write_bytes(mail)
        os.chown(new, self._owner.pw_uid, self._owner.pw_gid)
        new.rename(self._boxes / recipient / "new" / new.name)


class DebianMailServer:
    """The real servers, with the mailboxes of AGENT and ANNA."""

    def __init__(self) -> None:
        self.imap_port = _free_port()
        self.smtp_port = _free_port()
        self._folder = Path()

    @asynccontextmanager
    async def open(self, folder: Path) -> AsyncIterator[None]:
        """Run both for as long as the block lasts."""
        self._folder = folder / "servers"
        owner = pwd.getpwnam("nobody")
        writer = MaildirWriter(self._folder / "mail", owner)
        async with writer.open(), trio.open_nursery() as nursery:
            self._write_files(owner, writer.smtp_port)
            dovecot = ["dovecot", "-F", "-c", str(self._folder / "dovecot.conf")]
            postfix = ["postfix", "-c", str(self._folder / "postfix"), "start-fg"]
            for program in (dovecot, postfix):
                nursery.start_soon(_run, program, self._folder / f"{program[0]}.out")
            for port in (self.imap_port, self.smtp_port):
                await _until_open(port)
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()
                # The program that was started is only its parent.
                pid = (self._folder / "queue" / "pid" / "master.pid").read_text()
                os.kill(int(pid), signal.SIGTERM)

    def _write_files(self, owner: pwd.struct_passwd, maildir_port: int) -> None:
        """Write the settings of both, and the folders of mails."""
        for name in ("run", "state", "data", "queue", "postfix"):
            (self._folder / name).mkdir(parents=True)
        for parent in (self._folder, *self._folder.parents[:2]):
            parent.chmod(parent.stat().st_mode | 0o755)  # the servers run as other users
        shutil.chown(self._folder / "data", "postfix")
        for box in ("agent", "anna"):
            for name in ("tmp", "new", "cur"):
                (self._folder / "mail" / box / name).mkdir(parents=True)
        for path in [self._folder / "mail", *(self._folder / "mail").rglob("*")]:
            os.chown(path, owner.pw_uid, owner.pw_gid)
        uid, gid = owner.pw_uid, owner.pw_gid
        settings = DOVECOT.format(folder=self._folder, port=self.imap_port, password=PASSWORD, uid=uid, gid=gid)
        (self._folder / "dovecot.conf").write_text(settings)
        settings = POSTFIX.format(folder=self._folder, maildir_port=maildir_port)
        (self._folder / "postfix" / "main.cf").write_text(settings)
        (self._folder / "postfix" / "master.cf").write_text(MASTER.format(port=self.smtp_port))

    async def deliver(self, mail: bytes) -> None:
        """Send a mail to AGENT, and wait until it is in the mailbox."""
        before = len(self._mails("agent"))
        await trio.to_thread.run_sync(self._send, mail)
        with trio.fail_after(20):
            while len(self._mails("agent")) == before:  # noqa: ASYNC110 another program writes it
                await trio.sleep(LOOK_AGAIN)

    def _send(self, mail: bytes) -> None:
        with smtplib.SMTP("127.0.0.1", self.smtp_port, timeout=20) as server:
            server.sendmail(ANNA, [AGENT], mail)

    def _mails(self, name: str) -> list[Path]:
        """Return the mails of a mailbox, in the order of their arrival."""
        box = self._folder / "mail" / name
        return sorted([*box.glob("new/*"), *box.glob("cur/*")], key=lambda path: path.name)

    def received(self) -> Sequence[bytes]:
        """Return the mails in ANNA's inbox."""
        return [path.read_bytes() for path in self._mails("anna")]

    async def settle(self) -> None:
        """Wait until Postfix's queue is empty."""
        with trio.fail_after(20):
            while self._is_queued():  # noqa: ASYNC110 another program empties it
                await trio.sleep(LOOK_AGAIN)

    def _is_queued(self) -> bool:
        names = ("incoming", "active", "maildrop", "deferred")
        return any(path.is_file() for name in names for path in (self._folder / "queue" / name).rglob("*"))


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _until_open(port: int) -> None:
    with trio.fail_after(20):
        while True:
            try:
                stream = await trio.open_tcp_stream("127.0.0.1", port)
            except OSError:
                await trio.sleep(LOOK_AGAIN)
            else:
                await stream.aclose()
                return


async def _run(program: Sequence[str], output: Path) -> None:
    """Run a server until cancelled."""
    with output.open("wb") as file:
        environment = {**os.environ, "PATH": _path()}
        await trio.run_process(program, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False)
