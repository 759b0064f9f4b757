"""A PostgreSQL server of the tests' own: on loopback, in a temporary folder, synced as one in use; without tables for each test.

Its user "agent" may do everything and needs no password. "locked" needs the password "right pass-word" and may do nothing by itself.
"""

from __future__ import annotations

import contextlib
import datetime
import glob
import ipaddress
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

MISSING = "PostgreSQL is not installed (Debian: apt install postgresql)"


def find_program(name):
    """Return the path of one of its programs, which Debian keeps out of PATH; None if there is none."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return found or max(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), default=None)


def is_installed() -> bool:
    return find_program("postgres") is not None and find_program("initdb") is not None


class PostgresServer:
    """A server that can be stopped, killed and started again. certificate: that of its TLS, which names 127.0.0.1.

    primary: the server that it follows as a replica, until it is promoted.
    """

    def __init__(self, primary=None):
        self.folder = Path(tempfile.mkdtemp(prefix="pegasus-postgres-"))
        self.port = _free_port()
        self._numbers = itertools.count(1)
        # It refuses to run as root. Debian's package has made its user; where there is none, nobody will do.
        self._user = {"user": _other_user(), "extra_groups": []} if os.geteuid() == 0 else {}
        if self._user:
            shutil.chown(self.folder, self._user["user"])
        self.certificate = self.data / "server.crt"
        if primary is not None:
            self._run("pg_basebackup", "-D", self.data, "-d", primary.url, "-R", "-c", "fast", "--no-sync")
        else:
            self._initialise()
        self.start()
        if primary is None:
            self.execute("create role locked login password 'right pass-word'")

    def _initialise(self):
        """Make its data."""
        self._run("initdb", "-D", self.data, "-U", "agent", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        with self.data.joinpath("postgresql.conf").open("a") as conf:
            conf.write(
                "listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\nshared_buffers = 32MB\nssl = on\n"
            )
        rules = self.data / "pg_hba.conf"
        rules.write_text("host all locked 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        self._make_certificate()

    def _make_certificate(self):
        for name, content in zip(("server.crt", "server.key"), _self_signed(), strict=True):
            file = self.data / name
            file.touch(mode=0o600)
            file.write_bytes(content)
            if self._user:
                shutil.chown(file, self._user["user"])

    @property
    def data(self):
        return self.folder / "data"

    @property
    def url(self):
        return f"postgresql://agent@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self):
        return int(self.data.joinpath("postmaster.pid").read_text().split()[0])

    def start(self, *options):
        """Start it, and wait until it takes connections. options: those of `postgres`."""
        words = " ".join(["-p", str(self.port), *options])
        self._run("pg_ctl", "-D", self.data, "-l", self.folder / "log", "-w", "-o", words, "start")

    def stop(self, mode="fast"):
        """Stop it. mode: "fast" ends its connections, "immediate" is a crash."""
        self._run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def restart(self, mode="fast", *options):
        self.stop(mode)
        self.start(*options)

    def promote(self):
        """Let a replica write, as the server that it followed is gone."""
        self._run("pg_ctl", "-D", self.data, "-w", "promote")

    def change_certificate(self):
        """Show another certificate, from a moment later on."""
        self._make_certificate()
        self.execute("select pg_reload_conf()")

    def signal(self, number):
        """Send a signal to all of its processes: SIGSTOP is a partition as its clients see it."""
        pids = subprocess.run(
            ["pgrep", "-P", str(self.pid)], capture_output=True, text=True, check=False
        ).stdout.split()
        for pid in (self.pid, *map(int, pids)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def database(self, options=""):
        """Make an empty database; return its address."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"create database {name} {options}")
        return f"postgresql://agent@127.0.0.1:{self.port}/{name}"

    def execute(self, *statements, url=None):
        """Run statements; return the rows of the last one."""
        with psycopg.connect(url or self.url, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    @contextlib.contextmanager
    def beside(self):
        """Give a port, a folder and the user for a program beside it, as words of Popen."""
        folder = self.folder / "beside"
        folder.mkdir()
        folder.chmod(0o755)
        yield _free_port(), folder, self._user
        shutil.rmtree(folder)

    def remove(self):
        with contextlib.suppress(Exception):
            self.signal(signal.SIGCONT)
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program, *words):
        done = subprocess.run(
            [find_program(program), *map(str, words)],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program != "pg_ctl" else subprocess.DEVNULL,  # the server keeps it open
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **self._user,
        )
        if done.returncode:
            log = self.folder / "log"
            pytest.fail(f"{program} failed: {done.stdout or (log.read_text() if log.exists() else '')}")


def _self_signed():
    """Return a certificate for 127.0.0.1 and its key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return certificate.public_bytes(pem), key.private_bytes(pem, *plain)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _other_user():
    import pwd

    names = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@pytest.fixture(scope="session")
def postgres_server():
    """The server that tests share. Whoever stops it starts it again."""
    if not is_installed():
        pytest.skip(MISSING)
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def postgres_url(postgres_server):
    """A database without tables. It is one for all tests, since PostgreSQL copies 300 files for each new one."""
    yield postgres_server.url
    postgres_server.execute("drop schema if exists pegasus cascade")
