"""The agent of the task system: it accepts work, gives tasks their slots, answers questions about them and notifies submitters.

The agent is one actor. Its parts are plain objects that share a `TaskAgentState` and run in the agent's nursery, so none of them
needs a lock except where it waits between reading and changing a task.

Read the files in this order; each uses only those before it:

    messages   requests, and what the listener receives
    state      what the parts share: the tasks in memory, notifications on the way, recording events of a task without an actor
    refusals   answers where a task cannot do what is asked of it
    scheduler  slots: starting, suspending, resuming and ending tasks, and the stop of the process
    recovery   the tasks that the last run left pending
    elsewhere  tasks of other nodes
    tools      the tools task_list and task_replay
    agent      routes messages, answers questions, creates tasks
"""
