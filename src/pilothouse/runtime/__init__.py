"""What runs machines: live on asyncio, in virtual time on a heap, or again from a journal.

All three share one interpreter (`interpreter.py`): events in one at a time, effects carried out in order.
"""
