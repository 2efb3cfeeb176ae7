"""The weights of a model's layers: found, replaced by others, and changed by adapters.

What rounds weights belongs in `nn.quantizing`, the files of adapters in `models.checkpoints`.
"""
