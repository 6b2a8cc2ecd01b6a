# SPDX-License-Identifier: Apache-2.0
"""Compares two or more arms, each run as a process of its own, so that it cannot lie.

    python -m evals.ab --out build/ab/gate \\
        --arm off='python3 arm.py --stock' --arm on='python3 arm.py' --ran on:port

An arm is a command. It measures, and then prints one line, or writes one file (named
by the variable AB_RESULT), with a JSON object:

    {"values": {"ms": 9.71, "prefill_ms": 31.0}, "calls": {"port": 3600, "op": 0}}

values are numbers above zero, smaller being better unless --higher names them; with
one metric, {"value": 9.71} will do. calls say how often it ran what; --ran and --idle
hold an arm to them. "machine", "sources" and "notes" may be told too, and are kept.

Arms run in mirrored blocks, so that each is first as often as last, after a cool-down
where there is a sensor. The first arm runs once more under the name of control: where
that differs from itself by more than the margin, no other verdict counts. Each finished
run is kept at once: Ctrl-C loses the running one alone, and --resume, with the same
words, goes on. Exit codes: 0 verdicts reached, 1 void, refused or a control that
differs, 130 interrupted.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from os.path import isabs
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals import ab_runs, arms, cli, machine, sensors, stats, witness  # noqa: E402
from evals.ab_options import CONTROL, arms_of, parse  # noqa: E402
from evals.blocks import Slot, plan  # noqa: E402
from evals.journal import Journal  # noqa: E402
from evals.processes import ended_by_signals  # noqa: E402
from series.errors import Exit, SeriesError  # noqa: E402


class NoVerdictError(SeriesError):
    """The comparison ended without a verdict that counts."""


def comparisons(
    runs: Sequence[Mapping[str, Any]],
    slots: Sequence[Slot],
    args: argparse.Namespace,
) -> dict[str, dict[str, stats.Comparison]]:
    """Every arm against the first, by metric.

    Raises:
        ArmError: A run has other metrics than the first, or an option names one that
            none has.
    """
    metrics = list(runs[0]["values"])
    for run in runs:
        ab_runs.require_metrics(run["values"], runs[0]["values"], args)
    base = slots[0].arm
    names = sorted(dict.fromkeys(slot.arm for slot in slots), key=CONTROL.__eq__)
    result: dict[str, dict[str, stats.Comparison]] = {}
    for metric in metrics:
        power = -1 if metric in args.higher else 1
        values = [
            (slot, run["values"][metric] ** power)
            for slot, run in zip(slots, runs, strict=False)
        ]
        result[metric] = {
            name: stats.compare(base, name, values, margin=args.margin, seed=args.seed)
            for name in names
            if name != base
        }
    return result


def judge(
    result: Mapping[str, Mapping[str, stats.Comparison]],
    unchanged: Sequence[str],
    margin: float = stats.MARGIN,
) -> list[str]:
    """Why the verdicts do not count; empty where they do.

    Args:
        result: Comparisons by metric and arm.
        unchanged: Metrics that no arm may change.
        margin: A control differs where its whole interval is further from 1 than this.
    """
    problems = []
    for metric, by_arm in result.items():
        for name, one in by_arm.items():
            differs = one.high < 1 - margin or one.low > 1 + margin
            if one.verdict is stats.Verdict.REFUSED:
                problems.append(f"{metric}: {name}: {one.reason}")
            elif name == CONTROL and differs:
                problems.append(
                    f"{metric}: {one.base} differs from itself: {one.words()}"
                )
            elif metric in unchanged and name != CONTROL and differs:
                problems.append(f"{metric} must not change: {name} is {one.words()}")
    return problems


def show(
    result: Mapping[str, Mapping[str, stats.Comparison]],
    runs: Sequence[Mapping[str, Any]],
) -> None:
    """Prints medians, spread and verdicts, one line a metric and arm."""
    lines = []
    for metric, by_arm in result.items():
        base = next(iter(by_arm.values())).base
        for name in (base, *by_arm):
            values = [r["values"][metric] for r in runs if r["arm"] == name]
            line = [metric, name, f"{median(values):.4g}"]
            line.append(f"{100 * stats.spread(values):.2f} %")
            one = by_arm.get(name)
            line += [one.words(), f"{one.p:.2g}"] if one else ["", ""]
            lines.append(line)
    columns = ["metric", "arm", "median", "spread", "against the first", "p"]
    cli.show(f"{len(runs)} runs", columns, lines)


def main(
    argv: Sequence[str],
    command: Sequence[str] = (),
    hosted: ab_runs.Hosted | None = None,
) -> int:
    """Runs the comparison; returns its exit code.

    Args:
        argv: The words of the call.
        command: What the record calls it, where another command made those words.
        hosted: Makes what can be every arm; else each run is a process of its own.
    """
    args = parse(argv, __doc__)
    found = arms_of(args)
    slots = plan([arm.name for arm in found], args.blocks, args.order, args.seed)
    described = {
        # One process that is every arm starts none of these files, and the machine
        # that judges what is kept may have them elsewhere.
        "arms": {
            arm.name: [word for word in arm.command if not (hosted and isabs(word))]
            for arm in found
        },
        "blocks": args.blocks,
        "order": args.order,
        "seed": args.seed,
        "one_process": hosted is not None,
        # A verdict must not come of what was chosen after the runs were seen.
        "margin": args.margin,
        "higher": sorted(args.higher),
        "unchanged": sorted(args.unchanged),
        "claims": {arm.name: [list(arm.ran), list(arm.idle)] for arm in found},
    }
    words = list(command) or ["evals.ab", *argv]
    with (
        ended_by_signals(),
        ab_runs.opened(args.out, described, args.resume) as journal,
    ):
        ab_runs.require_runs(journal, found, slots, hosted is not None)
        # It was made of this journal, and is again.
        (args.out / "ab.json").unlink(missing_ok=True)
        report = _compared(args, found, slots, journal, hosted)
        cli.write_json(
            args.out / "ab.json",
            {"bench": "ab", "command": words, "plan": described, **report},
        )
    if report["void"]:
        raise NoVerdictError(
            "; ".join(report["void"]) + ".", f"See {args.out / 'ab.json'}."
        )
    return Exit.DONE


def _compared(
    args: argparse.Namespace,
    found: Sequence[arms.Arm],
    slots: Sequence[Slot],
    journal: Journal,
    hosted: ab_runs.Hosted | None,
) -> dict[str, Any]:
    """Makes the runs that are left, shows the verdicts, and returns the report."""
    sensor = sensors.find_sensor()
    if sensor.read is None:
        print(f"no temperature sensor ({sensor.source})", file=sys.stderr)
    try:
        ab_runs.measure(found, slots, journal, sensor, args, hosted)
    except (KeyboardInterrupt, SeriesError):
        print(ab_runs.kept(found, slots, journal), file=sys.stderr)
        raise
    facts = witness.same_facts(journal.lines)
    runs = witness.timed(journal.lines)
    known = witness.told(journal.lines)
    problems = witness.add(found, runs, known) if hosted else []
    result = comparisons(runs, slots, args)
    show(result, runs)
    problems += judge(result, args.unchanged, args.margin)
    return {
        "date": machine.now(),
        **facts,
        # Of the machine that measured, which may not be the one that judges.
        "sensor": facts["machine"].get("sensor", sensor.source),
        "runs": [{k: v for k, v in run.items() if k != "facts"} for run in runs],
        "compared": {
            metric: {name: one.as_dict() for name, one in by_arm.items()}
            for metric, by_arm in result.items()
        },
        "void": problems,
    }


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv[1:]))
