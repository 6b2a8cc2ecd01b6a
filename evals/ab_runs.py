# SPDX-License-Identifier: Apache-2.0
"""Makes the runs of an A/B comparison that are not done yet, and keeps each."""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from evals import arms, cooling, sensors, witness
from evals.arms import Arm, Host
from evals.blocks import Slot
from evals.eval_progress import to_stderr
from evals.journal import Journal, JournalError
from series.locks import locked

Hosted = Callable[[Sequence[Arm]], Host]
"""Makes what can be every arm."""


@contextmanager
def opened(out: Path, plan: Mapping[str, Any], resume: bool) -> Iterator[Journal]:
    """The journal of a comparison, which no other run writes to meanwhile.

    Args:
        out: The comparison's folder.
        plan: What is compared, and how.
        resume: Whether it has been begun.

    Raises:
        JournalError: It is another's, damaged, in use, or would be overwritten.
    """
    path = out / "runs.jsonl"

    def busy() -> None:
        what = f"{out} is in use by another run."
        raise JournalError(what, "Wait for it, or name another --out.")

    if not resume:
        out.mkdir(parents=True, exist_ok=True)
    elif not path.exists():
        raise JournalError(f"{path} is not there: nothing to resume.")
    with locked(out, busy):
        if not resume and (out / "ab.json").exists():
            raise JournalError(
                f"{out / 'ab.json'} is a comparison's already.", "Name another --out."
            )
        yield (Journal.resume if resume else Journal.start)(path, plan)


def require_runs(
    journal: Journal, found: Sequence[Arm], slots: Sequence[Slot], hosted: bool
) -> None:
    """Refuses lines that are not the runs of these arms in this order.

    Raises:
        JournalError: A line is none, or has another place.
    """
    left = [arm.name for arm in found] if hosted else []
    for number, line in enumerate(journal.lines):
        if number < len(slots):
            good = line.get("arm") == slots[number].arm and _is_run(line)
        else:
            name = line.get("witness")
            good = name in left and _is_told(line)
            left = [one for one in left if one != name]
        if not good:
            raise JournalError(
                f"{journal.path}: line {number + 2} is not what this comparison keeps "
                "there.",
                "It was damaged or edited: make it again, in another --out.",
            )


def _is_told(line: Mapping[str, Any]) -> bool:
    facts = line.get("facts")
    return (
        arms.are_numbers(line.get("calls"))
        and isinstance(line.get("notes"), dict)
        and isinstance(facts, dict)
        and isinstance(facts.get("machine", {}), dict)
        and arms.are_texts(facts.get("sources", {}))
    )


def _is_run(line: Mapping[str, Any]) -> bool:
    values = line.get("values")
    return (
        "witness" not in line
        and isinstance(values, dict)
        and bool(values)
        and arms.are_numbers(values)
        and arms.are_numbers({"seconds": line.get("seconds")})
        and min(values.values()) > 0
        and _is_told(line)
    )


def require_metrics(
    values: Mapping[str, float], first: Mapping[str, float], args: argparse.Namespace
) -> None:
    """Refuses a run that measured something else than the first, or than is asked.

    Raises:
        ArmError: A metric is missing or new, or an option names one that none has.
    """
    if values.keys() != first.keys():
        raise arms.ArmError(
            f"a run measured {', '.join(values)}, the first {', '.join(first)}.",
            "Let every arm measure the same, in another --out.",
        )
    for option in ("higher", "unchanged"):
        for metric in getattr(args, option):
            if metric not in values:
                raise arms.ArmError(
                    f"--{option} {metric}: the runs measured {', '.join(values)}.",
                    "Begin anew with one of these, in another --out.",
                )


def progress(done: int, total: int, seconds: Sequence[float], name: str) -> None:
    """Says which run begins, and how long the rest will take."""
    left = ""
    if seconds:
        left = f", about {median(seconds) * (total - done) / 60:.1f} min left"
    to_stderr(f"run {done + 1} of {total}: {name}{left}")


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
    # What arms call is kept behind the last run: where one is left, all lines are runs.
    left = range(len(journal.lines), len(slots))
    if host and left:
        host.warm()
    for number in left:
        slot = slots[number]
        seconds = [run["seconds"] for run in journal.lines]
        progress(number, len(slots), seconds, slot.arm)
        time.sleep(args.pause)
        if args.cool is not None:
            before = cooling.cool_down(sensor, args.cool, args.patience)
        else:
            before = sensor.read().as_dict() if sensor.read else None
        start = time.monotonic()
        arm = by_name[slot.arm]
        outcome = host.run(arm) if host else arms.run(arm, number, args.timeout)
        first = journal.lines[0]["values"] if journal.lines else outcome.values
        require_metrics(outcome.values, first, args)
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
