"""The page about models tells the truth."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from pegasus.models.openai import BASE_URLS
from pegasus.models.remote import MAX_RETRIES
from pegasus.models.roles import DEFAULTS, OFFLINE, TYPES, problems
from pegasus.settings import Models, Provider

PAGE = (Path(__file__).parents[3] / "docs" / "models.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_are_good_settings(example: str) -> None:
    raw = tomllib.loads(re.sub(r"\$\{[^}]*\}", "key", example))
    raw["models"]["fallback"] = tuple(raw["models"].get("fallback", ()))
    providers = {name: Provider(**section) for name, section in raw.get("providers", {}).items()}
    assert problems(Models(**raw["models"]), providers, {}) == []


def test_defaults_types_addresses_and_numbers_are_the_real_ones() -> None:
    for variable, model in DEFAULTS:
        assert re.search(rf"`{variable}` \| `{re.escape(model)}`", PAGE)
    assert f"`{OFFLINE}`" in PAGE
    assert all(f"| `{kind}` |" in PAGE for kind in TYPES)
    assert all(f"`{url}`" in PAGE for url in BASE_URLS.values())
    assert f"up to {MAX_RETRIES + 1} attempts" in PAGE
    assert f"`models.timeout` ({Models().timeout:g} s)" in PAGE
    assert f"`models.max_concurrent_calls` ({Models().max_concurrent_calls})" in PAGE
