"""The programs of actors_programs with pykka: an actor is a thread. It has no supervision, so nothing restarts."""

from __future__ import annotations

import pykka

from benchmarks.actors_programs import ONE, Add, Clock, quiet


class Counter(pykka.ThreadingActor):
    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def on_receive(self, message: object) -> int:
        if type(message) is Add:
            self.total += message.amount
        return self.total


def tell(times: int, clock: Clock) -> float:
    ref = Counter.start()
    with quiet():
        began = clock()
        for _ in range(times):
            ref.tell(ONE)
        assert ref.ask("now") == times
        seconds = clock() - began
    ref.stop()
    return seconds


def ask(times: int, clock: Clock) -> float:
    ref = Counter.start()
    with quiet():
        began = clock()
        for _ in range(times):
            ref.ask("now")
        seconds = clock() - began
    ref.stop()
    return seconds


def start(times: int, clock: Clock) -> float:
    with quiet():
        began = clock()
        refs = [Counter.start() for _ in range(times)]
        seconds = clock() - began
    for ref in refs:
        ref.stop()
    return seconds
