# SPDX-License-Identifier: Apache-2.0
"""Which Triton kernels a change adds or alters, read off the sources."""

import ast


def _is_jit(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(target) in ("triton.jit", "jit")


def jit_functions(source: str) -> dict[str, ast.FunctionDef]:
    """The module-level functions under triton.jit, by name."""
    return {
        node.name: node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
        and any(_is_jit(decorator) for decorator in node.decorator_list)
    }


def kernels(source: str) -> dict[str, str]:
    """The kernels of a file, each with the text of all that it runs.

    A jit function that another one calls is a part of that kernel: it is inlined there
    and never launched.
    """
    functions = jit_functions(source)
    calls = {
        name: {
            call.func.id
            for call in ast.walk(node)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        }
        & functions.keys() - {name}
        for name, node in functions.items()
    }
    parts = set().union(*calls.values()) if calls else set()
    return {
        name: "\n".join(ast.dump(functions[used]) for used in _reached(name, calls))
        for name in functions
        if name not in parts
    }


def _reached(name: str, calls: dict[str, set[str]]) -> list[str]:
    found, ahead = [name], [name]
    while ahead:
        new = sorted(calls[ahead.pop()] - set(found))
        found += new
        ahead += new
    return found


def module_name(path: str) -> str:
    """The module that a Python file of the tree is imported as."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def changed(path: str, before: str, after: str) -> list[str]:
    """The kernels of one file that differ, as "module.function".

    Args:
        path: The file, relative to the tree.
        before: Its source before the change, empty where it did not exist.
        after: Its source after it.
    """
    old, new = kernels(before), kernels(after)
    return [
        f"{module_name(path)}.{name}"
        for name, text in new.items()
        if old.get(name) != text
    ]
