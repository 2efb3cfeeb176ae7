"""docs/rooms*.md, every room of the package with its imports and files, and the drawing of the rooms by floor.

python -m tools.make_rooms
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
DRAWING = ROOT / "docs" / "images" / "rooms.svg"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PAGES = {
    "rooms.md": ("Rooms", "", "sizes, graphs, files, ops, modules, tracing and sessions"),
    "rooms-models.md": (
        "Rooms of models and exports",
        "export generation models testing",
        "models, exports and generation",
    ),
    "rooms-commands.md": (
        "Rooms of the commands",
        "batch cli inspection layouts serving",
        "commands, servers and folders",
    ),
}
"""The title of each page, the outermost rooms on it (the first has all others), and what they are about."""


def pages() -> dict[Path, str]:
    """The pages as the sources have them now."""
    folders = {path.parent for top in ("lucid", "models") for path in (ROOT / top).rglob("*.py")}
    rooms = {_name(folder): folder for folder in folders}
    place = {f"lucid.{room}": page for page, (_, outer, _) in PAGES.items() for room in outer.split()}
    of_page: dict[str, list[str]] = {page: [_head(page)] for page in PAGES}
    for name in sorted(rooms):
        page = place.get(".".join(name.split(".")[:2]), "rooms.md")
        of_page[page].append(_section(name, rooms[name], set(rooms)))
    return {ROOT / "docs" / page: "\n".join(parts) for page, parts in of_page.items()}


def _head(page: str) -> str:
    title, _, about = PAGES[page]
    others = " and ".join(f"[{others}]({other})" for other, (_, _, others) in PAGES.items() if other != page)
    return f"""# {title}

Find the file of a subject here: every room for {about}, the rooms that it imports from, and the first
line of each of its files. Other pages have the rooms for
{others}.

The page is generated (`python -m tools.make_rooms`); [architecture](architecture.md) explains how the rooms work together.
"""


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def _name(folder: Path) -> str:
    """`lucid.models.checkpoints` for models/checkpoints."""
    parts = folder.relative_to(ROOT).parts
    return ".".join(("lucid", *parts) if parts[0] == "models" else parts)


def _section(name: str, folder: Path, rooms: set[str]) -> str:
    files = sorted(folder.glob("*.py"))
    about = (ast.get_docstring(tree_of(folder / "__init__.py")) or "").split("\n::")[0].strip()
    used = sorted({room for path in files for room in _imported(path, rooms)} - {name})
    rows = [f"| `{path.name}` | {_first_line(tree_of(path))} |" for path in files if path.name != "__init__.py"]
    lines = [f"## {name}", "", about, ""]
    if used:
        lines += [f"Imports from {', '.join(f'`{room}`' for room in used)}.", ""]
    if rows:
        lines += ["| File | What it holds |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _first_line(tree: ast.Module) -> str:
    """The first sentence of a docstring; as much of it as there is on one line if it is longer."""
    return " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split()).removesuffix("::").replace("|", "\\|")


def _imported(path: Path, rooms: set[str]) -> set[str]:
    """The rooms from which a file imports: the innermost package that each name is in."""
    imported = set()
    for name in _imported_names(path):
        while name not in rooms:
            name = name.rpartition(".")[0]
        imported.add(name)
    return imported


@cache
def _imported_names(path: Path) -> set[str]:
    """The dotted names of Lucid that a file imports."""
    return {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "lucid"
        for alias in node.names
    }


def floors() -> list[list[str]]:
    """The rooms of each floor, from the lowest floor up, as the table in docs/architecture.md lists them."""
    table = ARCHITECTURE.read_text(encoding="utf-8").split("## The floors\n")[1].split("\n## ")[0]
    return [re.findall(r"`(.*?)`", row.split("|")[2]) for row in table.splitlines() if re.match(r"\| \d", row)]


def arrows(rooms: list[str]) -> set[tuple[str, str]]:
    """Which room imports from which, without the imports that follow from others: a to c where a to b and b to c are there."""
    uses: dict[str, set[str]] = {room: set() for room in rooms}
    for top in ("lucid", "models"):
        for path in (ROOT / top).rglob("*.py"):
            if path == ROOT / "lucid" / "__init__.py":  # loads everything on first use
                continue
            user = _drawn(f"{_name(path.parent)}.{path.stem}", rooms)
            used = {_drawn(name, rooms) for name in _imported_names(path)} - {user, ""}
            if user:
                uses[user] |= used
    reached = {room: set(used) for room, used in uses.items()}
    for middle in rooms:
        for room in rooms:
            if middle in reached[room]:
                reached[room] |= reached[middle]
    return {
        (room, used)
        for room in rooms
        for used in uses[room]
        if not any(used in reached[other] for other in uses[room] - {used})
    }


def _drawn(name: str, rooms: list[str]) -> str:
    """The innermost of the rooms that a dotted name is in; nothing for `lucid` itself."""
    parts = name.removeprefix("lucid.").split(".")
    inside = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((room for room in inside if room in rooms), "")


def drawing() -> str:
    """The rooms as boxes, a row for each floor, and an arrow from each room to those that it imports from directly."""
    width, height, gap, left = 1180, 30, 68, 46
    rows = [[room for room in floor if room != "lucid"] for floor in floors()]
    boxes: dict[str, tuple[float, float, float]] = {}  # the middle, the top and the width of a room's box
    for number, row in enumerate(rows):
        step = (width - left) / max(len(row), 1)
        for place, room in enumerate(row):
            size = 18 + 7.3 * len(room)
            boxes[room] = left + step * (place + 0.5 + 0.12 * (number % 2)), 10 + (len(rows) - 1 - number) * gap, size
    lines = []
    for user, used in sorted(arrows(list(boxes))):
        (x1, y1, size1), (x2, y2, size2) = boxes[user], boxes[used]
        if y1 == y2:
            side = 1 if x2 > x1 else -1
            start, end = x1 + side * size1 / 2, x2 - side * (size2 / 2 + 3)
            lines.append(f'<path d="M{start:.0f},{y1 + height / 2:.0f} L{end:.0f},{y2 + height / 2:.0f}"/>')
            continue
        start, end = y1 + height, y2 - 3
        bend = (end - start) / 2
        lines.append(
            f'<path d="M{x1:.0f},{start} C{x1:.0f},{start + bend:.0f} {x2:.0f},{end - bend:.0f} {x2:.0f},{end}"/>'
        )
    shapes = [
        f'<rect x="{x - size / 2:.0f}" y="{y}" width="{size:.0f}" height="{height}" rx="5"/>'
        f'<text x="{x:.0f}" y="{y + 20}">{room}</text>'
        for room, (x, y, size) in boxes.items()
    ]
    numbers = [
        f'<text class="floor" x="18" y="{30 + (len(rows) - 1 - number) * gap}">{number + 1}</text>'
        for number, row in enumerate(rows)
        if row
    ]
    style = (
        "text{font:13px monospace;text-anchor:middle;fill:#222} .floor{fill:#777} rect{fill:#eef1fb;stroke:#5a6acf} "
        "path{fill:none;stroke:#8a93b8;stroke-width:1.1;marker-end:url(#tip)}"
    )
    tip = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" style="fill:#8a93b8;stroke:none;marker-end:none"/></marker></defs>'
    )
    view = f"0 0 {width} {len(rows) * gap}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}" role="img"><style>{style}</style>{tip}'
    background = f'<rect width="{width}" height="{len(rows) * gap}" style="fill:#fff;stroke:none"/>'
    return "\n".join([head, background, *lines, *shapes, *numbers, "</svg>", ""])


def main() -> None:
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    DRAWING.write_text(drawing(), encoding="utf-8")


if __name__ == "__main__":
    main()
