"""Running one task: its actor, the stages that it goes through, and the parts that think, act and reflect.

Thinker, doer and reflector know nothing of state machines, logs or actors, so each can be tested and replaced alone. `stages` connects
them with the task, and `task` connects the stages with the log and the agent.

task         the actor: runs a stage, records its events, applies them
stages       the work of each stage; returns the events that come of it
thinker      one model call
doer         one tool call, and the rule which calls run side by side
reflector    what of a completed task is worth remembering
call_origin  labels of model calls, sources of tool calls
deps         the objects that all of this works with
messages     between the agent and the actor
"""
