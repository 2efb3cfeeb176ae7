"""A checkpoint's tokenizer as part of its ONNX file, which then takes texts. Needs the extras `chat` and `extensions`.

`layouts` and `cli` import from it. Tokenizing in Python belongs to `generation.chat`.

::

    preprocessing = lucid.layouts.tokenizing.text_preprocessing("all-MiniLM-L6-v2")
    lucid.export.to_onnx(model, preprocessing=preprocessing, target="cpu", path="minilm.onnx")
"""

from lucid.core.words import package_names as _public
from lucid.layouts.tokenizing.parity import check_reads_text as check_reads_text
from lucid.layouts.tokenizing.parity import text_parity as text_parity
from lucid.layouts.tokenizing.reference import NotExpressedError as NotExpressedError
from lucid.layouts.tokenizing.texts import text_preprocessing as text_preprocessing

__all__ = _public.offered(globals())
__dir__ = __all__.copy
