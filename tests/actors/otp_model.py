"""What supervisor.erl (OTP 25) does, retold as a plain program without time or processes: the second opinion.

It is written from OTP's source (function names in the comments are Erlang's), not from ours, and knows no backoff.
"""

from __future__ import annotations

import attrs

UP, UNDEFINED, RESTARTING = "up", "undefined", "restarting"


class Ended(Exception):
    """The supervisor process has ended."""


@attrs.define
class ModelChild:
    """failing: the attempts whose start fails."""

    name: str
    restart: str
    significant: bool
    failing: frozenset[int]
    pid: str = UNDEFINED
    attempts: int = 0


class OtpModel:
    def __init__(self, strategy: str, intensity: int, auto_shutdown: str) -> None:
        self.strategy = strategy
        self.intensity = intensity
        self.auto_shutdown = auto_shutdown
        self.children: list[ModelChild] = []
        self.restarts = 0
        self.trace: list[str] = []

    # init_children
    def start_link(self, children: list[ModelChild]) -> None:
        self.children = children
        for child in children:
            if not self._do_start_child(child):
                self._terminate()

    def _do_start_child(self, child: ModelChild) -> bool:
        child.attempts += 1
        if child.attempts in child.failing:
            self.trace.append(f"start_failed {child.name}")
            return False
        self.trace.append(f"started {child.name}")
        child.pid = UP
        return True

    # handle_info({'EXIT', Pid, Reason}) -> restart_child -> do_restart
    def exit(self, name: str, reason: str) -> None:
        child = self._find(name)
        if child is None or child.pid != UP:
            return
        self.trace.append(f"{reason} {name}")
        child.pid = UNDEFINED
        if child.restart == "permanent" or (child.restart == "transient" and reason != "normal"):
            self._restart(child)
            return
        if child.restart == "temporary":
            self.children.remove(child)
        self._do_auto_shutdown(child)

    def _do_auto_shutdown(self, child: ModelChild) -> None:
        if self.auto_shutdown == "never" or not child.significant:
            return
        others = any(other.significant and other.pid != UNDEFINED for other in self.children)
        if self.auto_shutdown == "any_significant" or not others:
            self._terminate()

    # restart/2, and handle_cast({try_again_restart, Id}) after a failure
    def _restart(self, child: ModelChild) -> None:
        again: ModelChild | None = child
        while again is not None:
            self.restarts += 1
            if self.restarts > self.intensity:
                again.pid = UNDEFINED
                self._terminate()
            again = self._restart_once(again)

    def _restart_once(self, child: ModelChild) -> ModelChild | None:
        if self.strategy == "one_for_one":
            group = [child]
        else:
            child.pid = UNDEFINED
            first = self.children.index(child) if self.strategy == "rest_for_one" else 0
            group = self._terminate_children(self.children[first:])
        for each in group:
            if not self._do_start_child(each):
                each.pid = RESTARTING
                return each
        return None

    def _terminate_children(self, children: list[ModelChild]) -> list[ModelChild]:
        for child in reversed(children):
            was = child.pid
            self._do_terminate(child)
            if was == UP and child.restart == "temporary":
                self.children.remove(child)
        return [child for child in children if child in self.children]

    def _do_terminate(self, child: ModelChild) -> None:
        if child.pid == UP:
            self.trace.append(f"stopping {child.name}")
        child.pid = UNDEFINED

    def _terminate(self) -> None:
        self._terminate_children(list(self.children))
        raise Ended

    # handle_call
    def stop(self) -> None:
        self._terminate()

    def start_child(self, child: ModelChild) -> str:
        if self._find(child.name) is not None:
            return "error"
        if not self._do_start_child(child):
            return "error"
        self.children.append(child)
        return "ok"

    def terminate_child(self, name: str) -> str:
        child = self._find(name)
        if child is None:
            return "error"
        self._terminate_children([child])
        return "ok"

    def restart_child(self, name: str) -> str:
        child = self._find(name)
        if child is None or child.pid != UNDEFINED:
            return "error"
        return "ok" if self._do_start_child(child) else "error"

    def delete_child(self, name: str) -> str:
        child = self._find(name)
        if child is None or child.pid != UNDEFINED:
            return "error"
        self.children.remove(child)
        return "ok"

    def which_children(self) -> list[tuple[str, str]]:
        return [(child.name, child.pid) for child in self.children]

    def _find(self, name: str) -> ModelChild | None:
        return next((child for child in self.children if child.name == name), None)
