"""One daemon for one home, over real processes."""

from __future__ import annotations

import pytest

from pegasus.host import Home, HomeBusy, HomeError, own_home

HOLD = """
import subprocess, sys
from pathlib import Path
from pegasus.host import Home, own_home
with own_home(Home(Path(sys.argv[1]))):
    if len(sys.argv) > 2:
        subprocess.Popen([sys.executable, "-c", "input()"], stdout=subprocess.DEVNULL)
    print("held", flush=True)
    input()
"""


def test_a_second_process_is_refused_and_told_who_the_first_is(home, start):
    holder = start(HOLD, home.path)
    assert holder.stdout.readline() == "held\n"
    with (
        pytest.raises(HomeBusy, match=f"{home.path}: process {holder.pid} already runs Pegasus here") as caught,
        own_home(home),
    ):
        pass
    assert (caught.value.exit_code, caught.value.pid) == (75, holder.pid)


def test_the_home_is_free_after_the_owner_ended(home, start):
    holder = start(HOLD, home.path)
    holder.stdout.readline()
    holder.communicate("\n", timeout=20)
    with own_home(home):
        pass


def test_the_home_is_free_after_the_owner_was_killed_even_if_its_children_live_on(home, start):
    holder = start(HOLD, home.path, "with child")
    holder.stdout.readline()
    holder.kill()
    holder.wait(timeout=20)
    with own_home(home):
        pass


def test_two_homes_have_two_owners(home, tmp_path):
    with own_home(home), own_home(Home(tmp_path / "other")):
        pass


def test_a_new_home_is_made(tmp_path):
    home = Home(tmp_path / "new")
    with own_home(home):
        assert home.data.is_dir()


def test_a_folder_in_place_of_the_lock(home):
    home.lock.mkdir()
    with pytest.raises(HomeError, match=r"lock: cannot be opened \(Is a directory\)"), own_home(home):
        pass


def test_a_full_disk(home):
    home.lock.symlink_to("/dev/full")
    with (
        pytest.raises(HomeError, match=r"lock: cannot be locked \(.*\); is the disk full or read-only\?") as caught,
        own_home(home),
    ):
        pass
    assert caught.value.exit_code == 78
