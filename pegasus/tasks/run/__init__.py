"""Running one task: its actor, the stages that it goes through, and the model calls that they make.

Thinker and reflector know nothing of state machines, logs or actors, so each can be tested and replaced alone. `stages` connects
them with the task, and `task` connects the stages with the log and the agent.

task           the actor: runs a stage, records its events, applies them
messages       between the actor and the agent
stages         the work of each stage, the tool calls included; returns the events that come of it
deps           everything that tasks work with
thinker        model calls: thinking, reflecting
"""
