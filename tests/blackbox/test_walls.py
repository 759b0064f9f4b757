"""Walls around commands, with the real process: what a command that was talked into it can do to the daemon, which is nothing."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import Daemon, Exited, serving, until
from tests.blackbox.support.walls import WALLS, attacked, can_make_mounts
from tests.blackbox.support.work import Effects, Office, act, answer, below, gone, heard, open_source

SPEAK = """
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2)
s.send(b"GET / HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer " + sys.argv[2].encode() + b"\\r\\n\\r\\n")
print("reached", s.recv(10))
"""


async def test_a_command_reads_neither_token_nor_settings_nor_the_daemons_environment(tmp_path, walled):
    env = {**walled, "ANTHROPIC_API_KEY": "sk-hidden-in-the-environment"}
    result, _, walls = await attacked(
        tmp_path,
        env,
        lambda daemon: (
            f"for f in {daemon.home}/token {daemon.home}/pegasus.toml {daemon.home}/logs/* "
            f"/proc/{daemon.pid}/environ /proc/{daemon.pid}/mem /proc/{daemon.pid}/root{daemon.home}/token; "
            "do cat $f; done 2>/dev/null; grep -aol sk-hidden /proc/[0-9]*/environ 2>/dev/null; echo end"
        ),
    )
    assert walls["walled"]
    assert result["stdout"] == "end\n"


async def test_a_command_cannot_speak_to_the_gateway_even_with_the_token(tmp_path, walled):
    result, _, walls = await attacked(
        tmp_path,
        walled,
        lambda daemon: f"{sys.executable} -c '{SPEAK}' {daemon.port} {daemon.token}",
    )
    assert walls["walled"]
    assert result["exitCode"] != 0
    assert "reached" not in result["stdout"]


async def test_a_command_can_neither_end_nor_stop_the_daemon(tmp_path, walled):
    result, _, walls = await attacked(
        tmp_path,
        walled,
        lambda daemon: f"for s in TERM KILL STOP; do kill -$s {daemon.pid} 2>/dev/null && echo sent; done; echo end",
    )
    assert walls["walled"]
    assert result["stdout"] == "end\n"


async def test_a_command_cannot_plant_files_that_the_agent_believes(tmp_path, walled):
    result, daemon, _ = await attacked(
        tmp_path,
        walled,
        lambda daemon: (
            f"for d in skills subagents personas data/memory/facts; do mkdir -p {daemon.home}/$d/x; "
            f"echo bad > {daemon.home}/$d/x/SKILL.md; done 2>/dev/null; echo '[run]' >> {daemon.home}/pegasus.toml; echo end"
        ),
    )
    assert result["stdout"] == "end\n"
    assert not list(daemon.home.glob("s*/x")) + list(daemon.home.glob("data/memory/facts/x"))
    assert "[run]" not in (daemon.home / "pegasus.toml").read_text()


async def test_all_paths_allowed_do_not_open_the_agents_own_home(tmp_path, walled):
    result, _, _ = await attacked(
        tmp_path,
        walled,
        lambda daemon: f"cat {daemon.home}/token; echo kept > file; cat file",
        {"tools.allowed_paths": ["/"]},
    )
    assert result["stdout"] == "kept\n"


FETCH = """
import os, sys, urllib.request as r
for name in ("no_proxy", "NO_PROXY"): os.environ.pop(name, None)  # else a loopback address is its own
request = r.Request(sys.argv[1], headers={"Authorization": "Bearer " + sys.argv[2]})
try: print(r.urlopen(request, timeout=5).read().decode())
except OSError as error: print("refused", error)
"""


async def test_with_a_network_a_command_reaches_what_is_allowed_and_never_the_gateway(tmp_path, walled):
    """HTTP goes through a proxy in the daemon, which asks the address guard of the web tools."""
    async with open_source() as source:
        source.open.set()
        for hosts, expected in (["127.0.0.1"], "here it is"), ([], "refused"):
            result, _, _ = await attacked(
                tmp_path / str(len(hosts)),
                walled,
                lambda _: f"{sys.executable} fetch.py {source.url} x",
                {"sandbox.network": "all", "sandbox.allowed_hosts": hosts},
                files={"fetch.py": FETCH},
            )
            assert result["stdout"].startswith(expected), result
        result, _, _ = await attacked(
            tmp_path / "gateway",
            walled,
            lambda daemon: f"{sys.executable} fetch.py http://127.0.0.1:{daemon.port}/ {daemon.token}",
            {"sandbox.network": "all"},
            files={"fetch.py": FETCH},
        )
        assert result["stdout"].startswith("refused HTTP Error 403")


async def test_the_network_of_commands_can_be_limited_to_names(tmp_path, walled):
    """`127.0.0.1.nip.example` and the like are other names; the refusal names the setting."""
    async with open_source() as source:
        source.open.set()
        for hosts, expected in (["127.0.0.1"], "here it is"), (["pypi.org", "*.github.com"], "refused HTTP Error 403"):
            settings = {"sandbox.network": "all", "sandbox.allowed_hosts": ["127.0.0.1"], "sandbox.hosts": hosts}
            result, _, _ = await attacked(
                tmp_path / hosts[0],
                walled,
                lambda _: f"{sys.executable} fetch.py {source.url} x",
                settings,
                files={"fetch.py": FETCH},
            )
            assert result["stdout"].startswith(expected), result


NAMED = """
import socket, sys, os, base64
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTP_PROXY"])
login = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
def ask(first, then=""):
    s = socket.create_connection((proxy.hostname, proxy.port), 5)
    s.sendall(f"{first} HTTP/1.1\\r\\nProxy-Authorization: Basic {login}\\r\\n\\r\\n{then}".encode())
    got = b""
    while part := s.recv(4096):
        got += part
    return "here it is" in got.decode("latin-1")
port = sys.argv[1]
inside = "GET / HTTP/1.1\\r\\nHost: {}\\r\\nConnection: close\\r\\n\\r\\n"
print(ask(f"GET http://localhost:{port}/"), ask(f"CONNECT localhost:{port}", inside.format("localhost")))
print(ask(f"GET http://127.0.0.1:{port}/"), ask(f"CONNECT localhost:{port}", inside.format("other.example")),
      ask(f"CONNECT [::1]:{port}", inside.format("localhost")), ask(f"GET http://localhost.example:{port}/"))
"""


async def test_a_list_of_names_admits_neither_addresses_nor_other_names_within_a_tunnel(tmp_path, walled):
    async with open_source() as source:
        source.open.set()
        settings = {"sandbox.network": "all", "sandbox.allowed_hosts": ["localhost"], "sandbox.hosts": ["localhost"]}
        port = source.url.rstrip("/").rpartition(":")[2]
        line = f"{sys.executable} named.py {port}"
        result, _, _ = await attacked(tmp_path, walled, lambda _: line, settings, files={"named.py": NAMED})
        assert result["stdout"] == "True True\nFalse False False False\n", result


REFUSALS = {
    "echo x > /etc/pegasus-test": ("sandbox.writable", "tools.allowed_paths"),
    f"{sys.executable} -c 'import urllib.request as r; r.urlopen(\"http://pypi.org\")'": ('sandbox.network = "all"',),
    "{person}/.local/bin/tool": ("hide", "/.local/bin/tool", "sandbox.writable"),
    "exit 3": (),
    "echo Permission denied": (),
}
"""Commands that walls let fail, or that fail by themselves, with words of the note in the result."""


@pytest.mark.parametrize("command", REFUSALS)
async def test_what_walls_refuse_names_them_and_the_setting(tmp_path, walled, command):
    person = tmp_path / "person"
    (person / ".local/bin").mkdir(parents=True)
    (person / ".local/bin/tool").write_text("#!/bin/sh\necho ran\n")
    (person / ".local/bin/tool").chmod(0o755)
    line = command.replace("{person}", str(person))
    result, _, _ = await attacked(tmp_path, {**walled, "HOME": str(person)}, lambda _: line)
    note = result.get("note", "")
    assert ("walls around commands" in note) == bool(REFUSALS[command]), result
    assert all(word in note for word in REFUSALS[command]), result


async def test_file_tools_do_not_open_it_either(tmp_path):
    book = Office()
    async with serving(tmp_path, book, {**WALLS, "tools.allowed_paths": ["/"]}) as daemon:
        token = str(daemon.home / "token")
        book.jobs["look"] = [
            act(Call("read_file", {"path": token}), Call("grep_files", {"path": str(tmp_path), "pattern": "."})),
            lambda view: answer(" ".join(result.content for result in view.request.turns[-1].results)),
        ]
        async with daemon.client() as client:
            await client.say("do look")
            (text,) = await heard(client)
        assert "belongs to the agent itself" in text
        assert "pegasus.toml" not in text
        assert daemon.token not in text


EDIT = {"path": "swapped", "old_string": "harm", "new_string": "evil"}
GREP = {"path": ".", "pattern": "."}


def swap(path, *targets):
    """Exchange what stands under a name, as fast as it goes, until the event is set: links to these, and the file that it was."""
    stop, text = threading.Event(), path.read_text()

    def run():
        aside = path.with_name("aside")
        while not stop.is_set():
            for target in targets:
                aside.symlink_to(target)
                aside.replace(path)
            aside.write_text(text)
            aside.replace(path)
            stop.wait(0.0005)  # others need the processor too

    thread = threading.Thread(target=run)
    thread.start()
    return stop, thread


async def test_links_out_of_the_workspace_lead_nowhere_also_if_they_are_swapped_in_between_check_and_use(tmp_path):
    """Symbolic and hard links to the token, and a file that becomes such a link and a file again while the tools use it."""
    book, seen = Office(), []

    def keep(view):
        seen.extend(view.results)
        return answer("done")

    async with serving(tmp_path, book, WALLS) as daemon:
        workspace, token = daemon.home / "workspace", daemon.home / "token"
        (workspace / "soft").symlink_to(token)
        (workspace / "folder").symlink_to(daemon.home)
        os.link(token, workspace / "hard")
        swapped = workspace / "swapped"
        swapped.write_text("harmless")
        still = [Call("read_file", {"path": path}) for path in ("soft", "hard", "folder/token", "../token")]
        still += [Call("write_file", {"path": path, "content": "evil"}) for path in ("soft", "hard", "folder/token")]
        moving = [Call("read_file", {"path": "swapped"}), Call("edit_file", EDIT), Call("grep_files", GREP)] * 7
        book.jobs["look"] = [act(*still, *moving), keep]
        stop, thread = swap(swapped, token, daemon.home / "pegasus.toml")
        try:
            async with daemon.client() as client:
                await client.say("do look")
                assert await heard(client) == ["completed: done"]
        finally:
            stop.set()
            thread.join()
        assert len(seen) == len(still) + len(moving)
        assert all(result.startswith("Error") for result in seen[: len(still)])
        assert not [result for result in seen if daemon.token in result or "[gateway]" in result]
        assert token.read_text().strip() == daemon.token
        assert "evil" not in (daemon.home / "pegasus.toml").read_text()
        assert below(daemon.pid) == set()


async def test_a_hostile_command_is_gone_when_stop_is_answered(tmp_path, walled):
    """200 children, a new session, an empty environment, a stopped guard: the answer to /stop says that it has ended."""
    work = Effects(tmp_path)
    attack = (
        "for i in $(seq 200); do sleep 600 & done; trap '' TERM HUP; kill -STOP $PPID 1; kill -9 $PPID 1; "
        'setsid sh -c "trap \'\' TERM HUP; sleep 600" & rm -rf "$PWD"; exec >&- 2>&-; echo up >> effects; wait; sleep 600'
    )
    name, _, value = work.mark.partition("=")
    book = Office({"attack": [act(Call("shell_exec", {"command": attack, "env": {name: value}})), answer("never")]})
    async with serving(tmp_path, book, WALLS, env=walled) as daemon, daemon.client() as client:
        await client.say("do attack")
        await until(lambda: len(work.processes()) > 200, "200 children")
        await client.say("/stop")
        await client.reply()
        assert work.processes() == []


ATTACKS = {
    "forks 200 children": "for i in $(seq 200); do sleep 600 & done; wait",
    "closes its output and goes on": "exec <&- >&- 2>&-; while :; do sleep 600; done",
    "deletes its own folder": 'mkdir here && cd here && rm -rf "$PWD" && sleep 600',
    "kills its guard": "kill -9 $PPID 1 2>/dev/null; setsid env -i sleep 600 & sleep 600",
    "stops its guard": "kill -STOP $PPID 1 2>/dev/null; setsid sleep 600 & sleep 600",
    "ignores every signal": "trap '' TERM HUP INT QUIT; setsid sh -c \"trap '' TERM HUP; sleep 600\" & while :; do sleep 600; done",
}


def score_of(pid):
    """How soon the kernel ends a process when memory is short."""
    return Path(f"/proc/{pid}/oom_score_adj").read_text()


@pytest.mark.parametrize("attack", ATTACKS)
async def test_nothing_of_a_misbehaving_command_is_left_when_stop_is_answered(tmp_path, walled, attack):
    work = Effects(tmp_path)
    name, _, value = work.mark.partition("=")
    call = Call("shell_exec", {"command": f"echo > up; {ATTACKS[attack]}", "env": {name: value}})
    book = Office({"attack": [act(call), answer("never")]})
    async with serving(tmp_path, book, WALLS, env=walled) as daemon, daemon.client() as client:
        await client.say("do attack")
        await until((daemon.home / "workspace" / "up").exists, "the command")
        await until(lambda: len(work.processes()) > (200 if "200" in attack else 0), "the processes of the command")
        tree = below(daemon.pid)
        assert tree
        assert {score_of(pid) for pid in work.processes()} == {"800\n"}, "the kernel ends it before the daemon"
        await client.say("/stop")
        while "attack" not in (await client.reply())["text"]:
            pass  # what the agent says of the task's end may come first
        assert work.processes() == []
        await gone(tree)


@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("head -c 1073741824 /dev/zero | tr '\\0' x; sleep 600", "ended because it wrote more than 256 MiB"),
        ("for i in $(seq 300); do sleep 600 & done; wait", "ended because it had more than 256 processes"),
        (
            f"{sys.executable} -c 'import os, signal; os.fork(); x = os.urandom(150 << 20); signal.pause()'",
            "more than 200 MB",
        ),
    ],
)
async def test_a_command_that_uses_too_much_is_ended_and_told_why(tmp_path, walled, command, note):
    work = Effects(tmp_path)
    name, _, value = work.mark.partition("=")
    result, _, _ = await attacked(
        tmp_path, walled, lambda _: command, {"sandbox.memory_mb": 200, "tools.timeout": 100}, env={name: value}
    )
    assert note in result["note"]
    assert work.processes() == []


async def test_walls_that_are_required_are_full_or_the_start_fails(tmp_path, no_bubblewrap):
    """Exit code 78, and the setting by name. Landlock is enough where nothing gets through it."""
    settings = {"models.default": "offline/stand-in", "sandbox.mode": "require"}
    if can_make_mounts():
        async with serving(tmp_path, Office(), settings, env=no_bubblewrap) as daemon, daemon.client() as client:
            assert (await client.call("status"))["sandbox"]["state"] == "full"
    else:
        daemon = Daemon(tmp_path / "home", settings, env=no_bubblewrap)
        with pytest.raises(Exited) as ended:
            await daemon.start()
        assert ended.value.code == 78
        assert "sandbox.mode" in ended.value.stderr


async def test_walls_that_are_required_and_partial_do_not_count(tmp_path):
    """As bubblewrap is on a machine where something gets through; the trial says so here."""
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho limits\n")
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    daemon = Daemon(tmp_path / "home", {"models.default": "offline/stand-in", "sandbox.mode": "require"}, env=env)
    with pytest.raises(Exited) as ended:
        await daemon.start()
    assert ended.value.code == 78
    assert "sandbox.mode" in ended.value.stderr
    assert "partial" in ended.value.stderr


async def test_weaker_walls_are_told_at_the_start_and_in_status(tmp_path, no_bubblewrap):
    async with serving(tmp_path, Office(), WALLS, env=no_bubblewrap) as daemon:
        assert daemon.stderr.count("bwrap: it is broken") == 1
        assert "Walls" in (await daemon.command("status")).out
        async with daemon.client() as client:
            assert "Note: walls around commands" in await client.ask("/status")


async def test_the_doctor_finds_a_running_agent_and_its_walls(tmp_path):
    async with serving(tmp_path, Office(), WALLS) as daemon:
        found = json.loads((await daemon.command("doctor", "--json")).out)["findings"]
        by_check = {finding["check"]: finding for finding in found}
        assert "answers at" in by_check["ports"]["text"]
        assert by_check["sandbox"]["text"].startswith("walls around commands: ")


async def test_temporary_files_of_a_killed_daemons_commands_are_removed_by_the_next(tmp_path):
    work = Effects(tmp_path)
    name, _, value = work.mark.partition("=")
    call = Call("shell_exec", {"command": 'touch "$TMPDIR/left"; echo > up; sleep 600', "env": {name: value}})
    book = Office({"attack": [act(call), answer("never")]})
    async with serving(tmp_path, book, {**WALLS, "tasks.recovery": "fail"}) as daemon:
        async with daemon.client() as client:
            await client.say("do attack")
            await until((daemon.home / "workspace" / "up").exists, "the command")
        daemon.kill()
        await until(lambda: work.processes() == [], "the end of the command")
        await daemon.start()
        await until(lambda: not list((daemon.home / "run").glob("commands*/*")), "the end of its files")
