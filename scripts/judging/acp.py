"""The official client of the Agent Client Protocol in JavaScript, the protocol's schema, and acpx, a client for terminals.

The client drives `pegasus acp` through every method. What went over the wire meanwhile is held against the schema that comes with it,
message by message.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
from benchmarks.processes import PYTHON
from benchmarks.workplace import Workplace

from judging.programs import install_npm, run_program
from judging.verdict import Judge, Verdict

SDK: Final = "@agentclientprotocol/sdk@2.4.0"
ACPX: Final = "acpx@0.19.1"
SECONDS: Final = 180.0
SCRIPT: Final = Path(__file__).with_name("acp_client.mjs")


def run(place: Workplace) -> Iterator[Verdict]:
    """Run the three judges on one daemon with the stand-in."""
    folder = place.folder / "npm"
    programs = install_npm(folder, SDK, ACPX)
    shutil.copy(SCRIPT, folder)
    project = place.folder / "project"
    project.mkdir()
    home = place.home()
    agent = [PYTHON, "-m", "pegasus", "--home", str(home), "acp"]
    with place.daemon(home):
        wire = place.folder / "wire"
        node = [shutil.which("node") or "node", SCRIPT.name]
        ran = run_program([*node, str(project), str(wire), *agent], seconds=SECONDS, folder=folder)
        cases = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        failed = [f"{case['case']}: {case['why']}" for case in cases if not case["passed"]]
        if ran.returncode or not cases:
            failed.append(f"exit code {ran.returncode}: {ran.stderr[-2000:]}")
        yield Verdict(
            "sessions, prompts, permissions, terminals", len(cases) - len(failed), len(failed), 0, _lines(failed)
        )
        yield _hold_against_schema(folder, wire)
        yield _run_acpx(programs / "acpx", project, agent)


def _hold_against_schema(folder: Path, wire: Path) -> Verdict:
    """Return how many messages of the agent fit the schema of their method."""
    schema = json.loads((folder / "node_modules/@agentclientprotocol/sdk/schema/v1/schema.json").read_text())
    checks: dict[tuple[str, str], Any] = {}
    for name, kind in schema["$defs"].items():
        if method := kind.get("x-method"):
            whole = {"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]}
            checks[method, "Response" if name.endswith("Response") else "params"] = jsonschema_rs.validator_for(whole)
    passed, failed = 0, []
    for number in (1, 2):  # two processes, each with ids of its own
        sent = _messages(f"{wire}-{number}.editor")
        asked = {each["id"]: each["method"] for each in sent if "method" in each and "id" in each}
        for message in _messages(f"{wire}-{number}.agent"):
            method = message.get("method") or asked.get(message.get("id"), "")
            part = "params" if "method" in message else "Response"
            if "error" in message or (check := checks.get((method, part))) is None:
                continue
            if check.is_valid(message["params" if part == "params" else "result"]):
                passed += 1
            else:
                failed.append(f"{method}: {json.dumps(message)[:300]}")
    return Verdict("messages against the schema", passed, len(failed), 0, _lines(failed))


def _messages(path: str) -> Iterator[dict[str, Any]]:
    for line in Path(path).read_text("utf-8").splitlines():
        if line.strip():
            yield json.loads(line)


def _run_acpx(acpx: Path, project: Path, agent: list[str]) -> Verdict:
    """Return how many of acpx's commands do what they should, each in a process of its own."""
    command = [str(acpx), "--agent", " ".join(agent), "--cwd", str(project), "--approve-all", "--format", "text"]
    steps = (
        (["exec", "hello"], "stand-in"),
        (["sessions", "new"], ""),
        (["prompt", "hello"], "stand-in"),
        (["prompt", "run echo by-acpx"], "by-acpx"),
        (["sessions", "list"], ""),
        (["cancel"], ""),
        (["set-mode", "walls"], "walls"),
        (["status"], ""),
        (["sessions", "close"], ""),
    )
    failed = []
    for arguments, expected in steps:
        env = {"HOME": str(project.parent), "XDG_STATE_HOME": str(project.parent / "state")}
        ran = run_program([*command, *arguments], seconds=SECONDS, folder=project, env=env)
        if ran.returncode or expected not in ran.stdout:
            failed.append(f"{' '.join(arguments)}: exit code {ran.returncode}: {(ran.stdout + ran.stderr)[-500:]}")
    return Verdict("acpx, command by command", len(steps) - len(failed), len(failed), 0, _lines(failed))


def _lines(failed: list[str]) -> str:
    return "\n".join(failed)


JUDGE: Final = Judge("acp", "ACP", f"{SDK}, {ACPX}", run)
