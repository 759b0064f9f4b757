"""Faults put into the library are noticed. Three of them here; `scripts/mutate` tries all (a minute or two)."""

from __future__ import annotations

import ast

import pytest

from tests.actors.mutations import MUTATIONS, ROOT, Mutation, survives


@pytest.mark.parametrize("mutation", MUTATIONS[:3], ids=lambda mutation: mutation.title)
def test_a_fault_turns_a_test_red(mutation: Mutation) -> None:
    assert not survives(mutation)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.title)
def test_a_mutation_still_fits_the_source(mutation: Mutation) -> None:
    ast.parse(mutation.apply((ROOT / mutation.path).read_text()))
    assert (ROOT / "tests" / "actors" / mutation.tests.partition(" -k ")[0].partition("::")[0]).is_file()
