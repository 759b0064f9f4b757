"""The command line: thin commands over the composition root and the gateway's client.

`main` runs a command line and returns its exit code. A module is imported when one of its commands is called. Read the files in this
order; each uses only those before it:

    other_names   what commands are called in other programs
    commands      the main command, its table of modules, and the declaration of a command
    control       asking the running daemon, or reading the files while none runs
    chat          the command chat, and the daemon that it starts
    program       the command run, `pegasus` alone, and the errors that become an exit code
    access        the commands open, pair, token and approvals
    config        the commands config and reload
    sessions      the commands sessions
    skills        the command skills
    status        the commands status and tree
    doctor        the command doctor
    follow        the log of a task as it grows
    work          the commands tasks and cron
    knowledge     the commands memory and persona
    service_unit  texts for systemd and launchd
    service       the command service
    init_outside  the questions of init about the web, and about chat services
    init          the command init
    importing     the command import
    backup        the commands backup, move and restore
    moving        the commands migrate and export
    update        the command update
    trace         the command trace
    mcp_relay     the MCP server of the daemon, on stdin and stdout
    mcp           the command mcp
    send          the command send
    acp           the command acp
    logs          the command logs
    nodes         the commands nodes and drain
    completion    the command completion

A command has no logic of its own beyond its options: it gets an answer (a JSON object, the same that a program gets from the
gateway) and formats it for people. So a program gets everything that a person sees here, with `--json` or from the gateway.
"""

from pegasus.cli.program import main

__all__ = ["main"]
