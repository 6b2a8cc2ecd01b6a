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
run is kept at once: Ctrl-C loses the running one alone, and --resume goes on. Exit
codes: 0 verdicts reached, 1 void, refused or a control that differs, 130 interrupted.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals import arms, cli, cooling, machine, sensors, stats, witness  # noqa: E402
from evals.ab_options import CONTROL, arms_of, parse  # noqa: E402
from evals.arms import Arm, Host  # noqa: E402
from evals.blocks import Slot, plan  # noqa: E402
from evals.journal import Journal  # noqa: E402
from series.errors import Exit, SeriesError  # noqa: E402

Hosted = Callable[[Sequence[Arm]], Host]
"""Makes what can be every arm."""


class NoVerdictError(SeriesError):
    """The comparison ended without a verdict that counts."""


def progress(done: int, total: int, seconds: Sequence[float], name: str) -> None:
    """Says which run begins, and how long the rest will take."""
    left = ""
    if seconds:
        left = f", about {median(seconds) * (total - done) / 60:.1f} min left"
    print(f"run {done + 1} of {total}: {name}{left}", file=sys.stderr, flush=True)


def run_all(
    found: Sequence[Arm],
    slots: Sequence[Slot],
    journal: Journal,
    sensor: sensors.Sensor,
    args: argparse.Namespace,
    host: Host | None = None,
) -> None:
    """Runs what is not done yet, in order, and keeps each run when it ends."""
    by_name = {arm.name: arm for arm in found}
    left = range(len(witness.timed(journal.lines)), len(slots))
    if host and left:
        host.warm()
    for number in left:
        slot = slots[number]
        seconds = [run["seconds"] for run in witness.timed(journal.lines)]
        progress(number, len(slots), seconds, slot.arm)
        time.sleep(args.pause)
        if args.cool is not None:
            before = cooling.cool_down(sensor, args.cool, args.patience)
        else:
            before = sensor.read().as_dict() if sensor.read else None
        start = time.monotonic()
        arm = by_name[slot.arm]
        outcome = host.run(arm) if host else arms.run(arm, number, args.timeout)
        journal.add(
            {
                "arm": slot.arm,
                "values": outcome.values,
                "calls": outcome.calls,
                "notes": outcome.notes,
                "facts": outcome.facts,
                "seconds": time.monotonic() - start,
                "before": before,
                "after": sensor.read().as_dict() if sensor.read else None,
            }
        )


def measure(
    found: Sequence[Arm],
    slots: Sequence[Slot],
    journal: Journal,
    sensor: sensors.Sensor,
    args: argparse.Namespace,
    hosted: Hosted | None,
) -> None:
    """Runs and asks what is not done yet; starts nothing where nothing is left."""
    if hosted is None:
        run_all(found, slots, journal, sensor, args)
    elif len(journal.lines) < len(slots) + len(found):
        host = hosted(found)
        run_all(found, slots, journal, sensor, args, host)
        witness.ask(found, journal, host)


def kept(found: Sequence[Arm], slots: Sequence[Slot], journal: Journal) -> str:
    """What is left of a comparison that was cut off, and how to go on."""
    said = f"{len(witness.timed(journal.lines))} of {len(slots)} runs"
    if known := witness.told(journal.lines):
        said += f" and the calls of {len(known)} of {len(found)} arms"
    return f"{said} are kept in {journal.path}; --resume goes on"


def comparisons(
    runs: Sequence[Mapping[str, Any]],
    slots: Sequence[Slot],
    args: argparse.Namespace,
) -> dict[str, dict[str, stats.Comparison]]:
    """Every arm against the first, by metric.

    Raises:
        ArmError: A run has other metrics than the first.
    """
    metrics = list(runs[0]["values"])
    for number, run in enumerate(runs):
        if list(run["values"]) != metrics:
            raise arms.ArmError(
                f"run {number} ({run['arm']}) measured {', '.join(run['values'])}, the "
                f"first {', '.join(metrics)}."
            )
    base = slots[0].arm
    names = list(dict.fromkeys(slot.arm for slot in slots))
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


def same_facts(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the arms said of the machine and the files.

    Raises:
        VoidError: The machine changed under way.
    """
    facts: dict[str, Any] = {"machine": {}, "sources": {}}
    for number, run in enumerate(runs):
        said = run["facts"].get("machine", {})
        if facts["machine"] and said and said != facts["machine"]:
            raise arms.VoidError(f"run {number} was on another machine than the first.")
        facts["machine"] = facts["machine"] or said
        facts["sources"] |= run["facts"].get("sources", {})
    return facts


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
    hosted: Hosted | None = None,
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
        "arms": {arm.name: list(arm.command) for arm in found},
        "blocks": args.blocks,
        "order": args.order,
        "seed": args.seed,
        "one_process": hosted is not None,
    }
    start = Journal.resume if args.resume else Journal.start
    journal = start(args.out / "runs.jsonl", described)
    sensor = sensors.find_sensor()
    if sensor.read is None:
        print(f"no temperature sensor ({sensor.source})", file=sys.stderr)
    try:
        measure(found, slots, journal, sensor, args, hosted)
    except (KeyboardInterrupt, SeriesError):
        print(kept(found, slots, journal), file=sys.stderr)
        raise
    runs = witness.timed(journal.lines)
    known = witness.told(journal.lines)
    problems = witness.add(found, runs, known) if hosted else []
    result = comparisons(runs, slots, args)
    show(result, runs)
    problems += judge(result, args.unchanged, args.margin)
    report = {
        "bench": "ab",
        "command": list(command) or ["evals.ab", *argv],
        "date": machine.now(),
        **same_facts(runs),
        "plan": described,
        "sensor": sensor.source,
        "runs": [{k: v for k, v in run.items() if k != "facts"} for run in runs],
        "compared": {
            metric: {name: one.as_dict() for name, one in by_arm.items()}
            for metric, by_arm in result.items()
        },
        "void": problems,
    }
    cli.write_json(args.out / "ab.json", report)
    if problems:
        raise NoVerdictError("; ".join(problems) + ".", f"See {args.out / 'ab.json'}.")
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv[1:]))
