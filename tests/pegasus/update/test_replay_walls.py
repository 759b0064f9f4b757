"""The walls of the replay: a call is let through, asked about or refused as on this machine."""

from __future__ import annotations

import pytest

from pegasus.settings import Settings
from pegasus.update import replay_world
from pegasus.update.replay_world import _walls


@pytest.mark.parametrize(("version", "kind", "state"), [(7, "landlock", "partial"), (0, "none", "none")])
def test_without_bubblewrap_the_replay_has_the_walls_of_the_kernel(tmp_path, monkeypatch, version, kind, state):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(replay_world, "landlock_version", lambda: version)
    walls = _walls(Settings()).now
    assert (walls.kind, walls.state) == (kind, state)
