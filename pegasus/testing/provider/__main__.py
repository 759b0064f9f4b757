"""The provider as a process of its own, without latency, for benchmarks: `python -m pegasus.testing.provider --script echo`.

Its first line is its url. Any key is accepted.

GET on any path returns how many requests have come, and how many were answered.
"""

from __future__ import annotations

import argparse

import trio

from pegasus.testing.provider.answers import SCRIPTS, Script
from pegasus.testing.provider.server import AsyncScript
from pegasus.testing.provider.serving import late, open_provider


async def _main(script: Script | AsyncScript, port: int) -> None:
    """Print the URL and serve for ever. Whoever started the process reads that line to know that the port is open."""
    # One request is remembered and not a thousand: a bench sends many, and its memory is measured.
    async with open_provider(script, port=port, keep=1) as server:
        print(server.url, flush=True)  # noqa: T201
        await trio.sleep_forever()


def main() -> None:
    """Serve until killed.

    An interrupt ends it silently, since the process that started it ends it that way.
    """
    parser = argparse.ArgumentParser(prog="python -m pegasus.testing.provider", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 = any free port")
    parser.add_argument("--script", choices=sorted(SCRIPTS), default="echo")
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS", help="that each answer takes")
    options = parser.parse_args()
    script = SCRIPTS[options.script]
    try:
        trio.run(_main, late(script, options.latency) if options.latency else script, options.port)
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
