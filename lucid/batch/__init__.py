"""An exported model over many rows: a callable for any engine, `map_rows` (`lucid map`), `fine_tune` (`lucid train`).

`serving` and `cli` import from it. HTTP does not belong here.

Needs the extra `batch`.

::

    embed = lucid.batch.Predictor("minilm-onnxruntime", input="text")
    embed({"text": ["A cat sits on a rug.", None]})      # embedding (2, 384), error [None, "the text is null"]
"""

# ruff: noqa: E402  # the check comes first: its message is clearer than an ImportError
from importlib.util import find_spec as _find_spec

_NEEDED = {"pyarrow": "pyarrow", "fsspec": "fsspec", "PIL": "pillow", "tokenizers": "tokenizers", "jinja2": "jinja2"}
if _missing := [name for module, name in _NEEDED.items() if _find_spec(module) is None]:
    raise ModuleNotFoundError(
        f"batch inference and training need {', '.join(_missing)}: pip install 'lucid-onnx[batch]'"
    )

from lucid.batch.fine_tuning import fine_tune as fine_tune
from lucid.batch.folder import FolderChangedError as FolderChangedError
from lucid.batch.mapping import Summary as Summary
from lucid.batch.mapping import map_rows as map_rows
from lucid.batch.predictor import Predictor as Predictor
from lucid.batch.training_options import TrainingOptions as TrainingOptions
from lucid.core.words import package_names as _public

__all__ = _public.offered(globals())
__dir__ = __all__.copy
