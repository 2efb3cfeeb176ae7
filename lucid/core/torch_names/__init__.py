"""torch's names: its argument names beside ours, names that Lucid lacks and what to write, habits of ported code.

Any room may import from it. Functions that compute something do not belong here.
"""
