"""For all tests: hypothesis plays the same examples every time; PEGASUS_EXPLORE=1 lets it look for new ones.

Model servers that run on the developer's machine are not found: nothing listens at port 1.

What costs time in every test and tests nothing is done once. The collected tests are some 400,000 objects that stay, so they are kept
out of garbage collections, and these come when 50,000 objects are new instead of 700: a worker spent a tenth of its time on them. The
front matter of the built-in skills and task types, which each of some thousand worlds reads, is parsed once for each text.

A shell that starts the suite in the background has it ignore SIGINT, and so would every program that a test interrupts. Here it is
not ignored.
"""

import copy
import functools
import gc
import os
import signal

import pytest
from hypothesis import settings

from pegasus import frontmatter

os.environ.update(dict.fromkeys(("OLLAMA_BASE_URL", "LLAMACPP_BASE_URL", "LMSTUDIO_BASE_URL"), "http://127.0.0.1:1"))
settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("explore" if os.environ.get("PEGASUS_EXPLORE") else "same")

signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()
_parse = functools.lru_cache(maxsize=256)(frontmatter._mapping)
frontmatter._mapping = lambda source: copy.deepcopy(_parse(source))


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
