"""Regressions that a check of an update has to find: homes of real agents, small changes of the product, and the trial of both.

`./scripts/regressions` runs it. tests/blackbox/test_update_check.py plants a few of them.
"""
