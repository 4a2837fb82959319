"""The fleet file: how it is found, read, checked, shown and compared; and where a fleet's own files are.

What the file means is a `FleetSpec` (`model/spec.py`); the file's syntax is known nowhere else.
"""
