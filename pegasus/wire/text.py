r"""JSON text: writing a JSON value as text and reading it back.

Two properties of Python's `json` module are changed here, the same way for the whole product:

* Text is written as it is (UTF-8), not as `\uXXXX` escapes. A lone surrogate cannot be written in UTF-8, so a text
  that contains one is written with escapes altogether; readers get the same string either way.
* NaN and Infinity are refused in both directions. They are not JSON, and other programs reject a file that holds them.
"""

from __future__ import annotations

import json
from typing import NoReturn

from pegasus.messages import Json


def encode_json(value: Json, *, indent: int | None = None) -> str:
    """Return `value` as JSON text that can be encoded as UTF-8.

    Without `indent` the text is one compact line. With it, each level is indented by so many spaces.
    Raises TypeError for what is no JSON value, and ValueError for NaN, Infinity and nesting that is endless or too deep.

    >>> encode_json({"text": "Grüße"})
    '{"text":"Grüße"}'
    """
    encoder = _COMPACT if indent is None else json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=indent)
    try:
        text = encoder.encode(value)
        text.encode()
    except UnicodeEncodeError:
        separators = (",", ":") if indent is None else None
        return json.dumps(value, separators=separators, allow_nan=False, indent=indent)
    except RecursionError:
        raise ValueError("nested too deep") from None
    return text


def decode_json(text: str | bytes | bytearray) -> Json:
    """Return the JSON value of a text. Bytes are read as UTF-8.

    Raises ValueError for everything that is not JSON: bytes that are not UTF-8, NaN and Infinity, and nesting deeper
    than the parser can follow.
    """
    try:
        value: Json = _STRICT.decode(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise ValueError("nested too deep") from None
    return value


def decode_object(text: str | bytes | bytearray) -> dict[str, Json]:
    """Return the JSON object of a text. Raises ValueError as `decode_json` does, and for any other kind of value."""
    value = decode_json(text)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


# `json.dumps` and `json.loads` make such an object at every call that has options, which takes longer than a short text.
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_STRICT = json.JSONDecoder(parse_constant=_refuse)
"""Decoder that refuses NaN and Infinity, which Python's own would accept."""
