"""Fixtures of the library's tests."""

from __future__ import annotations

from random import Random

import attrs
import pytest

from pegasus.models import PriceList, UsageTracker
from pegasus.models.usage.tracker import UsageRecord
from pegasus.settings import BudgetSettings
from pegasus.testing.scripted import ScriptedModel
from pegasus.testing.world import wall_clock


@attrs.define
class Counted:
    """A tracker, and models whose calls it counts."""

    tracker: UsageTracker

    def model(self, script):
        model, tracker = ScriptedModel(script), self.tracker
        inner = model.generate

        async def generate(request):
            response = await inner(request)
            tracker.ledger.add(record_of(request, response))
            return response

        model.generate = generate
        return model


def record_of(request, response):
    return UsageRecord(
        id="u1",
        ts=wall_clock(),
        model="scripted/test",
        role="default",
        item=request.label.item,
        prompt_tokens=response.usage.prompt_tokens,
        completion_tokens=response.usage.completion_tokens,
    )


@pytest.fixture
def counted():
    return Counted(UsageTracker(wall_clock, Random(0), BudgetSettings(), PriceList({}, {})))
