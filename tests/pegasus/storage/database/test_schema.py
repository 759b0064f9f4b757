"""The statements of each version of the tables, which databases that people run were made by."""

import re
from hashlib import sha256

from pegasus.storage.database.schema import steps

PINNED = ["677d64fe9ca637ac"]
"""By version, the beginning of the digest of its statements."""


def digest(statements):
    """The digest without comments and spaces, which mean nothing."""
    return sha256(" ".join(re.sub(r"--.*", "", statements).split()).encode()).hexdigest()[:16]


def test_a_version_of_the_tables_that_was_released_stays_as_it_is():
    present = [digest(statements) for statements in steps()]
    assert present == PINNED, (
        "The statements of a version have changed, and databases that were made by it do not. If a release has the version, leave it "
        "as it is, and let `steps` in schema.py return one version more that adds what you need (`create or replace` for functions). "
        f"If none has it yet, or you have added a version, write the new digests here: {present}"
    )
