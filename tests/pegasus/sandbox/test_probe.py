"""Finding out which walls there are: each way that a machine can lack them, and what its owner is told."""

import os

import attrs
import pytest

from pegasus.sandbox import Sandbox, SandboxError, landlock, probe_sandbox
from pegasus.sandbox import sandbox as module
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
        monkeypatch.setattr(module, "PROBE_SECONDS", 0.2)
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
        ("exec sleep 10", "it did not run a program within 0.2 s"),
    ],
)
def test_a_bubblewrap_that_does_not_work(probe, script, reason):
    found = probe(script, 7)
    assert (found.kind, found.is_walled) == ("landlock", True)
    assert reason in found.description
    assert "install bubblewrap" in found.warning


def test_an_old_kernel_without_anything(probe):
    found = probe(None, 0)
    assert (found.kind, found.is_walled) == ("none", False)
    assert "commands can do all that you can" in found.warning


def test_a_kernel_whose_landlock_lacks_signals_is_used_but_does_not_count(probe):
    found = probe(None, 4)
    assert (found.kind, found.is_walled) == ("landlock", False)
    assert "commands can still end other processes" in found.warning


def test_walls_that_are_required_and_there(probe):
    assert probe("exit 0", 0, mode="require").kind == "bubblewrap"


@pytest.mark.parametrize("version", [0, 5, 7])
def test_walls_that_are_required_and_not_there(probe, version):
    with pytest.raises(SandboxError, match=r"^sandbox\.mode: found \"require\".*bubblewrap is not installed"):
        probe(None, version, mode="require")


def test_without_walls_by_choice_nobody_is_warned(probe):
    found = probe("exit 1", 7, mode="off")
    assert (found.kind, found.is_walled, found.warning) == ("none", False, "")
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


# ------------------------------------------------------------------ the filter of system calls


def run_filter(steps, machine, number, arguments=()):
    """What the kernel does with a filter, in a few lines."""
    values = {0: number, 4: machine} | {16 + 8 * index: value for index, value in enumerate(arguments)}
    at, held = 0, 0
    while True:
        operation, if_true, if_false, value = steps[at]
        at += 1
        match operation:
            case 0x20:
                held = values[value]
            case 0x54:
                held &= value
            case 0x15:
                at += if_true if held == value else if_false
            case 0x35:
                at += if_true if held >= value else if_false
            case 0x45:
                at += if_true if held & value else if_false
            case 0x06:
                return "allowed" if value == 0x7FFF0000 else "refused"


@pytest.mark.parametrize("machine", landlock.MACHINES)
@pytest.mark.parametrize("tcp", [True, False])
def test_the_filter_lets_only_these_sockets_through(machine, tcp):
    architecture, socket, pair, sendto, sendmsg, sendmmsg, keys = landlock.MACHINES[machine]
    steps = landlock.filter_steps(machine, tcp=tcp)

    def outcome(number, *arguments, on=architecture):
        return run_filter(steps, on, number, arguments)

    with_tcp = "allowed" if tcp else "refused"
    for family in (2, 10):
        assert outcome(socket, family, 1, 0) == with_tcp
        assert outcome(socket, family, 1 | 0o2004000, 6) == with_tcp, "with flags"
        assert outcome(socket, family, 1, 262) == "refused", "MPTCP, which Landlock does not see"
        assert outcome(socket, family, 2, 0) == outcome(socket, family, 3, 1) == "refused"
    assert outcome(socket, 16, 3, 0) == "allowed"
    for family in (0, 1, 17, 38, 40):
        assert outcome(socket, family, 1, 0) == "refused"
    for kind, expected in ((1, "allowed"), (5, "allowed"), (2, "refused"), (3, "refused")):
        assert outcome(pair, 1, kind, 0) == outcome(pair, 1, kind | 0o2004000, 0) == expected
    for number, before in ((sendto, 3), (sendmsg, 2), (sendmmsg, 3)):
        assert outcome(number, *[0] * before, 0, 0) == "allowed"
        if tcp:
            assert outcome(number, *[0] * before, 0x20000000, 0) == "refused"
    for number in (425, *keys):
        assert outcome(number) == "refused"
    assert outcome(0) == outcome(59) == "allowed"
    assert outcome(0, on=0x40000003) == "refused", "32-bit calls have other numbers"
    if machine == "x86_64":
        assert outcome(0x40000000 | socket, 2, 1, 0) == "refused"
