"""What is not the same in each run is caught: by its name, and with the line that uses it."""

from __future__ import annotations

import datetime
import logging
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import types
import uuid

import pytest
import trio

from actors.testing import Nondeterminism, Simulation, SimulationFailed, simulate

early_time, early_random, early_shuffle, early_sleep = time.time, random.random, random.shuffle, time.sleep
kept_elsewhere = {"time": time.monotonic, "random": random.random, "urandom": os.urandom}

USES = {
    "time.time": lambda: time.time(),
    "time.time_ns": lambda: time.time_ns(),
    "time.monotonic": lambda: time.monotonic(),
    "time.perf_counter": lambda: time.perf_counter(),
    "time.localtime": lambda: time.localtime(),
    "time.sleep": lambda: vars(time)["sleep"](0),  # as all of these, caught before it happens: nobody sleeps here
    "time.time, imported by name": lambda: early_time(),
    "time.sleep, imported by name": lambda: early_sleep(0),
    "time.monotonic, kept elsewhere": lambda: kept_elsewhere["time"](),
    "datetime.now": lambda: datetime.datetime.now(),
    "datetime.now in UTC": lambda: datetime.datetime.now(datetime.UTC),
    "date.today": lambda: datetime.date.today(),
    "random.random": lambda: random.random(),
    "random.choice": lambda: random.choice([1, 2]),
    "random.seed": lambda: random.seed(1),
    "random.random, imported by name": lambda: early_random(),
    "random.shuffle, imported by name": lambda: early_shuffle([1, 2]),
    "random.random, kept elsewhere": lambda: kept_elsewhere["random"](),
    "random.SystemRandom": lambda: random.SystemRandom().random(),
    "uuid.uuid4": lambda: uuid.uuid4(),
    "secrets.token_hex": lambda: secrets.token_hex(),
    "os.urandom": lambda: os.urandom(8),
    "os.urandom, kept elsewhere": lambda: kept_elsewhere["urandom"](8),
    "threading.Thread": lambda: threading.Thread(target=print).start(),
    "socket.socket": lambda: socket.socket(),
    "subprocess.run": lambda: subprocess.run(["true"]),
}


@pytest.mark.parametrize("use", USES)
def test_its_use_is_caught(use: str) -> None:
    async def main() -> None:
        USES[use]()

    with pytest.raises(SimulationFailed, match="is not the same in each run") as caught:
        simulate(main)
    assert isinstance(caught.value.__cause__, Nondeterminism)
    assert f"{__file__}:{USES[use].__code__.co_firstlineno} in <lambda>" in str(caught.value)


def test_it_is_caught_also_if_the_program_swallows_the_error() -> None:
    async def main() -> None:
        try:
            time.time()
        except Exception:
            return

    with pytest.raises(SimulationFailed, match=r"time\.time\(\) is called at .*use trio\.current_time\(\)"):
        simulate(main)


@pytest.mark.parametrize("run", [trio.to_thread.run_sync, trio.open_file])
def test_a_thread_of_trio_is_caught(run) -> None:
    async def main() -> None:
        await run(os.devnull if run is trio.open_file else print)

    with pytest.raises(SimulationFailed, match=r"trio\.to_thread\.run_sync.* is called at .*test_guards\.py"):
        simulate(main)


def test_a_program_that_is_nothing_but_a_thread_is_caught() -> None:
    with pytest.raises(SimulationFailed, match=r"trio\.to_thread\.run_sync.* is called"):
        simulate(lambda: trio.to_thread.run_sync(print))


def test_a_socket_of_trio_is_caught() -> None:
    async def main() -> None:
        trio.socket.socket()

    with pytest.raises(SimulationFailed, match=r"socket\.socket\(\) is called at .*test_guards\.py"):
        simulate(main)


def test_the_random_source_is_caught_wherever_it_is_used() -> None:
    """By a reference that was kept elsewhere, in one seed only, and not one of those that are watched closely."""

    async def main(simulation: Simulation) -> None:
        if simulation.seed == 33:
            kept_elsewhere["random"]()

    with pytest.raises(
        SimulationFailed, match=r"^seed 33 fails: Nondeterminism: random\.random\(\) is called at .*test_guards"
    ):
        simulate(main)


def test_sources_that_are_handed_in_are_free_to_use() -> None:
    async def main(simulation: Simulation) -> None:
        simulation.random.shuffle([1, 2, 3])
        random.Random(5).random()
        await trio.sleep(simulation.random.random())
        assert trio.current_time() > 0
        assert time.gmtime(0).tm_year == 1970
        logging.getLogger("actors.test").warning("a log record has a time stamp; that does not matter")
        uuid.UUID(int=simulation.random.getrandbits(128))

    assert simulate(main, seeds=range(20)).schedules == 20


def test_a_module_may_be_allowed() -> None:
    stamps = types.ModuleType("stamps")
    exec("import time\ndef stamp(): return time.time()", stamps.__dict__)

    async def main() -> None:
        stamps.stamp()

    assert simulate(main, seeds=[0], allow=["stamps"]).schedules == 1
    with pytest.raises(SimulationFailed, match=r"time\.time\(\) is called"):
        simulate(main, seeds=[0])


def test_nothing_stays_replaced() -> None:
    before = time.time, random.random, os.urandom, socket.socket.__init__, type(random._inst), early_time
    simulate(trio.lowlevel.checkpoint, seeds=[0])
    with pytest.raises(SimulationFailed):
        simulate(lambda: trio.to_thread.run_sync(print), seeds=[0])
    assert before == (time.time, random.random, os.urandom, socket.socket.__init__, type(random._inst), early_time)
    assert sys.getprofile() is None


def test_between_runs_everything_is_allowed() -> None:
    seen = []

    def check(_: Simulation) -> None:
        seen.append((time.time(), random.random()))

    simulate(trio.lowlevel.checkpoint, seeds=range(2), check=check, twice=0)
    assert len(seen) == 2


def test_other_threads_are_free() -> None:
    """They belong to whoever runs the tests."""
    go, done, errors = threading.Event(), threading.Event(), []

    def other() -> None:
        go.wait(5)
        try:
            time.time()
            random.random()
        except Exception as error:
            errors.append(error)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    async def main() -> None:
        go.set()
        assert done.wait(5)

    simulate(main, seeds=[0], twice=0)
    thread.join()
    assert not errors


def test_sockets_that_trio_makes_in_tasks_of_its_own_are_blamed_on_who_waits_for_them() -> None:
    async def main() -> None:
        await trio.open_tcp_stream("127.0.0.1", 9)

    with pytest.raises(SimulationFailed, match=r"socket\.socket\(\) is called at .*test_guards\.py:\d+ in .*main"):
        simulate(main, seeds=range(1))
