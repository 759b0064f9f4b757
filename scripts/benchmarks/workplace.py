"""Where a bench runs: its folder, its thoroughness, and homes of daemons in it."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from benchmarks.history import Exchange, session_lines
from benchmarks.processes import PYTHON, Running, running

TOKEN = "bench-token-of-no-value"


@attrs.frozen(eq=False)
class Workplace:
    """folder: on the disk that is measured. quick: few rounds, for a first look. is_long: the long form of a measure that has one."""

    folder: Path
    quick: bool = False
    is_long: bool = False
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    def rounds(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    @property
    def scripts(self) -> Path:
        """The folder that this package is in."""
        return Path(__file__).resolve().parents[1]

    @property
    def log(self) -> Path:
        """Where all processes write their stderr."""
        return self.folder / "stderr.log"

    def home(self, history: Sequence[Exchange] = (), *, provider: str = "", base_url: str = "") -> Path:
        """A new home, with a session already. provider: "openai", "anthropic", or "" for the built-in stand-in."""
        home = self.folder / f"home-{next(self._numbers)}"
        (home / "data" / "main").mkdir(parents=True)
        (home / "token").write_text(TOKEN + "\n")
        (home / "token").chmod(0o600)
        (home / "pegasus.toml").write_text(_settings(provider, base_url))
        (home / "pegasus.toml").chmod(0o600)
        if history:
            (home / "data" / "main" / "current.jsonl").write_bytes(b"".join(session_lines(history)))
        return home

    @contextmanager
    def daemon(
        self, home: Path, *, end: signal.Signals = signal.SIGTERM, program: Sequence[str] = ("-m", "pegasus")
    ) -> Iterator[Daemon]:
        """`pegasus run` on this home, until its ready line, and ended on leaving. program: what Python runs as `pegasus`."""
        args = [PYTHON, *program, "--home", str(home), "run", "--no-cli"]
        with running(args, log=self.log, end=end) as process:
            facts = dict(word.split("=", 1) for word in process.line.split() if "=" in word)
            yield Daemon(process, facts["ws"], facts["http"])


@attrs.frozen(eq=False)
class Daemon:
    """A daemon that is ready. url: its gateway."""

    process: Running
    url: str
    http: str = ""


def _settings(provider: str, base_url: str) -> str:
    lines = ["[gateway]", "port = 0", "[http]", "port = 0", "[log]", 'level = "warning"']
    if provider:
        # On this machine a server that does not tell its window counts as a small model, which gets a lean prompt. The window is so
        # large that no history of a measure is compacted: 2,000 messages are more than 100,000 tokens.
        lines += ["[models]", 'default = "bench/echo"', "context_window = 1000000"]
        lines += ["[providers.bench]", f'type = "{provider}"', 'api_key = "no-key"', f'base_url = "{base_url}"']
    return "\n".join(lines) + "\n"
