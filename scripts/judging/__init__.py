"""The judges of `./scripts/judges`: official test suites, validators and clients of the protocols that Pegasus speaks.

    verdict    what a judge is, and what it says
    programs   judges that are programs of npm or PyPI, of a pinned version
    command    the command line, and the table
    clients    programs that `services` runs: what others wrote, used as a bot uses it
    the rest   one judge a file

A judge runs against the real daemon, whose model is a server on loopback (`benchmarks.provider`). Nothing of a judge is a dependency
of Pegasus: programs of npm are run by npx, those of PyPI from a virtual environment of their own, both in the folder of the run.
"""
