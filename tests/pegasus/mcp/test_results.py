"""Results of servers: what is kept of their files, and what is said about the rest."""

from __future__ import annotations

from base64 import b64encode
from types import SimpleNamespace

import pytest

from pegasus.mcp import files_context
from pegasus.mcp.faults import LARGEST_MESSAGE
from pegasus.mcp.results import MOST_FILES, ResultReader


def text(words):
    return SimpleNamespace(type="text", text=words)


def picture(content, mime="image/png"):
    data = content if isinstance(content, str) else b64encode(content).decode()
    return SimpleNamespace(type="image", data=data, mime_type=mime)


def result(*blocks, is_error=False, structured=None):
    return SimpleNamespace(content=list(blocks), is_error=is_error, structured_content=structured)


@pytest.fixture
def reader(tmp_path):
    return ResultReader("lab", files_context(tmp_path))


async def test_of_many_files_the_first_are_kept_and_the_others_named(reader, tmp_path):
    shown = await reader.read_call(result(*(picture(bytes([number])) for number in range(MOST_FILES + 2))))
    files = shown.result["files"]
    assert [("path" in file) for file in files] == [True] * MOST_FILES + [False] * 2
    assert files[-1]["note"] == f"not kept: {MOST_FILES} files are the most of one result"
    assert len(list((tmp_path / "mcp/lab").iterdir())) == len(shown.pictures) == MOST_FILES


async def test_a_file_that_is_none_is_not_kept(reader, tmp_path):
    blocks = picture("no base64!"), picture(b"x" * LARGEST_MESSAGE)
    wrong, good = (await reader.read_call(result(*blocks))).result["files"]
    assert wrong == {"mime": "image/png", "note": "not kept: it is not base64"}
    assert good["bytes"] == LARGEST_MESSAGE
    assert len(list((tmp_path / "mcp/lab").iterdir())) == 1


async def test_a_text_that_repeats_the_structured_content_is_left_out(reader):
    assert (await reader.read_call(result(text('{"n": 3}'), structured={"n": 3}))).result == {"structured": {"n": 3}}
    both = await reader.read_call(result(text("three"), structured={"n": 3}))
    assert both.result == {"text": "three", "structured": {"n": 3}}
