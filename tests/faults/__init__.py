"""Faults on real nodes, clients that talk on meanwhile, and a checker that knows only what clients saw and what is stored.

`./scripts/bench scale --long` runs a thousand of them; `tests/blackbox/test_faults.py` a few.

checker.py (the promises) · stored.py (what files and tables hold) · speaker.py (clients) · link.py (the network) · house.py (nodes) ·
injecting.py (what goes wrong) · trial.py (one run of all this)
"""
