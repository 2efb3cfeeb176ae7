"""Text from a decoder, token by token, over an eager module or an exported session.

Models of speech, `batch`, `serving` and `cli` import from it. Text and tokenizers belong to `generation.chat`.
"""

from lucid.core.words import package_names as _public
from lucid.generation.choice import TokenLogprob as TokenLogprob
from lucid.generation.constraints import Constraint as Constraint
from lucid.generation.constraints import Vocabulary as Vocabulary
from lucid.generation.encoder_decoder import EncoderDecoderGenerator as EncoderDecoderGenerator
from lucid.generation.engine import Completion as Completion
from lucid.generation.engine import Engine as Engine
from lucid.generation.engine import EngineFull as EngineFull
from lucid.generation.generator import Generator as Generator
from lucid.generation.generator import Scored as Scored
from lucid.generation.logits import LogitsError as LogitsError
from lucid.generation.logits import LogitsProcessor as LogitsProcessor
from lucid.generation.prompts import pad_left as pad_left

__all__ = _public.offered(globals())
__dir__ = __all__.copy
