"""The clock of a replay: a process that was killed gets nothing that came after its end."""

from __future__ import annotations

import trio

from pegasus.testing.memory_disk import MemoryDisk
from pegasus.update.comparison import Comparison
from pegasus.update.record import Record
from pegasus.update.recorded_answers import RecordedAnswers
from pegasus.update.replay_world import Stage


async def test_what_comes_after_the_end_of_a_process_is_left_to_the_next_one(autojump_clock):
    begin = trio.current_time() * 1000
    stage = Stage(RecordedAnswers(Record(), 0), MemoryDisk(), -begin, Comparison(), ends=2_000)
    with trio.move_on_after(5) as while_it_stops:  # longer than the next answer takes
        await stage.until(2_000)
        await stage.until(3_000)
    assert while_it_stops.cancelled_caught
    stage.ends = 9_000
    with trio.fail_after(5):
        await stage.until(8_000)
