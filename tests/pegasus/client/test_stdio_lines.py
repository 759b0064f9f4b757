"""Lines of a program that talks on stdin and stdout."""

from __future__ import annotations

from pegasus.client.stdio_lines import LONGEST_LINE, read_lines


async def test_a_line_that_is_too_long_is_passed_over(tmp_path):
    file = tmp_path / "in"
    with file.open("wb") as out:
        out.write(b"one\n\n")
        out.write(b"x" * (LONGEST_LINE + 100_000) + b"\nthree\nno end")
    with file.open("rb") as source:
        lines = [line async for line in read_lines(source.fileno())]
    assert lines == [b"one", None, b"three"]
