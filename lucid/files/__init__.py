"""Bytes on disk: atomic writes, whole folders, locks, weights and npz.

Any room above `core` may import from it. What the bytes mean to a model does not belong here.
"""
