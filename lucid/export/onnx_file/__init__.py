"""The ONNX file: assembled, checked, written.

`export` and `testing` import from it. Choosing forms does not belong here.
"""
