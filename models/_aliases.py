"""In a clone, `models.bert` is `lucid.models.bert`: one file is one module, whichever name is used.

Without this, `import models.bert` at the top of the repository would run the file a second time, and its `Bert` would
not be that of `lucid.models.bert`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType

_OWN = __name__.rpartition(".")[0]  # lucid.models


def alias(name: str, file: str) -> None:
    """Let the package `name`, whose __init__.py is `file`, and its modules be those of `lucid.models`.

    Only if it is the same folder: a copy of it that someone changes keeps its own modules.
    """
    if name != _OWN and Path(file).resolve() == Path(__file__).resolve().with_name("__init__.py"):
        sys.modules[name] = sys.modules[_OWN]
        sys.meta_path.insert(0, _Aliases(name))


class _Aliases(MetaPathFinder, Loader):
    """Finds the modules of a package under the names that they have in `lucid.models`."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = self._own(fullname) if fullname.startswith(f"{self._package}.") else None
        return found and ModuleSpec(fullname, self, origin=found.origin)

    def exec_module(self, module: ModuleType) -> None:
        # The import statement takes the module from this table.
        sys.modules[module.__name__] = import_module(_OWN + module.__name__.removeprefix(self._package))

    def get_code(self, fullname: str) -> CodeType | None:
        """What ``python -m models.bert`` runs."""
        found = self._own(fullname)
        return found.loader.get_code(found.name) if found and isinstance(found.loader, InspectLoader) else None

    def _own(self, fullname: str) -> ModuleSpec | None:
        return find_spec(_OWN + fullname.removeprefix(self._package))
