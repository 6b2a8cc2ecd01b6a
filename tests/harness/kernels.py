# SPDX-License-Identifier: Apache-2.0
"""Which Triton kernels a change adds or alters, read off the sources."""

import ast


def _is_jit(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(target) in ("triton.jit", "jit")


def jit_functions(source: str) -> dict[str, str]:
    """The module-level functions under triton.jit, each with its normalised text."""
    return {
        node.name: ast.dump(node)
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
        and any(_is_jit(decorator) for decorator in node.decorator_list)
    }


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
    old, new = jit_functions(before), jit_functions(after)
    return [
        f"{module_name(path)}.{name}"
        for name, text in new.items()
        if old.get(name) != text
    ]
