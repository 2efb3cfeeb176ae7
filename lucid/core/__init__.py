"""The foundation of all rooms: sizes, the graph, the process, text for people, torch's names, records of runtimes.

Any room may import from its inner rooms. Nothing here knows ops, modules, ONNX or files of models.
"""
