"""schemathesis against `/openapi.json`: requests made of the description, valid and not, and each answer held against it.

No answer may be a 5xx, or have a status, a type, a header or a form that the description does not have, and no request may be taken
that the description refuses. That each request which the description allows is taken is not checked: that a cron expression, a path or
an id is one that the agent knows is nothing that a schema can say. Left out are a WebSocket, a stream without an end, a long poll,
webhooks in the forms of their services, and protocols that have judges of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from benchmarks.provider import provider
from benchmarks.workplace import TOKEN, Workplace

from judging.openai_client import endpoints, with_models
from judging.programs import install_python, run_program
from judging.verdict import Judge, Verdict

VERSION: Final = "4.32.5"
SECONDS: Final = 420
"""Seconds that it may take."""
EXAMPLES: Final = 8
"""Random requests for an operation."""
SEED: Final = 29
LEFT_OUT: Final = r"^/(ws|api/events|api/replies|channels/.*|mcp|a2a.*|\.well-known/.*|hooks/.*)$"
UNCHECKED: Final = "positive_data_acceptance"


def run(place: Workplace) -> Iterator[Verdict]:
    programs = install_python(place.folder / "schemathesis", f"schemathesis=={VERSION}")
    with provider(place.log) as model, endpoints() as others:
        home = with_models(place.home(provider="openai", base_url=f"{model.root}/v1"), others)
        with place.daemon(home) as daemon:
            options = {
                "header": f"Authorization: Bearer {TOKEN}",
                "checks": "all",
                "exclude-checks": UNCHECKED,
                "mode": "all",
                "phases": "examples,coverage,fuzzing",
                "max-examples": str(EXAMPLES),
                "seed": str(SEED),
                "exclude-path-regex": LEFT_OUT,
                "request-timeout": "30",
            }
            words = [word for name, value in options.items() for word in (f"--{name}", value)]
            ran = run_program(
                [str(programs / "schemathesis"), "run", f"{daemon.http}/openapi.json", "--no-color", *words],
                seconds=SECONDS,
                folder=place.folder,
            )
    yield verdict_of(ran.stdout, ran.returncode)


def verdict_of(output: str, code: int) -> Verdict:
    """Return what the summary of a run says."""
    found = re.search(r"^  ([\d,]+) generated(?:, .*?(\d+) unique failures?)?", output, re.MULTILINE)
    if found is None or (code != 0) != (found[2] is not None):
        raise RuntimeError(f"schemathesis ended with {code}: {output[-1000:]}")
    generated, failed = int(found[1].replace(",", "")), int(found[2] or 0)
    skipped = re.search(r"(\d+) skipped", output[found.start() :])
    failures = output.partition("FAILURES ===")[2].partition("= WARNINGS =")[0] if failed else ""
    return Verdict("requests", generated - failed, failed, int(skipped[1]) if skipped else 0, failures)


JUDGE: Final = Judge("openapi", "OpenAPI", f"PyPI schemathesis {VERSION}, all checks but one", run)
