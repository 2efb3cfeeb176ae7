"""Where ops stood once: `from lucid.op import composite` keeps working beside `from lucid.ops import composite`."""

from lucid.ops.op import Op as Op
from lucid.ops.op import composite as composite
from lucid.ops.op import composite_with as composite_with
from lucid.ops.op import function as function
from lucid.ops.op import primitive as primitive
