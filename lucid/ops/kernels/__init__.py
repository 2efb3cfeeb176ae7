"""NumPy kernels that are longer than a line: activations, norms, convolutions, quantized products, the error function.

Only `ops` imports from it. Types and checks belong to the ops themselves.
"""
