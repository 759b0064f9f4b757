from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from pegasus.settings import Settings, SettingsError, SettingsSource, load_settings

Load: TypeAlias = Callable[..., Settings]
Mistakes: TypeAlias = Callable[..., list[str]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """load(file text, environ, overrides): the settings of a file with that text, if it is given."""

    def load(
        text: str | bytes | None = None, environ: Mapping[str, str] | None = None, sets: Sequence[str] = ()
    ) -> Settings:
        file = tmp_path / "pegasus.toml"
        if text is not None:
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_settings(SettingsSource(file, overrides=tuple(sets)), environ or {})

    return load


@pytest.fixture
def mistakes(load: Load, tmp_path: Path) -> Mistakes:
    """mistakes(…): the lines of the error, with the file's path shortened to its name."""

    def mistakes(*args: object, **kwargs: object) -> list[str]:
        with pytest.raises(SettingsError) as caught:
            load(*args, **kwargs)
        return str(caught.value).replace(f"{tmp_path}/", "").splitlines()

    return mistakes
