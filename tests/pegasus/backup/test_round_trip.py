"""A backup brings back what was there, without secrets or with all of them."""

from __future__ import annotations

import os
import stat
import subprocess
from itertools import count

import pytest

from pegasus.backup import BackupError
from pegasus.host import FORMAT, Home, HomeError
from tests.pegasus.backup.conftest import AT, back_up, restore, tree, write


def test_everything_comes_back_but_secrets_and_what_is_made_again(home, tmp_path):
    made = back_up(home, tmp_path / "b")
    assert made.left_out == ()
    restored = restore(tmp_path / "b", tmp_path / "copy")
    secrets = {"token", "push.key", "mcp/server.json", "data/a2a/push.json"}
    left_out = secrets | {"logs/pegasus.log", "data/memory/.index.sqlite"}
    wanted = {path: content for path, content in tree(home.path).items() if path not in left_out}
    found = tree(tmp_path / "copy")
    assert found.pop("lock")
    assert found.pop("data/VERSION") == f"{FORMAT}\n".encode()
    assert found == wanted
    assert (restored.files, restored.created_at, restored.secrets) == (len(wanted), AT, False)


def test_with_a_passphrase_secrets_come_back_too(home, tmp_path):
    back_up(home, tmp_path / "b", "open sesame")
    content = (tmp_path / "b").read_bytes()
    assert b"the-token" not in content
    assert b"MANIFEST" not in content
    assert restore(tmp_path / "b", tmp_path / "copy", "open sesame").secrets
    assert (tmp_path / "copy/token").read_bytes() == b"the-token-of-the-owner\n"
    assert (tmp_path / "copy/mcp/server.json").exists()
    assert (tmp_path / "copy/push.key").exists()
    assert (tmp_path / "copy/data/a2a/push.json").exists()


@pytest.mark.parametrize("passphrase", ["wrong", None])
def test_a_wrong_passphrase_restores_nothing(home, tmp_path, passphrase):
    back_up(home, tmp_path / "b", "open sesame")
    with pytest.raises(BackupError, match="passphrase"):
        restore(tmp_path / "b", tmp_path / "copy", passphrase)
    assert not (tmp_path / "copy").exists()


def test_files_belong_to_their_owner_only_and_keep_their_time_and_their_right_to_run(home, tmp_path):
    os.utime(home.workspace / "notes.txt", (1_700_000_000, 1_700_000_000))
    back_up(home, tmp_path / "b")
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o600
    restore(tmp_path / "b", tmp_path / "copy")
    notes = (tmp_path / "copy/workspace/notes.txt").stat()
    assert (stat.S_IMODE(notes.st_mode), notes.st_mtime) == (0o600, 1_700_000_000)
    assert stat.S_IMODE((tmp_path / "copy/workspace/run.sh").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "copy/workspace").stat().st_mode) == 0o700


def test_links_within_a_folder_and_empty_folders_come_back_and_other_things_are_named(home, tmp_path):
    os.symlink("notes.txt", home.workspace / "near")
    os.symlink("/etc/passwd", home.workspace / "far")
    os.symlink("../pegasus.toml", home.workspace / "out")
    os.mkfifo(home.workspace / "pipe")
    (home.workspace / "empty/inner").mkdir(parents=True)
    (home.workspace / os.fsdecode(b"latin-\xe9")).write_bytes(b"1")
    made = back_up(home, tmp_path / "b")
    assert [line.partition(":")[0] for line in made.left_out] == [
        "workspace/far",
        r"'workspace/latin-\udce9'",
        "workspace/out",
        "workspace/pipe",
    ]
    restore(tmp_path / "b", tmp_path / "copy")
    assert os.readlink(tmp_path / "copy/workspace/near") == "notes.txt"
    assert (tmp_path / "copy/workspace/empty/inner").is_dir()


def test_names_and_contents_of_every_kind_come_back(home, tmp_path):
    contents = {
        "workspace/" + "long/" * 60 + "n" * 200: b"1",
        "workspace/Übung 1\n2.txt": b"",
        "workspace/zeros": bytes(3_000_000),
        "data/media/x.tmp-not": os.urandom(1_500_001),
    }
    for path, content in contents.items():
        write(home, path, content)
    back_up(home, tmp_path / "b", "p")
    restore(tmp_path / "b", tmp_path / "copy", "p")
    assert {path: (tmp_path / "copy" / path).read_bytes() for path in contents} == contents


def test_a_medium_that_was_damaged_in_the_home_is_backed_up_as_it_is(home, tmp_path):
    place = write(home, f"data/media/{'0' * 64}.png", b"not what the name says")
    back_up(home, tmp_path / "b")
    assert restore(tmp_path / "b", tmp_path / "copy").damaged == (str(place.relative_to(home.path)),)
    assert (tmp_path / "copy" / place.relative_to(home.path)).read_bytes() == b"not what the name says"


def test_tar_and_zstd_unpack_it_and_the_manifest_is_first(home, tmp_path):
    back_up(home, tmp_path / "b")
    names = subprocess.run(
        f"zstd -dc {tmp_path / 'b'} | tar -t", shell=True, capture_output=True, text=True, check=False
    )
    if names.returncode == 127 or "zstd: not found" in names.stderr:
        pytest.skip("zstd is not installed")
    assert names.stdout.splitlines()[0] == "MANIFEST.json"
    assert "data/main/current.jsonl" in names.stdout.splitlines()


def test_secrets_leave_the_settings_and_files_that_hold_them(home, tmp_path):
    key = "sk-ant-api03-abcdefghijklmnop1234"
    write(
        home,
        "pegasus.toml",
        f"""\
# the old one was {key}
[providers.anthropic]
api_key = "{key}"  # mine
base_url = "https://ann:s3cret@proxy.example/v1"
[providers.openai]
api_key = "${{OPENAI_API_KEY:-}}"
[mcp.servers.git]
command = "git-server"
env = {{ "TOKEN" = "hunter2-hunter2" }}
[channels.telegram]
bot_token = "x"
""".encode(),
    )
    write(home, "pegasus.toml.bak", f'api_key = "{key}"'.encode())
    write(home, "persona.json", b'{"name": "Ann"}')
    made = back_up(home, tmp_path / "b")
    assert [line.partition(":")[0] for line in made.left_out] == ["pegasus.toml.bak"]
    assert set(made.emptied) == {
        "providers.anthropic.api_key",
        "providers.anthropic.base_url",
        "mcp.servers.git.env.TOKEN",
        "channels.telegram.bot_token",
    }
    restore(tmp_path / "b", tmp_path / "copy")
    text = (tmp_path / "copy/pegasus.toml").read_text()
    assert not [secret for secret in (key, "s3cret", "hunter2", '"x"') if secret in text]
    assert 'base_url = "https://proxy.example/v1"' in text
    assert "${OPENAI_API_KEY:-}" in text
    assert 'api_key = ""  # mine' in text
    assert (tmp_path / "copy/persona.json").exists()


def test_settings_with_mistakes_are_left_out_since_their_secrets_cannot_be_found(home, tmp_path):
    write(home, "pegasus.toml", b'api_key = "hunter2-hunter2')
    assert back_up(home, tmp_path / "b").left_out[0].startswith("pegasus.toml: has mistakes")
    restore(tmp_path / "b", tmp_path / "copy")
    assert not (tmp_path / "copy/pegasus.toml").exists()


def test_a_backup_replaces_a_backup_and_nothing_else(home, tmp_path):
    target = tmp_path / "b"
    back_up(home, target)
    back_up(home, target)
    target.write_text("my thesis")
    with pytest.raises(BackupError, match="no backup"):
        back_up(home, target)
    assert target.read_text() == "my thesis"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "home"]


@pytest.mark.parametrize("place", ["home/b", "home/workspace/b", "nowhere/b", "home"])
def test_a_place_that_cannot_hold_it_is_refused(home, tmp_path, place):
    with pytest.raises(BackupError):
        back_up(home, tmp_path / place)
    assert not list(tmp_path.rglob("*.part"))


def test_a_part_that_a_killed_backup_has_left_is_taken_over(home, tmp_path):
    (tmp_path / ".b.part").write_bytes(b"half" * 1_000_000)
    back_up(home, tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "copy")
    assert not (tmp_path / ".b.part").exists()


def test_a_home_without_data_has_nothing_to_back_up(tmp_path):
    from pegasus.host import Home

    with pytest.raises(BackupError, match="nothing"):
        back_up(Home(tmp_path / "none"), tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["data/x", "pegasus.toml", "token", "workspace/a/b"])
def test_a_home_that_holds_anything_is_not_restored_into(home, tmp_path, path):
    back_up(home, tmp_path / "b")
    other = tmp_path / "other"
    (other / path).parent.mkdir(parents=True)
    (other / path).write_text("mine")
    with pytest.raises(HomeError, match="not empty"):
        restore(tmp_path / "b", other)
    assert tree(other) == {path: b"mine"}


def test_an_empty_home_keeps_its_log(home, tmp_path):
    back_up(home, tmp_path / "b")
    other = tmp_path / "other"
    (other / "logs").mkdir(parents=True)
    (other / "logs/pegasus.log").write_text("a line")
    restore(tmp_path / "b", other)
    assert (other / "logs/pegasus.log").read_text() == "a line"


def test_what_a_killed_restore_has_left_is_removed_by_the_next_one(home, tmp_path):
    back_up(home, tmp_path / "b")
    other = tmp_path / "other"
    (other / "data").mkdir(parents=True)
    (other / "data/VERSION").write_text("restoring\n")
    (other / "workspace").mkdir()
    (other / "workspace/half").write_text("ha")
    restore(tmp_path / "b", other)
    assert not (other / "workspace/half").exists()
    assert (other / "workspace/notes.txt").read_text() == "tea"


def test_one_that_was_killed_while_it_wrote_that_it_begins_is_done_again(home, tmp_path):
    back_up(home, tmp_path / "b")
    (tmp_path / "other/data").mkdir(parents=True)
    (tmp_path / "other/data/.VERSION.0123abcd").write_text("rest")
    restore(tmp_path / "b", tmp_path / "other")
    assert not (tmp_path / "other/data/.VERSION.0123abcd").exists()
    assert (tmp_path / "other/workspace/notes.txt").read_text() == "tea"


@pytest.mark.parametrize("removal", range(6))
def test_one_that_is_killed_while_it_removes_what_another_has_left_is_done_again(home, tmp_path, removal):
    back_up(home, tmp_path / "b")
    for path in ("data/inbox/half", "data/main/half", "data/memory/half", "workspace/half"):
        write(Home(tmp_path / "other"), path, b"ha")
    (tmp_path / "other/data/VERSION").write_text("restoring\n")
    if not (child := os.fork()):
        counter, unlink = count(), os.unlink
        os.unlink = lambda *path, **options: os._exit(9) if next(counter) == removal else unlink(*path, **options)
        restore(tmp_path / "b", tmp_path / "other")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (9 if removal < 5 else 0)
    if removal < 5:
        restore(tmp_path / "b", tmp_path / "other")
    assert not list((tmp_path / "other").rglob("half"))
    assert (tmp_path / "other/workspace/notes.txt").read_text() == "tea"
