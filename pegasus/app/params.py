"""What the methods of the control plane read from their params. All raise BadParams."""

from __future__ import annotations

from pegasus.gateway import BadParams, Params


def text_of(params: Params, key: str, allowed: str = "a text") -> str:
    """A text that is not empty. allowed: what to say otherwise."""
    value = params.get(key)
    if not isinstance(value, str) or not value:
        raise BadParams(f"{key}: found {value!r}, allowed: {allowed}")
    return value


def number_of(params: Params, key: str, default: int) -> int:
    """A whole number from 0; `default` where there is none."""
    value = params.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadParams(f"{key}: found {value!r}, allowed: a whole number from 0")
    return value
