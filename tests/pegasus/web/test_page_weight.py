"""What a browser loads before it shows the chat."""

import re
from pathlib import Path

import pegasus.web

STATIC = Path(pegasus.web.__file__).parent / "static"
LIMIT = 150_000
"""Bytes, as `./scripts/bench doors` has it: a phone on a slow network shows the chat in about a second."""


def loaded(file, found):
    """Add a script and all that it imports to what was found. An `import()` is left for later."""
    if file not in found:
        found.add(file)
        for other in re.findall(r'^import .* from "(.+)";$', file.read_text(), re.MULTILINE):
            loaded((file.parent / other).resolve(), found)
    return found


def test_the_chat_is_light():
    files = {STATIC / name for name in ("index.html", "app.css", "app.webmanifest", "icon.svg")}
    scripts = loaded(STATIC / "js/main.js", set()) | loaded(STATIC / "js/pages/chat.js", set())
    assert len(scripts) > 5
    assert sum(file.stat().st_size for file in files | scripts) <= LIMIT
