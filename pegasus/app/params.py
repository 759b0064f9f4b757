"""Reading the params of calls: values that a program has sent, checked one by one.

A method raises `BadParams` for params that make no sense. The message says what was found and what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pegasus.formatting import quote
from pegasus.gateway import BadParams, Caller, NotAllowed, NotFound, Params


def require_text(params: Params, key: str, allowed: str = "a text") -> str:
    """Return a text that is not empty. `allowed` completes the message of the BadParams that is raised otherwise."""
    value = params.get(key)
    if not isinstance(value, str) or not value:
        raise BadParams(f"{key}: found {quote(value)}, allowed: {allowed}")
    return value


def read_number(params: Params, key: str, default: int) -> int:
    """Return a whole number from 0, or `default` where the key is missing. Raises BadParams."""
    value = params.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadParams(f"{key}: found {quote(value)}, allowed: a whole number from 0")
    return value


def require_owner(caller: Caller, owners: Iterable[str], what: str) -> None:
    """Raise NotAllowed unless the caller is an owner.

    owners: the setting `agent.owners`. what: what only an owner does, as in "schedules jobs".
    """
    if not caller.is_owner(owners):
        raise NotAllowed(f"only an owner {what} (agent.owners of the settings)")


@contextmanager
def bad_params_for(*refusals: type[Exception], key: str = "") -> Iterator[None]:
    """Turn errors of these types into BadParams within the block; one that says "there is no …" into NotFound.

    key: the param that their texts are about.
    """
    try:
        yield
    except refusals as error:
        kind = NotFound if str(error).lower().startswith("there is no ") else BadParams
        raise kind(f"{key}: {error}" if key else str(error)) from None
