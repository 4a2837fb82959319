"""What is particular to each engine, one driver a module; nothing outside this room compares engine names.

`base.py` says what a driver tells, `registry.py` finds one by name, docs/howto/add-an-engine.md shows how to add one.
"""
