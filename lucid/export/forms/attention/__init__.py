"""The ONNX forms of attention, for every target and for single ones.

Only `export.forms` imports from it. The meaning of attention belongs to `lucid.ops.attention`.
"""
