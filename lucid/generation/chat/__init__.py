"""Text and conversations with a decoder: its tokenizer, its chat template, answers that come piece by piece.

`layouts`, `batch`, `serving` and `cli` import from it. The loop over tokens belongs to `lucid.generation`.

Needs the extra `chat`.
"""

# ruff: noqa: E402  # the check comes first: its message is clearer than an ImportError
from importlib.util import find_spec as _find_spec

_NEEDED = ("tokenizers", "jinja2")
if _missing := [name for name in _NEEDED if _find_spec(name) is None]:
    raise ModuleNotFoundError(f"texts and conversations need {' and '.join(_missing)}: pip install 'lucid-onnx[chat]'")

from lucid.core.words import package_names as _public
from lucid.generation.chat.conversation import Conversation as Conversation
from lucid.generation.chat.language_model import Answer as Answer
from lucid.generation.chat.language_model import LanguageModel as LanguageModel
from lucid.generation.chat.loading import load_language_model as load_language_model
from lucid.generation.chat.template import ChatTemplate as ChatTemplate
from lucid.generation.chat.template import ChatTemplateError as ChatTemplateError
from lucid.generation.chat.tokenizer import Tokenizer as Tokenizer
from lucid.generation.chat.tokenizer import text_calls as text_calls
from lucid.generation.chat.tokenizer_files import load_defaults as load_defaults
from lucid.generation.chat.tokenizer_files import load_tokenizer as load_tokenizer
from lucid.generation.chat.tokenizer_files import save_tokenizer as save_tokenizer

__all__ = _public.offered(globals())
__dir__ = __all__.copy
