"""What a task does in each stage: think (one model call), do (one step), look back. Stateless: one instance serves all tasks.

The planner between thinking and doing is pure code (`pegasus.tasks.planner`).
"""
