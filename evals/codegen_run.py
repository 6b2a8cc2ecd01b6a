# SPDX-License-Identifier: Apache-2.0
"""Compiles cases of the cross-compilation, in processes of their own."""

import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from evals import vllm_tree
from series.errors import SeriesError

CACHE = Path(__file__).resolve().parent.parent / "build/codegen"


class CodegenError(SeriesError):
    """A configuration in use is worse than recorded, or cannot be compiled."""


def prepare(tree: str, cache: str) -> None:
    """Makes this process one that compiles: the tree importable, no GPU, no stand-in.

    Raises:
        CodegenError: triton is missing, or vLLM found it unusable.
    """
    # An empty list of devices keeps vLLM from replacing triton by a stub.
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["HIP_VISIBLE_DEVICES"] = ""
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ["TRITON_CACHE_DIR"] = cache
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    if tree not in sys.path:
        sys.path.insert(1, tree)
    found = vllm_tree.prepare()
    if found != Path(tree):
        raise CodegenError(f"{found} is on the module path before {tree}.")
    try:
        import triton  # noqa: F401
    except ImportError as error:
        raise CodegenError(f"triton is missing: {error}.", "make codegen") from error


def compile_case(job: tuple[str, int, bool]) -> list[dict[str, Any]]:
    """Compiles one case of a target; what its launches came out as.

    Args:
        job: The target, the number of the case in its list, and whether the list has
            the slow cases.
    """
    from evals import codegen_cases, crosscompile

    arch, number, slow = job
    case = _listed(arch, slow)[number]
    entries = []
    try:
        launches = crosscompile.compiled(arch, case.call)
        for launch in launches:
            assembly = launch.compiled.asm["amdgcn"]
            entry = {
                "target": arch,
                "family": case.family,
                "kernel": launch.kernel,
                "label": case.label,
                "config": launch.config,
                "in_use": case.in_use,
                "hash": launch.compiled.hash,
                **crosscompile.figures(assembly),
            }
            if case.family == "plain_dot":
                entry |= codegen_cases.plain_dot.conversions(assembly)
            entries.append(entry)
    # The compiler aborts in many ways; each must name the configuration.
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise CodegenError(f"{arch}: {case.family}, {case.label}: {problem}") from None
    return entries


_lists: dict[tuple[str, bool], list] = {}


def _listed(arch: str, slow: bool) -> list:
    """The cases of a target, enumerated once a process."""
    from evals import codegen_cases

    key = (arch, slow)
    if key not in _lists:
        _lists[key] = list(codegen_cases.cases(arch, slow))
    return _lists[key]


def jobs_of(
    targets: Sequence[str], slow: bool, quick: bool
) -> list[tuple[str, int, bool]]:
    """What to compile: everything, or the cases of a quick check."""
    return [
        (arch, number, slow)
        for arch in targets
        for number, case in enumerate(_listed(arch, slow))
        if case.base or not quick
    ]


def compile_all(
    jobs: Sequence[tuple[str, int, bool]], tree: Path, processes: int
) -> list[dict[str, Any]]:
    """Compiles the cases in some processes, with a progress bar; duplicates once."""
    context = multiprocessing.get_context("spawn")
    words = (str(tree), str(CACHE))
    with context.Pool(processes, initializer=prepare, initargs=words) as pool:
        done = pool.imap(compile_case, jobs, chunksize=8)
        shown = watched(done, len(jobs))
        return distinct(entry for entries in shown for entry in entries)


def watched(done: Iterable[list], total: int) -> Iterator[list]:
    """Shows how far it is: a bar on a terminal, a line every tenth elsewhere."""
    if sys.stderr.isatty():
        console = Console(stderr=True)
        yield from track(done, "compiling", total=total, console=console)
        return
    step = max(1, total // 10)
    for number, item in enumerate(done, 1):
        if number % step == 0:
            print(f"compiled {number} of {total}", file=sys.stderr, flush=True)
        yield item


def distinct(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each compiled kernel of a target once, under its first label."""
    seen: dict[tuple[str, str], dict[str, Any]] = {}
    for entry in entries:
        seen.setdefault((entry["target"], entry["hash"]), entry)
    return [
        {key: value for key, value in entry.items() if key != "hash"}
        for entry in seen.values()
    ]
