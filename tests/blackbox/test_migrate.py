"""A real agent moves into a PostgreSQL and back, and goes on where it was; a move that is killed in the middle has not happened."""

from __future__ import annotations

import shutil
import signal
import subprocess

import psycopg
import pytest
import trio

from tests.blackbox.support import running, until
from tests.blackbox.support.command import PROGRAM, command, environment
from tests.postgres_server import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

pytestmark = pytest.mark.files("the move itself, which begins with an agent on files")

STAND_IN = {"models.default": "offline/stand-in"}
LOGS = ("inbox/inbox.jsonl", "outbox/outbox.jsonl")


def files(data):
    """Content by name of what moves."""
    left_out = ("undo/", "memory/.index")
    found = {str(path.relative_to(data)): path for path in data.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith(left_out)}


async def migrate(home, target, *options):
    return await command("--home", str(home), "migrate", "--to", str(target), *options, timeout=60)


@pytest.mark.deadline(120)
async def test_an_agent_moves_into_a_database_and_back(tmp_path, postgres_server, postgres_url):
    home = tmp_path / "home"
    async with running(home, STAND_IN) as daemon:
        async with daemon.client("web", "anna") as client:
            await client.ask("remember that I like tea")
            await client.post("hello", "m-1")
            first = await client.reply()
        assert (
            await daemon.command("cron", "add", "0 9 * * *", "--prompt", "Good morning", "--channel", "web:anna")
        ).code == 0
        assert (await daemon.command("token", "add", "phone", "--type", "web")).code == 0
        refused = await migrate(home, postgres_url)
        assert (refused.code, "already runs Pegasus here" in refused.err) == (75, True)
    before = files(home / "data")

    # A database that nobody has moved into is not begun with beside files that have messages.
    forgotten = await command("--home", str(home), "--set", f"storage.url={postgres_url}", "run", "--no-cli")
    assert (forgotten.code, "the database of storage.url is empty" in forgotten.err) == (1, True), forgotten
    assert "Traceback" not in forgotten.err
    assert files(home / "data") == before

    moved = await migrate(home, postgres_url)
    assert (moved.code, moved.err) == (0, ""), moved.err
    counts = dict(line.rsplit(maxsplit=1) for line in moved.out.splitlines() if line[-1:].isdigit())
    assert (counts["jobs"], counts["tokens"]) == ("1", "1")
    assert files(home / "data") == before
    assert "It was there already." in (await migrate(home, postgres_url)).out

    back = tmp_path / "back"
    # Before an agent has used the database, every byte comes back, but what logs repeat.
    with_url = ("--set", f"storage.url={postgres_url}")
    assert (await migrate(home, back, *with_url)).code == 0
    again = files(back)
    assert {name: again[name] for name in again if name not in LOGS} == {
        name: before[name] for name in before if name not in LOGS
    }
    shutil.rmtree(back)

    shutil.rmtree(home / "data")
    (home / "pegasus.toml").unlink()
    async with running(home, STAND_IN | {"storage.url": postgres_url}) as daemon:
        async with daemon.client("web", "anna", lastSeq=first["seq"] - 1) as client:
            assert (await client.reply())["text"] == first["text"]
            await client.post("hello", "m-1")  # it is recognised, and answered by nobody
            await client.post("what do you remember?", "m-2")
            reply = await client.reply()
            assert (reply["seq"], "I like tea" in reply["text"]) == (first["seq"] + 1, True)
            await client.ack(reply)
        mirrored = home / "mirror/main/current.jsonl"
        await until(lambda: mirrored.exists() and "what do you remember?" in mirrored.read_text(), "the mirror")
        assert "I like tea" in next((home / "data/memory").rglob("*.md")).read_text()
        refused = await migrate(tmp_path / "other", back, *with_url)
        assert (refused.code, "running nodes" in refused.err, back.exists()) == (1, True, False)

    await check_commands_without_an_agent(home, tmp_path)
    postgres_server.execute("update pegasus.node set until = now()")  # it was killed, so its lease runs on
    assert (await migrate(home, back, *with_url)).code == 0
    shutil.rmtree(home / "data", ignore_errors=True)
    back.rename(home / "data")
    (home / "pegasus.toml").unlink()
    async with running(home, STAND_IN) as daemon:
        async with daemon.client("web", "anna", lastSeq=reply["seq"]) as client:
            await client.post("what do you remember?", "m-2")
            await client.post("and now?", "m-3")
            assert (await client.reply())["seq"] == reply["seq"] + 1
        assert "Good morning" in (await daemon.command("cron", "list")).out


async def check_commands_without_an_agent(home, tmp_path):
    """What only reads works while no node runs, what changes something says that it needs one; a backup has what the database has."""
    for words, expected in {
        ("cron", "list"): "Good morning",
        ("token", "list"): "phone",
        ("sessions", "show"): "what do you remember?",
        ("trace", "m-2"): "what do you remember?",
        ("memory", "search", "tea"): "I like tea",
        ("tasks", "list"): "",
    }.items():
        done = await command("--home", str(home), *words)
        assert (done.code, expected in done.out) == (0, True), (words, done)
    refused = await command("--home", str(home), "memory", "undo", "1")
    assert (refused.code, "no agent" in refused.err) == (1, True), refused
    backup, copy = tmp_path / "backup", tmp_path / "copy"
    (tmp_path / "secret").write_text("open sesame\n")
    secret = ("--passphrase-file", str(tmp_path / "secret"))
    assert (await command("--home", str(home), "backup", str(backup), *secret)).code == 0
    restored = await command("--home", str(copy), "restore", str(backup), *secret)
    assert (restored.code, "migrate --to ADDRESS" in restored.out) == (0, True), restored
    assert "what do you remember?" in (copy / "data/main/current.jsonl").read_text()
    exported = await command("--home", str(home), "export", str(tmp_path / "exported"))
    assert (exported.code, files(copy / "data")) == (0, files(tmp_path / "exported")), exported


async def test_a_move_that_is_killed_in_the_middle_has_not_happened(tmp_path, postgres_server, postgres_url):
    home = tmp_path / "home"
    async with running(home, STAND_IN) as daemon, daemon.client() as client:
        await client.ask("hello")
    # The move waits where it inserts the first line, so that it is killed in its transaction for certain.
    assert (await command("--home", str(home), "nodes", "--set", f"storage.url={postgres_url}")).code in (0, 1)
    with psycopg.connect(postgres_url) as blocker:
        blocker.execute("lock table pegasus.line in exclusive mode")
        arguments = [*PROGRAM, "--home", str(home), "migrate", "--to", postgres_url]
        process = await trio.lowlevel.open_process(arguments, env=environment(), stderr=subprocess.DEVNULL)
        waiting = "select count(*) from pg_locks where not granted and relation = 'pegasus.line'::regclass"
        await until(lambda: postgres_server.execute(waiting) == [(1,)], "the move inserts lines")
        process.kill()
        assert await process.wait() == -signal.SIGKILL
    await until(lambda: postgres_server.execute("select count(*) from pegasus.item") == [(0,)], "nothing is in it")
    assert (await migrate(home, postgres_url)).code == 0
    assert postgres_server.execute("select count(*) > 0 from pegasus.line") == [(True,)]


async def test_what_is_wrong_with_a_database_is_one_sentence_and_nothing_moves(tmp_path, postgres_server, postgres_url):
    home = tmp_path / "home"
    async with running(home, STAND_IN):
        pass
    port = postgres_server.port
    for url, words in {
        f"postgresql://agent@127.0.0.1:{port}/nowhere": 'database "nowhere" does not exist',
        f"postgresql://locked:wrong@127.0.0.1:{port}/postgres": "password",
        f"postgresql://locked:right%20pass-word@127.0.0.1:{port}/postgres": "too few rights",
    }.items():
        refused = await migrate(home, url)
        assert (refused.code, refused.err.count("\n"), words in refused.err) == (1, 1, True), refused.err
        assert "wrong" not in refused.err
        assert "right pass" not in refused.err
    refused = await migrate(home, tmp_path / "back")
    assert (refused.code, "files already" in refused.err) == (1, True)
    await migrate(home, postgres_url)
    postgres_server.execute("update pegasus.version set number = 99")
    refused = await migrate(home, tmp_path / "back", "--set", f"storage.url={postgres_url}")
    assert (refused.code, "start a newer program" in refused.err) == (1, True)
    assert not (tmp_path / "back").exists()
