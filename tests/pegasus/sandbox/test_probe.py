"""Finding out which walls there are: each way that a machine can lack them, and what its owner is told."""

import os

import attrs
import pytest

from pegasus.sandbox import Sandbox, SandboxError, landlock, probe_sandbox
from pegasus.sandbox import probe as module
from pegasus.sandbox import sandbox as walls
from pegasus.settings import SandboxSettings, Settings
from tests.pegasus.sandbox.walls import make_home


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path)


@pytest.fixture
def probe(home, monkeypatch):
    """Probes a machine on which `bwrap` is this script (None: there is none), with this version of Landlock."""

    def probe(script, version, **settings):
        path = home.parent / "bwrap"
        if script is not None:
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        monkeypatch.setattr(module.shutil, "which", lambda name: None if script is None else str(path))
        monkeypatch.setattr(landlock, "version", lambda: version)
        return probe_sandbox(Settings(sandbox=SandboxSettings(**settings)), home, home / "workspace")

    return probe


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "bubblewrap is not installed"),
        (
            "echo bwrap: No permissions to create a new namespace >&2; exit 1",
            "No permissions to create a new namespace",
        ),
        ("exit 3", "exit code 3"),
    ],
)
def test_a_bubblewrap_that_does_not_work(probe, script, reason):
    found = probe(script, 7)
    assert found.kind == "landlock"
    assert reason in found.description
    assert "install bubblewrap" in found.warning


def test_a_bubblewrap_that_hangs_is_not_waited_for(probe, monkeypatch):
    monkeypatch.setattr(module, "PROBE_SECONDS", 0.2)
    found = probe("exec sleep 10", 0)
    assert found.kind == "none"
    assert "it did not run a program within" in found.description


def test_an_old_kernel_without_anything(probe):
    found = probe(None, 0)
    assert (found.kind, found.is_confined) == ("none", False)
    assert "commands can do all that you can" in found.warning


def test_a_kernel_whose_landlock_lacks_signals_is_used_and_counts_half(probe):
    found = probe(None, 4)
    assert (found.kind, found.state, found.is_confined) == ("landlock", "partial", False)
    assert "commands can still end other processes" in found.warning


def test_landlock_counts_whole_where_a_trial_shows_that_nothing_gets_through(probe):
    found = probe(None, 7)
    if not found.namespace:
        pytest.skip("the kernel lets nobody make mounts here")
    assert (found.state, found.gaps) == ("full", ())
    assert "partial" not in found.description


def test_landlock_without_mounts_of_its_own_leaves_rights_of_files_open(probe, monkeypatch):
    """As on a kernel that lets nobody make namespaces, in a container for example."""
    monkeypatch.setattr(module, "NAMESPACES", ())
    found = probe(None, 7)
    assert (found.kind, found.state, found.gaps) == ("landlock", "partial", ("files",))
    assert "partial: commands can still change the rights and times of files" in found.description
    with pytest.raises(SandboxError, match="the walls here are partial"):
        probe(None, 7, mode="require")


def test_what_a_trial_lets_through_makes_the_walls_partial(probe):
    found = probe("echo limits memory", 0)
    assert (found.kind, found.state) == ("bubblewrap", "partial")
    assert "commands can still limit other processes of yours, use System V IPC" in found.warning


def test_an_architecture_without_a_filter_has_partial_walls(probe, monkeypatch):
    monkeypatch.setattr(walls, "_machine", lambda: "riscv64")
    found = probe("exit 0", 0)
    assert (found.kind, found.state) == ("bubblewrap", "partial")
    assert "calls of the kernel that no filter stops" in found.description


def test_walls_that_are_required_and_there(probe):
    assert probe("exit 0", 0, mode="require").kind == "bubblewrap"


@pytest.mark.parametrize("version", [0, 5])
def test_walls_that_are_required_and_not_there(probe, version):
    with pytest.raises(SandboxError, match=r"^sandbox\.mode: found \"require\".*bubblewrap is not installed"):
        probe(None, version, mode="require")


def test_without_walls_by_choice_nobody_is_warned(probe):
    found = probe("exit 1", 7, mode="off")
    assert (found.kind, found.is_confined, found.warning) == ("none", False, "")
    assert found.memory == 2048 << 20


def test_leftovers_of_a_killed_daemon_are_removed(probe, home):
    (home / "run/commands/old/tmp").mkdir(parents=True)
    (home / "run/commands/old/tmp/file").touch()
    found = probe(None, 0)
    found.set_leftovers_aside()
    assert not (home / "run/commands").exists(), "at once, so that commands can run"
    (home / "run/commands/new").mkdir(parents=True)
    found.remove_leftovers()
    assert os.listdir(home / "run") == ["commands"]
    assert os.listdir(home / "run/commands") == ["new"]


def test_the_environment_leads_to_the_folders_of_the_command(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/me/.cache")
    monkeypatch.setenv("HOME", "/home/me")
    home = make_home(tmp_path)
    off = Settings(sandbox=SandboxSettings(mode="off"))
    sandbox = attrs.evolve(probe_sandbox(off, home, home / "workspace"), landlock=7)
    env = {"HOME": "/home/me", "XDG_CACHE_HOME": "/home/me/.cache", "XDG_DATA_HOME": "/mine", "TMP": "/mine"}
    walls = sandbox.walls(env, "c1")
    folder = walls.folder
    assert walls.environment == {
        "HOME": f"{folder}/home", "TMPDIR": f"{folder}/tmp", "TEMP": f"{folder}/tmp", "TMP": "/mine", "XDG_DATA_HOME": "/mine"
    }  # fmt: skip
    assert os.listdir(folder)
    assert Sandbox().walls(env, "c2").environment == env


def test_a_bubblewrap_in_the_folder_that_the_agent_was_started_in_is_not_run(home, monkeypatch):
    (home / "workspace" / "bin").mkdir()
    program = home / "workspace" / "bin" / "bwrap"
    program.write_text(f"#!/bin/sh\n/usr/bin/touch {home}/it-ran\n")
    program.chmod(0o755)
    monkeypatch.chdir(home / "workspace")
    monkeypatch.setenv("PATH", "bin")
    found = probe_sandbox(Settings(), home, home / "workspace")
    assert not found.bubblewrap
    assert not (home / "it-ran").exists()
