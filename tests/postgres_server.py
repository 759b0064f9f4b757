"""A PostgreSQL server of the tests' own: on loopback, in a temporary folder, synced as one in use; and a database for each test."""

from __future__ import annotations

import contextlib
import glob
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

MISSING = "PostgreSQL is not installed (Debian: apt install postgresql)"


def find_program(name):
    """Return the path of one of its programs, which Debian keeps out of PATH; None if there is none."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return found or max(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), default=None)


class PostgresServer:
    """A server that can be stopped, killed and started again. Its user "agent" may do everything, and needs no password."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="pegasus-postgres-"))
        self.port = _free_port()
        self._numbers = itertools.count(1)
        # It refuses to run as root. Debian's package has made its user; where there is none, nobody will do.
        self._user = {"user": _other_user(), "extra_groups": []} if os.geteuid() == 0 else {}
        if self._user:
            shutil.chown(self.folder, self._user["user"])
        self._run("initdb", "-D", self.data, "-U", "agent", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        with self.data.joinpath("postgresql.conf").open("a") as conf:
            conf.write("listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\nshared_buffers = 32MB\n")
        self.start()

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
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,  # the server keeps it open
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **self._user,
        )
        if done.returncode:
            log = self.folder / "log"
            pytest.fail(f"{program} failed: {done.stdout or (log.read_text() if log.exists() else '')}")


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
    if find_program("postgres") is None or find_program("initdb") is None:
        pytest.skip(MISSING)
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def postgres_url(postgres_server):
    """An empty database."""
    return postgres_server.database()
