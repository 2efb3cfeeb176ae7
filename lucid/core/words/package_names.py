"""The public names of a package, for `dir` and completion, and the error about a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import ModuleType

from lucid.core.words.suggestions import did_you_mean


def offered(names: Mapping[str, object], *modules: str) -> list[str]:
    """The `__all__` of a package whose __init__.py imports what it offers.

    Args:
        names: all that are defined in it. Those with a leading underscore are its own, and so are modules.
        modules: the modules that it offers nevertheless.
    """
    defined = {name for name, value in names.items() if not name.startswith("_") and not isinstance(value, ModuleType)}
    return sorted(defined | set(modules))


def unknown(owner: str, name: str, known: Iterable[str], why: str = "") -> AttributeError:
    """The error about a name that a module or an object does not have.

    Args:
        owner: as Python calls it: "module 'lucid.nn'".
        why: what is known of this name; otherwise names like it are suggested.
    """
    suggested = "" if name.startswith("_") else did_you_mean(name, (one for one in known if not one.startswith("_")))
    # Python would suggest a name, too, if it knew in what this one was looked for.
    return AttributeError(f"{owner} has no attribute {name!r}{why or suggested}", name=name, obj=None)
