"""docs/compatibility.md holds what the tests have tried, and nothing else."""

from pathlib import Path

import pytest

from scripts.compatibility import PAGE, format_page, format_tables


def test_the_page_has_the_rows_of_the_marked_tests(tmp_path: Path) -> None:
    assert PAGE.read_text("utf-8") == format_page(tmp_path), "./scripts/compatibility writes it anew"


def test_a_row_of_an_unknown_area_is_no_row() -> None:
    with pytest.raises(ValueError, match="found weather"):
        format_tables([("weather", "rain", "wet", "tests/test_rain.py")])
