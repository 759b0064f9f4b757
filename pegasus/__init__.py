"""Pegasus, an always-on agent: it thinks in private, speaks through a tool, and loses nothing it accepted."""

__version__ = "0.1.0"
