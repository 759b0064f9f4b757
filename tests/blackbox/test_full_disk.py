"""A disk that is full, and then is not: nobody is told that something is safe which is not, and nothing accepted is lost.

Two ways to fill it. `limit`: RLIMIT_FSIZE of the running process, set from outside, so that every write beyond it is cut in
the middle and fails (EFBIG); works everywhere. `tmpfs`: a home on a file system of a megabyte (ENOSPC); where mounting is allowed.
"""

from __future__ import annotations

import os
import resource
import subprocess
from contextlib import contextmanager

import pytest

from tests.blackbox.support import Book, open_calls, refuse, say, serving, session, until

LARGE = "large" * 2000
"""More than what may be left in the last page of a file."""

UNLIMITED = resource.RLIM_INFINITY


@contextmanager
def no_room_by_limit(daemon):
    """No file of the daemon can grow beyond what the smallest of the journal's files has now, and a few bytes."""
    files = [path for path in (daemon.home / "data").rglob("*") if path.is_file()]
    size = min(path.stat().st_size for path in files) + 10
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (size, UNLIMITED))
    try:
        yield
    finally:
        if daemon.alive:
            resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))


@contextmanager
def no_room_by_ballast(daemon):
    """A file that takes what is left of the file system."""
    ballast = daemon.home / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        yield
    finally:
        ballast.unlink()


@pytest.fixture
def small(tmp_path):
    """A folder whose `home` is a file system of a megabyte; None where mounting is not allowed."""
    folder = tmp_path / "small"
    (folder / "home").mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder / "home")]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder / "home")], check=True)


@pytest.fixture
def disk(small, tmp_path):
    """(folder for the home, how to fill its disk)."""
    return (tmp_path, no_room_by_limit) if small is None else (small, no_room_by_ballast)


@pytest.fixture(params=["limit", "tmpfs"])
def each_disk(request, tmp_path):
    """As `disk`, both ways, one after the other."""
    if request.param == "limit":
        return tmp_path, no_room_by_limit
    small = request.getfixturevalue("small")
    if small is None:
        pytest.skip("mounting a tmpfs is not allowed here")
    return small, no_room_by_ballast


@pytest.mark.files("the disk of the home is full")
async def test_a_message_that_cannot_be_stored_is_refused_and_can_be_sent_again(disk):
    folder, no_room = disk
    async with serving(folder, book := Book()) as daemon, daemon.client() as client:
        await client.ask("before")
        with no_room(daemon):
            await client.post(LARGE, id="m-1")
            error = await client.get("accepted", "error", id="m-1")
            assert (error["type"], error["code"]) == ("error", "internal")
            assert "Traceback" not in error["message"]
            assert await client.call("status")
        assert await client.ask(LARGE, id="m-1") == f"echo: {LARGE}"
        assert len(book.about(LARGE)) <= 2, "it may be thought about while it is written"
        assert await client.ask("after") == "echo: after"
        assert client.texts() == ["echo: before", f"echo: {LARGE}", "echo: after"]


@pytest.mark.files("the disk of the home is full")
async def test_the_error_says_why(disk):
    folder, no_room = disk
    async with serving(folder, Book()) as daemon, daemon.client() as client:
        await client.ask("before")
        with no_room(daemon):
            await client.post(LARGE, id="m-1")
            error = await client.get("error", id="m-1")
        assert any(word in error["message"].lower() for word in ("space", "large", "disk", "full")), error


@pytest.mark.files("the disk of the home is full")
async def test_a_thought_waits_until_there_is_room_again(each_disk):
    """Accepted, thought about, and then the disk is full: the reply comes once there is room, and once only."""
    folder, no_room = each_disk
    async with serving(folder, book := Book({"hello": say(LARGE)})) as daemon, daemon.client() as client:
        await client.ask("before")
        book.hold()
        await client.say("hello")
        await book.waiting()
        with no_room(daemon):
            book.release()
            await until(lambda: "disk" in daemon.stderr.lower(), "a log line about the disk")
            assert client.texts() == ["echo: before"]
            assert (await client.call("status"))["waiting"] == 1
        assert (await client.reply(timeout=25))["text"] == LARGE
        assert await client.ask("after") == "echo: after"
        assert len(book.about("hello")) == 1
        await until(lambda: open_calls(session(daemon.home)) == [], "a well-formed session")


@pytest.mark.files("the disk of the home is full")
async def test_killed_while_the_disk_was_full(each_disk):
    """What was torn by the full disk is repaired at the next start, and what was accepted is answered."""
    folder, no_room = each_disk
    async with serving(folder, book := Book({"hello": say(LARGE)})) as daemon:
        async with daemon.client() as client:
            await client.ask("before")
            book.hold()
            await client.say("hello")
            await book.waiting()
            with no_room(daemon):
                book.release()
                await until(lambda: "disk" in daemon.stderr.lower(), "a log line about the disk")
                await client.post(LARGE, id="m-9")
                await client.get("error", id="m-9")
                daemon.kill()
        await daemon.start()
        async with daemon.client(lastSeq=1) as client:
            assert (await client.reply())["text"] == LARGE
            assert await client.ask(LARGE, id="m-9") == f"echo: {LARGE}"
        await until(lambda: open_calls(session(daemon.home)) == [], "a well-formed session")


async def test_a_start_on_a_full_disk_says_so(disk):
    folder, no_room = disk
    if no_room is no_room_by_limit:
        pytest.skip("mounting a tmpfs is not allowed here, and a limit can be set only on a process that runs")
    async with serving(folder, Book(), start=False) as daemon:
        await daemon.start()
        async with daemon.client() as client:
            await client.ask("before")
        assert await daemon.stop() == 0
        with no_room(daemon):
            daemon.spawn()
            code = await daemon.exit()
            assert code in (1, 78)
            assert "space" in daemon.stderr
            assert "Traceback" not in daemon.stderr
        await daemon.start()
        async with daemon.client(lastSeq=1) as client:
            assert await client.ask("after") == "echo: after"


async def test_the_log_does_not_take_the_daemon_down(disk):
    folder, no_room = disk
    async with (
        serving(folder, book := Book({"hello": refuse(400)}), {"log.level": "debug"}) as daemon,
        daemon.client() as client,
    ):
        await client.ask("before")
        with no_room(daemon):
            for n in range(50):
                await client.post(f"refused {n} {LARGE}", id=f"r{n}")
                await client.get("error", "accepted", id=f"r{n}")
            await client.fence()
        assert book.asked
        assert await client.ask("after") is not None
