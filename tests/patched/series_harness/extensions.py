# SPDX-License-Identifier: Apache-2.0
"""Finds vLLM's compiled extensions beside the tree, or stands in for the one it needs.

A tree made from sources alone has none. A clone that was built, or an image's installed
vLLM of the same release, has them: they load from there. vLLM's CUDA platform cannot
start without its extension, so an empty module takes its place where none was built; it
registers no op, and whatever needs one still sees that it is absent.
"""

import importlib.machinery
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType

STANDS_IN = ("vllm._C_stable_libtorch",)

loaded: list[str] = []
"""The compiled files that were found, in import order."""
stubs: list[str] = []
"""The extensions that had to be stood in for, in import order."""


class _EmptyModule(Loader):
    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        stubs.append(module.__name__)


def _compiled(fullname: str, folders: Sequence[Path]) -> Path | None:
    parts = fullname.split(".")[1:]
    for folder in folders:
        for suffix in EXTENSION_SUFFIXES:
            path = folder.joinpath(*parts[:-1], parts[-1] + suffix)
            if path.is_file():
                return path
    return None


class _LastResort(MetaPathFinder):
    """Answers only for names that no real finder knew: it stands last."""

    def __init__(self, folders: Sequence[Path], stand_in: bool) -> None:
        self.folders = folders
        self.stand_in = stand_in

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith("vllm."):
            return None
        if found := _compiled(fullname, self.folders):
            loaded.append(str(found))
            loader = ExtensionFileLoader(fullname, str(found))
            return ModuleSpec(fullname, loader, origin=str(found))
        if self.stand_in and fullname in STANDS_IN:
            return ModuleSpec(fullname, _EmptyModule())
        return None


def install(stand_in: bool) -> None:
    """Offers both behind every other way to find those modules.

    Args:
        stand_in: Whether the platform cannot start without its extension; vLLM's ROCm
            platform can, and says itself what it lacks.
    """
    if op := os.environ.get("SERIES_HARNESS_OP"):
        import torch

        torch.ops.load_library(op)
        loaded.append(op)
    given = os.environ.get("SERIES_HARNESS_EXTENSIONS", "").split(os.pathsep)
    folders = [Path(folder) for folder in given if folder]
    sys.meta_path.append(_LastResort(folders, stand_in))
