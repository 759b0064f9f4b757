"""For all tests: hypothesis plays the same examples every time; PEGASUS_EXPLORE=1 lets it look for new ones."""

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("explore" if os.environ.get("PEGASUS_EXPLORE") else "same")
