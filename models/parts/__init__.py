"""What models share: decoders, heads, layers of two stacks, options of configs, and the models' demonstrations.

Models import from it; layouts know its sentence encoders. Whole models and the reading of files do not belong here.
"""
