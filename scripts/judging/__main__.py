"""Run by scripts/judges, as a file: puts its parent folder on the path in place of its own."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from judging.command import main  # noqa: E402

sys.exit(main())
