"""Reading published checkpoints: options, weights, tasks, GGUF files and quantized formats.

Models, layouts, generation and batch jobs import from it. What a model computes belongs to its own file. What a model
from outside needs has its names here; the page "Model types" shows one.
"""

from lucid.core.words import package_names as _public
from lucid.models.checkpoints import option_table as option_table
from lucid.models.checkpoints.config import ACTIVATIONS as ACTIVATIONS
from lucid.models.checkpoints.config import Config as Config
from lucid.models.checkpoints.config import ConfigError as ConfigError
from lucid.models.checkpoints.declarations import GGUF as GGUF
from lucid.models.checkpoints.declarations import DecoderOptions as DecoderOptions
from lucid.models.checkpoints.declarations import DecoderParts as DecoderParts
from lucid.models.checkpoints.declarations import Family as Family
from lucid.models.checkpoints.declarations import ModelType as ModelType
from lucid.models.checkpoints.labels import with_labels as with_labels
from lucid.models.checkpoints.load_into import load_into as load_into
from lucid.models.checkpoints.pretrained import Checkpoint as Checkpoint

__all__ = _public.offered(globals(), "option_table")
__dir__ = __all__.copy
