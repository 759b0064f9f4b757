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
    def run_in_virtual_time(main: object, run=trio.run) -> None:
        run(main, clock=trio.testing.MockClock(autojump_threshold=0))
        ran.append(main)

    monkeypatch.setattr(trio, "run", run_in_virtual_time)
    exec(compile(block, "docs/actors.md", "exec"), {"__name__": "docs"})
    assert len(ran) == 1


def test_the_page_has_examples() -> None:
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("name", [name for name in actors.__all__ if name not in {"Event", "Events", "Down"}])
def test_every_public_name_is_on_the_page(name: str) -> None:
    assert re.search(rf"`{name}\b", PAGE)
