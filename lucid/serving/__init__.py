"""An exported model behind HTTP, by the routes that clients already speak: what `lucid serve` runs.

`cli` imports from it. What a model does with a row belongs to `lucid.batch`.

Needs the extra `serve`.

::

    app = lucid.serving.application("minilm")      # an ASGI application
    uvicorn.run(app, access_log=False)
"""

# ruff: noqa: E402  # the check comes first: its message is clearer than an ImportError
from importlib.util import find_spec as _find_spec

_NEEDED = {"starlette": "starlette", "prometheus_client": "prometheus-client"}
if _missing := [name for module, name in _NEEDED.items() if _find_spec(module) is None]:
    raise ModuleNotFoundError(f"serving needs {' and '.join(_missing)}: pip install 'lucid-onnx[serve]'")

from lucid.core.words import package_names as _public
from lucid.serving.app import application as application
from lucid.serving.guard import Limits as Limits

__all__ = _public.offered(globals())
__dir__ = __all__.copy
