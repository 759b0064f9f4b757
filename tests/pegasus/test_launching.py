"""Which version goes on when Pegasus is started with a home that has others."""

from __future__ import annotations

import sys

import pytest

from pegasus import __version__, launching


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with two versions, and `started_from(folder)`."""
    home = tmp_path / "home"
    for name in ("1", "2"):
        python = home / "versions" / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch(0o700)
        (home / "versions" / name / "over").write_text(f"{__version__}\n")
    (home / "versions" / "current").symlink_to("2")
    monkeypatch.setattr(launching, "is_clone", lambda: False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "installed"))
    return home


def python_of(home, name):
    return str(home / "versions" / name / "bin" / "python")


def test_the_installed_program_goes_on_as_the_version_that_counts(home):
    assert launching.current_python(str(home)) == python_of(home, "2")


def test_so_do_another_version_and_a_process_that_was_started_by_the_link(home, monkeypatch):
    for name in ("1", "current"):
        monkeypatch.setattr(sys, "prefix", str(home / "versions" / name))
        assert launching.current_python(str(home)) == python_of(home, "2")


def test_the_version_that_counts_is_itself(home, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(home / "versions" / "2"))
    assert launching.current_python(str(home)) is None


def test_an_installation_of_another_version_by_hand_runs_itself(home):
    (home / "versions" / "2" / "over").write_text("0.0.1\n")
    assert launching.current_python(str(home)) is None


def test_a_clone_runs_itself(home, monkeypatch):
    monkeypatch.setattr(launching, "is_clone", lambda: True)
    assert launching.current_python(str(home)) is None


def test_a_version_whose_python_is_gone_does_not_count(home):
    (home / "versions" / "2" / "bin" / "python").unlink()
    assert launching.current_python(str(home)) is None
    assert launching.current_python(str(home / "not there")) is None


@pytest.mark.parametrize(
    ("args", "environ", "home"),
    [
        ([], {}, "~/.pegasus"),
        (["run"], {"PEGASUS_HOME": "/h"}, "/h"),
        (["--home", "/a", "run"], {"PEGASUS_HOME": "/h"}, "/a"),
        (["run", "--home=/a"], {}, "/a"),
        (["run", "--profile", "work"], {}, "~/.pegasus-work"),
        (["--profile=work"], {}, "~/.pegasus-work"),
        (["--home", "/a", "--home", "/b"], {}, "/b"),
        (["--home"], {}, "."),
    ],
)
def test_the_home_is_found_before_the_command_line_is_read(args, environ, home):
    assert launching._home_of(args, environ) == launching._home_of(["--home", home], {})
