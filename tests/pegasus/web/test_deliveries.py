"""Webhook deliveries that are remembered for a day: time, restarts, a disk that refuses, crashes between two steps."""

import json

import pytest
import trio

from pegasus.settings import HookSettings
from pegasus.storage import Overloaded, ReadRows, StorageError
from pegasus.web import HookDeliveries
from pegasus.web.deliveries import MOST_DELIVERIES
from tests.pegasus.files_of_journal import answer_from
from tests.pegasus.web.test_events import HOOKS, SECRET, signed
from tests.pegasus.web.world import Clock, world

HOUR = 3_600_000


DELIVERIES_FILE = "web/deliveries.json"


class Files:
    """A journal with files. `broken`: it writes nothing."""

    def __init__(self):
        self.files = {}
        self.writes = 0
        self.broken = False

    async def ask(self, kind, *args):
        await trio.lowlevel.checkpoint()
        if kind is not ReadRows:
            if self.broken:
                raise StorageError("the disk is full")
            self.writes += 1
        return answer_from(self.files, kind, *args)


async def start(files, clock):
    deliveries = HookDeliveries()
    await deliveries.load(files, clock)
    return deliveries


async def test_a_delivery_is_known_for_a_day_and_over_restarts():
    files, clock = Files(), Clock()
    first, is_new = await (await start(files, clock)).note("ci", "d1", "i1")
    assert is_new
    clock.now += 24 * HOUR - 1
    again, is_new = await (await start(files, clock)).note("ci", "d1", "i2")
    assert (is_new, again.stored, again.is_done) == (False, first.stored, False)
    assert (await (await start(files, clock)).note("other", "d1", ""))[1]
    clock.now += 1
    later, is_new = await (await start(files, clock)).note("ci", "d1", "")
    assert is_new
    assert later.stored.key != first.stored.key


async def test_what_is_too_old_or_too_much_leaves_the_file():
    files, clock = Files(), Clock()
    deliveries = await start(files, clock)
    await deliveries.note("ci", "d1", "")
    clock.now += 25 * HOUR
    await deliveries.note("ci", "d2", "")
    entries = json.loads(files.files[DELIVERIES_FILE])["deliveries"]
    assert [entry["digest"] for entry in entries] == ["d2"]
    many = [{"hook": "ci", "digest": f"m{n}", "id": "", "at": clock.now} for n in range(MOST_DELIVERIES)]
    files.files[DELIVERIES_FILE] = json.dumps({"deliveries": many}).encode()
    deliveries = await start(files, clock)
    await deliveries.note("ci", "newest", "")
    assert not (await deliveries.note("ci", "m1", ""))[1]
    assert (await deliveries.note("ci", "m0", ""))[1]


async def test_deliveries_at_the_same_time_share_a_write():
    files = Files()
    deliveries = await start(files, Clock())
    async with trio.open_nursery() as nursery:
        for n in range(100):
            nursery.start_soon(deliveries.note, "ci", f"d{n}", "")
    assert files.writes <= 3
    assert len(json.loads(files.files[DELIVERIES_FILE])["deliveries"]) == 100


async def test_nothing_is_begun_that_is_not_on_disk():
    files = Files()
    deliveries = await start(files, Clock())
    files.broken = True
    for _ in range(2):
        with pytest.raises(StorageError):
            await deliveries.note("ci", "d1", "")
    files.broken = False
    assert not (await deliveries.note("ci", "d1", ""))[1]
    assert b"d1" in files.files[DELIVERIES_FILE]


async def test_a_damaged_file_loses_only_what_is_damaged():
    files, clock = Files(), Clock()
    await (await start(files, clock)).note("ci", "d1", "")
    entries = json.loads(files.files[DELIVERIES_FILE])["deliveries"]
    files.files[DELIVERIES_FILE] = json.dumps({"deliveries": [{"hook": 1}, *entries]}).encode()
    assert not (await (await start(files, clock)).note("ci", "d1", ""))[1]


BODY = b'{"repo": {"name": "pegasus"}, "state": "red"}'


async def deliver(client, id, body=BODY):
    headers = {"X-Pegasus-Signature": signed(body), "X-Pegasus-Delivery": id}
    return await client.post("/hooks/ci", content=body, headers=headers)


async def test_a_refused_delivery_is_taken_when_it_comes_again():
    async with world(hooks=HOOKS) as there, there.client() as client:
        there.journal.verdict = Overloaded(100, of_sender=True)
        refused = await deliver(client, "d-1")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
        there.journal.verdict = None
        assert (await deliver(client, "d-1")).status_code == 202
        assert len(there.journal.accepted) == 1


async def test_a_delivery_that_a_crash_kept_from_beginning_is_begun_under_any_id():
    """It was noted, and then the process ended. Nobody knows this content, so it is no repetition."""
    async with world(hooks=HOOKS) as there, there.client() as client:
        there.journal.verdict = StorageError("gone")
        assert (await deliver(client, "d-1")).status_code == 503
        there.journal.verdict = None
        assert (await deliver(client, "d-2")).status_code == 202
        assert (await deliver(client, "d-3")).json() == {"repeated": True}
        assert len(there.journal.accepted) == 1


async def test_a_day_later_the_same_body_counts_again():
    clock = Clock()
    async with world(hooks=HOOKS, clock=clock) as there, there.client() as client:
        for hours, status in ((0, 202), (23, 200), (1, 202), (1, 200)):
            clock.now += hours * HOUR
            assert (await deliver(client, f"d-{clock.now}-{status}")).status_code == status
        assert len(there.journal.accepted) == 2


async def test_another_hook_with_the_same_secret_knows_nothing_of_it():
    hooks = {name: HookSettings(secret=SECRET, channel="web:1") for name in ("ci", "cd")}
    async with world(hooks=hooks) as there, there.client() as client:
        for name in hooks:
            headers = {"X-Pegasus-Signature": signed(BODY)}
            assert (await client.post(f"/hooks/{name}", content=BODY, headers=headers)).status_code == 202
        assert len(there.journal.accepted) == 2
