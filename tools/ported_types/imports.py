"""transformers' own files with Lucid imported in torch's place: a finder of modules that rewrites imports, and nothing else.

What loads, saves, trains or starts kernels is not read but stood in for (`stand_ins.py`).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import lucid

STAND_INS = Path(__file__).with_name("stand_ins.py")
STOOD_IN = {
    "cache_utils",
    "modeling_utils",
    "modeling_layers",
    "modeling_flash_attention_utils",
    "initialization",
    "processing_utils",
    "generation.stopping_criteria",
    "generation.utils",
    "generation.logits_process",
    "generation.continuous_batching",
    "generation.continuous_batching.cache",
    "integrations.accelerate",
    "integrations.deepgemm",
    "integrations.deepspeed",
    "integrations.fsdp",
    "integrations.hub_kernels",
    "integrations.sonicmoe",
    "distributed",
    "distributed.utils",
}


MACHINERY = {
    "torch.utils._pytree": SimpleNamespace(register_pytree_node=lambda *_, **__: None, _dict_flatten_with_keys=None),
    "torch.nn.attention.flex_attention": SimpleNamespace(
        BlockMask=type("BlockMask", (), {}),
        AuxRequest=None,
        create_block_mask=None,
        _DEFAULT_SPARSE_BLOCK_SIZE=128,
        flex_attention=None,
    ),
}
"""What computes nothing: torch's registry of classes that hold tensors, and a type of masks that no model is given."""


class Absent:
    """A name of torch that Lucid lacks: its import is left out, so its use is an error."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        raise NameError(f"{self.name} is absent")

    def __getattr__(self, name: str) -> Any:
        raise NameError(f"{self.name}.{name} is absent")

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (type(self.name, (), {"__init__": self}),)  # a class that may be named, as base of one that may be


def taken(module: str, name: str = "") -> Any:
    """What a line of torch's imports gives with Lucid's name in it."""
    if module in MACHINERY:
        return getattr(MACHINERY[module], name) if name else MACHINERY[module]
    place: Any = lucid
    for part in [*module.split(".")[1:], *([name] if name else [])]:
        try:
            place = getattr(place, part)
        except AttributeError:
            return Absent(f"{module}.{name}")
    return place


class _Imports(ast.NodeTransformer):
    """`import torch` becomes `import lucid as torch`, and so on."""

    def visit_Import(self, node: ast.Import) -> Any:
        lines: list[ast.stmt] = []
        for alias in node.names:
            if alias.name.partition(".")[0] != "torch":
                lines.append(ast.copy_location(ast.Import([alias]), node))
                continue
            name, module = (alias.asname, alias.name) if alias.asname else ("torch", "torch")
            lines += ast.parse(f"{name} = __import__({__name__!r}, fromlist=['x']).taken({module!r})").body
        return [ast.fix_missing_locations(ast.copy_location(line, node)) for line in lines]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        module = (node.module or "").removeprefix("safetensors.")
        if node.level or module.partition(".")[0] != "torch":
            return node
        text = ";".join(
            f"{alias.asname or alias.name} = __import__({__name__!r}, fromlist=['x']).taken({module!r}, {alias.name!r})"
            for alias in node.names
        )
        return [ast.fix_missing_locations(ast.copy_location(line, node)) for line in ast.parse(text).body]


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> Any:  # never the compiled file, which has torch's imports
        tree = _Imports().visit(ast.parse(self.get_data(self.path), self.path))
        flags = 0x1000000  # from __future__ import annotations: many name torch's types, which are not evaluated
        return compile(tree, self.path, "exec", flags, dont_inherit=True)


class _StandIn(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == "torch":
            raise ImportError("torch is not imported here")
        import tools.ported_types.stand_ins as stand_ins

        module.__path__ = []
        vars(module).update({k: v for k, v in vars(stand_ins).items() if not k.startswith("__")})
        if module.__name__.startswith(("transformers.generation", "transformers.cache_utils")):
            module.__getattr__ = lambda name: stand_ins.Nothing  # type: ignore[method-assign]

    def get_code(self, fullname: str) -> Any:
        return compile("", self.path, "exec")


class Finder(MetaPathFinder):
    """Finds the files of the package transformers."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        package, _, rest = name.partition(".")
        if name == "torch":  # found, since transformers asks for that, and never loaded
            return spec_from_loader(name, _StandIn(name, str(STAND_INS)), is_package=True)
        if package != "transformers":
            return None
        if rest in STOOD_IN:
            return spec_from_loader(name, _StandIn(name, str(STAND_INS)), is_package=True)
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            return spec
        spec.loader = _Loader(name, spec.origin)
        return spec


def install() -> None:
    """From here on `import transformers` reads its files with Lucid in torch's place, and torch cannot be imported."""
    sys.meta_path.insert(0, Finder())
