"""Tokens of MCP servers are known as secrets, as long as they are in the home."""

import errno
import os
from pathlib import Path

import pytest

from pegasus.mcp import TokenFile
from pegasus.redaction import SecretFolder

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
