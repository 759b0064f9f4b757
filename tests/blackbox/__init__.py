"""The real process, seen from outside: command line, signals, files, WebSocket frames.

No test here imports what it tests. The model is a provider-shaped HTTP server; time is real, and nothing sleeps for a guess.
"""
