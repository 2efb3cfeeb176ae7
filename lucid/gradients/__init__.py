"""Gradients as graphs: functions that compute the gradients of functions, written in Lucid's ops like these.

A rule for each differentiable op gives nodes like any others, which NumPy runs and every target exports. What never
belongs here: losses and optimizers, which are functions of tensors, and anything about one runtime.
"""

from lucid.core.words import package_names as _public
from lucid.gradients.tape import CONSTANT as CONSTANT
from lucid.gradients.tape import RULES as RULES
from lucid.gradients.tape import GradientError as GradientError
from lucid.gradients.tape import Rule as Rule
from lucid.gradients.transforms import grad as grad
from lucid.gradients.transforms import value_and_grad as value_and_grad

__all__ = _public.offered(globals())
__dir__ = __all__.copy
