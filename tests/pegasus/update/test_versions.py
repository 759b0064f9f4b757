"""The folder of versions: one update at a time, and what is undone."""

from __future__ import annotations

import os
import subprocess

import pytest

from pegasus.backup import make_backup
from pegasus.host import Home, HomeError, wall_clock
from pegasus.update import UpdateError, one_update, prepare
from pegasus.update.versions import Switch, read_switch, set_current, undo_switch, write_switch
from tests.pegasus.update.test_candidate import FILES, OFFLINE
from tests.pegasus.update.wheels import make_wheel


@pytest.fixture
def small(tmp_path):
    """A folder on a file system without much room."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def home_in(folder):
    """A home whose update got as far as the new version's change of the data."""
    home = Home(folder / "home")
    home.prepare()
    home.versions.mkdir()
    home.backups.mkdir()
    (home.data / "VERSION").write_text("2\n")
    (home.data / "log").write_text("before")
    (home.workspace / "mine").write_text("mine")
    make_backup(home, home.backups / "b.tar.zst", passphrase=None, secrets=True, clock=wall_clock)
    (home.data / "VERSION").write_text("3 from 2 b.tar.zst\n")
    (home.data / "log").write_text("after")
    (home.data / "new").write_text("new")
    (home.workspace / "mine").write_text("changed meanwhile")
    write_switch(home, Switch("1", "0.2.0", "b.tar.zst", restores=True))
    return home


@pytest.fixture
def home(tmp_path):
    return home_in(tmp_path)


def is_as_before(home):
    return (home.data / "log").read_text() == "before" and (home.data / "VERSION").read_text() == "2\n"


def test_the_data_from_before_is_put_back_and_nothing_else(home):
    assert undo_switch(home) is not None
    assert is_as_before(home)
    assert not (home.data / "new").exists()
    assert (home.workspace / "mine").read_text() == "changed meanwhile"
    assert read_switch(home) is None
    assert undo_switch(home) is None


def test_an_update_whose_version_counts_already_is_not_undone(home):
    (home.versions / "1").mkdir()
    set_current(home, "1")
    assert undo_switch(home) is None
    assert (home.data / "log").read_text() == "after"
    assert read_switch(home) is None


def test_undoing_may_be_interrupted_anywhere(home, monkeypatch):
    """Each of the calls that change something is the last one once; the next start does the rest."""

    class Killed(BaseException):
        """Ends the process."""

    for n in range(100):
        write_switch(home, Switch("1", "0.2.0", "b.tar.zst", restores=True))
        left = n

        def step(call):
            def replaced(*args, **options):
                nonlocal left
                left -= 1
                if left < 0:
                    raise Killed
                return call(*args, **options)

            return replaced

        with monkeypatch.context() as patched:
            for owner, name in ((os, "rename"), (os, "replace"), (os, "unlink"), (os, "fsync"), (os, "mkdir")):
                patched.setattr(owner, name, step(getattr(owner, name)))
            try:
                undo_switch(home)
                is_through = True
            except Killed:
                is_through = False
        undo_switch(home)
        assert is_as_before(home)
        if is_through:
            break
    else:
        raise AssertionError("it never came to its end")


def test_a_full_disk_is_told_and_the_next_start_goes_on(small):
    home, ballast = home_in(small), small / "ballast"
    ballast.write_bytes(bytes(15 << 20))
    with pytest.raises(HomeError, match=r"cannot be undone: .* start again") as info:
        undo_switch(home)
    assert str(home.backups / "b.tar.zst") in str(info.value)
    assert (home.data / "log").read_text() == "after"
    ballast.unlink()
    assert undo_switch(home) is not None
    assert is_as_before(home)


def test_a_note_that_cannot_be_read_starts_nothing(home):
    (home.versions / "switch.json").write_text("{")
    with pytest.raises(HomeError, match="how to undo an update"):
        undo_switch(home)


def test_one_update_at_a_time(home):
    with one_update(home), pytest.raises(HomeError) as info, one_update(home):
        pass
    assert info.value.exit_code == 75
    assert f"another update is being made (process {os.getpid()})" in str(info.value)


@pytest.mark.real_time
async def test_a_full_disk_is_told_by_the_installation(small, tmp_path):
    wheel = make_wheel(tmp_path, {**FILES, "pegasus/large": bytes(21 << 20)})
    with pytest.raises(UpdateError, match="the disk is full"):
        await prepare(str(wheel), small / "versions" / "1", OFFLINE)
    assert not (small / "versions" / "1").exists()
