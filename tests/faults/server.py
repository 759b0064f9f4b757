"""A PostgreSQL of the trial's own on loopback, which can be stopped in every way."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psycopg
import trio

from tests.blackbox.support.ports import free_port

_VERSIONS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
_PATH = os.pathsep.join([*map(str, reversed(_VERSIONS)), os.environ["PATH"]])
"""Debian's programs are not on the path."""
CONNECTIONS = 60
"""Connections that the server takes, without those for its administrator."""


def is_installed() -> bool:
    return shutil.which("initdb", path=_PATH) is not None


class ScratchServer:
    """A cluster in a folder of its own. is_durable: with fsync, for measurements; nothing of a trial needs it, as no power fails."""

    def __init__(self, *, is_durable: bool = False) -> None:
        # The folders of tests are root's alone, and PostgreSQL refuses to run as root.
        self._folder = Path(tempfile.mkdtemp(prefix="pegasus-postgres-"))
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres")
        self.port = free_port()
        self._run("initdb", "-U", "pegasus", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale", "C")
        settings = {
            "max_connections": CONNECTIONS + 3,
            "fsync": "on" if is_durable else "off",
            "unix_socket_directories": "''",
        }
        with (self._folder / "data" / "postgresql.conf").open("a") as config:
            config.writelines(f"{name} = {value}\n" for name, value in settings.items())

    def _run(self, program: str, *arguments: str) -> None:
        """Run a program of PostgreSQL on the cluster. As root it is run as the user postgres, since it refuses root."""
        command = [str(shutil.which(program, path=_PATH)), "-D", str(self._folder / "data"), *arguments]
        if os.geteuid() == 0:
            command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(command, check=True, cwd="/", **quiet)

    # ------------------------------------------------------------ faults

    async def start(self) -> None:
        """Start it, and wait until it answers; after a crash it recovers first."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1"
        await trio.to_thread.run_sync(
            self._run, "pg_ctl", "start", "-w", "-t", "60", "-o", options, "-l", str(self._folder / "log")
        )

    async def stop(self, mode: str) -> None:
        """Stop it. mode: "immediate", as a crash does; "fast", which ends every connection first."""
        await trio.to_thread.run_sync(self._run, "pg_ctl", "stop", "-w", "-m", mode)

    async def remove(self) -> None:
        """Stop it, and remove what it has."""
        with suppress(subprocess.CalledProcessError):  # it does not run
            await self.stop("immediate")
        shutil.rmtree(self._folder)

    async def execute(self, *statements: str) -> None:
        """Execute statements as the administrator."""

        def work() -> None:
            with psycopg.connect(self.url(), autocommit=True) as connection:
                for statement in statements:
                    connection.execute(statement)

        await trio.to_thread.run_sync(work)

    @asynccontextmanager
    async def without_connections(self) -> AsyncIterator[None]:
        """Allow nobody but the administrator to connect while the block runs, and end the connections that there are."""
        await self.execute("alter role agent connection limit 0", END_CONNECTIONS)
        try:
            yield
        finally:
            await self.execute("alter role agent connection limit -1")

    # ------------------------------------------------------------ for nodes

    def url(self, port: int = 0, user: str = "pegasus") -> str:
        """Return the address of the database. port: of a link to it."""
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/postgres"


END_CONNECTIONS = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'agent'"
"""Statement that ends every connection of a node."""


@asynccontextmanager
async def scratch_server(*, is_durable: bool = False) -> AsyncIterator[ScratchServer]:
    """A server that runs, and a user "agent" for nodes; it is gone at the end."""
    server = ScratchServer(is_durable=is_durable)
    try:
        await server.start()
        await server.execute("create role agent login", "grant create on database postgres to agent")
        yield server
    finally:
        with trio.CancelScope(shield=True):
            await server.remove()
