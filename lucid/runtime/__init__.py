"""Running exported models in onnxruntime: `Session`, and the checks of a file before it is loaded.

Every room from `generation` up may import from it. Building a model does not belong here.
"""

from lucid.core.words import package_names as _public
from lucid.runtime.model_file import ModelError as ModelError
from lucid.runtime.model_file import check_model_file as check_model_file
from lucid.runtime.providers import ProviderError as ProviderError
from lucid.runtime.providers import available as available
from lucid.runtime.providers import installed as installed
from lucid.runtime.runs import BoundRun as BoundRun
from lucid.runtime.runs import RunCancelled as RunCancelled
from lucid.runtime.session import Session as Session
from lucid.runtime.stepping import Carried as Carried
from lucid.runtime.stepping import Stepping as Stepping
from lucid.runtime.training import Training as Training
from lucid.runtime.training import TrainingError as TrainingError

__all__ = _public.offered(globals())
__dir__ = __all__.copy
