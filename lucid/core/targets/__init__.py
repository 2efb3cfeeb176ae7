"""Runtimes as data: a record for each target with its kernels, faults and the releases that fix them.

Any room may import from it. No other room names a target to decide something.
"""
