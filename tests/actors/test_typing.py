from __future__ import annotations

from pathlib import Path

from mypy import api


def test_mypy_knows_what_an_ask_answers() -> None:
    """The types of answers, messages and children follow from the message classes and from `run`."""
    example = Path(__file__).with_name("typed_example.py")
    found, trouble, status = api.run(["--strict", "--config-file=", str(example)])
    assert (found.startswith("Success"), trouble, status) == (True, "", 0), found
