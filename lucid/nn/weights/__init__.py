"""The weights of a model's layers: found, replaced by others, and changed by adapters.

`nn.quantizing`, `tracing` and every room above import from it. Rounding belongs to `nn.quantizing`, the files of adapters
to `models.checkpoints`.
"""
