"""Fixtures of these tests: a mark by which the processes of one test are known, a home, and running commands."""

import os
from pathlib import Path

import pytest

from pegasus.sandbox import Sandbox, run_process
from tests.pegasus.sandbox.processes import QUICK, alive, guards
from tests.pegasus.sandbox.walls import KINDS, make_home, make_sandbox


@pytest.fixture
def mark(request):
    """NAME=value that the processes of this test carry; nothing that carries it is left when the test is over."""
    text = f"TEST_MARK={request.node.name}-{os.getpid()}"
    yield text
    assert alive(text) == {}
    assert guards() == []


@pytest.fixture
def environment(mark):
    """The environment of the test's commands, with the mark."""
    name, _, value = mark.partition("=")
    return {"PATH": os.environ["PATH"], name: value}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home of Pegasus in the home of a person, whose HOME it is."""
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    return make_home(tmp_path)


@pytest.fixture
def sandbox():
    """No walls; modules that are about walls have their own."""
    return Sandbox()


@pytest.fixture(params=KINDS)
def each_kind(request, home):
    """Walls of each kind that this machine can build, for modules whose `sandbox` they are."""
    return make_sandbox(home, request.param)


@pytest.fixture
def folder(tmp_path, sandbox):
    """Where commands run: the workspace, where walls are around it."""
    return Path(sandbox.folders.workspace or tmp_path)


@pytest.fixture
def run(environment, folder, sandbox):
    """Run a command to its end."""

    async def run(command, *, limits=QUICK, timeout=30.0, folder=folder, env=environment, sandbox=sandbox, **more):
        return await run_process(command, cwd=folder, env=env, limits=limits, timeout=timeout, sandbox=sandbox, **more)

    return run
