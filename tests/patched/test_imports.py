# SPDX-License-Identifier: Apache-2.0
"""Every Python file that the series touches compiles, and its modules import."""

import ast
import importlib
import json
import os
from pathlib import Path

import pytest
import vllm

TREE = Path(vllm.__file__).parent.parent
CHANGED = json.loads(os.environ.get("SERIES_HARNESS_CHANGED", "[]"))
SOURCES = [path for path in CHANGED if path.endswith(".py")]
MODULES = [path for path in SOURCES if path.startswith("vllm/")]

# What every patch's change is reached through, whether it touches the file or not.
ALWAYS = ["vllm.model_executor.layers.utils", "vllm._custom_ops"]


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_the_changed_files_are_known() -> None:
    assert SOURCES, "SERIES_HARNESS_CHANGED names no Python file: nothing to check"


@pytest.mark.parametrize("path", SOURCES)
def test_compiles(path: str) -> None:
    source = (TREE / path).read_text(encoding="utf-8")
    compile(ast.parse(source, filename=path), path, "exec")


@pytest.mark.parametrize("name", [*ALWAYS, *map(_module, MODULES)])
def test_imports(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "vllm").split(".")[0] in ("vllm", "tests"):
            raise
        pytest.skip(f"{name} needs {error.name}, which is not installed")
    assert module.__file__ is not None
    assert Path(module.__file__).is_relative_to(TREE)
