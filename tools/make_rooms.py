"""docs/rooms.md: every room of the package, what it imports from, and its files by their first lines.

python -m tools.make_rooms
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "rooms.md"
HEAD = """# Rooms

Find the file of a subject here: every room, the rooms that it imports from, and the first line of each of its files. The page is generated
(`python -m tools.make_rooms`); [architecture](architecture.md) explains how the rooms work together.
"""


def page() -> str:
    """The page as the sources have it now."""
    folders = sorted({path.parent for top in ("lucid", "models") for path in (ROOT / top).rglob("*.py")}, key=_name)
    return "\n".join([HEAD, *map(_section, folders)])


def _name(folder: Path) -> str:
    """`lucid.models.checkpoints` for models/checkpoints."""
    parts = folder.relative_to(ROOT).parts
    return ".".join(("lucid", *parts) if parts[0] == "models" else parts)


def _section(folder: Path) -> str:
    name, files = _name(folder), sorted(folder.glob("*.py"))
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}
    about = (ast.get_docstring(trees[folder / "__init__.py"]) or "").split("\n::")[0].strip()
    used = sorted({room for tree in trees.values() for room in _imported(tree)} - {name})
    rows = [f"| `{path.name}` | {_first_line(trees[path])} |" for path in files if path.name != "__init__.py"]
    lines = [f"## {name}", "", about, ""]
    if used:
        lines += [f"Imports from {', '.join(f'`{room}`' for room in used)}.", ""]
    if rows:
        lines += ["| File | What it holds |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _first_line(tree: ast.Module) -> str:
    """The first sentence of a docstring; as much of it as there is on one line if it is longer."""
    return " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split()).removesuffix("::").replace("|", "\\|")


def _imported(tree: ast.Module) -> set[str]:
    """The rooms from which a file imports."""
    rooms = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "lucid":
            for alias in node.names:
                rooms.add(_room_of(f"{node.module}.{alias.name}"))
    return rooms


def _room_of(name: str) -> str:
    """The package that a dotted name is in, or is."""
    parts = name.split(".")
    while parts:
        path = ROOT.joinpath(*parts)
        if path.is_dir():
            break
        parts.pop()
    return ".".join(parts)


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
