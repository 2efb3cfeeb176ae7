"""Read from transformers' sources which options of config.json its code uses: models/checkpoints/options_read.json.

    python -m tools.config_readers            writes the table
    python -m tools.config_readers --check    says whether it is current

Needs the sources of transformers, which are parsed and not run. For each model_type that Lucid reads the table has the
options that modeling, configuration and rotary code look at, with their defaults; `models/checkpoints/options_read.py` explains
the fields.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from lucid.models.checkpoints.families import MODEL_TYPES

TABLE = Path(__file__).parents[1] / "models" / "checkpoints" / "options_read.json"
SOURCES = Path(importlib.util.find_spec("transformers").origin or "").parent  # type: ignore[union-attr]
SHARED = ("masking_utils", "modeling_layers", "cache_utils", "modeling_rope_utils", "backbone_utils")
"""Modules that read options of any model whose modeling file imports them."""
BACKBONES = ("rt_detr_resnet",)
"""Types that are a part of our models alone."""
COMPUTED = "computed"  # in the table: a default that only running the class would tell
_FUNCTIONS = ("getattr", "hasattr")
_OF_KEYWORDS = ("kwargs.pop", "kwargs.get", "kwargs.setdefault")
_THETA = "default_theta"  # of a class: the base of its rotary positions, or several by name


class Read(NamedTuple):
    """An option as code reads it."""

    name: str
    default: Any
    plain: bool  # as an attribute, which the class must have; else by a function that also takes its absence


class Declared(NamedTuple):
    """What the class of a config declares."""

    fields: dict[str, Any]  # by name the default
    assigned: set[str]  # names that its methods set, and properties
    aliases: dict[str, str]
    sections: dict[str, str]  # names of fields that are configs themselves, and their classes
    theta: Any  # the base of rotary positions, or several by name
    code: ast.ClassDef


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def literal(node: ast.expr | None) -> Any:
    """The value of an expression of numbers; COMPUTED if it needs more than arithmetic."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
        return literal(node.args[-1])
    if node is not None and ast.unparse(node).startswith(f"self.{_THETA}"):  # also self.default_theta["global"]
        return ast.unparse(node)
    if isinstance(node, ast.Call):  # interval(...)(default=0.02)
        defaults = [keyword.value for keyword in node.keywords if keyword.arg == "default"]
        return literal(defaults[0]) if defaults else COMPUTED
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return literal(node.left) * literal(node.right)
    try:
        value = None if node is None else ast.literal_eval(node)
    except ValueError:
        return COMPUTED
    return tuple(value) if isinstance(value, list) else None if value == {} else value


def is_config(node: ast.expr, own: bool) -> bool:
    """Whether an expression is a config: `config`, `self.text_config`; within its class (`own`) also `self`."""
    if isinstance(node, ast.Name):
        return node.id.endswith("config") or (own and node.id == "self")
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "get_text_config"
    return isinstance(node, ast.Attribute) and node.attr.endswith("config")


def reads(tree: ast.AST, own: bool = False) -> Iterator[Read]:
    """The options that code reads; what only sets up new weights is left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "_init_weights":
            continue
        yield from reads(node, own)
    if isinstance(tree, ast.Attribute) and isinstance(tree.ctx, ast.Load) and is_config(tree.value, own):
        yield Read(tree.attr, None, plain=True)
    if not isinstance(tree, ast.Call) or not tree.args:
        return
    first, *others = tree.args
    if isinstance(tree.func, ast.Name) and tree.func.id in _FUNCTIONS and is_config(first, own):
        name, default = others[0], literal(others[1]) if len(others) > 1 else None
    elif own and isinstance(tree.func, ast.Attribute) and ast.unparse(tree.func) in _OF_KEYWORDS:
        name, default = first, literal(others[0]) if others else None
    else:
        return
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        yield Read(name.value, default, plain=False)


def keys_of_rope(tree: ast.AST) -> Iterator[str]:
    """The keys that code reads of an object of rotary parameters."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            owner, key = node.func.value, node.args[0]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            owner, key = node.value, node.slice
        else:
            continue
        if "rope_param" in ast.unparse(owner) and isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


def classes(path: Path) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in parsed(path).body if isinstance(node, ast.ClassDef)}


def section_kind(node: ast.expr) -> str:
    """The class of an object inside a config, or the model_type that a SubConfigSpec gives it."""
    if isinstance(node, ast.Call):
        return next((literal(keyword.value) for keyword in node.keywords if keyword.arg == "model_type"), "")
    return ast.unparse(node)


def declared(code: ast.ClassDef) -> Declared:
    """What a class of configs says about its options."""
    fields: dict[str, Any] = {}
    assigned, aliases, sections = set[str](), dict[str, str](), dict[str, str]()
    theta = None
    for node in code.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if "ClassVar" in (kind := ast.unparse(node.annotation)):
                continue
            fields[node.target.id] = literal(node.value)
            owned = [word for word in kind.replace("|", " ").split() if word.endswith("Config")]
            if owned and node.target.id.endswith("_config"):
                sections.setdefault(node.target.id, owned[0])
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "attribute_map":
            aliases = literal(node.value)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("sub_configs"):
            assert isinstance(node.value, ast.Dict)
            pairs = zip(node.value.keys, node.value.values, strict=True)
            sections |= {literal(name): section_kind(kind) for name, kind in pairs}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and _THETA in ast.unparse(node).split(" ")[0]:
            theta = literal(node.value)
    for inner in ast.walk(code):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and ast.unparse(inner.value) == "self":
            assigned.add(inner.attr)
        if isinstance(inner, ast.FunctionDef) and any("property" in ast.unparse(d) for d in inner.decorator_list):
            assigned.add(inner.name)
    return Declared(fields, assigned, aliases, sections, theta, code)


def setters(code: ast.ClassDef) -> set[str]:
    """Names whose value in a file is given to a property, which sets other options."""
    return {
        node.name
        for node in code.body
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(d).endswith(".setter") for d in node.decorator_list)
    }


def base() -> tuple[Declared, set[Read]]:
    """The class of all configs, and what it and the code of rotary positions read."""
    code = classes(SOURCES / "configuration_utils.py")["PreTrainedConfig"]
    method = next(node for node in code.body if isinstance(node, ast.FunctionDef) and node.name == "__post_init__")
    return declared(code), {read for read in reads(method, own=True) if not read.plain}


def rotary() -> set[Read]:
    """What every config with rotary positions reads."""
    code = classes(SOURCES / "modeling_rope_utils.py")["RotaryEmbeddingConfigMixin"]
    return {read for read in reads(code, own=True) if not read.plain}


def theta_of(own: Declared, place: str) -> Any:
    """The base of rotary positions that a class takes: the one it names, or that of all classes."""
    theta = own.theta or declared(classes(SOURCES / "modeling_rope_utils.py")["RotaryEmbeddingConfigMixin"]).theta
    if isinstance(theta, dict):
        return next((base for name, base in theta.items() if f"{name!r}" in place), COMPUTED)
    return theta


def of_class(own: Declared, modeling: Path) -> dict[str, Any]:
    """The entry of a class of configs, read by the modeling file."""
    shared, common = base()
    turns = "rope_parameters" in own.fields
    tree = parsed(modeling)
    imported = {name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in [node.module or ""]}
    for name in (*(name for name in SHARED if name in imported), "modeling_utils"):
        common |= set(reads(parsed(SOURCES / f"{name}.py")))
    common = common | rotary() if turns else {read for read in common if not read.name.startswith("rope_")}
    all_reads = set(reads(tree)) | set(reads(own.code, own=True)) | common
    known = {**shared.fields, **own.fields}
    has = known.keys() | own.assigned | own.aliases.keys()
    names = {read.name for read in all_reads if not read.plain or read.name in has} | setters(own.code)
    defaults: dict[str, Any] = {}
    for read in sorted(all_reads, key=str):
        value = theta_of(own, read.default) if str(read.default).startswith(f"self.{_THETA}") else read.default
        if not read.plain and defaults.get(read.name) in (None, COMPUTED):
            defaults[read.name] = value
    functions = {node.name for node in ast.walk(own.code) if isinstance(node, ast.FunctionDef)} - own.assigned
    names = {own.aliases.get(name, name) for name in names if not name.startswith("_")} - functions
    entry: dict[str, Any] = {
        "read": {name: known.get(name, defaults.get(name)) for name in sorted(names)},
        "unread": sorted(known.keys() - names),
    }
    if own.aliases:
        entry["aliases"] = dict(sorted(own.aliases.items()))
    return entry


def of_type(model_type: str) -> dict[str, Any]:
    """The entry of a model_type, with those of its sections."""
    for path in sorted((SOURCES / "models").glob("*/configuration_*.py")):
        for code in classes(path).values():
            types = [
                literal(node.value)
                for node in code.body
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "model_type"
            ]
            if types == [model_type]:
                own = declared(code)
                modeling = path.with_name(path.name.replace("configuration_", "modeling_"))
                entry = of_class(own, modeling)
                kinds = {name: kind for name, kind in own.sections.items() if kind in classes(path)}
                sections = {name: declared(classes(path)[kind]) for name, kind in kinds.items()}
                if sections:
                    entry["sections"] = {name: of_class(section, modeling) for name, section in sections.items()}
                known = (*MODEL_TYPES, *BACKBONES)
                others = {name: of_type(kind) for name, kind in own.sections.items() if kind in known}
                if others:
                    entry["sections"] = entry.get("sections", {}) | others
                if keys := set(keys_of_rope(parsed(modeling))) | set(keys_of_rope(parsed(path))):
                    entry["rope"] = sorted(keys)
                return entry
    raise SystemExit(f"transformers {version('transformers')} has no configuration class of model_type {model_type}")


def rope_types() -> dict[str, list[str]]:
    """The keys that each type of rotary scaling reads."""
    functions = {
        node.name.removeprefix("_compute_").removesuffix("_parameters"): sorted(set(keys_of_rope(node)))
        for node in parsed(SOURCES / "modeling_rope_utils.py").body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("_compute_")
    }
    names = {"linear_scaling_rope": "linear", "dynamic_ntk": "dynamic"}
    return {"default": [], **{names.get(name, name): keys for name, keys in sorted(functions.items())}}


def table() -> str:
    """The file's text: a line for each type. What all types have alike stands once, as `any`."""
    entries = {kind: of_type(kind) for kind in sorted(MODEL_TYPES)}
    parts = [part for entry in entries.values() for part in (entry, *entry.get("sections", {}).values())]
    alike = set.intersection(*({json.dumps(item) for item in part["read"].items()} for part in parts))
    common = dict(json.loads(item) for item in sorted(alike))
    unread = sorted(set.intersection(*(set(part["unread"]) for part in parts)))
    for part in parts:
        part["read"] = {name: default for name, default in part["read"].items() if name not in common}
        part["unread"] = [name for name in part["unread"] if name not in unread]
    types = ",\n".join(f" {json.dumps(kind)}: {json.dumps(entry)}" for kind, entry in entries.items())
    head = {"transformers": version("transformers"), "rope": rope_types(), "any": {"read": common, "unread": unread}}
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    return "{" + ",\n".join([*lines, f'"types": {{\n{types}\n}}']) + "}\n"


def main(arguments: list[str]) -> None:
    text = table()
    if arguments == ["--check"]:
        if TABLE.read_text("utf-8") != text:
            raise SystemExit(f"{TABLE.name} is not current: python -m tools.config_readers")
        return
    TABLE.write_text(text, "utf-8")
    print(f"{TABLE}: {len(text)} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
