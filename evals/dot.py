# SPDX-License-Identifier: Apache-2.0
"""Times the 1x1xK projection and its gate on a GPU: `make bench OP=dot`.

    PYTHONPATH=build/vllm python3 -m evals.dot --json dot.json

Arms: BLAS, wvSplitK (ROCm), the eager dot, the series' Triton kernel, and a control
that is that kernel once more. Beside a kernel stands what it replaced: the bounded dot,
and for a gated output the two launches, to which one must be bit-equal. A figure is
the median of separate processes, because single ones were seen to differ by tens of
percent; in each, the arms agree with fp64 first, are timed by graph replay,
interleaved, warm and (by what a call adds to an eviction of the last-level cache)
cold, and their kernels are counted at last. Intervals and verdicts hold for all points
of a run together. --json has what was measured before a failure.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals import bench_tables, cli, machine, sensors, stats, vllm_tree  # noqa: E402
from evals.blocks import Slot, plan  # noqa: E402
from evals.gdn import CONTROL  # noqa: E402
from series.errors import Exit, SeriesError  # noqa: E402

if TYPE_CHECKING:
    from evals.dot_arms import Case

SOURCES = (
    "vllm/model_executor/layers/tiny_dot.py",
    "vllm/model_executor/layers/shared_expert_gate_triton.py",
)
REPEATED = "triton"


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="evals.dot",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--k", default="1024,2048,4096,16384,65536,131072")
    add("--dtypes", default="bf16,fp16")
    add(
        "--forms",
        default="dot,gate,output",
        help="the dot alone, with its sigmoid, that times an expert's output of K",
    )
    add("--blocks", type=int, default=5, help="two processes each")
    add("--rounds", type=int, default=6, help="of a process, every other one mirrored")
    add("--calls", type=int, default=400, help="of a warm graph")
    add("--cold-calls", type=int, default=40, help="of a cold one")
    add("--no-cold", action="store_true", help="warm alone")
    add("--pause", type=float, default=0.0, metavar="S", help="between processes")
    add("--seed", type=int, help="of the operands; fresh if left out")
    add("--json", type=Path, help="write everything, raw samples too, to this file")
    add("--child", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def cases_of(args: argparse.Namespace) -> list["Case"]:
    """The cases that the words ask for."""
    from evals import dot_arms

    return [
        dot_arms.Case(k, dtype, form)
        for form in cli.words(args.forms, dot_arms.FORMS, "--forms")
        for dtype in cli.words(args.dtypes, list(dot_arms.DTYPES), "--dtypes")
        for k in cli.numbers(args.k, "--k")
    ]


def in_order(names: Sequence[str], process: int) -> list[str]:
    """The arms' order in a process: that of the mirrored blocks."""
    block, half = divmod(process, 2)
    slots = plan(names, block + 1)
    return [s.arm for s in slots if (s.block, s.half) == (block, half)]


def spread(call: Callable[..., object]) -> Callable[[Any], object]:
    """The call as one of a buffer set."""
    return lambda operands: call(*operands)


def measure(case: "Case", args: argparse.Namespace) -> dict[str, Any]:
    """One case in this process: the median µs per call of every arm."""
    import torch

    from evals import dot_arms, gdn_case, replay

    arms = dot_arms.available(case)
    seed = args.seed + args.child
    void = [dot_arms.disagreement(case, arm, seed) for arm in arms.values()]
    differing = dot_arms.differing(case, arms, seed)
    if differing.get(dot_arms.TWO_LAUNCHES):
        void.append(f"{case.words()}: one launch is not bit-equal to two")
    calls = {name: arm.call for name, arm in arms.items()}
    if REPEATED in calls:
        calls[CONTROL] = calls[REPEATED]
    sets = [dot_arms.make(case, seed)]
    kinds = {"warm": {name: spread(call) for name, call in calls.items()}}
    if not args.no_cold:
        size = gdn_case.CACHE_FACTOR * replay.last_level_cache()
        evicted = torch.empty(size, dtype=torch.uint8, device=dot_arms.DEVICE)

        def after(call: Callable[..., object]) -> Callable[[Any], object]:
            return lambda operands: (evicted.zero_(), call(*operands))

        kinds["cold"] = {name: after(call) for name, call in calls.items()}
        kinds["cold"]["eviction"] = lambda _: evicted.zero_()
    found: dict[str, Any] = {}
    for kind, by_name in kinds.items():
        order = in_order([*by_name], args.child)
        number = args.calls if kind == "warm" else args.cold_calls
        # In turn too: one captured later was seen to be faster for as long as it lived.
        graphs = {n: replay.capture(by_name[n], sets, number, 2.0) for n in order}
        samples: dict[str, list[float]] = {name: [] for name in by_name}
        for turn in range(args.rounds):
            for name in order if turn % 2 == 0 else order[::-1]:
                samples[name].append(replay.sample_us(graphs[name]))
        times = stats.medians(samples)
        alone = times.pop("eviction", 0.0)
        found[kind] = {name: value - alone for name, value in times.items()}
    void = [problem for problem in void if problem]
    return {"times": found, "differing": differing, "void": void}


def count(case: "Case", args: argparse.Namespace) -> dict[str, Any]:
    """One case's kernels per call, by arm."""
    from evals import dot_arms, replay

    arms = dot_arms.available(case)
    sets = [dot_arms.make(case, args.seed + args.child)]
    found, void = {}, []
    for name, arm in arms.items():
        graph = replay.capture(spread(arm.call), sets, args.cold_calls, 0.0)
        found[name] = replay.per_call(replay.kernels(graph), graph.calls)
        foreign = dot_arms.foreign(arm)
        problem = replay.misfit(found[name], arm.claims, foreign, arm.alone)
        if problem:
            void.append(f"{case.words()}: {name}: {problem}")
    return {"kernels": found, "void": void}


def run_child(args: argparse.Namespace) -> int:
    """Measures everything in this process and prints one line."""
    machine.require_gpu()
    vllm_tree.prepare()
    cases = cases_of(args)
    rows = [measure(case, args) for case in cases]
    for row, case in zip(rows, cases, strict=True):
        counted = count(case, args)
        row["kernels"] = counted["kernels"]
        row["void"] += counted["void"]
    print("\n" + json.dumps(rows))
    return Exit.DONE


def processes(
    args: argparse.Namespace, argv: Sequence[str], tree: Path
) -> Iterator[list[dict]]:
    """Starts one child after the other, and yields the rows of each."""
    paths = [str(tree), str(ROOT), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    for process in range(2 * args.blocks):
        if process:
            time.sleep(args.pause)
        print(
            f"process {process + 1} of {2 * args.blocks}", file=sys.stderr, flush=True
        )
        words = [*argv, "--seed", str(args.seed), "--child", str(process)]
        call = [sys.executable, "-m", "evals.dot", *words]
        done = subprocess.run(call, stdout=subprocess.PIPE, text=True, env=env)
        if done.returncode:
            raise SeriesError(f"process {process + 1} failed: see above.")
        yield json.loads(done.stdout.splitlines()[-1])


def joined(case: "Case", rows: Sequence[dict], points: int) -> dict[str, Any]:
    """A case over all processes: samples, verdicts against BLAS, counts.

    Args:
        case: Which.
        rows: What each process measured of it.
        points: Of the run, warm and cold, that a verdict is one of.
    """
    out: dict[str, Any] = {"k": case.k, "dtype": case.dtype, "form": case.form}
    levels = stats.over(points)
    for kind in rows[0]["times"]:
        names = [*rows[0]["times"][kind]]
        runs = []
        for process, row in enumerate(rows):
            block, half = divmod(process, 2)
            order = in_order(_graphs(names, kind), process)
            runs += [
                (Slot(block, half, at, name), row["times"][kind][name])
                for at, name in enumerate(name for name in order if name in names)
            ]
        pairs = dict.fromkeys(names[1:], names[0])
        if CONTROL in pairs:
            pairs[CONTROL] = REPEATED
        out[kind] = {
            "samples": {n: [row["times"][kind][n] for row in rows] for n in names},
            "compared": {
                name: stats.compare(base, name, runs, levels=levels).as_dict()
                for name, base in pairs.items()
            },
        }
    counts = [row["differing"] for row in rows]
    out["differing"] = {name: sum(c[name] for c in counts) for name in counts[0]}
    return {**out, "kernels": rows[0]["kernels"]}


def _graphs(names: Sequence[str], kind: str) -> list[str]:
    return [*names, "eviction"] if kind == "cold" else [*names]


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark; returns its exit code."""
    args = parse(argv)
    if args.child is not None:
        return run_child(args)
    machine.require_gpu()
    cases = cases_of(args)
    tree = vllm_tree.prepare()
    args.seed = args.seed if args.seed is not None else time.time_ns() % (1 << 30)
    from evals import dot_arms

    sensor = sensors.find_sensor()
    points = len(cases) * (1 if args.no_cold else 2)
    record = {
        "bench": "dot",
        "command": ["evals.dot", *argv],
        "date": machine.now(),
        "machine": machine.gpu_facts(sensor),
        "options": {"blocks": args.blocks, "seed": args.seed, "points": points},
        "sources": machine.blobs(tree, SOURCES),
    }
    answers: list[list[dict]] = []
    readings: list[dict] = []

    def keep(*problems: str) -> tuple[list[dict], list[str]]:
        rows = [
            joined(case, [answer[at] for answer in answers], points)
            for at, case in enumerate(cases)
        ]
        void = [one for answer in answers for row in answer for one in row["void"]]
        if args.json:
            kept = {"sensor": readings, "cases": rows, "void": [*void, *problems]}
            cli.write_json(args.json, record | kept)
        return rows, void

    for answer in processes(args, argv, tree):
        answers.append(answer)
        readings += [sensor.read().as_dict()] if sensor.read else []
        if len(answers) % 2 == 0:
            keep(f"ended after {len(answers)} of {2 * args.blocks} processes")
    rows, void = keep()
    bench_tables.show_dot(rows)
    bench_tables.show_differing(rows, len(answers) * dot_arms.TOKENS)
    if void:
        raise SeriesError(f"the run is void: {'; '.join(void)}.")
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv[1:]))
