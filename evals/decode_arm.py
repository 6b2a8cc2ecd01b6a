# SPDX-License-Identifier: Apache-2.0
"""One run of the engine for evals.decode: prints what evals.ab asks of an arm.

    python -m evals.decode_arm gdn port --requests 1,8,32
    python -m evals.decode_arm gate on

gdn: MTP with three drafts, milliseconds of a decode step by number of requests, and
of a prefill. gate: no speculation, one request, 100 tokens in and 128 out, time to the
first token and of each later one. Both: launches and device time of a step by kind,
from the profiler, which also proves which arm ran. With dummy weights drafts are
accepted or rejected alike, so there are no tokens a second here.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals import cli, engine, kinds, machine, seams, sensors, vllm_tree  # noqa: E402
from series.errors import Exit  # noqa: E402

FILES = {
    "gdn": (
        "vllm/model_executor/layers/mamba/ops/gdn_decode_mtp.py",
        "vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py",
    ),
    "gate": (
        "vllm/model_executor/layers/tiny_dot.py",
        "vllm/model_executor/layers/shared_expert_gate.py",
        "vllm/model_executor/models/qwen2_moe.py",
    ),
}
"""What is measured, by workload."""
SWITCH = ("off", "on")


def profile(generator: engine.Generator) -> tuple[dict[str, float], dict[str, Any]]:
    """Telling calls of a decode step, and launches and time of a step by kind."""
    short, few = generator.profiled(engine.PROFILED_SHORT)
    long, many = generator.profiled(engine.PROFILED_LONG)
    steps = many - few
    before, after = kinds.by_kind(short), kinds.by_kind(long)
    notes = {
        what: kinds.per_step(
            {kind: getattr(total, what) for kind, total in before.items()},
            {kind: getattr(total, what) for kind, total in after.items()},
            steps,
        )
        for what in ("launches", "device_us")
    }
    return kinds.per_step(kinds.calls(short), kinds.calls(long), steps), notes


def measure_gdn(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Steps of MTP decode at every number of requests."""
    requests = cli.numbers(args.requests, "--requests")
    llm = engine.start(folder, requests, engine.DRAFTS)
    values: dict[str, float] = {}
    calls: dict[str, float] = {}
    notes: dict[str, Any] = {}
    generators = {
        number: engine.Generator(
            llm, engine.prompts(number, engine.PROMPT_TOKENS, args.seed), True
        )
        for number in requests
    }
    for number, generator in generators.items():
        generator.run(2 * engine.SHORT_TOKENS)
        times = [
            generator.step_ms(engine.SHORT_TOKENS, engine.LONG_TOKENS)
            for _ in range(args.repeats)
        ]
        values[f"step_ms_{number}"] = median(times)
        values[f"prefill_ms_{number}"] = 1e3 * median(
            generator.run(1)[0] for _ in range(args.repeats)
        )
        notes[f"step_ms_{number}"] = times
    # After all timing: a profiler that ran may slow down what follows.
    for number, generator in generators.items():
        calls, notes[f"step of {number}"] = profile(generator)
    return {"values": values, "calls": calls, "notes": notes}


def measure_gate(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The gate's own workload: one request after the other, no speculation."""
    llm = engine.start(folder, [1], 0)
    asked = [
        engine.Generator(
            llm, engine.prompts(1, engine.GATE_PROMPT_TOKENS, args.seed + n), False
        )
        for n in range(args.prompts)
    ]
    asked[0].run(engine.GATE_TOKENS)
    first = [generator.run(1)[0] for generator in asked]
    whole = [generator.run(engine.GATE_TOKENS)[0] for generator in asked]
    later = [
        (all_s - first_s) / (engine.GATE_TOKENS - 1)
        for first_s, all_s in zip(first, whole, strict=True)
    ]
    calls, notes = profile(asked[0])
    values = {"ttft_ms": 1e3 * median(first), "tpot_ms": 1e3 * median(later)}
    return {"values": values, "calls": calls, "notes": {"step of 1": notes}}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="evals.decode_arm",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds_of = parser.add_subparsers(dest="workload", required=True)
    gdn = kinds_of.add_parser("gdn")
    gdn.add_argument("arm", choices=[*seams.GDN_ARMS])
    gdn.add_argument("--requests", default="1,8,32")
    gate = kinds_of.add_parser("gate")
    gate.add_argument("arm", choices=SWITCH)
    gate.add_argument("--prompts", type=int, default=10)
    for one in (gdn, gate):
        one.add_argument("--shape", choices=[*engine.SHAPES], default="35b")
        one.add_argument("--layers", type=int, help="fewer than the model has")
        one.add_argument("--state", default="float32", help="dtype of the GDN state")
        one.add_argument("--repeats", type=int, default=3)
        one.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Runs the engine once; returns the exit code."""
    args = parse(argv)
    machine.require_gpu()
    tree = vllm_tree.prepare()
    shape = engine.SHAPES[args.shape]
    folder = engine.model_folder(shape, args.layers or shape.layers, args.state)
    if args.workload == "gdn":
        seams.force_gdn(args.arm)
        said = measure_gdn(args, folder)
    else:
        seams.force_gate(args.arm == "on")
        said = measure_gate(args, folder)
    said["machine"] = machine.gpu_facts(sensors.find_sensor())
    said["sources"] = machine.blobs(tree, FILES[args.workload])
    print("\n" + json.dumps(said), flush=True)
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv[1:]))
