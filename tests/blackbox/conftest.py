"""Fixtures and the hard deadline of every black-box test."""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil

import pytest
import trio

from pegasus.sandbox import landlock
from tests.blackbox.support.daemon import STARTED, Daemon
from tests.blackbox.support.serving import Stage, standing
from tests.blackbox.support.shared_state import IS_SHARED
from tests.blackbox.support.work import Workplace

DEADLINE = 40.0
"""Seconds a test may take; `@pytest.mark.deadline(n)` gives another limit."""

WALLS = ("bubblewrap", "landlock")
"""Kinds of walls around commands."""
_NUMBERS = itertools.count(1)


def pytest_configure(config):
    config.addinivalue_line("markers", "deadline(seconds): how long a black-box test may take")


def pytest_itemcollected(item):
    item.add_marker(pytest.mark.blackbox)
    if IS_SHARED and (files := item.get_closest_marker("files")):
        item.add_marker(pytest.mark.skip(f"the state is in a database, and this test is of files: {files.args[0]}"))
    mark = item.get_closest_marker("deadline")
    item.obj = _limited(item.obj, mark.args[0] if mark else DEADLINE)


def _limited(test, seconds):
    @functools.wraps(test)
    async def run(**arguments):
        lone = None
        try:
            with trio.fail_after(seconds):
                await test(**arguments)
        except BaseExceptionGroup as group:
            lone = group
            while isinstance(lone, BaseExceptionGroup) and len(lone.exceptions) == 1:
                lone = lone.exceptions[0]
        if lone is not None:
            raise lone  # out of the nurseries around it, so that a failure reads well

    return run


@pytest.fixture(autouse=True)
def no_leftovers():
    """Whatever happens, no process outlives its test."""
    del STARTED[:]
    yield
    for daemon in STARTED:
        daemon.kill()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call" and report.failed:
        shared = [getattr(value, "daemon", value) for value in item.funcargs.values()]
        for daemon in [*STARTED, *(value for value in shared if isinstance(value, Daemon) and value not in STARTED)]:
            report.sections.append((f"log of {daemon.home}", daemon.stderr[-4000:]))
    return report


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One daemon with the stand-in for all tests of a file; each takes channels of its own (`name`)."""
    daemon = Daemon(tmp_path_factory.mktemp("shared") / "home", {"models.default": "offline/stand-in"})
    yield from standing(daemon, start=True)


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """One daemon for all tests of a file, each of which brings a book of its own: `async with stage.play(book, name)`."""
    stage = Stage(tmp_path_factory.mktemp("stage"))
    yield from standing(stage.daemon, stage)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A stage for tests with background tasks: at the end of each, none is left."""
    place = Workplace(tmp_path_factory.mktemp("workplace"))
    yield from standing(place.daemon, place, finish=place.finish)


@pytest.fixture(scope="module", params=["fail", "resume"])
def recovering(request, tmp_path_factory):
    """The same in both modes of recovery (`mode`), with nine places for tasks, and web tools that may reach this machine."""
    limits = {"tasks.max_active": 9, "tasks.max_concurrent_tools": 20, "models.max_concurrent_calls": 20}
    settings = {"tasks.recovery": request.param, "tools.allowed_hosts": ["127.0.0.1"], **limits}
    place = Workplace(tmp_path_factory.mktemp(request.param), settings)
    place.mode = request.param
    yield from standing(place.daemon, place, finish=place.finish)


@pytest.fixture(scope="module")
def hasty_stage(tmp_path_factory):
    """The same with little patience for its provider."""
    stage = Stage(tmp_path_factory.mktemp("hasty"), {"models.timeout": 0.4, "models.silence_timeout": 0.4})
    yield from standing(stage.daemon, stage)


@pytest.fixture(scope="module")
def own_programs():
    """Programs are started and not forked, from here to the end of the file: a fork's memory counts what its server has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PEGASUS_SPAWN", "1")
        yield


@pytest.fixture
def name(request):
    """A channelId no other test uses."""
    return f"{re.sub(r'[^a-zA-Z0-9_.-]', '_', request.node.name)[:60]}-{next(_NUMBERS)}"


@pytest.fixture
def home(tmp_path):
    """Where a home may be; it is not there yet."""
    return tmp_path / "home"


@pytest.fixture
def no_bubblewrap(tmp_path):
    """The environment of a daemon whose bubblewrap does not work."""
    path = tmp_path / "broken" / "bwrap"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\necho bwrap: it is broken >&2\nexit 1\n")
    path.chmod(0o755)
    return {"PATH": f"{path.parent}:{os.environ['PATH']}"}


@pytest.fixture(params=WALLS)
def walled(request, no_bubblewrap):
    """The environment of a daemon with walls of one kind; the test is skipped where they cannot be built."""
    if request.param == "bubblewrap":
        if shutil.which("bwrap") is None:
            pytest.skip("bubblewrap is not installed")
        return {}
    if landlock.version() < 6:
        pytest.skip(f"the kernel has Landlock {landlock.version()}, these walls need 6")
    return no_bubblewrap
