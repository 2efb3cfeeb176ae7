"""The code is layered as docs/architecture.md says: imports only go down, and each library is imported in its place."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

from lucid.core.targets.runtimes import RUNTIMES
from tools import make_rooms

ROOT = Path(__file__).parents[1]
FILES = sorted(path for top in ("lucid", "models") for path in (ROOT / top).rglob("*.py"))
TOPS = ("lucid", "models", "tests", "tools", "benchmarks", "examples")
PAGE = ROOT / "docs" / "architecture.md"

# Rooms from the lowest floor up; a module may import from its own floor and from those below it. A room is a package,
# an inner room is on its own floor where it is named, and otherwise on that of the room around it.
FLOORS = [
    ["lucid.core.number_ranges", "lucid.core.process", "lucid.core.sizes", "lucid.core.targets", "lucid.core.version"],
    ["lucid.core.words"],
    ["lucid.core.graph"],
    ["lucid.core.torch_names", "lucid.quantization"],
    ["lucid.ops.kernels", "lucid.ops.tensor"],
    ["lucid.files", "lucid.losses", "lucid.ops"],
    ["lucid.nn", "lucid.optim", "lucid.runtime"],
    ["lucid.gradients", "lucid.importing", "lucid.nn.quantizing", "lucid.tracing"],
    ["lucid", "lucid.core.offered"],
    ["lucid.export", "lucid.generation"],
    ["lucid.runtime.compiled", "lucid.models", "lucid.testing.precision"],
    ["lucid.generation.chat", "lucid.layouts.images", "lucid.testing"],
    ["lucid.inspection", "lucid.layouts", "lucid.layouts.tokenizing"],
    ["lucid.batch", "lucid.inspection.report"],
    ["lucid.serving"],
    ["lucid.__main__", "lucid.cli"],
]

# Which part of the package may import what. Everything else is NumPy and the standard library.
PLACES = {
    "onnx": (
        "lucid.export",
        "lucid.runtime",
        "lucid.testing",
        "lucid.inspection",
        "lucid.cli",
    ),
    "google": ("lucid.runtime", "lucid.inspection", "lucid.cli"),
    "onnxruntime": ("lucid.runtime", "lucid.cli"),
    "threadpoolctl": ("lucid.core.process.threads", "lucid.ops"),
    "ml_dtypes": ("lucid.core.graph.types", "lucid.files.safetensors", "lucid.ops", "lucid.testing.tolerance"),
    "torch": ("lucid.importing",),
    "transformers": ("lucid.importing",),
    "matplotlib": ("lucid.inspection.plot",),
    "gguf": ("lucid.models",),
    "huggingface_hub": ("lucid.files.hub_download",),
    "tokenizers": ("lucid.models", "lucid.generation.chat", "lucid.layouts.tokenizing"),
    "jinja2": ("lucid.generation.chat",),
    "pyarrow": ("lucid.batch",),
    "fsspec": ("lucid.batch",),
    "PIL": ("lucid.batch",),
    "ray": ("lucid.batch.ray_engine",),
    "typer": ("lucid.cli",),
    "click": ("lucid.cli",),
    "rich": ("lucid.cli",),
}


@cache
def name_of(path: Path) -> str:
    """The module of a file; `models/` is `lucid.models`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "lucid" else ("lucid", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path) for path in FILES}


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a file's syntax tree."""
    return list(ast.walk(make_rooms.tree_of(path)))


@cache
def imports_of(path: Path) -> list[tuple[str, ast.stmt]]:
    """Modules that a file imports, however deep in its code the statement is."""
    imports: list[tuple[str, ast.stmt]] = []
    nodes = nodes_of(path)
    if name_of(path) == "lucid":  # what is loaded on first use is named there for type checkers alone
        (tree,) = (node for node in nodes if isinstance(node, ast.Module))
        nodes = [inner for node in tree.body if not isinstance(node, ast.If) for inner in ast.walk(node)]
    for node in nodes:
        if isinstance(node, ast.Import):
            imports += [(alias.name, node) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                imports.append((full if full in NAMES else node.module, node))
    return imports


def floor_of(module: str) -> int:
    best, floor = -1, -1
    for number, places in enumerate(FLOORS):
        for place in places:
            if (
                (module == place or module.startswith(place + "."))
                and len(place) > best
                and (place != "lucid" or module == place)
            ):
                best, floor = len(place), number
    return floor


def test_the_page_has_the_same_floors() -> None:
    table = PAGE.read_text(encoding="utf-8").split("## The floors\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")][2:]
    assert [re.findall(r"`(.*?)`", rooms) for _, rooms, _ in rows] == [
        [room.removeprefix("lucid.") for room in floor] for floor in FLOORS
    ]
    assert [int(number) for number, _, _ in rows] == list(range(1, len(FLOORS) + 1)) and len(rows) <= 20


def test_the_page_and_the_drawing_of_rooms_are_current() -> None:
    for path, text in make_rooms.pages().items():
        assert path.read_text(encoding="utf-8") == text, "run python -m tools.make_rooms"
    assert make_rooms.DRAWING.read_text(encoding="utf-8") == make_rooms.drawing(), "run python -m tools.make_rooms"


def test_the_drawing_has_an_arrow_for_each_import_that_does_not_follow_from_others() -> None:
    arrows = make_rooms.arrows([room for floor in make_rooms.floors() for room in floor if room != "lucid"])
    assert ("nn", "losses") in arrows and ("losses", "ops") in arrows and ("serving", "batch") in arrows
    assert ("nn", "ops.tensor") not in arrows  # follows from nn to ops and ops to ops.tensor
    floors = {room: number for number, floor in enumerate(FLOORS) for room in floor}
    assert all(floors[f"lucid.{user}"] >= floors[f"lucid.{used}"] for user, used in arrows)


def test_pages_name_files_that_there_are() -> None:
    there = [path.relative_to(ROOT).as_posix() for top in TOPS for path in (ROOT / top).rglob("*.py")]
    there += [path.name for path in ROOT.glob("*.py")]
    wrong = [
        f"{page.name}: {name}"
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if page.name != "extending.md"  # whose files are written by the reader
        for name in re.findall(r"`([\w/]+\.py)`", page.read_text(encoding="utf-8"))
        if not any(f"/{path}".endswith(f"/{name}") for path in there)
    ]
    assert not wrong


def test_every_module_is_on_a_floor() -> None:
    homeless = [name for name in map(name_of, FILES) if name != "lucid.core" and floor_of(name) < 0]
    assert not homeless, "add them to FLOORS and to docs/architecture.md"


def test_every_package_says_what_belongs_there() -> None:
    """In three sentences: what it holds, who imports it, and what never belongs there."""
    for path in FILES:
        if path.name == "__init__.py" and name_of(path) != "lucid":
            text = ast.get_docstring(make_rooms.tree_of(path)) or ""
            assert len(re.findall(r"\.(?=\s|$)", text.partition("::")[0])) >= 3, path


def test_no_folder_is_crowded() -> None:
    assert len([path for path in (ROOT / "lucid").iterdir() if path.name != "__pycache__"]) <= 22
    assert {folder: n for folder, n in Counter(path.parent for path in FILES).items() if n > 30} == {}


def test_imports_go_down() -> None:
    up = [
        f"{name_of(path)} imports {imported}, which is above it"
        for path in FILES
        for imported, _ in imports_of(path)
        if imported.split(".")[0] == "lucid" and floor_of(imported) > floor_of(name_of(path))
    ]
    assert not up


def test_no_import_cycles() -> None:
    graph = {name_of(p): {i for i, _ in imports_of(p) if i.startswith("lucid")} - {name_of(p)} for p in FILES}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module in done or module not in graph:
            return
        for imported in sorted(graph[module]):
            # "from lucid.ops import attention" inside lucid.ops.x would be caught as a cycle through the package.
            visit(imported, (*path, module))
        done.add(module)

    for module in sorted(graph):
        visit(module, ())


# What imports a module by name at run time: `lucid`, on first use; the command, which imports the user's code too; an
# op read from a pickle, which imports the module that defined it, as pickle does for functions; checkpoints, which need
# one model of many, one of another distribution, or the reader of GGUF files; layouts, constraints and names of
# the hub, which need an extra; and a session, for a model with operators of onnxruntime-extensions.
LOADERS = {
    "lucid",
    "lucid.batch.mapping",
    "lucid.cli",
    "lucid.cli.commands.doctor",
    "lucid.cli.on_demand",
    "lucid.cli.python_source",
    "lucid.files.hub",
    "lucid.generation.constraints",
    "lucid.importing.torch_import",
    "lucid.layouts.checkpoint_files",
    "lucid.models",
    "lucid.models.checkpoints.registry",
    "lucid.models.checkpoints.tasks",
    "lucid.models.parts",
    "lucid.models.checkpoints.pretrained",
    "lucid.ops.op",
    "lucid.runtime.requirements",
}


def test_only_the_loaders_import_as_they_run() -> None:
    """The other tests here read import statements: an import by name would pass them all."""
    loaders = set()
    for path in FILES:
        for node in nodes_of(path):
            named = [a.name for a in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            if any(name.split(".")[0] in ("importlib", "import_module", "runpy", "pkgutil") for name in named):
                loaders.add(name_of(path))
            if isinstance(node, ast.Name) and node.id in ("__import__", "exec", "eval"):
                loaders.add(name_of(path))
    assert loaders == LOADERS


def test_libraries_are_imported_in_their_places() -> None:
    wrong = []
    for path in FILES:
        module = name_of(path)
        for imported, _ in imports_of(path):
            places = PLACES.get(imported.split(".")[0], [module])
            if not any(module == place or module.startswith(place + ".") for place in places):
                wrong.append(f"{module} imports {imported}")
    assert not wrong


def test_no_function_imports() -> None:
    inside = [
        f"{path}:{inner.lineno}"
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for inner in ast.walk(node)
        if isinstance(inner, (ast.Import, ast.ImportFrom))
    ]
    assert not inside


def test_no_handler_swallows_any_error() -> None:
    broad = [
        f"{path}:{node.lineno}"
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")))
        and not any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
    ]
    assert not broad


def test_values_are_named_for_what_they_are() -> None:
    """A name that says how a value came about does not tell what it is. In the package: fields and parameters."""
    vague = re.compile(r"found|given|made|said|told|wanted")
    for path in (file for top in TOPS for file in (ROOT / top).rglob("*.py") if "node_modules" not in file.parts):
        if not re.search(rf"\b({vague.pattern}|asked)\b", path.read_text(encoding="utf-8")):
            continue  # reading is faster than parsing
        nodes = nodes_of(path)
        names = {node: node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        if path in FILES:
            names |= {node: node.arg for node in nodes if isinstance(node, ast.arg)}
            assert not [f"{path}:{node.lineno}" for node, name in names.items() if name == "asked"]
        else:
            bodies = [node.body for node in nodes if isinstance(node, ast.ClassDef)]
            fields = {each.target for body in bodies for each in body if isinstance(each, ast.AnnAssign)}
            names = {node: name for node, name in names.items() if node not in fields}
        assert not [f"{path}:{node.lineno}" for node, name in names.items() if vague.fullmatch(name)]


def test_nn_and_export_do_not_know_each_other() -> None:
    for path in FILES:
        module = name_of(path)
        imported = {name for name, _ in imports_of(path)}
        if module.startswith("lucid.nn"):
            assert not any(name.startswith(("lucid.export", "lucid.runtime")) for name in imported)
        if module.startswith("lucid.export"):
            assert not any(name.startswith("lucid.nn") for name in imported)


def test_nothing_decides_by_the_name_of_a_target() -> None:
    """The record of its runtime decides. Names are defaults of arguments; in commands "cpu" is a provider's too."""
    named = []
    for path in FILES:
        room = ".".join(name_of(path).split(".")[:2])
        if room in ("lucid.export", "lucid.inspection", "lucid.layouts", "lucid.cli"):
            nodes = nodes_of(path)
            signatures = [node for node in nodes if isinstance(node, ast.arguments)]
            defaults = [value for each in signatures for value in (*each.defaults, *each.kw_defaults)]
            defaults += [node.value for node in nodes if isinstance(node, ast.AnnAssign)]
            names = set(RUNTIMES) - ({"cpu"} if room == "lucid.cli" else set())
            texts = (node for node in nodes if isinstance(node, ast.Constant) and node not in defaults)
            named += [f"{name_of(path)}:{node.lineno} names {node.value}" for node in texts if node.value in names]
    assert not named


def test_models_use_the_public_interface() -> None:
    for path in sorted((*(ROOT / "models").glob("*.py"), *(ROOT / "models/vision").glob("*.py"))):
        for imported, _ in imports_of(path):
            if imported.startswith("lucid.") and not imported.startswith("lucid.models"):
                parts = imported.split(".")[1:]
                assert not any(part.startswith("_") for part in parts), f"{path.name} imports {imported}"
                public = ("nn", "ops", "export", "runtime", "testing", "files", "quantization", "public")
                known = parts[0] in public or imported.startswith("lucid.core.words")
                assert known, f"{path.name} imports {imported}"


def test_only_models_import_their_private_modules() -> None:
    others = [path for top in TOPS if top != "models" for path in (ROOT / top).rglob("*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in others}
    outside = [path for path, text in texts.items() if "lucid.models" in text and ("._" in text or "import _" in text)]
    private = [
        f"{path.relative_to(ROOT)} imports {imported}"
        for path in outside
        for imported, _ in imports_of(path)
        if imported.startswith("lucid.models.") and "._" in imported
    ]
    assert not private


def test_files_keep_a_readable_size() -> None:
    long = {name_of(p): n for p in FILES if (n := len(p.read_text(encoding="utf-8").splitlines())) > 600}
    assert not long


def test_messages_name_no_page_that_an_installed_wheel_lacks() -> None:
    """Docstrings and comments may: they are for readers of the sources."""
    messages = [
        f"{name_of(path)}: {node.value!r}"
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if "docs/" in node.value and "://" not in node.value and "\n" not in node.value
    ]
    docstrings = {
        ast.get_docstring(node, clean=False)
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
    }
    assert [line for line in messages if line.partition(": ")[2].strip("'\"") not in docstrings] == []
