"""What belongs to this process and machine: context-local settings, threads, the random generator, the processor.

Any room may import from it. Nothing here knows tensors or graphs.
"""
