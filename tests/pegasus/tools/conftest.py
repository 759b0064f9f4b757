"""A workspace, and tools that work in it."""

from __future__ import annotations

import json
from itertools import chain

import attrs
import pytest

from pegasus.tools import ToolExecutor, base_context
from pegasus.tools.basic import basic_tools
from pegasus.tools.files import file_tools


class Refused(Exception):
    """What the model is told when a call fails."""


class Workshop:
    """Calls tools as the model does. A failed call raises Refused with the error."""

    def __init__(self, workspace, allowed_paths=(), window=128_000):
        self.workspace = workspace
        self.context = base_context(workspace, allowed_paths, window)
        self.executor = ToolExecutor(chain(file_tools(), basic_tools(lambda: 0)))

    async def __call__(self, name, arguments=None, /, **more):
        outcome = await self.executor.run(self.executor.get(name), {**(arguments or {}), **more}, self.context)
        outcome.content.encode()
        assert len(outcome.content) <= self.context.max_result
        if outcome.failed:
            raise Refused(outcome.content)
        return json.loads(outcome.content)

    async def refused(self, name, arguments=None, /, **more):
        with pytest.raises(Refused) as error:
            await self(name, arguments, **more)
        return str(error.value)

    def with_room(self, characters):
        self.context = attrs.evolve(self.context, max_result=characters)
        return self


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def work(workspace):
    return Workshop(workspace)


@pytest.fixture
def workshop():
    return Workshop


@pytest.fixture
def fill():
    """Write a file line by line: fill(path, lines)."""

    def write(path, lines):
        with open(path, "w") as file:
            file.writelines(lines)

    return write
