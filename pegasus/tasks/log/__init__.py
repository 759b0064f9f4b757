"""The logs of tasks: their format, the one actor that writes them, and replaying them.

`index.jsonl` and `pending.json` are derived from the logs and can be rebuilt from them. See docs/task-persistence.md.

    format     lines of a log, index.jsonl, pending.json; pure
    persister  the actor that writes, and `record`, by which others have it write
    log_files  the place of each log, and its repair before it is appended to
    replay     from a log to the task
    task_logs  the logs as the agent reads them, and as `pegasus tasks` does without a daemon
    messages   of the persister
"""
