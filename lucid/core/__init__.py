"""What everything stands on: sizes, the graph, the process, words for people, torch's names, records of runtimes.

Any room may import from its inner rooms. Nothing here knows ops, modules, ONNX or files of models.
"""
