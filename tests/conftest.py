"""For all tests: hypothesis plays the same examples every time; PEGASUS_EXPLORE=1 lets it look for new ones.

Model servers that run on the developer's machine are not found: nothing listens at port 1.

What costs time in every test and tests nothing is done once. The collected tests are some 400,000 objects that stay, so they are kept
out of garbage collections; and the front matter of the built-in skills and task types, which each of some thousand worlds reads, is
parsed once for each text.
"""

import copy
import functools
import gc
import os

import pytest
from hypothesis import settings

from pegasus import frontmatter

os.environ.update(dict.fromkeys(("OLLAMA_BASE_URL", "LLAMACPP_BASE_URL", "LMSTUDIO_BASE_URL"), "http://127.0.0.1:1"))
settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("explore" if os.environ.get("PEGASUS_EXPLORE") else "same")

gc.disable()
_parse = functools.lru_cache(maxsize=256)(frontmatter._mapping)
frontmatter._mapping = lambda source: copy.deepcopy(_parse(source))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    gc.freeze()
    gc.enable()
