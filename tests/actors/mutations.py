"""Small faults put into a copy of `actors`, each of which a test must notice. `scripts/mutate` tries them all."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds. A mutant under which the tests take longer counts as one that no test notices: a test has to say what is wrong,
and may not hang. Every test has a limit in virtual time and one of CPU time for that (conftest.py)."""
CPU_LIMIT = "6"
"""Seconds of CPU for one test; several times as much as the longest takes."""
MEMORY = 2 << 30
"""Bytes. A mutant that fills the memory, for instance with events in an endless loop, is noticed."""
CONFTEST = """
from hypothesis import Phase, settings
settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate], database=None)  # whether it fails is enough
settings.load_profile("mutants")
"""


@attrs.frozen
class Mutation:
    """old is replaced by new, in the one place of the module where it stands. tests: in tests/actors."""

    title: str
    module: str
    old: str
    new: str
    tests: str

    @property
    def path(self) -> Path:
        return Path("actors", f"{self.module}.py")

    def apply(self, source: str) -> str:
        if source.count(self.old) != 1:
            raise ValueError(f"{self.title}: {self.old!r} stands in {self.path} {source.count(self.old)} times")
        return source.replace(self.old, self.new)


TABLE, MACHINE, OTP, SUPERVISOR = "test_table.py", "test_table_machine.py", "test_otp.py", "test_supervisor.py"
REF, CELL, BLOCKED, CHILDREN, POOL, TREE, SPEC, LOOP = (
    f"test_{name}.py" for name in ("ref", "cell", "blocked", "children", "pool", "tree", "spec", "loop")
)

MUTATIONS = [
    # -------------------------------------------------------- the three that the normal tests try too
    Mutation(
        "the generation of an exit is not checked",
        "_table",
        "entry.attempt != attempt or ",
        "",
        f"{TABLE}::test_an_exit_of_an_earlier_attempt_says_nothing",
    ),
    Mutation(
        "children are stopped in start order",
        "_table",
        "for name in reversed(self.entries) if",
        "for name in self.entries if",
        f"{OTP}::test_same_trace_as_otp",
    ),
    Mutation(
        "questions in the hands of an actor that ends are not failed",
        "_incarnation",
        '            exchange.fail(ActorDied, f"the actor ended before it answered: {describe_exit(exit)}", error)\n',
        "            pass\n",
        f"{REF}::test_a_crash_fails_the_questions_that_were_kept",
    ),
    # -------------------------------------------------------- the table
    Mutation(
        "a group is stopped in start order",
        "_table",
        "for n in reversed(self.group(name)) if",
        "for n in self.group(name) if",
        OTP,
    ),
    Mutation("a restart costs nothing", "_table", "        self._incidents.append(now)\n", "", OTP),
    Mutation(
        "one restart too many is allowed",
        "_table",
        "len(self._incidents) <= self",
        "len(self._incidents) - 1 <= self",
        OTP,
    ),
    Mutation(
        "a credit is back one moment too early", "_table", "if time + period >= now]", "if time + period > now]", TABLE
    ),
    Mutation("credits never come back", "_table", "if time + period >= now]", "if True]", TABLE),
    Mutation(
        "the backoff is never reset", "_table", "            entry.failures = 0\n", "            pass\n", SUPERVISOR
    ),
    Mutation(
        "the backoff does not grow",
        "_table",
        "        entry.failures += 1\n",
        "        entry.failures = 1\n",
        SUPERVISOR,
    ),
    Mutation("an end that was absorbed counts", "_table", " or entry.state is not State.UP:\n", ":\n", MACHINE),
    Mutation(
        "a temporary child that was stopped is kept",
        "_table",
        "        if entry.child.restart is Restart.TEMPORARY:\n            del",
        "        if False:\n            del",
        OTP,
    ),
    Mutation(
        "a transient child never comes back", "_table", "(restart is Restart.TRANSIENT and abnormal)", "False", OTP
    ),
    Mutation(
        "a transient child always comes back",
        "_table",
        "is Restart.TRANSIENT and abnormal",
        "is Restart.TRANSIENT",
        OTP,
    ),
    Mutation(
        "a significant child ends its supervisor always",
        "_table",
        "self._auto_shutdown is AutoShutdown.ALL_SIGNIFICANT and others",
        "False",
        OTP,
    ),
    Mutation(
        "a child that is stopped still waits for its restart",
        "_table",
        "        self._withdraw(name)\n        if entry",
        "        if entry",
        MACHINE,
    ),
    Mutation(
        "one for all is rest for one",
        "_table",
        "return names if self._strategy is Strategy.ONE_FOR_ALL else",
        "return",
        OTP,
    ),
    Mutation(
        "a group forgets that one of it must wait longer",
        "_table",
        "due = max(due, self._withdraw(name))",
        "self._withdraw(name)",
        SUPERVISOR,
    ),
    Mutation(
        "the restart that is due last comes first",
        "_table",
        "first = min(pending, key",
        "first = max(pending, key",
        TABLE,
    ),
    Mutation(
        "a start that failed is tried again without being paid for",
        "_table",
        "return Verdict.TRY_AGAIN",
        "return Replace(name, (), 0.0)",
        OTP,
    ),
    Mutation(
        "a start is tried again though it was called off",
        "_table",
        "if not self._awaits_retry(name):",
        "if name not in self.entries:",
        OTP,
    ),
    # -------------------------------------------------------- the supervisor's task
    Mutation(
        "an end of another child of that name counts",
        "_children",
        "cell is not None and cell.incarnation is incarnation",
        "cell is not None",
        SUPERVISOR,
    ),
    Mutation(
        "children are first started in reverse",
        "_loop",
        "        for child in self.spec.children:\n            incarnation",
        "        for child in reversed(self.spec.children):\n            incarnation",
        OTP,
    ),
    Mutation(
        "the next child does not wait until this one is up",
        "_children",
        "        await self.wait_settled(incarnation)\n        return incarnation",
        "        await trio.lowlevel.checkpoint()\n        return incarnation",
        SUPERVISOR,
    ),
    Mutation(
        "a start that failed is tried again before anything else",
        "_loop",
        "            self.queue.append(name)",
        "            self.queue.appendleft(name)",
        OTP,
    ),
    Mutation(
        "whose restart is called off keeps its messages",
        "_children",
        '                self.close(other, f"its',
        '                str(f"its',
        SUPERVISOR,
    ),
    Mutation(
        "a start that was cancelled is taken up again",
        "_children",
        "        if not self.mark_aborted_down(incarnation):\n",
        "        if True:\n",
        SUPERVISOR,
    ),
    Mutation(
        "a pool stops its children one after the other",
        "_children",
        "for group in [names] if self.parallel else",
        "for group in",
        POOL,
    ),
    Mutation(
        "a supervisor that has given up keeps quiet",
        "_loop",
        "        self._end(failure)\n",
        "        self._end(None)\n",
        OTP,
    ),
    Mutation("giving up forgets why", "_loop", "        failure.__cause__ = error\n", "", SUPERVISOR),
    Mutation(
        "whoever waits for a request waits for ever",
        "_loop",
        "                item.done.set()\n",
        "                pass\n",
        SUPERVISOR,
    ),
    Mutation(
        "an item is taken up during a start in its caller's task",
        "_loop",
        "            if not self._busy and (self",
        "            if (self",
        LOOP,
    ),
    Mutation(
        "a start does not wait for what is under way",
        "_loop",
        "if not self._busy and not self.queue:",
        "if True:",
        LOOP,
    ),
    Mutation(
        "the end of a start in its caller's task wakes nobody",
        "_loop",
        "            if self.queue or self.table.pending:\n",
        "            if False:\n",
        LOOP,
    ),
    Mutation(
        "a stop leaves the caller of a start waiting",
        "_loop",
        "        self.children.end_waits_for_starts()\n",
        "",
        LOOP,
    ),
    Mutation(
        "a child inherits the context of the caller",
        "_children",
        "            self.context.run(spawn)\n",
        "            spawn()\n",
        LOOP,
    ),
    # -------------------------------------------------------- stopping
    Mutation(
        "nobody is cancelled when its time is up",
        "_children",
        '        incarnation.kill(f"did not stop within {incarnation.child.shutdown:g} s")\n',
        "",
        CHILDREN,
    ),
    Mutation(
        "no event about who is stuck",
        "_children",
        "        if not incarnation.stuck:\n",
        "        if False:\n",
        CHILDREN,
    ),
    Mutation(
        "shutdown=0 is patient", "_children", "        if incarnation.child.shutdown > 0:", "        if True:", CHILDREN
    ),
    Mutation(
        "an actor that is to stop gets another message",
        "_incarnation",
        "        self.stopping = True\n        self.stop_deadline = trio",
        "        self.stop_deadline = trio",
        CHILDREN,
    ),
    Mutation(
        "who does not read its inbox is not told to stop",
        "_incarnation",
        '            self.scope.cancel(reason="asked to stop")\n',
        "            pass\n",
        CHILDREN,
    ),
    Mutation(
        "the budget is that of the slowest child",
        "_children",
        "else math.fsum(budgets)\n",
        "else max(budgets, default=0.0)\n",
        SUPERVISOR,
    ),
    # -------------------------------------------------------- messages
    Mutation("what dies in hand counts as handled", "_incarnation", "            self.cell.handled -= 1\n", "", CELL),
    Mutation("a dead letter is not counted", "_cell", "        self.dead += 1\n", "", CELL),
    Mutation("a dropped message is not counted", "_cell", "        self.dropped += 1\n", "", CELL),
    Mutation(
        "a message that nobody is there for vanishes",
        "_cell",
        "        self.sent += 1\n        self.dead_letter(message, why)\n",
        "        self.sent += 1\n",
        CELL,
    ),
    Mutation(
        "what is queued when an actor ends vanishes",
        "_cell",
        "            self.dead_letter(self.take(), why)\n",
        "            self.take()\n",
        CELL,
    ),
    Mutation(
        "one message more than the capacity",
        "_cell",
        "trio.open_memory_channel(mailbox.capacity)",
        "trio.open_memory_channel(mailbox.capacity + 1)",
        CELL,
    ),
    Mutation(
        "the newest is dropped for the oldest",
        "_cell",
        "if overflow is Overflow.DROP_OLDEST:",
        "if False:",
        CELL,
    ),
    Mutation("who moves up is not counted", "_cell", "        if moves_up:\n", "        if False:\n", CELL),
    Mutation(
        "who must not wait stands in line",
        "_cell",
        "                scope.cancel(reason=UNREACHABLE)\n",
        "                pass\n",
        BLOCKED,
    ),
    Mutation(
        "the mailbox ends with the run",
        "_cell",
        "            former.close()\n",
        "            self.receiving.close()\n",
        CELL,
    ),
    Mutation("an actor that waits is not told to stop", "_cell", "            former.close()\n", "", CHILDREN),
    Mutation(
        "deadlines are not inherited",
        "_ref",
        "        deadline = min(deadline, handled.deadline)\n",
        "        pass\n",
        REF,
    ),
    Mutation(
        "an answered question still sets the deadline",
        "_ref",
        "if handled is not None and handled.open:",
        "if handled is not None:",
        REF,
    ),
    Mutation(
        "circles are not seen",
        "_ref",
        "    if cycle is not None:\n",
        "    if False:\n",
        REF,
    ),
    Mutation(
        "who has its answer still waits", "_reply", "question is not None and question.open else", "question else", REF
    ),
    Mutation("a circle that is closed by handing on is not seen", "_reply", "or not exchange.open", "or True", REF),
    Mutation(
        "a question in line is not where it stands",
        "_cell",
        "        exchange.move_to(self)\n        break_cycle_of_asker(exchange)\n",
        "        break_cycle_of_asker(exchange)\n",
        REF,
    ),
    Mutation(
        "a question that left the line is nobody's",
        "_cell",
        "            exchange.move_back(target, holder)\n            raise\n",
        "            raise\n",
        REF,
    ),
    Mutation(
        "who stands in line does not wait",
        "_cell",
        "        sender.waits_for_room_in = self\n",
        "",
        REF,
    ),
    Mutation(
        "a circle of full mailboxes is followed for ever",
        "_reply",
        "if following is None or following in path[1:]:",
        "if following is None:",
        REF,
    ),
    Mutation(
        "a child does not hold the questions that it is given",
        "_children",
        "        incarnation.take_arguments()\n",
        "",
        POOL,
    ),
    Mutation(
        "a start that was left as it succeeded stays",
        "_loop",
        "            self._put(Request(partial(self._take_back, incarnation, forget=forget)))\n",
        "            pass\n",
        "test_faults_starts.py",
    ),
    Mutation(
        "the asker never leaves",
        "_ref",
        "            exchange.leave()\n            _end_wait",
        "            _end_wait",
        REF,
    ),
    Mutation(
        "work for an asker that has left goes on",
        "_reply",
        '            scope.cancel(reason="the asker has left")\n\n\nclass',
        "            pass\n\n\nclass",
        REF,
    ),
    Mutation(
        "a question whose asker has left is worked on",
        "_incarnation",
        "            if exchange.left:",
        "            if False:",
        REF,
    ),
    Mutation(
        "the asker is not told that its question was dropped",
        "_reply",
        '    exchange.fail(ActorError, "the question was dropped without an answer")\n',
        "    pass\n",
        REF,
    ),
    Mutation(
        "a lost Reply is never noticed",
        "_reply",
        "            self._exchange.target.run_in_trio(_fail_dropped, self._exchange)\n",
        "            pass\n",
        REF,
    ),
    Mutation(
        "an answer may be given twice",
        "_reply",
        '            raise exchange.make_error(ActorError, "was answered already")\n',
        "            pass\n",
        "test_bad_input.py",
    ),
    # -------------------------------------------------------- the rest
    Mutation(
        "a backoff that makes the intensity unreachable is allowed",
        "_spec",
        "    if fastest > intensity.period:",
        "    if False:",
        SPEC,
    ),
    Mutation("the jitter is not used", "_spec", "random.uniform(1 - self.jitter, 1 + self.jitter)", "1", SPEC),
    Mutation(
        "the stream of events never ends",
        "_events",
        "            stream.close()\n\n    def",
        "            pass\n\n    def",
        TREE,
    ),
    Mutation(
        "a slow reader of events loses the count of what it lost",
        "_events",
        "        self.missed += len",
        "        self.missed -= len",
        TREE,
    ),
    # -------------------------------------------------------- faults that were once let pass
    Mutation(
        "a significant child that waits for its restart does not count",
        "_table",
        "e.child.significant and e.state is not State.DOWN",
        "e.child.significant and e.state in RUNNING",
        SUPERVISOR,
    ),
    Mutation(
        "a pool waits for its children in list order",
        "_children",
        "in sorted(incarnations, key=lambda run: run.stop_deadline):",
        "in incarnations:",
        POOL,
    ),
    Mutation(
        "a cancel of the block interrupts the stop",
        "_supervisor",
        "        with trio.CancelScope(shield=True):  # its time",
        "        with trio.CancelScope():  # its time",
        TREE,
    ),
    Mutation(
        "no event about the delay after a failed start",
        "_loop",
        "if incarnation.up or replace.delay > 0:",
        "if incarnation.up:",
        SUPERVISOR,
    ),
    Mutation(
        "the tree shows the latest deadline",
        "_supervisor",
        "deadline = min((exchange.deadline",
        "deadline = max((exchange.deadline",
        TREE,
    ),
    Mutation(
        "a credit is back a millisecond too late",
        "_table",
        "if time + period >= now]",
        "if time + period + 0.001 >= now]",
        TABLE,
    ),
    Mutation(
        "the period is rounded",
        "_table",
        "if time + period >= now]",
        "if time >= now - period]",
        TABLE,
    ),
    Mutation(
        "a killed child has ended normally",
        "_loop",
        "incarnation.exit, Crashed | Killed)",
        "incarnation.exit, Crashed)",
        SUPERVISOR,
    ),
    Mutation(
        "a nested supervisor that has given up has crashed",
        "_loop",
        "if incarnation.is_supervisor and isinstance",
        "if False and isinstance",
        OTP,
    ),
]


def survives(mutation: Mutation) -> bool:
    """Whether its tests pass all the same."""
    return passes(mutation.tests, mutation)


def passes(tests: str, mutation: Mutation | None) -> bool:
    """Whether these tests pass with a copy of the package that has this fault."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder)
        for part in ("actors", "tests/actors"):
            shutil.copytree(ROOT / part, copy / part)  # with compiled files: only that of the fault is out of date
        for part in ("pyproject.toml", "docs/actors.md"):
            (copy / part).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / part, copy / part)
        (copy / "conftest.py").write_text(CONFTEST)
        if mutation is not None:
            mutated = copy / mutation.path
            mutated.write_text(mutation.apply(mutated.read_text()))
        return _run(copy, tests)


def _run(folder: Path, tests: str) -> bool:
    file, _, only = tests.partition(" -k ")
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"tests/actors/{file}"]
    try:
        ran = subprocess.run(
            command + (["-k", only] if only else []),
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), "ACTORS_TEST_CPU_LIMIT": CPU_LIMIT},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
        )
    except subprocess.TimeoutExpired:
        return True
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"the tests could not be run:\n{ran.stdout}\n{ran.stderr}")
    return ran.returncode == 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutations whose title contains such a word")
    words = parser.parse_args(arguments).words
    chosen = [mutation for mutation in MUTATIONS if not words or any(word in mutation.title for word in words)]
    if red := [tests for tests in sorted({mutation.tests for mutation in chosen}) if not passes(tests, None)]:
        parser.exit(2, f"red without any mutation: {', '.join(red)}\n")
    survivors = 0
    for mutation in chosen:
        began = time.perf_counter()
        survived = survives(mutation)
        survivors += survived
        verdict = "SURVIVES" if survived else "killed"
        print(f"{verdict:8} {time.perf_counter() - began:5.1f} s  {mutation.title}  ({mutation.tests})", flush=True)
    print(f"{len(chosen)} mutations, {survivors} survive")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
