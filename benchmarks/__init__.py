"""Benchmarks of Lucid's eager kernels and exported graphs, compared with torch and its exports: `make bench`.

`docs/benchmarks.md` explains the results, and the pages beside it show every figure. torch, its exporter and jax2onnx
are compared if they are installed; everything else is measured without them.
"""

import os

# OpenBLAS reads this when NumPy loads it. Its threads busy-wait for more work and would take the cores from the next
# measurement; 2^16 cycles are about 20 microseconds.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "16")
