"""The list of regressions stays applicable: each text that is replaced stands in the product exactly once."""

from __future__ import annotations

from tests.regressions.__main__ import copy_product
from tests.regressions.planted import REGRESSIONS


def test_every_regression_can_be_planted(tmp_path):
    product = copy_product(tmp_path / "product")
    before = {path: (product / path).read_text() for each in REGRESSIONS for path in each.paths}
    for regression in REGRESSIONS:
        regression.plant(product)
        for path in regression.paths:
            compile((product / path).read_text(), path, "exec")
            (product / path).write_text(before[path])
    assert len(REGRESSIONS) == 50
