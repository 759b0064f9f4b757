"""The reference validator of Agent Skills: over our skills, and beside `pegasus skills check --strict` over good and bad examples.

The examples are those that the tests of the reference have, one folder each. Where it refuses one, Pegasus has to refuse it too, and
where it does not, neither may Pegasus. What real skills do in spite of the specification has to be read all the same, with a notice.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from benchmarks.processes import PYTHON, environment
from benchmarks.workplace import Workplace

from judging.programs import install_python, run_program
from judging.verdict import Judge, Verdict

VERSION: Final = "0.1.1"
ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS: Final = 60.0
"""Seconds that a program may take for one skill."""
GOOD: Final = "---\nname: {name}\ndescription: A test skill\n---\nBody\n"
EXAMPLES: Final[Mapping[str, str | None]] = {
    "my-skill": GOOD,
    "all-fields": GOOD.replace("---\nBody", "license: MIT\ncompatibility: any\nmetadata:\n  author: Test\n---\nBody"),
    "allowed-tools": GOOD.replace("---\nBody", "allowed-tools: Bash(jq:*) Bash(git:*)\n---\nBody"),
    "no-file": None,
    "MySkill": GOOD,
    "a" * 70: GOOD,
    "-leading": GOOD,
    "trailing-": GOOD,
    "my--skill": GOOD,
    "my_skill": GOOD,
    "wrong-name": GOOD.replace("{name}", "correct-name"),
    "unknown-field": GOOD.replace("---\nBody", "unknown_field: x\n---\nBody"),
    "no-name": GOOD.replace("name: {name}\n", ""),
    "no-description": GOOD.replace("description: A test skill\n", ""),
    "long-description": GOOD.replace("A test skill", "x" * 1100),
    "long-compatibility": GOOD.replace("---\nBody", f"compatibility: {'x' * 550}\n---\nBody"),
    "no-front-matter": "# No front matter\n",
    "unclosed": GOOD.replace("---\nBody\n", ""),
    "no-yaml": GOOD.replace("{name}", "[invalid"),
    "no-mapping": "---\n- just\n- a\n- list\n---\nBody\n",
    "НАВЫК": GOOD,
    "技能": GOOD,
    "мой-навык": GOOD,
    "навык": GOOD,
    "café": GOOD,
}
"""Contents of SKILL.md by the name of the folder; None for a folder without one."""
OWN_RULE: Final = frozenset({"技能", "мой-навык", "навык", "café"})
"""Examples that the reference lets pass and the words of the specification do not, which allow a-z, 0-9 and hyphens."""
BENT: Final[Mapping[str, str]] = {
    "unknown-field": "unknown key",
    "no-description": "no description",
    "long-description": "the description is cut",
    "no-name": "",
    "long-compatibility": "",
}
"""Bad examples that real skills follow, so that they are read here, and the notice about each."""


def judge_ours(place: Workplace, validator: Path) -> Verdict:
    """Have the reference validate the built-in skills, and those that the pages show."""
    folders = [file.parent for file in sorted(ROOT.glob("pegasus/skills/builtin/*/SKILL.md"))]
    for page in sorted(ROOT.glob("docs/**/*.md")):
        for text in re.findall(
            r"^```markdown\n(---\nname: .*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
        ):
            if "tools:" in text and "allowed-tools:" not in text:
                continue  # a type of task, which is no skill
            folders.append(write_skill(place.folder / "shown", text.split("\n")[1].removeprefix("name: "), text))
    problems = {folder.name: found for folder in folders if (found := _refusal_of_reference(place, validator, folder))}
    return Verdict("our skills", len(folders) - len(problems), len(problems), details=_lines(problems))


def judge_examples(place: Workplace, validator: Path) -> Iterator[Verdict]:
    """Compare the reference with Pegasus over the examples, and look whether bent skills are read."""
    home = place.home()
    for name, text in EXAMPLES.items():
        write_skill(home / "skills", name, text)
    strict, usual = (_pegasus(home, "skills", "check", *more) for more in (("--strict",), ()))
    listed = _pegasus(home, "skills", "list", "--json")
    problems: dict[str, str] = {}
    for name in EXAMPLES.keys() - OWN_RULE:
        folder = home / "skills" / name
        reference = _refusal_of_reference(place, validator, folder)
        ours = str(folder) in strict or f'"name": "{name}"' not in listed
        if ours != bool(reference):
            problems[name] = (
                f"the reference says {reference or 'nothing'}, Pegasus {'refuses it' if ours else 'nothing'}"
            )
    count = len(EXAMPLES) - len(OWN_RULE)
    skipped = f"skipped, as the specification has only a-z and 0-9: {', '.join(sorted(OWN_RULE))}"
    details = "\n".join(filter(None, (_lines(problems), skipped)))
    yield Verdict("examples, as strict", count - len(problems), len(problems), len(OWN_RULE), details)
    problems = {
        name: "it is not read, or without a notice"
        for name, notice in BENT.items()
        if f'"name": "{name}"' not in listed or not re.search(f"/{name}/.*{notice}", usual if notice else f"/{name}/")
    }
    yield Verdict("bent, read with a notice", len(BENT) - len(problems), len(problems), details=_lines(problems))


def write_skill(folder: Path, name: str, text: str | None) -> Path:
    """Write a skill, and return its folder."""
    (folder / name).mkdir(parents=True)
    if text is not None:
        (folder / name / "SKILL.md").write_text(text.replace("{name}", name), "utf-8")
    return folder / name


def _refusal_of_reference(place: Workplace, validator: Path, folder: Path) -> str:
    """Return what the reference has against a skill, "" for nothing."""
    ran = run_program([str(validator), "validate", str(folder)], seconds=SECONDS, folder=place.folder)
    return (ran.stderr or ran.stdout).strip().replace("\n", " ") if ran.returncode else ""


def _pegasus(home: Path, *arguments: str) -> str:
    command = [PYTHON, "-m", "pegasus", "--home", str(home), *arguments]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False)
    return ran.stdout + ran.stderr


def _lines(problems: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {problem}" for name, problem in sorted(problems.items()))


def run(place: Workplace) -> Iterator[Verdict]:
    """Judge our skills, then the examples."""
    validator = install_python(place.folder / "skills-ref", f"skills-ref=={VERSION}") / "agentskills"
    if not validator.exists():
        validator = validator.with_name("skills-ref")
    yield judge_ours(place, validator)
    yield from judge_examples(place, validator)


JUDGE: Final = Judge("skills", "Agent Skills", f"PyPI skills-ref {VERSION}", run)
