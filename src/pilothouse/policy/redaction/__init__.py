"""The filter: find personal data, secrets and unsafe phrases in a stream, and never send a prefix of one.

    text > normal form > pump (what may go, what must wait) > matcher (what is in it) > replacement

Text is cut where no match can lie across the cut: `holding.py` knows how far back a match could still have begun. Each
piece between two cuts is searched once, so the result does not depend on how the text arrived.
"""
