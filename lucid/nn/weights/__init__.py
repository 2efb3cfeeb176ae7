"""The weights of a model's layers: found, replaced by others, and changed by adapters.

`nn.quantizing`, `tracing` and every room above import from it. Rounding belongs to `nn.quantizing`, files of adapters
to `models.checkpoints`.
"""
