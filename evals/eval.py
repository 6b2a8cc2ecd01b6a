# SPDX-License-Identifier: Apache-2.0
"""Did the patches change the model's answers? A server of each tree is asked the same.

    make eval MODEL=path/or/name PYTHON=/opt/venv/bin/python3
    make eval MODEL=... TASKS=gsm8k,gpqa,niah,serve N=400 ARGS='--gpqa gpqa_diamond.csv'

The stock release and the same release with the series are served one after the other,
each by `vllm serve` in PYTHON's environment. gsm8k asks the test questions five-shot,
greedily, and runs the tree's own script beside; gpqa needs the user's file; niah hides
a number in noise; serve times. Every answer is kept at once: Ctrl-C loses none, and
--resume asks only what is not answered. Exit codes: 0 no difference shown, 1 the arms
differ, a gate fails or something went wrong, 2 usage, 130 interrupted.
"""

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals import (  # noqa: E402
    cli,
    gsm8k,
    gsm8k_data,
    machine,
    niah,
    record,
    serving,
    trees,
    verdict,
    views_eval,
)
from evals.client import ALLOWED  # noqa: E402
from evals.eval_outcome import CONTROL, Outcome  # noqa: E402
from evals.eval_plan import TASKS, Plan  # noqa: E402
from evals.eval_progress import to_stderr  # noqa: E402
from evals.eval_run import run  # noqa: E402
from evals.proof import Arm  # noqa: E402
from series.errors import Exit, UsageError  # noqa: E402

__all__ = ["Outcome", "Plan", "main", "run", "show"]

HERE = ROOT / "build/eval"
DATA = HERE / "data/gsm8k"


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="evals/eval.py",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", help="a model's folder, or its name on the hub")
    add("--tasks", default=gsm8k.NAME, help=f"of {', '.join(TASKS)}, a comma between")
    add("--questions", type=int, default=gsm8k.ALL, metavar="N")
    add("--data", type=Path, metavar="DIR", help="has GSM8K's train.jsonl, test.jsonl")
    add("--gpqa", type=Path, metavar="FILE", help="your gpqa_diamond.csv")
    add("--vllm", type=Path, help="a clone with the series branch")
    add("--python", help="an interpreter whose environment runs the release")
    add("--out", type=Path, help="folder of the run; build/eval/MODEL-TASKS-N")
    add("--resume", action="store_true", help="go on with what is in --out")
    add("--control", action="store_true", help="ask the stock tree a second time")
    add("--serve-args", default="", metavar="WORDS", help="more words for vllm serve")
    add("--env", action="append", default=[], metavar="NAME=VALUE", help="for it")
    add("--concurrency", type=int, default=16, help="questions under way at a time")
    add("--timeout", type=float, default=600.0, metavar="S", help="of one request")
    add("--limit", type=float, default=6 * 3600.0, metavar="S", help="of one program")
    add("--ready", type=float, default=1800.0, metavar="S", help="until it answers")
    add("--allowed", type=float, default=ALLOWED, help="share that may stay unanswered")
    add("--margin", type=float, default=verdict.MARGIN, help="what counts as the same")
    add(
        "--threshold", type=float, help="of the tree's gsm8k script, instead of its own"
    )
    add("--no-script", action="store_true", help="leave the tree's gsm8k script out")
    add(
        "--lengths", default=",".join(map(str, niah.LENGTHS)), help="of niah, in tokens"
    )
    add("--depths", type=int, default=niah.DEPTHS, help="of niah")
    add("--samples", type=int, default=niah.SAMPLES, help="of each length and depth")
    add("--no-chat", action="store_true", help="the model has no chat template")
    add("--cells", help="of serve: 2048/256x8,plain:100/128x1x10; the published ones")
    return parser.parse_args(argv)


def plan_of(args: argparse.Namespace, arms: tuple[Arm, ...], data: Path | None) -> Plan:
    """The evaluation that the words ask for."""
    tasks = tuple(cli.words(args.tasks, TASKS, "--tasks"))
    model = args.model
    if Path(model).expanduser().exists():
        model = str(Path(model).expanduser().resolve())
    named = f"{Path(model).name}-{'-'.join(tasks)}-{args.questions}"
    pairs = dict(pair.partition("=")[::2] for pair in args.env)
    return Plan(
        arms=arms,
        model=model,
        out=(args.out or HERE / named).absolute(),
        tasks=tasks,
        questions=args.questions,
        data=data,
        gpqa_file=args.gpqa,
        documented=not args.no_script,
        lengths=tuple(cli.numbers(args.lengths, "--lengths")),
        depths=args.depths,
        samples=args.samples,
        chat=not args.no_chat,
        cells=serving.cells_of(args.cells) if args.cells else serving.PUBLISHED,
        server_args=tuple(shlex.split(args.serve_args)),
        server_env=pairs,
        concurrency=args.concurrency,
        timeout_s=args.timeout,
        limit_s=args.limit,
        ready_s=args.ready,
        allowed=args.allowed,
        margin=args.margin,
        threshold=args.threshold,
    )


def show(outcome: Outcome) -> None:
    """Prints the tables, and in words what they mean."""
    data = outcome.as_dict()
    for view in views_eval.VIEWS.values():
        title, columns, rows = view(data)
        if rows:
            cli.show(title, columns, rows)
    for task, by_arm in outcome.compared.items():
        for arm, one in by_arm.items():
            print(f"{task}, {arm}: {one.verdict}. {one.words()}")


def main(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    args = parse(argv)
    if not args.model:
        raise UsageError("No model is named.", "make eval MODEL=path/or/name")
    tasks = cli.words(args.tasks, TASKS, "--tasks")
    plan_of(args, (), None)
    data = None
    if gsm8k.NAME in tasks:
        data = gsm8k_data.prepare(DATA, to_stderr, given=args.data)
    plan_of(args, (), data).require_inputs()
    arms = arms_of(args)
    plan = plan_of(args, arms, data)
    series = record.current()
    sources = machine.blobs(arms[1].tree, series.files)
    if sources != series.files:
        to_stderr(
            "the served tree is not the series in patches/: no record can be made"
        )
    outcome = run(plan, resume=args.resume)
    show(outcome)
    path = outcome.report(["evals/eval.py", *argv], sources)
    print(f"\n{path}: python -m evals.record add NAME takes it")
    for problem in outcome.problems:
        print(f"differs: {problem}", file=sys.stderr)
    return Exit.FAILURE if outcome.problems else Exit.DONE


def arms_of(args: argparse.Namespace) -> tuple[Arm, ...]:
    """The trees to be served, made where they are not there yet.

    Raises:
        UsageError: No interpreter is named.
    """
    if not args.python:
        raise UsageError(
            "No interpreter is named whose environment runs vLLM.",
            "make eval MODEL=… PYTHON=path/to/python3 (a ROCm or CUDA image's own; "
            "for a CPU .venv-cpu/bin/python, which make eval-smoke makes)",
        )
    named = os.path.expanduser(args.python)
    # The server starts in a folder of its own; a link is what makes an environment.
    python = Path(shutil.which(named) or named).absolute()
    stock, patched = trees.arms(ROOT, python, vllm=args.vllm, say=to_stderr)
    if not args.control:
        return stock, patched
    return stock, patched, Arm(CONTROL, stock.tree, stock.python, stock.patch_ids)


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv[1:]))
