"""What supervisor.erl (OTP 25) does, retold as a plain program without time or processes: the second opinion.

It is written from OTP's source (function names in the comments are Erlang's), not from ours, and knows no backoff.
"""

from __future__ import annotations

from collections import deque
from itertools import count

import attrs

from tests.actors.otp.scenario import FIRST, LAST, REQUESTS, Batch, ChildSpec, Scenario, Step, line

UNDEFINED, RESTARTING = "undefined", "restarting"
Pid = int | str


class Ended(Exception):
    """The supervisor process has ended."""


@attrs.define(eq=False)
class ModelChild:
    """A #child{}: pid is a number, undefined or restarting."""

    spec: ChildSpec
    pid: Pid = UNDEFINED
    attempts: int = 0


def play(scenario: Scenario) -> list[str]:
    """What would happen, as the lines of tests/actors/otp/scenario.py."""
    model = OtpModel(scenario)
    told: list[str] = []
    batch: Batch | str = FIRST
    try:
        model.start_link()
        told.append(line(batch, model.flush(), (), model.which_children()))
        for batch in scenario.batches:
            results = model.follow(batch)
            told.append(line(batch, model.flush(), results, model.which_children()))
        batch = LAST
        model.terminate()
    except Ended:
        return [*told, line(batch, model.flush(), (), None)]
    raise AssertionError


class OtpModel:
    """queue: the messages of the supervisor process. alive: the pids of processes that run."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.children = [ModelChild(spec) for spec in scenario.children]
        self.queue: deque[tuple[str, object, Step | None]] = deque()
        self.alive: set[Pid] = set()
        self.restarts = 0
        self.trace: list[str] = []
        self._pids = count(1)

    def flush(self) -> list[str]:
        told, self.trace = self.trace, []
        return told

    def which_children(self) -> list[str]:
        return [f"{child.spec.name} {'up' if isinstance(child.pid, int) else child.pid}" for child in self.children]

    # ------------------------------------------------------------ the process

    def follow(self, batch: Batch) -> list[str]:
        """All of it comes into the queue, then the queue is worked off."""
        for step in batch:
            if step.do in REQUESTS:
                self.queue.append(("call", "", step))
            elif (child := self._find(step.name)) is not None and child.pid in self.alive:
                self.trace.append(str(step))
                self.alive.remove(child.pid)
                self.queue.append(("EXIT", child.pid, step))
        results = []
        while self.queue:
            kind, what, step = self.queue.popleft()
            if kind == "EXIT":
                child = self._find(step.name)
                # A supervisor that has given up ends with the reason `shutdown`, which restart/1 takes as normal.
                self._exit(what, step.do == "normal" or (child is not None and child.spec.nested))
            elif kind == "cast":
                self._try_again_restart(what)
            else:
                results.append("ok" if getattr(self, f"_{step.do}_child")(step) else "error")
        return results

    # init_children
    def start_link(self) -> None:
        if self._start_children(self.children) is not None:
            self.terminate()

    def terminate(self) -> None:
        self._terminate_children(list(self.children))
        raise Ended

    # ------------------------------------------------------------ handle_call

    def _start_child(self, step: Step) -> bool:
        if self._find(step.name) is not None:
            return False
        child = ModelChild(step.child)
        started = self._do_start_child(child)
        self.children += [child] if started else []
        return started

    def _stop_child(self, step: Step) -> bool:
        child = self._find(step.name)
        if child is not None:
            self._do_terminate(child)
            self._del_child(child)
        return child is not None

    def _restart_child(self, step: Step) -> bool:
        child = self._find(step.name)
        return child is not None and child.pid == UNDEFINED and self._do_start_child(child)

    def _delete_child(self, step: Step) -> bool:
        child = self._find(step.name)
        if child is None or child.pid != UNDEFINED:
            return False
        self.children.remove(child)
        return True

    # ------------------------------------------------------------ handle_info, handle_cast

    # handle_info({'EXIT', Pid, Reason}) -> restart_child -> do_restart
    def _exit(self, pid: object, normal: bool) -> None:
        child = next((child for child in self.children if child.pid == pid), None)
        if child is None:
            return
        if child.spec.restart == "permanent" or (child.spec.restart == "transient" and not normal):
            self._restart(child)
        else:
            self._del_child(child)
            self._do_auto_shutdown(child)

    def _do_auto_shutdown(self, child: ModelChild) -> None:
        how = self.scenario.auto_shutdown
        if how == "never" or not child.spec.significant:
            return
        if how == "any_significant" or not any(c.spec.significant and c.pid != UNDEFINED for c in self.children):
            self.terminate()

    def _try_again_restart(self, name: object) -> None:
        child = self._find(name)
        if child is not None and child.pid == RESTARTING:
            self._restart(child)

    # restart/2 and restart/3
    def _restart(self, child: ModelChild) -> None:
        self.restarts += 1
        if self.restarts > self.scenario.restarts:
            self._del_child(child)
            self.terminate()
        if self.scenario.strategy == "one_for_one":
            group = [child]
        else:
            child.pid = UNDEFINED if self.scenario.strategy == "one_for_all" else child.pid
            first = self.children.index(child) if self.scenario.strategy == "rest_for_one" else 0
            group = self._terminate_children(self.children[first:])
        failed = self._start_children(group)
        if failed is not None:
            failed.pid = RESTARTING
            self.queue.append(("cast", failed.spec.name, None))

    # ------------------------------------------------------------ children

    def _start_children(self, children: list[ModelChild]) -> ModelChild | None:
        return next((child for child in children if not self._do_start_child(child)), None)

    def _do_start_child(self, child: ModelChild) -> bool:
        child.attempts += 1
        if child.attempts in child.spec.failing:
            self.trace.append(f"start_failed {child.spec.name}")
            return False
        self.trace.append(f"started {child.spec.name}")
        child.pid = next(self._pids)
        self.alive.add(child.pid)
        return True

    def _terminate_children(self, children: list[ModelChild]) -> list[ModelChild]:
        for child in reversed(children):
            self._do_terminate(child)
            self._del_child(child)
        return [child for child in children if child in self.children]

    def _do_terminate(self, child: ModelChild) -> None:
        if child.pid in self.alive:
            self.trace.append(f"stopping {child.spec.name}")
            self.alive.remove(child.pid)

    def _del_child(self, child: ModelChild) -> None:
        child.pid = UNDEFINED
        if child.spec.restart == "temporary":
            self.children.remove(child)

    def _find(self, name: object) -> ModelChild | None:
        return next((child for child in self.children if child.spec.name == name), None)
