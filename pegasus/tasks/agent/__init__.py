"""The agent of the task system: it accepts work, gives tasks their slots, answers questions about them and notifies submitters."""
