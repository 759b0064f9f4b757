"""Sandboxes for tests: each kind of walls that this machine can build, around a home of the test's own."""

import os
import shutil

import attrs
import pytest

from pegasus.sandbox import Sandbox, landlock, probe_sandbox
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
    version = landlock.version()
    if version < 6 or os.uname().machine not in landlock.MACHINES:
        pytest.skip(f"the kernel has Landlock {version}, these walls need 6")
    return attrs.evolve(sandbox, bubblewrap=(), landlock=version, problem="a test")


def has_bubblewrap():
    return shutil.which("bwrap") is not None
