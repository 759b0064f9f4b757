"""Three nodes over one PostgreSQL, and everything that can happen to nodes, to their ways to it and to itself.

`./scripts/bench scale --long` does the same a thousand times.
"""

from __future__ import annotations

import random

import pytest

from tests.faults.house import open_house
from tests.faults.injecting import FAULTS
from tests.faults.server import open_server
from tests.faults.trial import run_trial
from tests.postgres_server import MISSING, is_installed


@pytest.mark.skipif(not is_installed(), reason=MISSING)
@pytest.mark.deadline(240)
async def test_nothing_is_lost_and_nothing_is_doubled_by_faults_of_all_kinds(tmp_path):
    choices = random.Random(1)
    async with open_server() as server, open_house(tmp_path, choices, server, nodes=3) as house:
        report = await run_trial(house, FAULTS, len(FAULTS), choices, chats=4)
    assert report.anomalies == []
    assert report.exits == []
    assert report.faults.keys() == FAULTS.keys()
    assert report.messages > 20
