"""For all tests: hypothesis plays the same examples every time; PEGASUS_EXPLORE=1 lets it look for new ones.

Model servers that run on the developer's machine are not found: nothing listens at port 1.

Nothing of the product is replaced for all tests. The collected tests are some 400,000 objects that stay, so they are kept out of
garbage collections, and these come when 50,000 objects are new instead of 700: a worker spent a tenth of its time on them. When
garbage is collected is nothing that the product relies on.

Tests of real time, which meet real processes, sockets and browsers, have the mark `real_time`, also by `REAL_TIME`: a machine that is
shared may hold one of them up, so `scripts/test-ci` tries them once more. All others must do the same each time.

A shell that starts the suite in the background has it ignore SIGINT, and so would every program that a test interrupts. Here it is
not ignored.
"""

import functools
import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

REAL_TIME = (
    *("blackbox", "browser", "examples"),
    *(
        f"pegasus/{part}"
        for part in ("cli", "gateway", "host", "sandbox", "web", "channels/slack", "channels/sms", "models/providers")
    ),
    *(
        "pegasus/client/test_client.py",
        "pegasus/embedding/test_collaborators.py",
        "pegasus/embedding/test_real_home.py",
    ),
    *("pegasus/policy/test_bare_commands.py", "pegasus/terminal/test_process.py", "pegasus/test_bridge.py"),
    *("pegasus/testing/test_provider_server.py", "pegasus/tools/test_background.py", "pegasus/tools/test_shell.py"),
    *("pegasus/tools/test_download.py", "pegasus/tools/test_web_fetch.py", "pegasus/models/test_service.py"),
)
"""Folders and files whose tests are of real time, unless they take a virtual clock."""
VIRTUAL = frozenset({"autojump_clock", "mock_clock"})
"""Fixtures with which a test does not see the real time."""

os.environ.update(dict.fromkeys(("OLLAMA_BASE_URL", "LLAMACPP_BASE_URL", "LMSTUDIO_BASE_URL"), "http://127.0.0.1:1"))
settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("explore" if os.environ.get("PEGASUS_EXPLORE") else "same")

signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()


@functools.cache
def _is_of_real_time(path):
    """Return whether the tests of a file are. Asked for each of them, so it is kept."""
    name = path.relative_to(Path(__file__).parent).as_posix()
    return any(name == part or name.startswith(f"{part}/") for part in REAL_TIME)


def pytest_itemcollected(item):
    if _is_of_real_time(item.path) and VIRTUAL.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.real_time)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Show why an async test was skipped: pytest-trio skips it without the reason."""
    report = yield
    reason = call.excinfo.value.__context__ if report.skipped and call.excinfo is not None else None
    while isinstance(reason, BaseExceptionGroup):
        reason = reason.exceptions[0]
    if isinstance(reason, pytest.skip.Exception):
        report.longrepr = (str(item.path), item.location[1], f"Skipped: {reason.msg}")
    return report
