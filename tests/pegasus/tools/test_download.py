"""The tool download, against a server on loopback."""

import gzip
import hashlib
import json
import os
from types import SimpleNamespace

import pytest
import trio

from pegasus.tools import Effect, base_context
from pegasus.tools.files import incoming
from pegasus.tools.web.addresses import AddressGuard
from pegasus.tools.web.download import download_tool, name_of, plain_name
from tests.pegasus.tools.calling import run_tool
from tests.pegasus.tools.web import answer_of, open_web, redirect

MIB = 1 << 20


@pytest.fixture
async def web():
    async with open_web() as web:
        yield web


@pytest.fixture
def get(web, workspace):
    async def get(most=10 * MIB, guard=None, **arguments):
        tool = download_tool(guard or web.guard(), most)
        context = base_context(workspace, (), 128_000)
        outcome = await run_tool(tool, {"url": web.url("/a.bin"), **arguments}, 60.0, context)
        return outcome.content if outcome.failed else json.loads(outcome.content)

    return get


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def until_begun(folder):
    with trio.fail_after(10):
        while True:
            if files(folder):
                return
            await trio.sleep(0.01)


def test_it_is_not_repeated_unasked():
    assert download_tool(AddressGuard(), 1).effect is Effect.ONCE


async def test_an_address_becomes_a_file(web, get, workspace):
    data = os.urandom(3 * MIB)
    web.answers["/a.bin"] = answer_of(data, content_type="application/zip; x=y")
    result = await get()
    digest = hashlib.sha256(data).hexdigest()
    assert result == {
        "url": web.url("/a.bin"), "path": "downloads/a.bin", "size": 3 * MIB, "sha256": digest, "type": "application/zip"
    }  # fmt: skip
    assert (workspace / "downloads/a.bin").read_bytes() == data
    assert files(workspace) == ["downloads/a.bin"]


async def test_an_empty_body_is_an_empty_file(web, get, workspace):
    web.answers["/a.bin"] = answer_of(b"")
    assert (await get())["size"] == 0
    assert (workspace / "downloads/a.bin").read_bytes() == b""


@pytest.mark.parametrize("path", ["AGENTS.md", "./soul.MD", "new/../USER.md", "link"])
@pytest.mark.parametrize("exists", [True, False])
async def test_a_page_does_not_become_a_part_of_every_prompt(web, get, workspace, path, exists):
    (workspace / "link").symlink_to("IDENTITY.md")
    if exists:
        (workspace / "IDENTITY.md").touch()
    web.answers["/a.bin"] = answer_of(b"evil")
    assert "part of every prompt" in await get(path=path, overwrite=True)
    assert not any(file.stat().st_size for file in workspace.iterdir() if file.is_file())


async def test_nor_does_a_server_choose_such_a_name(web, get, workspace):
    web.answers["/a.bin"] = answer_of(b"evil", content_disposition='attachment; filename="AGENTS.md"')
    assert "part of every prompt" in await get(path="./")
    assert files(workspace) == []
    assert (await get(path="new/"))["path"] == "new/AGENTS.md"


@pytest.mark.parametrize("path", [".vscode/tasks.json", ".envrc", "sub/.git/hooks/pre-commit", "link"])
async def test_a_page_does_not_become_what_programs_run_by_themselves(web, get, workspace, path):
    (workspace / "link").symlink_to(".npmrc")
    web.answers["/a.bin"] = answer_of(b"evil")
    assert "by themselves" in await get(path=path, overwrite=True)
    assert files(workspace) == []


async def test_what_is_compressed_on_the_way_is_unpacked(web, get, workspace):
    web.answers["/a.bin"] = answer_of(gzip.compress(b"x" * MIB), content_encoding="gzip")
    assert (await get())["size"] == MIB
    assert (workspace / "downloads/a.bin").read_bytes() == b"x" * MIB


@pytest.mark.parametrize(
    ("path", "place"),
    [("b.txt", "b.txt"), ("new/b.txt", "new/b.txt"), ("new/", "new/a.bin"), (".", "a.bin"), ("old", "old/a.bin")],
)
async def test_where_it_is_saved(web, get, workspace, path, place):
    (workspace / "old").mkdir()
    web.answers["/a.bin"] = answer_of(b"x")
    assert (await get(path=path))["path"].removeprefix("./") == place
    assert files(workspace) == [place]


# ------------------------------------------------------------------ files that are there


async def test_an_existing_file_stays_and_nothing_is_asked_for(web, get, workspace):
    (workspace / "b.txt").write_text("mine")
    assert "exists already" in await get(path="b.txt")
    assert web.seen == []
    assert (workspace / "b.txt").read_text() == "mine"


async def test_an_existing_file_is_replaced_if_asked_for(web, get, workspace):
    (workspace / "b.txt").write_text("old")
    web.answers["/a.bin"] = answer_of(b"new")
    await get(path="b.txt", overwrite=True)
    assert (workspace / "b.txt").read_text() == "new"


async def test_a_proposed_name_that_is_taken_gets_a_number(web, get, workspace):
    web.answers["/a.bin"] = answer_of(b"x")
    assert [(await get())["path"] for _ in range(3)] == ["downloads/a.bin", "downloads/a-2.bin", "downloads/a-3.bin"]


async def test_a_file_that_appears_meanwhile_stays(web, get, workspace):
    async def slow(stream, request):
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
        (workspace / "b.txt").write_text("mine")
        await stream.send_all(b"cd")

    web.answers["/a.bin"] = slow
    assert "exists already" in await get(path="b.txt")
    assert (workspace / "b.txt").read_text() == "mine"
    assert files(workspace) == ["b.txt"]


@pytest.mark.parametrize("path", ["../out.txt", "/etc/cron.d/x", "link/x", "~/x", "/proc/self/x"])
async def test_outside_of_the_workspace_nothing_is_saved(web, get, workspace, tmp_path, path):
    (workspace / "link").symlink_to(tmp_path)
    web.answers["/a.bin"] = answer_of(b"x")
    assert (await get(path=path)).startswith("Error:")
    assert web.seen == []
    assert files(workspace) == []


async def test_other_allowed_folders_are_not_for_downloads(web, workspace, tmp_path):
    (tmp_path / "other").mkdir()
    context = base_context(workspace, [str(tmp_path / "other"), str(workspace)], 128_000)
    arguments = {"url": web.url("/a.bin"), "path": str(tmp_path / "other/x")}
    outcome = await run_tool(download_tool(web.guard(), MIB), arguments, 60.0, context)
    assert "is outside of what tools may touch" in outcome.content
    assert files(tmp_path / "other") == []


async def test_a_folder_that_is_exchanged_for_a_link_during_the_download_leads_nowhere(web, get, workspace, tmp_path):
    (tmp_path / "outside").mkdir()

    async def slow(stream, request):
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2000002\r\n\r\n" + b"x" * 2_000_000)
        await until_begun(workspace)
        (workspace / "downloads").rename(workspace / "moved")
        (workspace / "downloads").symlink_to(tmp_path / "outside")
        await stream.send_all(b"ab")

    web.answers["/a.bin"] = slow
    await get()
    assert files(tmp_path / "outside") == []


# ------------------------------------------------------------------ what is not saved


@pytest.mark.parametrize("status", ["404 Not Found", "500 Internal Server Error", "204 No Content"])
async def test_only_a_success_is_saved(web, get, workspace, status):
    web.answers["/a.bin"] = answer_of(b"", status) if "204" not in status else b"HTTP/1.1 204 No Content\r\n\r\n"
    assert status in await get()
    assert files(workspace) == []


async def test_a_file_that_is_too_large_by_its_own_account_is_not_begun(web, get, workspace):
    web.answers["/a.bin"] = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx"
    assert "tools.max_download_mb" in await get()
    assert files(workspace) == []


async def test_a_file_without_an_end_is_cut_off_and_removed(web, get, workspace):
    sent = 0

    async def endless(stream, request):
        nonlocal sent
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(500):
            await stream.send_all(b"x" * MIB)
            sent += 1

    web.answers["/a.bin"] = endless
    assert "more than 3,145,728 bytes" in await get(most=3 * MIB)
    assert sent < 100
    assert files(workspace) == []


async def test_a_compression_bomb_is_cut_off(web, get, workspace):
    web.answers["/a.bin"] = answer_of(gzip.compress(b"\0" * 100 * MIB, 9), content_encoding="gzip")
    assert "more than 3,145,728 bytes" in await get(most=3 * MIB)
    assert files(workspace) == []


@pytest.mark.parametrize(
    "body",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8bxx",
    ],
)
async def test_a_download_that_breaks_off_leaves_nothing(web, get, workspace, body):
    web.answers["/a.bin"] = body
    assert (await get()).startswith("Error:")
    assert files(workspace) == []


async def test_a_full_disk_is_noticed_before(web, get, workspace, monkeypatch):
    monkeypatch.setattr(incoming.os, "fstatvfs", lambda fd: SimpleNamespace(f_bavail=MIB, f_frsize=100))
    web.answers["/a.bin"] = answer_of(b"x")
    assert "too few for downloads/a.bin" in await get()
    assert files(workspace) == []


async def test_a_disk_that_gets_full_is_noticed_on_the_way(web, get, workspace, monkeypatch):
    left = iter([10_000 * MIB] * 2 + [MIB] * 9)
    monkeypatch.setattr(incoming.os, "fstatvfs", lambda fd: SimpleNamespace(f_bavail=next(left), f_frsize=1))
    web.answers["/a.bin"] = answer_of(b"x" * 60 * MIB)
    assert "too few" in await get(most=100 * MIB)
    assert files(workspace) == []


async def test_a_cancelled_download_leaves_nothing(web, get, workspace):
    async def drip(stream, request):
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2 * MIB)
        while True:
            await stream.send_all(b"x")
            await trio.sleep(0.01)

    web.answers["/a.bin"] = drip
    with trio.move_on_after(3.0) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(get)
            await until_begun(workspace)
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert files(workspace) == []


async def test_remains_of_a_killed_process_are_removed_by_the_next_download(web, get, workspace):
    (workspace / "downloads").mkdir()
    names = [".0123456789abcdef.download", ".fedcba9876543210.download", ".mine.download", "0123456789abcdef.download"]
    for name in names:
        (workspace / "downloads" / name).write_text("x")
        if name != names[1]:
            os.utime(workspace / "downloads" / name, (0, 0))
    web.answers["/a.bin"] = answer_of(b"x")
    await get()
    assert files(workspace) == sorted(f"downloads/{name}" for name in (*names[1:], "a.bin"))


async def test_a_redirect_into_the_private_network_is_refused(web, get, workspace):
    web.answers["/a.bin"] = redirect("http://192.168.0.1/a.bin")
    assert "is refused" in await get()
    assert files(workspace) == []


async def test_a_host_that_is_not_in_the_list_is_refused(web, get, workspace):
    assert "tools.web_hosts" in await get(guard=AddressGuard(["127.0.0.1"], only=["good.example"]))


# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ('attachment; filename="report 1.pdf"', "report 1.pdf"),
        ("attachment; filename=report.pdf", "report.pdf"),
        ("attachment; filename=x.txt; filename*=UTF-8''na%C3%AFve.txt", "naïve.txt"),
        ("attachment; filename*=unicode_escape''a%5Cu0041.txt", "b.zip"),
        ('attachment; filename="../../.ssh/authorized_keys"', "authorized_keys"),
        ('attachment; filename="..\\\\..\\\\evil.exe"', "evil.exe"),
        ('attachment; filename=".bashrc"', "bashrc"),
        ('attachment; filename="-rf"', "rf"),
        ('attachment; filename="a;$(rm) `x`.txt"', "a__(rm) _x_.txt"),
        ('attachment; filename=""', "b.zip"),
        ('attachment; filename="/"', "download"),
        ("attachment", "b.zip"),
        ("", "b.zip"),
    ],
)
def test_the_name_of_a_file(disposition, name):
    assert name_of("https://example.org/a/b.zip?x=1#y", {"content-disposition": disposition}) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a\x1b[31mb\u202egpj.exe", "a[31mbgpj.exe"),
        ("", "download"),
        ("...", "download"),
        ("a" * 500 + ".tar", "a" * 146 + ".tar"),
        ("ä" * 200 + ".txt", "ä" * 73 + ".txt"),
        ("a\0b\nc", "abc"),
        (" x . ", "x"),
    ],
)
def test_a_plain_name(text, name):
    assert plain_name(text) == name
