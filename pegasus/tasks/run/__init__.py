"""Running one task: its actor, the stages that it goes through, and the model calls that they make.

Thinker and reflector know nothing of state machines, logs or actors, so each can be tested and replaced alone. `stages` connects
them with the task, and `task` connects the stages with the log and the agent.

Read the files in this order; each uses only those before it:

    permission  the tool by which a task asks beforehand for the calls that it plans
    thinker     model calls: thinking, reflecting
    deps        everything that tasks work with
    stages      the steps of a thought; the work of each stage, the tool calls included; returns the events that come of it
    task        messages between the actor and the agent; the actor: runs a stage, records its events, applies them
"""
