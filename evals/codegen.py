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
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals import cli, record  # noqa: E402
from evals.codegen_run import (  # noqa: E402
    CACHE,
    CodegenError,
    compile_all,
    jobs_of,
    prepare,
)
from evals.codegen_tables import show_all  # noqa: E402
from series.errors import Exit  # noqa: E402

NAME = "codegen"
TREE = ROOT / "build/vllm"


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
