"""What people read: safe text, HTML for notebooks, suggestions, the user's line of code, progress reporting.

Any room may import from it. Nothing here knows tensors or graphs.
"""
