"""Backups of a real agent: made while it is busy, restored, started; and what stops a backup or a migration in the middle."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager
from itertools import count

import pytest
import trio

from pegasus.host import FORMAT
from tests.blackbox.support import Exited, running, until
from tests.blackbox.support.command import PROGRAM, command

STAND_IN = {"models.default": "offline/stand-in"}


async def back_up(daemon, target, *options):
    return await daemon.command("backup", str(target), *options)


async def restore(source, home, *options):
    return await command("--home", str(home), "restore", str(source), *options)


def accepted_by(home, name=""):
    """Ids of messages in the inbox; it may be written at the moment, so that the last line counts only if it is whole."""
    content = (home / "data/inbox/inbox.jsonl").read_bytes()
    records = map(json.loads, content[: content.rfind(b"\n") + 1].splitlines())
    return {
        record["message"]["id"]
        for record in records
        if record["type"] == "message" and record["message"]["id"].startswith(name)
    }


async def talk(daemon, name, answers):
    """Say one thing after another, and keep the answers by seq."""
    async with daemon.client("web", name) as client:
        for n in count():
            await client.post(f"hello, number {n}", f"{name}-{n}")
            reply = await client.reply(timeout=30)
            answers[reply["seq"]] = reply
            await client.ack(reply)


@pytest.mark.deadline(90)
async def test_backups_of_a_busy_agent_lose_nothing_that_was_accepted_before_they_began(tmp_path):
    """Each message in a backup is answered exactly once: before it was made, or by the home that it was restored to."""
    names = ("anna", "ben", "cem")
    answers = {name: {} for name in names}
    backups = []
    async with running(tmp_path / "home", STAND_IN) as daemon, trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(talk, daemon, name, answers[name])
        await until(lambda: all(answers.values()), "the first answers")
        while len(backups) < 4:
            more = len(backups[-1][1]) if backups else 0
            await until(lambda more=more: len(accepted_by(daemon.home)) > more, "messages since the last backup")
            target, before = tmp_path / f"b{len(backups)}", accepted_by(daemon.home)
            done = await back_up(daemon, target)
            assert done.code == 0, done.err
            backups.append((target, before, {name: dict(heard) for name, heard in answers.items()}))
        nursery.cancel_scope.cancel()
    for n, (source, before, heard) in enumerate(backups):
        home = tmp_path / f"copy{n}"
        done = await restore(source, home)
        assert done.code == 0, done.err
        assert before <= accepted_by(home)
        async with running(home, STAND_IN) as copy:
            for name in names:
                accepted = accepted_by(home, name)
                # What was acknowledged before the backup is not sent again.
                got = {seq: frame for seq, frame in heard[name].items() if seq <= len(accepted)}
                async with copy.client("web", name, lastSeq=max(got, default=0)) as client:
                    while len(got) < len(accepted):
                        reply = await client.reply()
                        got[reply["seq"]] = reply
                        await client.ack(reply)
                    assert sorted(frame["metadata"]["inReplyTo"] for frame in got.values()) == sorted(accepted)
                    await client.say("good bye", id="last")
                    # What was answered at the time, but not before the moment of the backup, is answered here as well.
                    while (last := await client.reply())["metadata"]["inReplyTo"] != "last":
                        assert last["metadata"]["inReplyTo"] == got[last["seq"]]["metadata"]["inReplyTo"]
                    assert (last["metadata"]["inReplyTo"], last["seq"]) == ("last", len(accepted) + 1)
            doctor = await copy.command("doctor", "--json")
            assert doctor.code == 0, doctor.out


async def test_a_backup_brings_back_what_was_remembered_and_said(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon, daemon.client() as client:
        await client.ask("remember that I like tea")
        assert (await back_up(daemon, tmp_path / "b")).code == 0
    assert (await restore(tmp_path / "b", tmp_path / "copy")).code == 0
    async with running(tmp_path / "copy", STAND_IN) as copy, copy.client("web", "other") as client:
        assert "I like tea" in await client.ask("what do you remember?")
        assert "remember that I like tea" in (await copy.command("sessions", "show")).out


async def test_a_backup_needs_no_agent_and_no_settings_without_mistakes(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon:
        pass
    (daemon.home / "pegasus.toml").write_text("[gateway]\nport = true\n")
    assert (await back_up(daemon, tmp_path / "b")).code == 0


async def test_move_takes_the_token_and_is_always_encrypted(tmp_path):
    (tmp_path / "secret").write_text("open sesame\n")
    async with running(tmp_path / "home", STAND_IN) as daemon:
        refused = await daemon.command("move", str(tmp_path / "m"))
        assert (refused.code, (tmp_path / "m").exists()) == (2, False)
        done = await daemon.command("move", str(tmp_path / "m"), "--passphrase-file", str(tmp_path / "secret"))
        assert done.code == 0, done.err
        token = daemon.token
    assert token.encode() not in (tmp_path / "m").read_bytes()
    refused = await restore(tmp_path / "m", tmp_path / "copy")
    assert (refused.code, (tmp_path / "copy").exists()) == (1, False)
    done = await restore(tmp_path / "m", tmp_path / "copy", "--passphrase-file", str(tmp_path / "secret"))
    assert done.code == 0, done.err
    async with running(tmp_path / "copy", STAND_IN) as copy:
        assert copy.token == token


async def test_restore_into_makes_a_copy_and_leaves_the_home_alone(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon:
        assert (await back_up(daemon, tmp_path / "b")).code == 0
        into = await restore(tmp_path / "b", daemon.home)
        assert into.code == 1
        assert "another process" in into.err or "not empty" in into.err
        done = await restore(tmp_path / "b", daemon.home, "--into", str(tmp_path / "copy"))
        assert done.code == 0, done.err
    assert (tmp_path / "copy/data/VERSION").read_text() == f"{FORMAT}\n"


# ------------------------------------------------------------------ full disks, kills, folders without permission


@contextmanager
def small_disk(folder, size):
    """A file system of so many bytes; skipped where mounting is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
async def large(tmp_path):
    """A home that was started once, with three megabytes that do not shrink."""
    async with running(tmp_path / "home", STAND_IN) as daemon:
        pass
    (daemon.home / "workspace/large").write_bytes(os.urandom(3_000_000))
    return daemon


async def test_a_full_disk_leaves_the_backup_of_before(large, tmp_path):
    with small_disk(tmp_path / "small", "4m") as small:
        assert (await back_up(large, small / "b")).code == 0
        before = (small / "b").read_bytes()
        full = await back_up(large, small / "b")
        assert full.code == 1
        assert "No space left" in full.err
        assert [path.name for path in small.iterdir()] == ["b"]
        assert (small / "b").read_bytes() == before


async def test_a_full_disk_leaves_no_half_home(large, tmp_path):
    assert (await back_up(large, tmp_path / "b")).code == 0
    with small_disk(tmp_path / "small", "30m") as small:
        (small / "ballast").write_bytes(bytes(28_000_000))
        full = await restore(tmp_path / "b", small / "home")
        assert full.code == 1, full
        assert "MB are free" in full.err
        assert [path.name for path in small.iterdir()] == ["ballast"]


async def test_a_full_disk_in_the_middle_leaves_no_half_home(large, tmp_path, monkeypatch):
    """The room was there when the restore began: a limit on the size of files stands for a disk that others have filled since."""
    assert (await back_up(large, tmp_path / "b")).code == 0
    limited = ["bash", "-c", 'ulimit -f 2000; trap "" XFSZ; exec "$@"', "-", *PROGRAM]
    done = await trio.run_process(
        [*limited, "--home", str(tmp_path / "copy"), "restore", str(tmp_path / "b")],
        capture_stderr=True,
        check=False,
        env=large.env,
    )
    assert done.returncode == 1, done.stderr
    assert b"File too large" in done.stderr
    assert not (tmp_path / "copy").exists()


@pytest.mark.files("files of an older form are brought up to date")
async def test_a_full_disk_stops_a_migration_before_it_begins(tmp_path):
    with small_disk(tmp_path / "small", "5m") as small:
        async with running(small / "home", STAND_IN) as daemon:
            pass
        (daemon.home / "workspace/large").write_bytes(os.urandom(3_000_000))
        (daemon.home / "data/VERSION").write_text(f"{FORMAT - 1}\n")
        with pytest.raises(Exited) as end:
            await daemon.start()
        assert end.value.code == 1
        assert "nothing was changed" in end.value.stderr
        assert (daemon.home / "data/VERSION").read_text() == f"{FORMAT - 1}\n"
        assert list((daemon.home / "backups").iterdir()) == []
        (daemon.home / "workspace/large").unlink()
        await daemon.start()


@pytest.mark.deadline(60)
@pytest.mark.parametrize("what", ["backup", "restore"])
async def test_killed_at_any_time_and_done_again(large, tmp_path, what):
    assert (await back_up(large, tmp_path / "b")).code == 0
    target = tmp_path / "again" if what == "backup" else tmp_path / "copy"
    arguments = [what, str(target if what == "backup" else tmp_path / "b")]
    home = large.home if what == "backup" else target
    for pause in (0.15, 0.2, 0.25, 0.3, 0.35, 0.4):
        process = await trio.lowlevel.open_process(
            [*PROGRAM, "--home", str(home), *arguments], env=large.env, stderr=subprocess.DEVNULL
        )
        await trio.sleep(pause)
        process.kill()
        if await process.wait() == 0:
            break
        if what == "backup":
            if target.exists():  # it was killed after the last step, so the file is whole
                break
        elif (target / "data/VERSION").exists():
            if (target / "data/VERSION").read_text() == f"{FORMAT}\n":  # so is the home
                break
            refused = await command("--home", str(target), "run", "--no-cli")
            assert refused.code == 78, refused
    else:
        done = await command("--home", str(home), *arguments, env=large.env)
        assert done.code == 0, done.err
    if what == "backup":
        assert (await restore(target, tmp_path / "copy")).code == 0
        assert not list(tmp_path.glob(".*.part"))
    assert (tmp_path / "copy/workspace/large").read_bytes() == (large.home / "workspace/large").read_bytes()


async def test_a_folder_without_permission(large, tmp_path):
    """As root everything is allowed, so a file system that is mounted read-only takes its place."""
    assert (await back_up(large, tmp_path / "b")).code == 0
    with small_disk(tmp_path / "small", "4m") as small:
        await trio.run_process(["mount", "-o", "remount,ro", str(small)])
        assert (await back_up(large, small / "b")).code == 1
        assert (await restore(tmp_path / "b", small / "home")).code == 1
        assert list(small.iterdir()) == []


# ------------------------------------------------------------------ other versions


@pytest.mark.parametrize("ago", [1, 2])
async def test_a_home_of_an_older_version_is_backed_up_changed_and_can_go_back(tmp_path, ago):
    async with running(tmp_path / "home", STAND_IN) as daemon, daemon.client() as client:
        await client.ask("remember that I like tea")
    (daemon.home / "data/VERSION").write_text(f"{FORMAT - ago}\n")
    token = daemon.token
    await daemon.start()
    await daemon.stop()
    assert (daemon.home / "data/VERSION").read_text() == f"{FORMAT}\n"
    [backup] = (daemon.home / "backups").iterdir()
    assert (await restore(backup, tmp_path / "before")).code == 0
    assert (tmp_path / "before/data/VERSION").read_text() == f"{FORMAT - ago}\n"
    async with running(tmp_path / "before", STAND_IN) as old, old.client() as client:
        assert old.token == token
        assert "tea" in await client.ask("what do you remember?")


@pytest.mark.files("the form of the files is newer")
async def test_a_newer_home_is_refused_and_left_as_it_is(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon:
        pass
    (daemon.home / "data/VERSION").write_text(f"{FORMAT + 1}\n")
    with pytest.raises(Exited) as end:
        await daemon.start()
    assert end.value.code == 78
    assert f"found data of format {FORMAT + 1}" in end.value.stderr
    assert (await daemon.command("memory", "undo", "1")).code == 78
    doctor = await daemon.command("doctor")
    assert doctor.code == 1
    assert f"found data of format {FORMAT + 1}" in doctor.out
    assert (daemon.home / "data/VERSION").read_text() == f"{FORMAT + 1}\n"
