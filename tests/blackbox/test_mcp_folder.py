"""Where servers that are programs run: files of the workspace, which guests may write, never become code of theirs."""

from __future__ import annotations

import json
import shutil
import stat
import sys
from pathlib import Path

import pytest

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import Book, Thought, say, serving
from tests.blackbox.support.daemon import has_bubblewrap
from tests.blackbox.support.mcp_settings import SCRIPT, reached, server
from tests.blackbox.support.walls import WALLS


def plant(workspace: Path) -> Path:
    """Put files into the workspace that programs started there would run; return the file that they would leave."""
    trace = workspace / "it-ran"
    workspace.mkdir(parents=True, exist_ok=True)
    for name in ("mail_server.py", "sitecustomize.py", "usercustomize.py", "json.py"):
        (workspace / name).write_text(f"open({str(trace)!r}, 'a').write({name!r})\n")
    (workspace / "evil.js").write_text(f"require('fs').appendFileSync({json.dumps(str(trace))}, 'npm')\n")
    (workspace / ".npmrc").write_text(f"node-options=--require {workspace}/evil.js\n")
    return trace


def command(is_confined: bool, program: str, *args: str, **keys: object) -> dict[str, object]:
    settings = {"command": program, "args": list(args), "sandbox": is_confined, "timeout": 20.0, **keys}
    return {f"mcp.servers.mail.{key}": value for key, value in settings.items()}


@pytest.mark.parametrize("is_confined", [True, False])
@pytest.mark.parametrize("args", [("-m", "mail_server"), ("-c", "import json"), ("-c", "import mail_server")])
async def test_a_module_in_the_workspace_is_not_that_of_a_server(tmp_path, is_confined, args):
    trace = plant(tmp_path / "home" / "workspace")
    async with serving(tmp_path, Book(), command(is_confined, sys.executable, *args)) as daemon:
        state = await reached(daemon, "mail", "down")
        assert "the program ended" in state["reason"]
        await daemon.command("mcp", "check")
    assert not trace.exists()


@pytest.mark.skipif(shutil.which("npx") is None, reason="there is no npx")
@pytest.mark.parametrize("is_confined", [True, False])
async def test_settings_of_npm_in_the_workspace_do_not_count_for_a_server(tmp_path, is_confined):
    trace = plant(tmp_path / "home" / "workspace")
    npx = command(is_confined, "npx", "--offline", "-c", f"node -e 0 && exec {sys.executable} -S {SCRIPT}")
    async with serving(tmp_path, Book(), npx) as daemon:
        await reached(daemon, "mail")
        assert (await daemon.command("mcp", "check", timeout=60)).code == 0
        assert not trace.exists()
        daemon.configure(mcp__servers__mail__cwd="workspace")
        await daemon.restart()
        await reached(daemon, "mail")
        assert trace.exists(), "these settings would count there"


def read(path: str | Path) -> Thought:
    return Thought(calls=(Call("lab__read", {"path": str(path)}),))


async def test_a_server_within_walls_sees_its_own_folder_and_no_other_one(tmp_path, walled):
    book = Book()
    async with serving(tmp_path, book, server("lab") | WALLS, env=walled) as daemon, daemon.client() as client:
        await reached(daemon, "lab")
        folder = daemon.home / "mcp" / "lab"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        files = {
            "own": folder / "note",
            "relative": "note",
            "workspace": daemon.home / "workspace" / "note",
            "tokens": daemon.home / "mcp" / "other.json",
            "home": daemon.home / "token",
        }
        (folder / "note").write_text("mine")
        (daemon.home / "workspace" / "note").write_text("the agent's")
        (daemon.home / "mcp" / "other.json").write_text("{}")
        said = {}
        for name, path in files.items():
            book.pages[name] = [read(path if name == "relative" else Path(path)), lambda view: say(view.results[0])]
            said[name] = await client.ask(name)
    assert "mine" in said["own"]
    assert "mine" in said["relative"], "it runs there"
    for name in ("workspace", "tokens", "home"):
        assert "Error" in said[name], said


@pytest.mark.parametrize("is_confined", [True, False])
async def test_a_server_runs_in_the_workspace_if_the_owner_says_so(tmp_path, is_confined):
    book = Book({"read": [read("note"), lambda view: say(view.results[0])]})
    settings = server("lab") | {"mcp.servers.lab.cwd": "workspace", "mcp.servers.lab.sandbox": is_confined}
    async with serving(tmp_path, book, settings) as daemon, daemon.client() as client:
        await reached(daemon, "lab")
        (daemon.home / "workspace" / "note").write_text("the agent's")
        assert "the agent's" in await client.ask("read")
        checked = await daemon.command("config", "check")
        assert checked.code == 0
        found = await daemon.command("doctor")
        warning = "the MCP server lab: it runs in the workspace without walls"
        if is_confined and has_bubblewrap():
            assert warning not in checked.out + checked.err + found.out
            assert "others have written" not in daemon.stderr
        else:
            assert warning in checked.out + checked.err
            assert warning in found.out
            assert "may run code that others have written" in daemon.stderr
            assert "cwd = " in daemon.stderr


async def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path):
    settings = server("lab") | {"mcp.servers.lab.sandbox": False}
    (tmp_path / "home" / "mcp").mkdir(parents=True)
    (tmp_path / "home" / "mcp" / "lab").symlink_to(tmp_path)
    async with serving(tmp_path, Book(), settings) as daemon:
        state = await reached(daemon, "lab", "down")
        assert "is not a folder" in state["reason"]
