"""The page about models tells the truth."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pegasus.conversation.media import LONGEST_TEXT, LONGEST_TEXTS, MOST_BYTES, MOST_PICTURES
from pegasus.models import OFFLINE, Usage, problems
from pegasus.models.catalog import READ_ON, known_price
from pegasus.models.fallback import LONGEST_PAUSE, PATIENCE
from pegasus.models.formats.pictures import MOST_BASE64, MOST_PIXELS
from pegasus.models.formats.wire_format import WORDS
from pegasus.models.providers.accounts import KNOWN_SERVICES, PROVIDERS
from pegasus.models.providers.http_model import ATTEMPTS
from pegasus.models.usage.tracker import parse_record
from pegasus.settings import PROVIDER_TYPES, SERVICE_TYPES, ModelSettings, SettingsSource, load_settings
from pegasus.settings.sources import PROVIDER_VARIABLES

PAGE = (Path(__file__).parents[3] / "docs" / "user" / "models.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_are_good_settings(example: str, tmp_path: Path) -> None:
    file = tmp_path / "pegasus.toml"
    file.write_text(example, encoding="utf-8")
    keys = {variable: "key" for variable, (_, key) in PROVIDER_VARIABLES.items() if key == "api_key"}
    settings = load_settings(SettingsSource(file), keys)
    assert problems(settings.models, settings.providers) == []


def test_the_line_of_a_call_is_one() -> None:
    record = parse_record(json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0]))
    price = known_price(record.model.partition("/")[2])
    used = Usage(record.prompt_tokens, record.completion_tokens, record.cache_read_tokens)
    assert record.cost == pytest.approx(price.cost(used), abs=1e-5)
    assert f"as their pages showed them on {READ_ON}" in PAGE


def test_the_numbers_of_breakers_are_the_real_ones() -> None:
    assert f"`models.breaker_failures` ({ModelSettings().breaker_failures})" in PAGE
    assert f"`models.breaker_pause` ({ModelSettings().breaker_pause:g} s)" in PAGE
    assert f"longer than {PATIENCE:g} seconds" in PAGE
    assert LONGEST_PAUSE == 600


def test_defaults_types_addresses_and_numbers_are_the_real_ones() -> None:
    assert set(PROVIDERS) == set(PROVIDER_TYPES)
    assert f"`{OFFLINE}`" in PAGE
    assert all(f"| `{kind}` |" in PAGE for kind in PROVIDER_TYPES)
    assert list(KNOWN_SERVICES) == [*PROVIDER_TYPES, *SERVICE_TYPES]
    assert all(f"`{KNOWN_SERVICES[kind].base_url}`" in PAGE for kind in PROVIDER_TYPES if KNOWN_SERVICES[kind].base_url)
    for name, service in KNOWN_SERVICES.items():
        assert name in PROVIDER_TYPES or re.search(
            rf"\| `{name}` \| `{SERVICE_TYPES[name]}` \| .*{service.key}.*{service.base_url}.*{service.address}", PAGE
        )
        if service.default:
            assert re.search(rf"`{service.key}`.* \| `{name}/{re.escape(service.default)}`", PAGE)
    named = re.findall(r"\| (?:else )?`\w+`.* \| `(\w+)/", PAGE.partition("## Providers")[0])
    assert named == [name for name, service in KNOWN_SERVICES.items() if service.default]
    assert all(f"`{variable}`" in PAGE for variable in PROVIDER_VARIABLES if not variable.endswith("_BASE_URL"))
    assert f"up to {ATTEMPTS} attempts" in PAGE
    assert f"`models.timeout` ({ModelSettings().timeout:g} s)" in PAGE
    assert f"`models.max_concurrent_calls` ({ModelSettings().max_concurrent_calls})" in PAGE


def test_the_bounds_of_pictures_and_files_are_the_real_ones() -> None:
    assert f"At most {MOST_PICTURES} pictures, or {MOST_BYTES >> 20} MB" in PAGE
    assert f"over {MOST_BASE64 >> 20} MB or over {MOST_PIXELS} x {MOST_PIXELS} pixels" in PAGE
    assert f"up to {LONGEST_TEXT:,} characters, {LONGEST_TEXTS:,} for one message" in PAGE


def test_every_word_for_how_answers_end_is_explained() -> None:
    table = PAGE.partition("## How answers end")[2].partition("##")[0]
    assert set(WORDS) == set(re.findall(r"`(\w+)`", table)) - {"stopReason"}
