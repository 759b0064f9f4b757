"""Every Python block of docs/actors.md is a program that runs."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
import trio
import trio.testing

import actors

PAGE = (Path(__file__).parents[2] / "docs" / "actors.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_of_the_page_runs(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    @functools.wraps(trio.run)
    def run_in_virtual_time(main: object, *args: object, run=trio.run, **options: object) -> object:
        if "clock" in options:  # a simulation, which has its own
            return run(main, *args, **options)
        ran.append(main)
        return run(main, *args, clock=trio.testing.MockClock(autojump_threshold=0), **options)

    monkeypatch.setattr(trio, "run", run_in_virtual_time)
    exec(compile(block, "docs/actors.md", "exec"), {"__name__": "docs"})
    assert len(ran) == 1


def test_the_page_has_examples() -> None:
    assert len(BLOCKS) >= 8


# ------------------------------------------------------------ the reference is complete

REFERENCE = PAGE[PAGE.index("## Reference") : PAGE.index("## Beside others")]
INHERITED = set(dir(Exception)) | {"check_also"}  # how a supervisor asks for its own shape


def public_parts() -> list[tuple[str, str]]:
    """Every method, property and field of the public classes."""
    classes = [(name, getattr(actors, name)) for name in actors.__all__ if isinstance(getattr(actors, name), type)]
    return [(name, part) for name, one in classes for part in dir(one) if part[0] != "_" and part not in INHERITED]


@pytest.mark.parametrize("name", actors.__all__)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert re.search(rf"`{name}\b", REFERENCE)


@pytest.mark.parametrize(("name", "part"), public_parts(), ids=str)
def test_every_part_of_a_public_class_is_in_the_reference(name: str, part: str) -> None:
    assert re.search(rf"`[^`]*\b{part}\b[^`]*`", REFERENCE)


def test_the_reference_names_nothing_that_is_not_there() -> None:
    known = {part for _, part in public_parts()}
    for methods in re.findall(r"^\| ((?:`\w+\([^`]*\)`(?:, )?)+) \|", REFERENCE, flags=re.MULTILINE):
        for name in re.findall(r"`(\w+)\(", methods):
            assert name in known or name in actors.__all__, name


def test_the_contents_lead_to_the_headings() -> None:
    headings = {re.sub(r"\W+", "-", title.lower()) for title in re.findall(r"^## (.+)$", PAGE, flags=re.MULTILINE)}
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE)) == headings
