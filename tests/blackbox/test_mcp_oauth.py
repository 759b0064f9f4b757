"""Access tokens of MCP servers: signing in, by a browser and by a code; refreshing; a program's own secret."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import time
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import Book, Thought, say, serving
from tests.blackbox.support.command import PROGRAM
from tests.blackbox.support.mcp_settings import reached
from tests.blackbox.support.ports import free_port, until_listening

SCRIPT = Path(__file__).parent / "support" / "mcp_oauth.py"


@asynccontextmanager
async def token_server(folder: Path, port: int, *options: str):
    """The server of `mcp_oauth.py`; yields the function that returns the grants so far."""
    log = folder / "grants"
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-S", str(SCRIPT), str(port), *options], stdout=out)  # noqa: ASYNC220
    try:
        await until_listening(port)
        yield lambda: [line.split()[0] for line in log.read_text().splitlines()]
    finally:
        process.kill()
        process.wait()


def settings(port, auth="oauth", **more):
    key = "mcp.servers.web"
    return {
        f"{key}.url": f"http://127.0.0.1:{port}/mcp",
        f"{key}.auth": auth,
        **{f"{key}.{k}": v for k, v in more.items()},
    }


async def log_in(daemon, *options):
    """Run `pegasus mcp login web`, and open the address that it shows, as a person does; return its output."""
    command = [*PROGRAM, "--home", str(daemon.home), "mcp", "login", "web", *options]
    process = await trio.lowlevel.open_process(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=daemon.env
    )
    text = ""
    async for data in process.stdout:
        text += data.decode()
        address = next((line for line in text.splitlines() if line.startswith("http") and text.endswith("\n")), "")
        if address:
            await trio.to_thread.run_sync(lambda url=address: urllib.request.urlopen(url, timeout=20).read())
            text = text.replace(address, "")
    return await process.wait(), text


async def test_signing_in_with_a_browser(tmp_path):
    """The token is kept in the home, readable by nobody else; a daemon that waits for it uses it, also after a restart."""
    port = free_port()
    hello = [Thought(calls=(Call("web__hello", {}),)), lambda view: say(view.results[0])]
    book = Book({"one": hello, "two": hello})
    async with token_server(tmp_path, port) as grants, serving(tmp_path, book, settings(port)) as daemon:
        reason = (await reached(daemon, "web", "down"))["reason"]
        assert reason == f"a person must sign in first: pegasus --home {daemon.home} mcp login"
        assert grants() == []
        code, text = await log_in(daemon)
        assert (code, "web  signed in, 1 tool" in text) == (0, True)
        file = daemon.home / "mcp" / "web.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert json.loads(file.read_text())["tokens"]["access_token"] == "access-1"
        await reached(daemon, "web", timeout=25)
        async with daemon.client() as client:
            said = await client.ask("one")
            assert "hello, you sent Bearer ***" in said
            assert "access-1" not in said
            assert "access-1" not in json.dumps([view.request.raw for view in book.asked]), "nor does the model see it"
        await daemon.restart()
        await reached(daemon, "web")
        async with daemon.client() as client:
            assert "hello" in await client.ask("two")
        assert grants() == ["code"]
        assert "access-1" not in daemon.stderr


async def test_a_token_is_refreshed_before_it_ends(tmp_path):
    """Also after a restart, and without a person. The refreshed one is kept."""
    port = free_port()
    async with token_server(tmp_path, port) as grants, serving(tmp_path, Book(), settings(port), start=False) as daemon:
        daemon.configure()
        assert (await log_in(daemon))[0] == 0
        file = daemon.home / "mcp" / "web.json"
        found = json.loads(file.read_text())
        assert found["refreshAt"] == pytest.approx(time.time() + 3600 - 60, abs=60)
        file.write_text(json.dumps({**found, "refreshAt": time.time() - 1}))
        assert (await daemon.command("mcp", "check")).code == 0
        assert grants() == ["code", "refresh"]
        assert json.loads(file.read_text())["tokens"]["access_token"] == "access-2"


async def test_signing_in_with_a_code_on_another_machine(tmp_path):
    port = free_port()
    async with token_server(tmp_path, port) as grants, serving(tmp_path, Book(), settings(port), start=False) as daemon:
        daemon.configure()
        signed = await daemon.command("mcp", "login", "web", "--device")
        assert "ABCD-EFGH" in signed.out
        assert "web  signed in, 1 tool" in signed.out
        assert grants() == ["device"]
        assert (await daemon.command("mcp", "check")).code == 0


async def test_a_service_that_registers_no_programs_is_a_sentence(tmp_path):
    port = free_port()
    async with (
        token_server(tmp_path, port, "refuses"),
        serving(tmp_path, Book(), settings(port), start=False) as daemon,
    ):
        daemon.configure()
        refused = await daemon.command("mcp", "login", "web", "--device")
        assert refused.code == 1
        assert "web: signing in failed" in refused.err
        assert "known programs only" in refused.err
        assert "Traceback" not in refused.out + refused.err


async def test_a_program_with_a_secret_of_its_own(tmp_path):
    port = free_port()
    more = {"client_id": "program", "client_secret": "its-secret-0815", "issuer": f"http://127.0.0.1:{port}"}
    async with token_server(tmp_path, port) as grants:
        chosen = settings(port, "client_credentials", **more)
        async with serving(tmp_path, Book(), chosen, start=False) as daemon:
            daemon.configure()
            assert (await daemon.command("mcp", "check")).code == 0
            assert grants() == ["client_credentials"]
            daemon.configure(mcp__servers__web__client_secret="another-secret")
            (daemon.home / "mcp" / "web.json").unlink()
            failed = await daemon.command("mcp", "check")
            assert failed.code == 1
            assert "signing in failed" in failed.out
            assert "another-secret" not in failed.out + failed.err


async def test_login_names_the_servers_that_it_is_for(tmp_path):
    async with serving(tmp_path, Book(), settings(1), start=False) as daemon:
        daemon.configure()
        wrong = await daemon.command("mcp", "login", "other")
        assert (wrong.code, "there are: web" in wrong.err) == (1, True)
