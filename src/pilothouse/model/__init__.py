"""The words of the house as values: ids, units, errors, fleet snapshots, specifications, events and effects.

Everything here is immutable and knows nothing of the outside world. Other rooms talk to each other in these types.
"""
