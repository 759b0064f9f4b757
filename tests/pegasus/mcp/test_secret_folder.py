"""Tokens of MCP servers are known as secrets, as long as they are in the home."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from pegasus.mcp import TokenFile
from pegasus.mcp.server import McpServer
from pegasus.redaction import SecretFolder
from pegasus.settings import McpServerSettings
from pegasus.tools import ResultWithImages, ToolContext

TOKENS = {
    "access_token": "first-access-token",
    "token_type": "Bearer",
    "refresh_token": "the-refresh-token",
    "scope": "everything-there-is",
}


def test_secrets_are_found_wherever_they_stand(tmp_path):
    secrets = SecretFolder(tmp_path / "mcp")
    assert secrets.read() == ()
    client = {
        "client_id": "an-id-of-a-client",
        "client_secret": "the-client-secret",
        "token_endpoint": "https://x.example/token",
    }
    TokenFile(tmp_path / "mcp/a.json").write({"tokens": TOKENS, "client": client})
    assert set(secrets.read()) == {"first-access-token", "the-refresh-token", "the-client-secret"}


def test_a_token_that_was_renewed_is_known_and_one_that_was_removed_is_not(tmp_path):
    secrets, file = SecretFolder(tmp_path), TokenFile(tmp_path / "a.json")
    file.write({"tokens": TOKENS})
    assert "first-access-token" in secrets.read()
    file.write({"tokens": {**TOKENS, "access_token": "other-access-token"}})
    assert "other-access-token" in secrets.read()
    file.remove()
    assert secrets.read() == ()


def test_a_file_that_has_not_changed_is_not_read_again(tmp_path, monkeypatch):
    secrets = SecretFolder(tmp_path)
    TokenFile(tmp_path / "a.json").write({"tokens": TOKENS})
    before = secrets.read()
    monkeypatch.setattr(Path, "read_bytes", lambda self: 1 / 0)
    assert secrets.read() == before


async def test_a_result_of_a_server_does_not_hold_the_token_that_it_was_sent(tmp_path):
    """Nor one that has been renewed since the server started."""
    server = McpServer("web", McpServerSettings(url="https://x.example", auth="oauth"), ToolContext(), tmp_path)
    tool = SimpleNamespace(spec=SimpleNamespace(name="web__hello"))

    async def work(*_):
        return ResultWithImages({"text": "hello, you sent Bearer first-access-token, then renewed-access-token"}, ())

    async with trio.open_nursery() as nursery:
        server._open, server._work = (object(), nursery), work
        for token in ("first-access-token", "renewed-access-token"):
            TokenFile(tmp_path / "web.json").write({"tokens": {**TOKENS, "access_token": token}})
            made = await server.call(tool, {}, ToolContext())
            assert token not in str(made.result)


def test_damaged_files_and_other_things_are_passed_over(tmp_path):
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").mkdir()
    os.mkfifo(tmp_path / "c.json")
    (tmp_path / "d.txt").write_text('{"access_token": "not-one-of-ours"}')
    assert SecretFolder(tmp_path).read() == ()


def test_what_is_known_stays_secret_while_the_folder_cannot_be_read(tmp_path, monkeypatch):
    secrets = SecretFolder(tmp_path)
    TokenFile(tmp_path / "a.json").write({"tokens": TOKENS})
    before = secrets.read()
    monkeypatch.setattr(os, "scandir", refuse)
    assert secrets.read() == before != ()


@pytest.mark.parametrize(("owner", "name"), [(os, "stat"), (Path, "read_bytes")])
def test_what_is_known_stays_secret_while_its_file_cannot_be_read(tmp_path, monkeypatch, owner, name):
    secrets, file = SecretFolder(tmp_path), TokenFile(tmp_path / "a.json")
    file.write({"tokens": TOKENS})
    before = secrets.read()
    file.write({"tokens": {**TOKENS, "access_token": "other-access-token"}})
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, refuse)
        assert secrets.read() == before
    assert "other-access-token" in secrets.read()


def test_a_file_that_could_not_be_read_at_first_is_read_again(tmp_path, monkeypatch):
    secrets = SecretFolder(tmp_path)
    TokenFile(tmp_path / "a.json").write({"tokens": TOKENS})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)
        assert secrets.read() == ()
    assert "first-access-token" in secrets.read()


def refuse(*args, **kwargs):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
