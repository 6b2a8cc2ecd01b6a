# SPDX-License-Identifier: Apache-2.0
"""Times the GDN MTP decode on a GPU: `make bench OP=gdn`, or as a plain file.

    PYTHONPATH=build/vllm python3 -m evals.gdn --json gdn.json

Arms of one process: the tree's unfused kernels, the series' Triton port, the CUDA op
where it is built or given with --op, the port of a later release given with --merged.
Every arm first agrees with an fp64 reference on fresh inputs, outputs and state slots
poisoned; then all are timed by graph replay, interleaved, warm (one buffer set) and
cold (sets rotated beyond four times the last-level cache), beside a control that is
the series' newest kernel once more; at last the profiler counts the kernels of a replay
of each. Intervals and verdicts hold for all points of a run together. An arm that
disagrees, or ran other kernels than it claims, voids the run: exit code 1; --json has
what was measured before a failure. Needs torch, triton, numpy, scipy, rich and a GPU,
CUDA or ROCm.
"""

import gc
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from evals import bench_tables, cli, gdn_options, machine, sensors, stats, vllm_tree
from evals.blocks import Slot, by_arm, plan
from series.errors import Exit, SeriesError

if TYPE_CHECKING:
    from evals.gdn_arms import Arm
    from evals.gdn_case import Buffers, Case

CONTROL = "control"


@dataclass(frozen=True)
class Options:
    """How the cases are measured.

    Attributes:
        blocks: Mirrored blocks; each times every arm twice.
        sample_ms: Duration of one sample at least.
        replay_ms: Duration of one replay, by the memory floor: what a replay itself
            costs, and differs by from graph to graph, is divided by its calls.
        points: Points of the run, warm and cold, that a verdict is one of.
        cache: Bytes of the last-level cache.
        bandwidth: Bytes a second, for the floor.
        seed: Of the inputs.
    """

    blocks: int
    sample_ms: float
    replay_ms: float
    points: int
    cache: int
    bandwidth: float
    seed: int


def compared(
    runs: Sequence[tuple[Slot, float]], base: str, of: str, points: int
) -> dict:
    """Every arm against the base arm, and the control against the arm it repeats."""
    names = list(dict.fromkeys(slot.arm for slot, _ in runs))
    pairs = {name: base for name in names if name not in (base, CONTROL)}
    if CONTROL in names:
        pairs[CONTROL] = of
    return {
        name: stats.compare(against, name, runs, levels=stats.over(points)).as_dict()
        for name, against in pairs.items()
    }


def control_of(arms: Mapping[str, "Arm"]) -> str:
    """The arm that the control repeats: the series' newest kernel, else the first."""
    return next(name for name in ("rowwise", "port", *arms) if name in arms)


def measure(
    case: "Case", arms: Mapping[str, "Arm"], sets: Sequence["Buffers"], options: Options
) -> dict:
    """Times a case warm and cold; samples in µs per call."""
    from evals import replay

    named = {name: arm.call for name, arm in arms.items()}
    repeated = control_of(arms)
    named[CONTROL] = named[repeated]
    slots = plan(list(named), options.blocks)
    result: dict = {}
    for kind, used in (("warm", sets[:1]), ("cold", sets)):
        calls = case.calls(len(used), options.bandwidth, options.replay_ms)
        captures = {
            name: partial(replay.capture, call, used, calls, options.sample_ms)
            for name, call in named.items()
        }
        runs = replay.interleave(captures, slots)
        result[kind] = {
            "samples": by_arm(runs),
            "order": [slot.arm for slot in slots],
            "calls": calls,
            "compared": compared(runs, next(iter(arms)), repeated, options.points),
        }
    return result


def run_case(
    case: "Case", arms: Mapping[str, "Arm"], options: Options
) -> tuple[dict, list[str]]:
    """Agreement, then times; what voids the run comes second."""
    import torch

    from evals import gdn_case

    found = {
        name: gdn_case.agreement(case, arm.call, "cuda", options.seed)
        for name, arm in arms.items()
    }
    gc.collect()
    torch.cuda.empty_cache()
    row = {
        "shape": case.shape,
        **{k: v for k, v in asdict(case).items() if k != "heads"},
        "floor_bytes": case.floor_bytes,
        "floor_us": case.floor_bytes / options.bandwidth * 1e6,
        "agreement": {name: asdict(one) for name, one in found.items()},
    }
    void = [
        f"{case.words()}: {name}: {one.problem}"
        for name, one in found.items()
        if one.problem
    ]
    if void:
        return row, void
    number = gdn_case.rotated(case, options.cache)
    sets = [gdn_case.make(case, "cuda", options.seed + at) for at in range(number)]
    row["cold_sets"] = number
    row["cold_bytes"] = number * case.set_bytes
    if row["cold_bytes"] < gdn_case.CACHE_FACTOR * options.cache:
        void.append(f"{case.words()}: the cold sets do not exceed the cache")
    row |= measure(case, arms, sets, options)
    return row, void


def launches(
    case: "Case", arms: Mapping[str, "Arm"], seed: int
) -> tuple[dict, list[str]]:
    """Kernels per call of every arm, and what does not fit its claims."""
    from evals import gdn_case, replay

    sets = [gdn_case.make(case, "cuda", seed)]
    found, void = {}, []
    for name, arm in arms.items():
        foreign = [
            pattern
            for other in arms.values()
            for pattern in other.claims
            if pattern not in arm.claims
        ]
        graph = replay.capture(arm.call, sets, gdn_case.LEAST_CALLS, 0.0)
        found[name] = replay.per_call(replay.kernels(graph), graph.calls)
        problem = replay.misfit(found[name], arm.claims, foreign, arm.alone)
        if problem:
            void.append(f"{case.words()}: {name}: {problem}")
    return found, void


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark; returns its exit code."""
    args = gdn_options.parse(argv, __doc__)
    machine.require_gpu()
    tree = vllm_tree.prepare()
    from evals import gdn_arms, gdn_compile, replay

    cases = gdn_options.cases_of(args)
    arms, left_out = gdn_arms.available(args.op, args.merged)
    if args.arms:
        arms = {name: arms[name] for name in cli.words(args.arms, [*arms], "--arms")}
    sensor = sensors.find_sensor()
    options = Options(
        1 if args.quick else args.blocks,
        2.0 if args.quick else args.sample_ms,
        0.0 if args.quick else 1.0,
        2 * len(cases),
        int(args.cache_mib * (1 << 20))
        if args.cache_mib
        else replay.last_level_cache(),
        args.bandwidth * 1e12 if args.bandwidth else replay.copy_bandwidth(),
        args.seed if args.seed is not None else time.time_ns() % (1 << 31),
    )
    facts = machine.gpu_facts(sensor)
    print(
        f"{facts['device']}, torch {facts['torch']}, triton {facts['triton']}; {tree}"
    )
    print(f"arms: {', '.join(arms)}; left out: {'; '.join(left_out) or 'none'}")
    gdn_compile.everything(cases, arms, args.merged, args.jobs)
    files = [name.split(":")[0] for name, _ in gdn_arms.TREE_ARMS.values()]
    record = {
        "bench": "gdn",
        "command": ["evals.gdn", *argv],
        "date": machine.now(),
        "machine": facts,
        "options": asdict(options),
        "left_out": left_out,
        "sources": machine.blobs(
            tree, [name.replace(".", "/") + ".py" for name in files]
        ),
    }

    def keep(*problems: str) -> None:
        if args.json:
            kept = {**record, "cases": rows, "void": [*void, *problems]}
            cli.write_json(args.json, kept)

    rows: list[dict] = []
    void: list[str] = []
    interrupted = False
    try:
        for case in cases:
            print(f"{case.words()}", file=sys.stderr, flush=True)
            before = sensor.read().as_dict() if sensor.read else None
            row, problems = run_case(case, arms, options)
            rows.append({**row, "sensor": before})
            void += problems
            keep(f"ended after {len(rows)} of {len(cases)} cases")
    except KeyboardInterrupt:
        # What was measured is kept, as a void run, and nothing more is done.
        interrupted = True
        void.append(f"interrupted after {len(rows)} of {len(cases)} cases")
    if args.sweep and not void:
        from evals import gdn_sweep

        for row, swept in zip(rows, gdn_sweep.run(args, cases, options), strict=True):
            row["sweep"] = swept
    # Last: a profiler that ran may slow down the launches that follow.
    kinds = set()
    for row, case in [] if interrupted else zip(rows, cases, strict=True):
        kind = (case.heads, case.state, case.tokens)
        if args.quick and kind in kinds:
            continue
        kinds.add(kind)
        row["kernels"], problems = launches(case, arms, options.seed)
        void += problems
    if timed := [row for row in rows if "warm" in row]:
        bench_tables.show_times(timed, options.bandwidth)
        bench_tables.show_sweep(timed)
    bench_tables.show_counts(rows)
    keep()
    if interrupted:
        kept = f"; what was measured is kept in {args.json}" if args.json else ""
        print(f"{void[-1]}{kept}", file=sys.stderr)
        raise KeyboardInterrupt
    if void:
        raise SeriesError(f"the run is void: {'; '.join(void)}.")
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv[1:]))
