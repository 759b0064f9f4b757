"""Conversion between values in memory and JSON, for frames on the wire and for files on disk.

There are two steps, and one function for each direction of each step:

    attrs value  ── to_wire ──▶  JSON value  ── encode_json, encode_line ──▶  text, line of a file
    attrs value  ◀── from_wire ──  JSON value  ◀── decode_json, decode_object ──  text

A *JSON value* is what the `json` module works with: dicts, lists, strings, numbers, booleans and None. `converter` holds
the first step, `text` the second. `lines` reads files of JSON lines that a crash may have damaged.

No other package calls the `json` module, so that there is one answer to the questions of non-ASCII text, lone
surrogates, NaN and endless nesting.
"""

from pegasus.wire.converter import DEEPEST, WireError, camel, describe, from_wire, kind, to_wire
from pegasus.wire.lines import BadLine, Line, ReadLines, encode_line, number_of, read_lines, scan_lines, text_of
from pegasus.wire.text import decode_json, decode_object, encode_json

__all__ = [
    "DEEPEST",
    "BadLine",
    "Line",
    "ReadLines",
    "WireError",
    "camel",
    "decode_json",
    "decode_object",
    "describe",
    "encode_json",
    "encode_line",
    "from_wire",
    "kind",
    "number_of",
    "read_lines",
    "scan_lines",
    "text_of",
    "to_wire",
]
