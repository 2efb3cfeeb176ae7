"""Attention as an op: its call, masks, body, caches in buffers, and its NumPy kernels.

`ops`, `nn` and `export` import from it. ONNX forms belong to `export.forms.attention`.
"""
