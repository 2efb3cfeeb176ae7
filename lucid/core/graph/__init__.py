"""The traced graph as data: types, values, nodes, bodies of loops; printed, run and verified.

Any room above `core.sizes` may import from it. What an op computes, and ONNX, do not belong here.
"""
