"""A person reads once what to do about a model that did not answer."""

from __future__ import annotations

import pytest

from pegasus.main_agent.item_endings import model_failure
from pegasus.models import ModelError
from pegasus.models.errors import silence_error, status_error


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "invalid x-api-key"), (400, "foo is not a valid model ID"), (404, "no such path"), (402, "no credit")],
)
def test_an_error_that_says_what_to_do_stands_alone(status: int, message: str) -> None:
    error = status_error("lab/foo", status, {"error": {"message": message}})
    assert model_failure(error) == f"The model did not answer: {error}."


def test_other_errors_are_followed_by_what_can_be_done() -> None:
    assert model_failure(silence_error("lab/foo", 60)).endswith("Please send it again in a while.")
    refused = ModelError("lab/foo: the provider refused the request (400): no", kind="request")
    assert model_failure(refused).endswith("/new begins a fresh conversation.")


@pytest.mark.parametrize("kind", ["auth", "request", "overflow", "budget", "silent", "network"])
def test_a_guest_learns_nothing_about_the_model_and_its_costs(kind: str) -> None:
    error = ModelError("lab/foo: the budget of $5.00 is used up [models.budget]", kind=kind)
    told = model_failure(error, is_owner=False)
    assert told.startswith("The model did not answer. ")
    assert not any(word in told for word in ("lab", "foo", "$", "models.", "key"))
