"""Sandboxes for tests: each kind of walls that this machine can build, around a home of the test's own."""

import shutil

import attrs
import pytest

from pegasus.sandbox import Sandbox, probe_sandbox
from pegasus.sandbox.probe import find_landlock
from pegasus.settings import SandboxSettings, Settings, ToolSettings

KINDS = ("bubblewrap", "landlock")
SECRET = "the-token-of-the-test"


def make_home(folder):
    """A home of Pegasus with a token and settings in it, and a workspace."""
    home = folder / "person" / ".pegasus"
    (home / "workspace").mkdir(parents=True)
    (home / "token").write_text(SECRET)
    (home / "pegasus.toml").write_text(f'gateway.token = "{SECRET}"')
    (folder / "person" / "diary").write_text(SECRET)
    return home


def make_sandbox(home, kind, **more) -> Sandbox:
    """The walls of this kind around a home; skips the test where they cannot be built."""
    tools = ToolSettings(allowed_paths=more.pop("allowed_paths", ()))
    settings = Settings(sandbox=SandboxSettings(**more), tools=tools)
    sandbox = probe_sandbox(settings, home, home / "workspace")
    if kind == "bubblewrap":
        if not sandbox.bubblewrap:
            pytest.skip(sandbox.problem)
        return sandbox
    found = find_landlock(attrs.evolve(sandbox, bubblewrap=(), problem="a test"), home)
    if found.state != "full":
        pytest.skip(f"these walls are {found.state} here: {found.description}")
    return found


def has_bubblewrap():
    return shutil.which("bwrap") is not None
