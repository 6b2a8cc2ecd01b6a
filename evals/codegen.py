# SPDX-License-Identifier: Apache-2.0
"""Cross-compiles the series' Triton kernels for AMD GPUs: `make codegen`.

No GPU is needed. Every configuration that the launchers can pick, for every target:
registers, spills, LDS, occupancy, wide loads. Beside them the plain dot by elements a
lane, and the published figures. --record keeps the result; --check compiles the usual
configurations alone and compares them with the record: exit code 1 where one spills,
loses a step of occupancy, or is not recorded. Compiled kernels stay in build/codegen,
so that a second run compiles what changed.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals import cli, record, vllm_tree  # noqa: E402
from evals.codegen_tables import show_all  # noqa: E402
from series.errors import Exit, SeriesError  # noqa: E402

NAME = "codegen"
TREE = ROOT / "build/vllm"
CACHE = ROOT / "build/codegen"


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


def key_of(entry: dict[str, Any]) -> str:
    """What tells one compiled configuration from another."""
    config = ", ".join(f"{name}={value}" for name, value in entry["config"].items())
    return f"{entry['target']} {entry['kernel']} ({entry['label']}; {config})"


def regressions(
    recorded: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]
) -> list[str]:
    """What got worse: spills in a configuration in use, a lost step of occupancy.

    Args:
        recorded: The entries of the record.
        now: Entries compiled now, of all configurations or some.
    """
    known = {key_of(entry): entry for entry in recorded}
    worse = []
    for entry in (entry for entry in now if entry["in_use"]):
        key = key_of(entry)
        for kind in ("vgpr_spills", "scratch_bytes"):
            if entry[kind]:
                worse.append(f"{key}: {kind} {entry[kind]}")
        before = known.get(key)
        if before is None:
            worse.append(f"{key}: not recorded")
            continue
        # These go to lanes of a VGPR: no memory, but a cost that must not creep in.
        if entry["sgpr_spills"] > before["sgpr_spills"]:
            steps = f"{before['sgpr_spills']} to {entry['sgpr_spills']}"
            worse.append(f"{key}: sgpr_spills {steps}")
        if entry["occupancy"] < before["occupancy"]:
            steps = f"{before['occupancy']} to {entry['occupancy']}"
            worse.append(f"{key}: occupancy {steps}")
    return worse


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="evals.codegen",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--tree", type=Path, default=TREE, help="the patched tree")
    add("--targets", help="comma list; all if left out")
    add("--slow", action="store_true", help="plain dot of 256 and 512 too: minutes")
    add("--jobs", type=int, default=2, help="processes that compile")
    add("--record", action="store_true", help="write evals/results/codegen.json")
    add("--check", action="store_true", help="the usual ones against the record")
    add("--json", type=Path, help="write the entries to this file")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    args = parse(argv)
    tree = args.tree.absolute()
    if not (tree / "vllm").is_dir():
        raise CodegenError(f"{tree} has no vLLM.", "Run `make apply` first.")
    prepare(str(tree), str(CACHE))
    from evals import codegen_cases, crosscompile, machine

    known = list(crosscompile.TARGETS)
    targets = cli.words(args.targets, known, "--targets") if args.targets else known
    jobs = jobs_of(targets, args.slow, args.check)
    entries = compile_all(jobs, tree, args.jobs)
    entries.sort(key=lambda entry: known.index(entry["target"]))
    versions = machine.versions()
    if args.check:
        kept = record.load(NAME)
        if kept["machine"]["triton"] != versions["triton"]:
            recorded = kept["machine"]["triton"]
            raise CodegenError(
                f"the record is of triton {recorded}, this is {versions['triton']}.",
                "Install the recorded one, or record anew: --record.",
            )
        worse = regressions(kept["data"]["entries"], entries)
        if worse:
            raise CodegenError(
                f"{len(worse)} configurations are worse than recorded:\n  "
                + "\n  ".join(worse)
            )
        print(f"{len(entries)} configurations are as recorded or better")
        return Exit.DONE
    show_all(entries)
    data = {"slow": args.slow, "targets": targets, "entries": entries}
    if args.json:
        cli.write_json(args.json, data)
    if args.record:
        files = machine.blobs(tree, codegen_cases.FILES.values())
        path = record.write(
            NAME, "codegen", ["evals.codegen", *argv], versions, files, data
        )
        print(f"recorded in {path.relative_to(ROOT)}")
    spilled = [
        key_of(entry)
        for entry in entries
        if entry["in_use"] and (entry["vgpr_spills"] or entry["scratch_bytes"])
    ]
    if spilled:
        raise CodegenError("configurations in use spill:\n  " + "\n  ".join(spilled))
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv[1:]))
