"""Folders from which other runtimes load a model: its ONNX file, its configs and its tokenizer. Needs the extra `chat`.

`batch` and `cli` import from it. The ONNX file itself belongs to `lucid.export`.

::

    model = lucid.models.load("SmolLM2-135M-Instruct")
    lucid.layouts.write_folder(model, "SmolLM2-135M-Instruct", "smollm2-genai", layout="genai")
"""

from lucid.core.words import package_names as _public
from lucid.layouts.adapters import write_adapter as write_adapter
from lucid.layouts.layout import Exported as Exported
from lucid.layouts.layout import Layout as Layout
from lucid.layouts.layout import Options as Options
from lucid.layouts.writing import LAYOUTS as LAYOUTS
from lucid.layouts.writing import write_folder as write_folder

__all__ = _public.offered(globals())
__dir__ = __all__.copy
