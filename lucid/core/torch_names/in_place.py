"""Statements that change a tensor in place, which no tensor allows, rewritten to make a changed copy."""

from __future__ import annotations

import ast
from collections.abc import Collection

_COPIES = {  # of methods that do not compute the new values from the old ones
    "copy_": "{0}",
    "fill_": "lucid.full_like({x}, {0})",
    "zero_": "lucid.zeros_like({x})",
}
VALUES = {"copy_": "{0}", "fill_": "{0}", "zero_": "0"}


def functional_line(line: str, method: str = "", known: Collection[str] = ()) -> str:
    """What to write in place of a line of Python that changes a tensor, with its own names; nothing if it is unclear.

    Args:
        method: the method that would change it; without one, the line assigns to an index.
        known: the methods that there are.
    """
    try:
        statements = ast.parse(line).body
    except SyntaxError:  # a part of a statement
        return ""
    if method:
        match statements:
            case [ast.Expr(ast.Call(func=ast.Attribute(value=x, attr=name)) as call)] if name == method:
                return _of_method(x, name, call) if name in VALUES or name[:-1] in known else ""
        other = line.replace(f".{method}(", f".{method[:-1]}(")
        simple = [isinstance(each, (ast.Assign, ast.Return, ast.Expr)) for each in statements]
        return other if simple == [True] and other != line and method[:-1] in known else ""
    match statements:
        case [ast.Assign(targets=[ast.Subscript() as place], value=value)]:
            return _set(place, ast.unparse(value))
        case [ast.AugAssign(target=ast.Subscript() as place, op=ast.Add(), value=value)]:
            return _set(place, ast.unparse(value), "add")
        case [ast.AugAssign(target=ast.Subscript() as place, op=operator, value=value)]:
            return _set(place, ast.unparse(ast.BinOp(place, operator, value)))
    return ""


def _set(place: ast.Subscript, value: str, how: str = "set") -> str:
    x = ast.unparse(place.value)
    index = ast.unparse(place).removeprefix(x)
    return f"{x} = {x}.at{index}.{how}({value})"


def _of_method(x: ast.expr, name: str, call: ast.Call) -> str:
    """Of a call whose result nobody reads."""
    arguments = [*map(ast.unparse, call.args), *(ast.unparse(keyword) for keyword in call.keywords)]
    if name in VALUES and len(arguments) < VALUES[name].count("{0}"):
        return ""
    plain = f"{ast.unparse(x)}.{name[:-1]}({', '.join(arguments)})"
    if not isinstance(x.value if isinstance(x, ast.Subscript) else x, (ast.Name, ast.Attribute)):
        return ""
    if isinstance(x, ast.Subscript):
        return _set(x, VALUES[name].format(*arguments) if name in VALUES else plain)
    return f"{ast.unparse(x)} = " + (_COPIES[name].format(*arguments, x=ast.unparse(x)) if name in _COPIES else plain)
