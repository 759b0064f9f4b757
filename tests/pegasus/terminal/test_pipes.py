"""InputLines in and text out, over real pipes."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
import trio

from pegasus.client import write_line
from pegasus.terminal.line_chat import InputLines


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


async def read(pipe, data, longest=1000):
    reader, writer = pipe
    os.write(writer, data)
    os.close(writer)
    return [line async for line in InputLines(reader, longest=longest)]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"\n\n", ["", ""]),
        (b"dos\r\n", ["dos"]),
        ("中文\n".encode(), ["中文"]),
        (b"caf\xe9\n", ["caf\ufffd"]),
    ],
)
async def test_lines(pipe, data, lines):
    assert await read(pipe, data) == lines


async def test_a_line_that_comes_in_pieces_is_one(pipe):
    reader, writer = pipe
    lines = InputLines(reader, longest=1000)
    got = []

    async def take():
        got.append(await anext(lines))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        for piece in ("中".encode()[:1], "中".encode()[1:], b" one", b"\n"):
            os.write(writer, piece)
            await trio.testing.wait_all_tasks_blocked(0.01)
    assert got == ["中 one"]


async def test_of_an_endless_line_only_so_much_is_kept_that_it_is_seen_to_be_too_long(pipe):
    assert await read(pipe, b"x" * 5000 + b"\nnext\n", longest=100) == ["x" * 101, "next"]


async def test_waiting_for_a_line_can_be_cancelled(pipe):
    with trio.move_on_after(0.01) as scope:
        await anext(InputLines(pipe[0], longest=100))
    assert scope.cancelled_caught


async def test_everything_is_written_to_a_slow_reader(pipe):
    reader, writer = pipe
    text = "x" * 300_000
    got = []

    async def drain():
        while sum(map(len, got)) < len(text):
            got.append(await trio.to_thread.run_sync(os.read, reader, 65536))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(drain)
        await write_line(writer, text.encode("utf-8", "replace"))
    assert b"".join(got) == text.encode()


async def test_a_reader_that_left_is_reported(pipe):
    os.close(pipe[0])
    with pytest.raises(BrokenPipeError):
        await write_line(pipe[1], b"hello\n")
