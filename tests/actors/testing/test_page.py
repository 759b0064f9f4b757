"""docs/simulation.md: every example runs as a test, and those that are to fail fail as the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import actors.testing
from actors.testing import SimulationFailed

PAGE = (Path(__file__).parents[3] / "docs" / "simulation.md").read_text()
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


def examples() -> dict[str, tuple[str, str]]:
    """By file name: the program, and what it fails with, "" if it passes."""
    found: dict[str, tuple[str, str]] = {}
    name = ""
    for kind, text in BLOCK.findall(PAGE):
        if kind == "python":
            name = text.splitlines()[0].removeprefix("# ")
            found[name] = (text, "")
        else:
            found[name] = (found[name][0], text)
    return found


@pytest.mark.parametrize("name", examples())
def test_an_example_does_what_the_page_says(name: str) -> None:
    program, text = examples()[name]
    scope: dict = {"__name__": name.removesuffix(".py")}
    exec(compile(program, name, "exec"), scope)
    [test] = [value for key, value in scope.items() if key.startswith("test_")]
    if not text:
        test()
        return
    with pytest.raises(SimulationFailed) as failed, contextlib.redirect_stdout(io.StringIO()):
        test()
    said, at = str(failed.value), 0
    for part in text.split("…\n"):
        assert part.rstrip("\n") in said[at:]
        at = said.index(part.rstrip("\n"), at)


def test_every_public_name_is_on_the_page() -> None:
    missing = [name for name in actors.testing.__all__ if not re.search(rf"`(\w+\(.*)?{name}\b", PAGE)]
    assert not missing
