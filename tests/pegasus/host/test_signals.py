"""Signals, sent to a real process."""

from __future__ import annotations

import signal

import pytest

SCRIPT = """
import signal, sys, threading, trio
from pegasus.host import handle_signals

def say(text):
    print(text, flush=True)

async def main(how, grace):
    with handle_signals(grace=grace, on_reload=lambda: say("reload")) as signals:
        say("up")
        await signals.stop.wait()
        say(f"stopping {signals.number}")
        if how == "slow":
            await trio.sleep_forever()
        if how == "shielded":
            with trio.CancelScope(shield=True):
                await trio.sleep_forever()
        if how == "busy":
            while True:
                pass
    say(f"overran {signals.overran}")

trio.run(main, sys.argv[1], float(sys.argv[2]))
"""


@pytest.fixture
def daemon(start):
    def daemon(how="", grace=10.0):
        process = start(SCRIPT, how, grace)
        assert process.stdout.readline() == "up\n"
        return process

    return daemon


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_gracefully(daemon, number):
    process = daemon()
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)
    assert output == f"stopping {int(number)}\noverran False\n"
    assert process.returncode == 0


@pytest.mark.parametrize("how", ["slow", "shielded", "busy"])
@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)])
def test_the_second_ends_at_once_whatever_the_process_is_doing(daemon, how, numbers):
    process = daemon(how)
    process.send_signal(numbers[0])
    process.stdout.readline()
    process.send_signal(numbers[1])
    assert process.wait(timeout=20) == 128 + numbers[1]


def test_what_is_not_done_within_the_grace_is_cancelled(daemon):
    process = daemon("slow", grace=0.01)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=20)
    assert output.endswith("overran True\n")
    assert process.returncode == 0


@pytest.mark.parametrize("how", ["shielded", "busy"])
def test_what_cannot_be_cancelled_is_ended_by_force(daemon, how):
    process = daemon(how, grace=0)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert "still not stopped 0 s after the signal" in errors


def test_hangup_reloads_each_time(daemon):
    process = daemon()
    for _ in range(3):
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == "reload\n"
    process.terminate()
    assert process.wait(timeout=20) == 0


async def test_a_stop_can_be_asked_for_without_a_signal():
    from pegasus.host import handle_signals

    before = signal.getsignal(signal.SIGTERM)
    with handle_signals(grace=10, on_reload=lambda: None) as signals:
        assert signal.getsignal(signal.SIGTERM) != before
        signals.request_stop()
        await signals.stop.wait()
        assert signals.number is None
    assert signal.getsignal(signal.SIGTERM) == before


async def test_a_third_of_the_grace_is_kept_for_ending_hard(autojump_clock):
    import trio

    from pegasus.host import handle_signals

    with handle_signals(grace=10, on_reload=lambda: None) as signals:
        assert not signals.late
        signals.request_stop()
        await trio.sleep_forever()
    assert signals.overran
    assert signals.late
    assert trio.current_time() == pytest.approx(20 / 3)
