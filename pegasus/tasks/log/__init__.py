"""The logs of tasks: their format, the one actor that writes them, and replaying them.

The log of a task is the only truth about it. `index.jsonl` and `pending.json` exist so that no start and no question has to read
all logs: they are derived from the logs. A lost or damaged pending.json is rebuilt at the start from the logs of the last days
(`REBUILD_DAYS`). See docs/task-persistence.md.

    format     lines of a log, index.jsonl, pending.json; pure
    replay     from a log to the task
    task_logs  the requests to the persister, the logs as the agent uses them, and reading without a daemon, as `pegasus tasks` does
    persister  the one actor that writes
"""
