"""The task as a pure value: what it knows, the events that change it, and the state machine. No I/O, clock or randomness."""
