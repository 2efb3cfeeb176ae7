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
    folders = {path.parent for top in ("lucid", "models") for path in (ROOT / top).rglob("*.py")}
    rooms = {_name(folder): folder for folder in folders}
    return "\n".join([HEAD, *(_section(name, rooms[name], set(rooms)) for name in sorted(rooms))])


def _name(folder: Path) -> str:
    """`lucid.models.checkpoints` for models/checkpoints."""
    parts = folder.relative_to(ROOT).parts
    return ".".join(("lucid", *parts) if parts[0] == "models" else parts)


def _section(name: str, folder: Path, rooms: set[str]) -> str:
    files = sorted(folder.glob("*.py"))
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}
    about = (ast.get_docstring(trees[folder / "__init__.py"]) or "").split("\n::")[0].strip()
    used = sorted({room for tree in trees.values() for room in _imported(tree, rooms)} - {name})
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


def _imported(tree: ast.Module, rooms: set[str]) -> set[str]:
    """The rooms from which a file imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "lucid":
            for alias in node.names:
                room = f"{node.module}.{alias.name}"
                while room not in rooms:  # the package that the name is in
                    room = room.rpartition(".")[0]
                found.add(room)
    return found


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
