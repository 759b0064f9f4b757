"""The Main Agent: one private voice that takes queue items in order, thinks, and speaks only through tools.

Queue and think loop, session (log, repair, projection), commands, and the tools that only it has.
"""
