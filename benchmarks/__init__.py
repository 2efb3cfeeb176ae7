"""What Lucid's eager kernels and exported graphs cost, beside torch and what torch exports: `make bench`.

`docs/benchmarks.md` shows the figures and explains the graphs. torch, its exporter and jax2onnx are compared where they
are installed; everything else is measured without them.
"""

import os

# Read by OpenBLAS when NumPy loads it. Its threads wait busily for more work and would steal the cores from whatever is
# measured next; 2^16 cycles are some 20 microseconds.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "16")
