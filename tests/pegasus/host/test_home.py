"""Which home is meant, its folders, and the token."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pegasus.host import Home, HomeError, ensure_token, own_home, read_token, resolve_home, write_private

not_as_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ------------------------------------------------------------------ which one


@pytest.fixture
def user(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_default_is_in_the_users_directory(user):
    assert resolve_home(environ={}).path == user / ".pegasus"


def test_the_environment_names_another(user):
    assert resolve_home(environ={"PEGASUS_HOME": "~/x"}).path == user / "x"


def test_an_empty_variable_is_none(user):
    assert resolve_home(environ={"PEGASUS_HOME": ""}).path == user / ".pegasus"


def test_the_option_wins_over_the_environment(user):
    assert resolve_home("/y", environ={"PEGASUS_HOME": "/x"}).path == Path("/y")


def test_a_profile_is_a_home_beside_the_default_and_wins_over_the_environment(user):
    assert resolve_home(profile="work", environ={"PEGASUS_HOME": "/x"}).path == user / ".pegasus-work"


def test_a_relative_home_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve_home("a/b", environ={}).path == tmp_path / "a" / "b"


@pytest.mark.parametrize(
    ("home", "profile"), [("/x", "work"), ("", None), (None, ""), (None, "../x"), (None, "a/b"), (None, "-x")]
)
def test_wrong_usage_is_told_as_such(home, profile):
    with pytest.raises(HomeError) as caught:
        resolve_home(home, profile, {})
    assert caught.value.exit_code == 2


def test_where_everything_is():
    home = Home(Path("/h"))
    assert [str(path) for path in (home.config, home.token, home.lock, home.daemon, home.log, home.data)] == [
        "/h/pegasus.toml",
        "/h/token",
        "/h/lock",
        "/h/run/daemon.json",
        "/h/logs/pegasus.log",
        "/h/data",
    ]


def test_paths_in_the_settings_start_at_the_home(user):
    home = Home(Path("/h"))
    assert home.resolve("personas/a.json") == Path("/h/personas/a.json")
    assert home.resolve("/etc/a.json") == Path("/etc/a.json")
    assert home.resolve("~/a.json") == user / "a.json"


# ------------------------------------------------------------------ folders


def test_folders_are_made_for_their_owner_only(tmp_path):
    home = Home(tmp_path / "a" / "home")
    home.prepare()
    assert {path.name for path in home.path.iterdir()} == {"run", "logs", "data", "workspace"}
    assert all(mode(path) == 0o700 for path in (home.path, *home.path.iterdir()))


def test_all_folders_of_a_home_can_be_made(tmp_path):
    home = Home(tmp_path / "home")
    home.prepare(everything=True)
    folders = {str(path.relative_to(home.path)) for path in home.path.rglob("*")}
    assert folders >= {"workspace/skills", "workspace/memory", "skills", "subagents", "personas"}


def test_a_home_that_is_there_is_left_as_it_is(home):
    (home.data / "x").write_text("x")
    home.prepare(everything=True)
    assert (home.data / "x").read_text() == "x"


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeError, match=r"file: is not a folder"):
        Home(tmp_path / "file").prepare()
    with pytest.raises(HomeError, match=r"file/home: cannot be made \(Not a directory\)"):
        Home(tmp_path / "file" / "home").prepare()


def test_a_place_where_nothing_can_be_made():
    with pytest.raises(
        HomeError, match=r"/proc/none: cannot be made .*; give --home a directory you can write to"
    ) as caught:
        Home(Path("/proc/none")).prepare()
    assert caught.value.exit_code == 78


@not_as_root
def test_a_folder_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(HomeError, match=r"home: cannot be made \(Permission denied\)"):
        Home(tmp_path / "home").prepare()


# ------------------------------------------------------------------ token


def test_the_token_is_made_at_the_first_start_and_kept(home):
    token = ensure_token(home)
    assert len(token) >= 32
    assert ensure_token(home) == token == read_token(home)
    assert mode(home.token) == 0o600
    assert {path.name for path in home.path.iterdir() if path.is_file()} == {"token"}


def test_every_home_has_a_token_of_its_own(tmp_path):
    one, other = Home(tmp_path / "1"), Home(tmp_path / "2")
    one.prepare()
    other.prepare()
    assert ensure_token(one) != ensure_token(other)


def test_a_configured_token_needs_no_file(home):
    assert ensure_token(home, "mine") == read_token(home, "mine") == "mine"
    assert not home.token.exists()


def test_a_token_that_others_could_read_is_made_private(home):
    home.token.write_text("abc-0123456789-0123\n")
    home.token.chmod(0o644)
    assert ensure_token(home) == "abc-0123456789-0123"
    assert mode(home.token) == 0o600


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"a\nb"])
def test_a_file_that_holds_no_token(home, content):
    home.token.write_bytes(content)
    with pytest.raises(HomeError, match=r"token: .*delete it, and the next start makes a new one"):
        ensure_token(home)


@pytest.mark.parametrize("token", ["x", "0123456789abcde"])
def test_a_token_that_can_be_guessed_is_refused(home, token):
    home.token.write_text(token)
    with pytest.raises(HomeError, match=r"found a token of \d+ characters, allowed: at least 16; delete the file"):
        ensure_token(home)


def test_a_folder_in_place_of_the_token(home):
    home.token.mkdir()
    with pytest.raises(HomeError, match=r"token: cannot be read \(Is a directory\)"):
        ensure_token(home)


def test_a_client_without_a_token_is_told_how_to_get_one(home):
    with pytest.raises(HomeError, match="there is no token yet; it is made when the daemon starts") as caught:
        read_token(home)
    assert caught.value.exit_code == 1


# ------------------------------------------------------------------ whole files


def test_a_file_is_replaced_whole_or_not_at_all(home, monkeypatch):
    write_private(home.config, "old")

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HomeError, match=r"pegasus\.toml: cannot be written \(No space left on device\)"):
        write_private(home.config, "new")
    assert home.config.read_text() == "old"
    assert [path.name for path in home.path.iterdir() if path.is_file()] == ["pegasus.toml"]


def test_what_a_crash_has_left_of_a_file_is_removed_at_the_next_start(home, monkeypatch):
    class Crash(BaseException):
        pass

    def crash(*_):
        raise Crash

    tokens = home.path / "mcp" / "tracker.json"
    tokens.parent.mkdir()
    kept = [home.path / ".notes.md", home.path / ".env.local", home.workspace / ".token.0123abcd"]
    for path in (*kept, home.token):
        path.write_text("0123456789abcdef0123456789abcdef")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crash)
        for path in (home.token, home.daemon, tokens):
            with pytest.raises(Crash):
                write_private(path, "a secret")
    left = [path for path in home.path.rglob(".*") if path not in kept]
    assert len(left) == 3

    with own_home(home):
        assert [path for path in left if path.exists()] == left, "another program may be writing it just now"
    for path in [*left, *kept]:
        os.utime(path, (0, 0))
    with own_home(home):
        assert [path for path in left if path.exists()] == []
    assert all(path.exists() for path in (*kept, home.token))


def test_a_text_that_cannot_be_written_leaves_no_file(home):
    with pytest.raises(ValueError, match="surrogates not allowed"):
        write_private(home.config, "half a character: \udcff")
    assert [path.name for path in home.path.iterdir() if path.is_file()] == []
