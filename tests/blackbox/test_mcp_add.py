"""`pegasus mcp add` and `mcp check`: what they find is what the agent finds, and the kinds of tools are shown."""

from __future__ import annotations

import json
import sys
import time
import tomllib
import venv

import pytest

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import Book, Thought, say, serving
from tests.blackbox.support.daemon import has_bubblewrap
from tests.blackbox.support.mcp_settings import SCRIPT, reached, server
from tests.blackbox.support.terminal import ENTER, terminal
from tests.blackbox.support.walls import WALLS

HAS_WALLS = pytest.mark.skipif(not has_bubblewrap(), reason="bubblewrap does not work here")


def tool(name, **annotations):
    return {"name": name, "inputSchema": {"type": "object", "properties": {}}, "annotations": annotations}


TOOLS = [
    tool("get_mail", readOnlyHint=True, openWorldHint=False),
    tool("search_web", readOnlyHint=True),
    tool("send_mail", readOnlyHint=False, destructiveHint=False),
    tool("empty_bin", readOnlyHint=False, destructiveHint=True),
    tool("delete_all", readOnlyHint=True, openWorldHint=False),
    {**tool("odd\u202e name\n[x]"), "annotations": "all of them"},
]
GROUPS = """\
private readers (read data of yours, and tell nobody else):
  get_mail  only reads, reaches nobody else
open readers (change nothing, but others see what they ask for):
  search_web  only reads
acts (change or send something):
  send_mail  changes something, not destructive
destructive acts (change something for good; you are always asked once text from outside was read):
  empty_bin     changes something, destructive
  delete_all    only reads, reaches nobody else
  odd name [x]  the server says nothing"""


def mail(tmp_path, tools=TOOLS):
    """The arguments of a command that is a server with these tools."""
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(tools))
    return [sys.executable, "-S", str(SCRIPT), f"tools={path}"]


def in_file(daemon):
    return tomllib.loads((daemon.home / "pegasus.toml").read_text()).get("mcp", {}).get("servers", {})


async def test_a_server_is_added_to_an_agent_that_runs(tmp_path):
    command = mail(tmp_path)
    async with serving(tmp_path, Book()) as daemon:
        file = daemon.home / "pegasus.toml"
        file.write_text("# mine\n" + file.read_text() + "\n# the end\n")
        options = ("--env", "KEY=a=b", "--trust", "hints")
        added = await daemon.command("mcp", "add", "mail", *options, "--", *command, "-x", "--env")
        assert added.code == 0, added
        assert "mail  answers, 6 tools (2025-11-25, " in added.out
        assert "1 private reader, 1 open reader, 1 act, 3 destructive acts" in added.out
        assert GROUPS in added.out
        assert "mail: trusted" in added.out
        assert "In effect now." in added.out
        assert "In the agent: mail  up, 6 tools" in added.out
        assert in_file(daemon) == {
            "mail": {
                "command": command[0],
                "args": [*command[1:], "-x", "--env"],
                "env": {"KEY": "a=b"},
                "trust": "hints",
            }
        }
        assert file.read_text().startswith("# mine\n")
        assert "# the end" in file.read_text()
        again = await daemon.command("mcp", "add", "mail", "--", *command)
        assert (again.code, 'there is a server "mail" already' in again.err) == (1, True)


async def test_nobody_is_asked_without_a_terminal_and_nothing_is_trusted(tmp_path):
    async with serving(tmp_path, Book(), start=False) as daemon:
        daemon.configure()
        added = await daemon.command("mcp", "add", "mail", *mail(tmp_path))
        assert added.code == 0, added
        assert GROUPS in added.out, "what it would be if it were trusted"
        assert "1 private reader, 1 open reader, 1 act, 3 destructive acts" in added.out.partition("\n")[0]
        assert "mail: not trusted" in added.out
        assert "config set mcp.servers.mail.reads" in added.out
        assert "trust" not in in_file(daemon)["mail"]
        checked = await daemon.command("mcp", "check")
        assert "6 tools" in checked.out
        assert "5 acts, 1 destructive act" in checked.out
        kinds = json.loads((await daemon.command("mcp", "check", "mail", "--json")).out)["servers"][0]["kinds"]
        assert kinds["destructive"] == ["delete_all"]
        assert kinds["private_reader"] == kinds["open_reader"] == []
        trusted = await daemon.command("mcp", "add", "mail", "--trust", "hints")
        assert trusted.code == 0, trusted
        assert in_file(daemon)["mail"]["trust"] == "hints"


@pytest.mark.parametrize(("answer", "trust"), [("y", "hints"), ("n", None), ("", None)])
async def test_a_person_is_asked_whether_to_trust(tmp_path, answer, trust):
    async with serving(tmp_path, Book(), start=False) as daemon:
        daemon.configure()
        async with terminal(daemon.home, "mcp", "add", "mail", "--", *mail(tmp_path)) as screen:
            await screen.see("get_mail")
            await screen.see("Trust it?")
            file = daemon.home / "pegasus.toml"
            file.write_text(file.read_text() + "# changed meanwhile\n")
            await screen.type(answer, ENTER)
            assert await screen.exit() == 0
        assert in_file(daemon)["mail"].get("trust") == trust
        assert "# changed meanwhile" in file.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["mail"], 1, 'there is no server "mail" in the settings; to add one, give its command'),
        (["a__b", "--", "true"], 1, "mcp.servers.a__b: found the name"),
        (["", "--", "true"], 1, "the name"),
        (["a/../b", "--", "true"], 1, "the name"),
        (["mail", "--", "no-such-program"], 1, "mail was not added, since it does not answer"),
        (["mail", "--", "false"], 1, "mail was not added, since it does not answer"),
        (["mail", "--url", "http://127.0.0.1:1/"], 1, "mail was not added, since it does not answer"),
        (["mail", "--url", "ftp://x"], 1, "mcp.servers.mail.url"),
        (["mail", "--url", "http://127.0.0.1:1/", "--", "true"], 2, "allowed: one of them"),
        (["mail", "--env", "X", "--", "true"], 2, "allowed: NAME=VALUE"),
        (["mail", "--env", "X=1"], 2, "found --env without a command"),
        (["mail", "--trust", "all", "--", "true"], 2, "allowed: none, hints"),
        (["mail", "--env", "X=${NOT_SET_ANYWHERE:?}", "--", "true"], 1, "NOT_SET_ANYWHERE"),
    ],
)
async def test_what_cannot_be_added_leaves_the_file_as_it_was(tmp_path, arguments, code, why):
    async with serving(tmp_path, Book(), start=False) as daemon:
        daemon.configure()
        before = (daemon.home / "pegasus.toml").read_bytes()
        added = await daemon.command("mcp", "add", *arguments)
        assert added.code == code, added
        assert why in added.out + added.err
        assert (daemon.home / "pegasus.toml").read_bytes() == before


async def test_a_server_that_does_not_start_can_be_written_by_hand(tmp_path):
    """The reason names keys that only the settings have, and what was asked for is not in them."""
    async with serving(tmp_path, Book(), start=False) as daemon:
        daemon.configure()
        added = await daemon.command(
            "mcp", "add", "mail", "--env", "A=b", "--", "sh", "-c", 'echo "Permission denied" >&2; exit 1'
        )
        assert added.code == 1
        _, section = added.out.split("pegasus.toml:\n", 1)
        assert tomllib.loads(section)["mcp"]["servers"]["mail"]["env"] == {"A": "b"}
        file = daemon.home / "pegasus.toml"
        file.write_text(f"{file.read_text()}\n{section}\nsandbox = false\n")
        checked = await daemon.command("mcp", "check", "mail")
        assert "mail  failed" in checked.out, checked


async def test_a_server_with_ten_thousand_tools_is_shown_in_a_screenful(tmp_path):
    async with serving(tmp_path, Book(), start=False) as daemon:
        daemon.configure()
        added = await daemon.command("mcp", "add", "big", "--", sys.executable, "-S", str(SCRIPT), "many")
        assert added.code == 0, added
        assert "and 9,970 more" in added.out
        assert added.out.count("\n") < 50


# ------------------------------------------------------------------ a check does what the real thing does


@pytest.mark.parametrize("kind", ["program", "script", "argument"])
async def test_a_program_that_the_walls_hide_is_named_by_the_check_and_by_the_agent(tmp_path, kind, walled):
    """It exists for the person, and within the walls it does not."""
    folder = tmp_path / "somewhere"
    folder.mkdir()
    script = folder / "server.py"
    script.write_text(SCRIPT.read_text())
    program = folder / "mail-server"
    program.write_text(f"#!{folder}/python\n{SCRIPT.read_text()}" if kind == "script" else f"#!{sys.executable}\n")
    program.chmod(0o755)
    (folder / "python").symlink_to(sys.executable)
    settings = {
        "mcp.servers.mail.command": sys.executable if kind == "argument" else str(program),
        "mcp.servers.mail.args": ["-S", str(script)] if kind == "argument" else [],
        "sandbox.writable": [],
    }
    async with serving(tmp_path, Book(), WALLS | settings, env=walled) as daemon:
        state = await reached(daemon, "mail", "down")
        checked = await daemon.command("mcp", "check")
        assert checked.code == 1
        for said in (state["reason"], checked.out):
            assert f"the walls around it hide {script if kind == 'argument' else program}" in said
            assert "mcp.servers.mail.sandbox = false" in said
        daemon.configure(mcp__servers__mail__sandbox=False)
        if kind != "program":
            assert (await daemon.command("mcp", "check")).code == 0


@HAS_WALLS
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("cp: Permission denied", "it runs within walls, which may be the reason: see sandbox.writable"),
        ("npm error 403 403 Forbidden - GET https://x", "sandbox.allowed_hosts"),
        ("cannot open /home/ann/notes/a.db: No such file", "the walls around it hide /home/ann/notes/a.db"),
        ("no configuration", ""),
    ],
)
async def test_words_of_a_program_that_the_walls_may_be_the_reason_of(tmp_path, words, said):
    settings = {"mcp.servers.mail.command": "sh", "mcp.servers.mail.args": ["-c", f"echo '{words}' >&2; exit 3"]}
    async with serving(tmp_path, Book(), settings, start=False) as daemon:
        daemon.configure()
        checked = (await daemon.command("mcp", "check")).out
        assert f"the program ended with exit code 3; {words}" in checked
        assert said in checked
        assert ("walls" in checked) == bool(said)


@pytest.mark.parametrize("kind", ["python", "script", "link"])
async def test_a_program_in_a_virtual_environment_runs_within_the_walls(tmp_path, kind, walled):
    """And they open nothing else: neither what lies beside it nor an environment in the workspace."""
    venv.create(tmp_path / "some where" / "venv", symlinks=True)
    bin_folder = tmp_path / "some where" / "venv" / "bin"
    (tmp_path / "some where" / "key").write_text("secret")
    (bin_folder / "server.py").write_text(SCRIPT.read_text())
    script = bin_folder / "mail-server"
    script.write_text(f"#!/bin/sh\nexec '{bin_folder}/python' -S '{bin_folder}/server.py'\n")
    script.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "linked-server").symlink_to(script)
    commands = {"python": bin_folder / "python", "script": script, "link": "linked-server"}
    env = {"PATH": f"{tmp_path}/bin:{walled.get('PATH', '/usr/bin:/bin')}"}
    settings = WALLS | {
        "mcp.servers.mail.command": str(commands[kind]),
        "mcp.servers.mail.args": ["-S", str(bin_folder / "server.py")] if kind == "python" else [],
        "sandbox.writable": [],
    }
    book = Book()
    async with serving(tmp_path, book, settings, env=env) as daemon, daemon.client() as client:
        await reached(daemon, "mail")
        assert (await daemon.command("mcp", "check")).code == 0
        path = str(tmp_path / "some where" / "key")
        book.pages["read"] = [Thought(calls=(Call("mail__read", {"path": path}),)), lambda view: say(view.results[0])]
        assert "Error" in await client.ask("read")


async def test_a_check_finds_programs_where_the_agent_does(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "mail-server"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -S {SCRIPT}\n")
    program.chmod(0o755)
    settings = {"mcp.servers.mail.command": "mail-server"}
    with_it = {"PATH": f"{folder}:/usr/bin:/bin"}
    async with serving(tmp_path, Book(), settings, env=with_it) as daemon:
        await reached(daemon, "mail")
        other = {"PATH": "/usr/bin:/bin"}
        assert (await daemon.command("mcp", "check", env=other)).code == 0, "as the agent that runs"
        await daemon.stop()
        assert (await daemon.command("mcp", "check", env=other)).code == 1


@pytest.mark.parametrize("habits", [("silent", "stubborn"), ("stubborn",)])
async def test_a_check_ends_by_the_timeout_of_a_server_that_does_not_want_to_end(tmp_path, habits):
    settings = server("mute", *habits, timeout=4.0)
    async with serving(tmp_path, Book(), settings, start=False) as daemon:
        daemon.configure()
        begun = time.monotonic()
        await daemon.command("mcp", "check", "mute", "--json")
        # The start of the command itself is not part of it.
        assert time.monotonic() - begun < 4.0 + 2.5
