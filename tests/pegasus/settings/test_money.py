"""Routes, budgets and prices in the settings."""

from __future__ import annotations

import pytest

from pegasus.settings import Settings
from pegasus.settings.load import changed_keys
from pegasus.settings.render import effective

PRICED = '[prices."lab/my.model:8b"]\ninput = 1\noutput = 2.5\n'


def test_a_price_stands_under_the_name_of_a_model(load):
    price = load(PRICED).prices["lab/my.model:8b"]
    assert (price.input, price.output, price.cache_read) == (1.0, 2.5, -1.0)


def test_prices_and_routes_that_are_shown_can_be_read_back(load):
    settings = load(PRICED + '[models.routes.big]\nmodel = "openai/x"\nmin_tokens = 9\n')
    assert changed_keys(load(effective(settings)), settings) == ()


@pytest.mark.parametrize("name", ["model", "/model", "lab/", 'lab/\\"x\\"', "lab/a b"])
def test_a_price_of_something_that_is_no_model(mistakes, name):
    [line] = mistakes(f'[prices."{name}"]\ninput = 1\n')
    assert "prices: found the name" in line
    assert line.endswith('allowed: "<provider>/<model>"')


def test_routes_keep_the_order_of_the_file(load):
    text = "".join(f'[models.routes.{name}]\nmodel = "openai/{name}"\n' for name in ("z", "a", "m"))
    assert list(load(text).models.routes) == ["z", "a", "m"]


def test_a_route_needs_a_model_of_a_provider_that_is_there(mistakes):
    lines = mistakes('[models.routes.one]\nrole = "default"\n[models.routes.two]\nmodel = "nobody/x"\n')
    assert 'models.routes.one.model: found nothing; allowed: "<provider>/<model>"' in lines[0]
    assert 'models.routes.two.model: found "nobody/x", whose provider is not defined' in lines[1]


def test_a_route_whose_sizes_exclude_each_other(mistakes):
    [line] = mistakes('[models.routes.one]\nmodel = "openai/x"\nmin_tokens = 10\nmax_tokens = 5\n')
    assert "models.routes.one.max_tokens: found 5; allowed: 0, or at least min_tokens (10)" in line


def test_choices_are_models(mistakes):
    [line] = mistakes('[models]\nchoices = ["openai/x", "x"]\n')
    assert 'models.choices: found "x"; allowed: "<provider>/<model>"' in line


@pytest.mark.parametrize("value", ["-1", "nan", "inf", '"a"', "true"])
def test_what_is_no_budget(mistakes, value):
    [line] = mistakes(f"[budget]\ndaily_cost = {value}\n")
    assert "budget.daily_cost: found" in line


def test_without_settings_nothing_is_limited():
    assert not any(vars_of(Settings().budget))


def vars_of(section):
    return [getattr(section, field.name) for field in section.__attrs_attrs__]
