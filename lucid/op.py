"""The old place of `composite` and others, which are now in `lucid.ops`: `from lucid.op import composite` works."""

from lucid.ops.op import Op as Op
from lucid.ops.op import composite as composite
from lucid.ops.op import composite_with as composite_with
from lucid.ops.op import function as function
from lucid.ops.op import primitive as primitive
