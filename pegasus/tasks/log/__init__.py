"""The logs of tasks: their format, the one actor that writes them, and replaying them.

`index.jsonl` and `pending.json` are derived from the logs and can be rebuilt from them. See docs/task-persistence.md.
"""
