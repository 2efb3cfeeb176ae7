"""Symbolic sizes: `Dim`, its arithmetic as polynomials, and where inputs tell sizes.

Any room may import from it. What a tensor or a graph is does not belong here.
"""
