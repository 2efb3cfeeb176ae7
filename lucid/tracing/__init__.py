"""`trace`: from a model and specs to a graph; parts of a model, such as a decoder's step.

`export` and the rooms above it import from it. ONNX does not belong here.
"""
