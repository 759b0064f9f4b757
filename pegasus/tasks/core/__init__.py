"""The task as a pure value: what it knows, the events that change it, and the state machine. No I/O, clock or randomness.

Time and ids come in with the events. So every rule about tasks can be tested by a list of events, and a log can be replayed at any
later time with the same outcome. Nothing in this folder imports another folder of the package.

Read the files in this order; each uses only those before it:

    task_types   tools, model and prompt of a type of task
    task_states  states, words for why a task rests or ended, the error of a refused request
    task_events  what each event says, and its form in the log
    fsm          everything a task knows, the transitions that are allowed, and the change that each event makes
    views        the task as others see it, and its notifications
"""
