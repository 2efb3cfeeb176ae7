"""Reading published checkpoints: options, weights, tasks, GGUF files and quantized formats.

Models, layouts, generation and batch jobs import from it. What a model computes belongs to its own file.
"""
