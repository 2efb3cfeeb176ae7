"""These tests load folders with the programs that they are written for: `make test-consumers`, in an environment of its
own. Elsewhere they are not collected.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

# Before the first import of a library that would look for newer files.
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

collect_ignore_glob = [] if find_spec("sentence_transformers") and find_spec("optimum") else ["test_*.py"]
