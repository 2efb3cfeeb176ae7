"""`Tensor`, its methods and operators, and NumPy's functions called with tensors.

Any room from `ops` up may import from it. What an op computes belongs to the families in `ops`.
"""
