"""Whole models, one readable file each, that read published checkpoints: `lucid.models`.

::

    model = lucid.models.load("folder with config.json and model.safetensors")     # or a GGUF file

The files are in `models/` at the top of the repository; `lucid/models` is a link to it.
"""

from lucid.models._aliases import alias
from lucid.models._loading import load as load
from lucid.models._loading import save as save
from lucid.models._pretrained import Pretrained as Pretrained

alias(__name__, __file__)
