"""torch's names: its argument names, advice for names that Lucid lacks, and no-ops that ported code calls.

Any room may import from it. Functions that compute something do not belong here.
"""
